//! Which CPUs the server gets, and which the clients.

use std::collections::BTreeMap;
use std::fs;

use crate::measure::allowed_cpus;

/// The CPUs of this process, divided.
pub struct Division {
    pub server: Vec<usize>,
    pub clients: Vec<usize>,
    /// The reason why the two disturb each other, if there is one.
    pub caveat: Option<&'static str>,
}

impl Division {
    /// All CPUs for both.
    pub fn shared() -> Division {
        Division {
            server: allowed_cpus(),
            clients: allowed_cpus(),
            caveat: Some("server and clients share all CPUs, and wait for each other"),
        }
    }

    /// Half the physical cores for each, the odd one for the server.
    pub fn of_this_process() -> Division {
        let mut cores: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for cpu in allowed_cpus() {
            cores.entry(first_sibling(cpu)).or_default().push(cpu);
        }
        Division::of(cores.into_values().collect())
    }

    fn of(cores: Vec<Vec<usize>>) -> Division {
        match cores.as_slice() {
            [core] => match core.as_slice() {
                [client, server @ ..] if !server.is_empty() => Division {
                    server: server.to_vec(),
                    clients: vec![*client],
                    caveat: Some(
                        "server and clients share one physical core: figures are too high",
                    ),
                },
                _ => Division {
                    server: core.clone(),
                    clients: core.clone(),
                    caveat: Some("server and clients share the only CPU"),
                },
            },
            _ => {
                let (clients, server) = cores.split_at(cores.len() / 2);
                Division {
                    server: server.concat(),
                    clients: clients.concat(),
                    caveat: None,
                }
            }
        }
    }
}

/// The first CPU of the physical core that this one belongs to.
fn first_sibling(cpu: usize) -> usize {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
    let siblings = fs::read_to_string(path).unwrap_or_default();
    let digits = siblings
        .split(|c: char| !c.is_ascii_digit())
        .next()
        .unwrap_or_default();
    digits.parse().unwrap_or(cpu)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_never_divided_without_need() {
        for (cores, clients, server, alone) in [
            (vec![vec![0], vec![1]], vec![0], vec![1], true),
            (
                vec![vec![0, 4], vec![1, 5], vec![2, 6]],
                vec![0, 4],
                vec![1, 5, 2, 6],
                true,
            ),
            (vec![vec![3, 7]], vec![3], vec![7], false),
            (vec![vec![3]], vec![3], vec![3], false),
        ] {
            let division = Division::of(cores);
            assert_eq!((division.clients, division.server), (clients, server));
            assert_eq!(division.caveat.is_none(), alone);
        }
    }
}
