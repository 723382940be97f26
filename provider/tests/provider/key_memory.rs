//! Where secrets lie in a process: locked, in no core dump, and not in a child where two may not
//! use them.

#![allow(unsafe_code, reason = "system calls")]

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use openssl::bn::{BigNum, BigNumContext, BigNumRef};
use openssl::pkey::PKey;

use crate::common::{Place, Running, has_ifma};
use lockstep_testkit::{PIECE, count_pieces, hex};

/// Mask with which `programs/key_memory.c` prints secrets.
const MASK: u8 = 0x5a;

const KEYS: [&str; 4] = ["rsa2048", "p256", "p384", "ed25519"];

/// A process that has used its keys, and its worker.
struct Family {
    running: Running,
    worker: u32,
    /// The secrets of keys that it has made and freed.
    made: Vec<(String, Vec<u8>)>,
}

fn family(place: &Place, on_lanes: bool) -> Family {
    let program = place.compile("key_memory");
    let files = KEYS.map(|key| place.key(key));
    let process = place.program(&program, &files.join(" ")).silent_input();
    let process = match on_lanes {
        true => process.with_lockstep(),
        false => process,
    };
    let mut running = process.start();
    let text = running.wait_for("worker", |text| {
        let (_, last) = text.split_once("worker ")?;
        last.contains('\n').then(|| text.to_owned())
    });
    let mut made = Vec::new();
    let mut worker = None;
    for line in text.lines() {
        match line.split_once(' ') {
            Some(("worker", pid)) => worker = pid.trim().parse().ok(),
            Some((kind, masked)) => {
                let secret = hex(masked).iter().map(|byte| byte ^ MASK).collect();
                made.push((kind.to_owned(), secret));
            }
            None => {}
        }
    }
    let worker = worker.unwrap_or_else(|| panic!("no worker: {}", running.describe()));
    assert_eq!(made.len(), 12, "{}", running.describe());
    Family {
        running,
        worker,
        made,
    }
}

/// The flags of the anonymous mappings that core dumps leave out.
fn undumped(pid: u32) -> Vec<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps")).expect("smaps");
    let mut found = Vec::new();
    let mut anonymous = false;
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["VmFlags:", flags @ ..] if anonymous && flags.contains(&"dd") => {
                found.push(flags.iter().map(|&flag| flag.to_owned()).collect());
            }
            // Address range, access, offset, device, inode, and no path.
            [range, _, _, _, "0"] if range.contains('-') => anonymous = true,
            [range, _, _, _, _, ..] if range.contains('-') => anonymous = false,
            _ => {}
        }
    }
    found
}

/// Half of the limit on locked memory is for keys, and the first regions take 32 KiB.
fn may_lock() -> bool {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: fills the structure.
    unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit) };
    limit.rlim_cur >= 64 * 1024
}

#[test]
fn keys_are_locked_and_left_out_of_dumps_and_pairs_are_wiped_in_children() {
    let place = Place::new();
    let family = family(&place, true);
    for pid in [family.running.pid(), family.worker] {
        let mappings = undumped(pid);
        let has = |flag: &str, wiped: bool| {
            mappings.iter().any(|flags| {
                flags.iter().any(|own| own == flag) && wiped == flags.iter().any(|own| own == "wf")
            })
        };
        assert!(has("dd", false) && has("dd", true), "{pid}: {mappings:?}");
        if may_lock() {
            assert!(has("lo", false) && has("lo", true), "{pid}: {mappings:?}");
        } else {
            println!("skipped: this limit, RLIMIT_MEMLOCK, is below 64 KiB, so nothing is locked");
        }
    }
    let counters = family.running.counters().expect("it signed");
    assert_eq!(counters.of("rsa2048"), 20, "{counters:?}");
    assert_eq!(counters.of("x25519-keygen"), 6, "{counters:?}");
    let (all, locked) = (counters.key_memory, counters.key_memory_locked);
    // Two regions of 16 KiB at least.
    assert!(all >= 32 << 10 && locked <= all, "{counters:?}");
    assert!(locked >= 32 << 10 || !may_lock(), "{counters:?}");
    assert_eq!(counters.key_memory_heap, 0, "{counters:?}");
}

/// A number as somebody may hold it: its name, whether OpenSSL holds numbers so, and some of its
/// bytes.
pub struct Form {
    pub name: String,
    is_stock: bool,
    piece: [u8; PIECE],
}

fn form(name: String, is_stock: bool, bytes: &[u8]) -> Form {
    // From the middle: the ends may be zeros, or be joined with other things.
    let middle = (bytes.len() / 2) & !7;
    let piece = &bytes[middle.min(bytes.len() - PIECE)..][..PIECE];
    Form {
        name,
        is_stock,
        piece: piece.try_into().expect("a piece"),
    }
}

/// Limbs of `bits` bits, in words of 64.
fn limbs(big_endian: &[u8], bits: usize) -> Vec<u8> {
    let bit = |at: usize| match big_endian.len().checked_sub(at / 8 + 1) {
        Some(byte) => u64::from(big_endian[byte] >> (at % 8) & 1),
        None => 0,
    };
    (0..8 * big_endian.len())
        .step_by(bits)
        .map(|first| (0..bits).fold(0, |limb, at| limb | bit(first + at) << at))
        .flat_map(u64::to_le_bytes)
        .collect()
}

/// All forms of a secret that is a big-endian number.
fn forms_of(name: &str, number: &[u8]) -> Vec<Form> {
    let reversed: Vec<u8> = number.iter().rev().copied().collect();
    let mut forms = vec![
        form(format!("{name}, big-endian"), false, number),
        form(format!("{name}, little-endian"), true, &reversed),
    ];
    for bits in [26, 52, 60] {
        let name = format!("{name}, limbs of {bits} bits");
        forms.push(form(name, false, &limbs(number, bits)));
    }
    forms
}

/// R mod m and x·R mod m, R as the lanes have it for primes of 1024 bits.
fn montgomery(x: &BigNumRef, modulus: &BigNumRef) -> Vec<u8> {
    let mut context = BigNumContext::new().expect("memory");
    let (mut r, mut product) = (
        BigNum::new().expect("memory"),
        BigNum::new().expect("memory"),
    );
    r.set_bit(52 * 20).expect("memory");
    product
        .mod_mul(x, &r, modulus, &mut context)
        .expect("a product");
    product.to_vec()
}

/// The forms of every secret of the keys in `KEYS`.
pub fn forms(place: &Place) -> Vec<Form> {
    let mut forms = Vec::new();
    for name in KEYS {
        let pem = place.read(&place.key(name));
        let key = PKey::private_key_from_pem(&pem).expect("a key");
        if let Ok(rsa) = key.rsa() {
            let one = BigNum::from_u32(1).expect("memory");
            let (p, q) = (rsa.p().expect("p"), rsa.q().expect("q"));
            let qinv = rsa.iqmp().expect("iqmp");
            for (part, number) in [
                ("p", p.to_vec()),
                ("q", q.to_vec()),
                ("dp", rsa.dmp1().expect("dmp1").to_vec()),
                ("dq", rsa.dmq1().expect("dmq1").to_vec()),
                ("qinv", qinv.to_vec()),
                ("R mod p", montgomery(&one, p)),
                ("R mod q", montgomery(&one, q)),
                ("R qinv mod p", montgomery(qinv, p)),
            ] {
                forms.extend(forms_of(&format!("{name} {part}"), &number));
            }
        } else if let Ok(ec) = key.ec_key() {
            let bytes = if name == "p256" { 32 } else { 48 };
            let scalar = ec.private_key().to_vec_padded(bytes).expect("a scalar");
            forms.extend(forms_of(name, &scalar));
        } else {
            // OpenSSL keeps the seed as it is.
            let seed = key.raw_private_key().expect("a seed");
            forms.push(form(format!("{name} seed"), true, &seed));
            let hash = openssl::sha::sha512(&seed);
            let mut scalar: Vec<u8> = hash[..32].to_vec();
            scalar[0] &= 0xf8;
            scalar[31] = scalar[31] & 0x7f | 0x40;
            forms.push(form(format!("{name} prefix"), false, &hash[32..]));
            forms.push(form(format!("{name} scalar"), false, &scalar));
            scalar.reverse();
            forms.extend(
                forms_of(&format!("{name} scalar"), &scalar)
                    .into_iter()
                    .skip(2),
            );
        }
    }
    forms
}

/// How often each form occurs in a file.
pub fn count(core: &[u8], forms: &[Form]) -> Vec<usize> {
    let pieces: Vec<_> = forms.iter().map(|form| form.piece).collect();
    count_pieces(core, &pieces)
}

/// How many copies of a scalar stand behind the header of their OCTET STRING, as in the DER of a
/// key.
fn in_der(core: &[u8], form: &Form) -> usize {
    let is_it = |middle: usize| {
        [32, 48].into_iter().any(|length: u8| {
            let start = middle.checked_sub(usize::from(length) / 2 + 2);
            start.is_some_and(|start| core[start..].starts_with(&[4, length]))
        })
    };
    let places = core.windows(PIECE).enumerate();
    let found = places.filter(|(at, piece)| *piece == form.piece && is_it(*at));
    found.count()
}

/// The core dump of a process; None where there is no gcore or it may not.
fn core_of(place: &Place, pid: u32) -> Option<Vec<u8>> {
    memory_of(place, pid, &[])
}

/// Returns the memory of a process, as `gcore` writes it.
pub fn memory_of(place: &Place, pid: u32, options: &[&str]) -> Option<Vec<u8>> {
    let prefix = place.path("core");
    let output = Command::new("gcore")
        .args(options)
        .arg("-o")
        .arg(&prefix)
        .arg(pid.to_string())
        .output();
    let file = PathBuf::from(format!("{}.{pid}", prefix.display()));
    match (output, fs::read(&file)) {
        (Ok(_), Ok(core)) => Some(core),
        (output, _) => {
            println!("skipped: gcore cannot dump process {pid}: {output:?}");
            None
        }
    }
}

#[test]
fn no_core_dump_of_a_worker_holds_a_key_in_a_form_that_only_we_have() {
    let place = Place::new();
    let mut cores = Vec::new();
    for on_lanes in [false, true] {
        let mut family = family(&place, on_lanes);
        let mut forms = forms(&place);
        for (number, (kind, secret)) in family.made.iter().enumerate() {
            let name = format!("{kind} {number}");
            match kind.as_str() {
                "p256" => forms.extend(forms_of(&name, secret)),
                _ => forms.push(form(name, false, secret)),
            }
        }
        let Some(core) = core_of(&place, family.worker) else {
            return;
        };
        cores.push((count(&core, &forms), forms, core));
        family.running.close_input();
    }
    let (ours, stock) = (&cores[1], &cores[0]);
    let mut wrong = Vec::new();
    for (index, form) in ours.1.iter().enumerate() {
        let (found, usual) = (ours.0[index], stock.0[index]);
        // The key as the application has it, and as it was imported into our context. And the
        // buffer in which libcrypto exports a key may leave a third one: libcrypto frees it without
        // a wipe, and the next allocations may or may not overwrite it.
        let most = if form.is_stock {
            2 * usual.max(1) + 1
        } else {
            usual
        };
        // So may the file's own form of a scalar, which it frees as it is, too.
        if found > most && found - in_der(&ours.2, form) > most {
            wrong.push(format!("{}: {found}, stock {usual}", form.name));
        }
    }
    assert!(wrong.is_empty(), "in the core dump: {wrong:#?}");
    // Otherwise the search finds nothing at all.
    let found = |name: &str| {
        let index = ours.1.iter().position(|form| form.name == name);
        ours.0[index.expect("a form")]
    };
    assert!(found("rsa2048 p, little-endian") > 0 && found("ed25519 seed") > 0);
}

#[test]
fn no_core_dump_holds_a_secret_that_a_thread_keeps_between_derivations() {
    let place = Place::new();
    let program = place.compile("handshake_keys");
    let mut found = Vec::new();
    for on_lanes in [false, true] {
        let process = place.program(&program, "dump").silent_input();
        let process = match on_lanes {
            true => process.with_lockstep(),
            false => process,
        };
        let mut running = process.start();
        let text = running.wait_for("ready", |text| {
            text.contains("ready").then(|| text.to_owned())
        });
        let forms: Vec<Form> = text
            .lines()
            .filter_map(|line| line.rsplit_once(' '))
            .map(|(name, masked)| {
                let secret: Vec<u8> = hex(masked).iter().map(|byte| byte ^ MASK).collect();
                form(name.to_owned(), true, &secret)
            })
            .collect();
        assert_eq!(forms.len(), 6, "{text}");
        let dump = core_of(&place, running.pid());
        let all = memory_of(&place, running.pid(), &["-a"]);
        let (Some(dump), Some(all)) = (dump, all) else {
            return;
        };
        found.push(count(&dump, &forms));
        if on_lanes
            && running
                .counters()
                .is_some_and(|counters| counters.derivations > 0)
        {
            let all = count(&all, &forms);
            let of = |name: &str| forms.iter().position(|form| form.name == name);
            // Without vectors each expansion of the traffic secret makes its states anew, and these
            // overwrite the states of the master secret.
            let kept = match has_ifma() {
                true => &["master", "c ap"][..],
                false => &["c ap"],
            };
            for name in kept {
                assert!(all[of(name).expect(name)] > 0, "it keeps {name}: {all:?}");
            }
        }
        running.close_input();
    }
    for (ours, stock) in found[1].iter().zip(&found[0]) {
        assert!(ours <= stock, "in the core dump: {found:?}");
    }
}
