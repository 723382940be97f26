//! Keys in file systems that do not answer: a FUSE server in this test takes requests and never
//! answers them.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;

use lockstep_remote::{Connection, Operation};
use lockstep_testkit::{TempDir, command};
use rustix::io::dup;

use crate::site::{Daemon, own_user, wait_for};

const GETATTR: u32 = 3;
const INIT: u32 = 26;

/// A file system whose directories never return an entry.
struct Hung {
    place: TempDir,
    /// Numbers of the requested operations.
    asked: Arc<Mutex<Vec<u32>>>,
}

impl Hung {
    /// Mounts one as this user's, readable for everybody; `None` if that is not possible.
    fn mount(user: u32) -> Option<Hung> {
        let place = TempDir::new("hung");
        let options = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/fuse");
        let mut device = options.ok().filter(|_| own_user() == 0)?;
        fs::create_dir(place.join("mnt")).expect("a directory");
        // The command inherits this descriptor.
        let open = dup(&device).expect("a file");
        let options = format!(
            "nosuid,nodev,fd={},rootmode=40755,user_id={user},group_id={user},allow_other",
            open.as_raw_fd()
        );
        let mut mount = command("mount", &["-i", "-t", "fuse", "-o", &options, "hung"]);
        let mounted = mount.arg(place.join("mnt")).output().ok()?;
        mounted.status.success().then_some(())?;
        let asked = Arc::<Mutex<Vec<u32>>>::default();
        let noted = Arc::clone(&asked);
        thread::spawn(move || {
            let mut request = vec![0; 1 << 20];
            // Until the file system is unmounted.
            while device.read(&mut request).is_ok() {
                let number = |at: usize| {
                    let bytes = request[at..at + 4].try_into().expect("four bytes");
                    u32::from_ne_bytes(bytes)
                };
                noted.lock().expect("no panic").push(number(4));
                answer(&mut device, number(4), &request[8..16]);
            }
        });
        Some(Hung { place, asked })
    }

    fn key(&self) -> PathBuf {
        self.place.join("mnt/key.pem")
    }

    /// Returns a section with the key.
    fn section(&self) -> String {
        let (file, user) = (self.key(), own_user());
        let file = file.display();
        format!("[key hung]\nfile = {file}\nusers = {user}\nuses = sign\n")
    }

    fn asked(&self) -> Vec<u32> {
        self.asked.lock().expect("no panic").clone()
    }
}

impl Drop for Hung {
    fn drop(&mut self) {
        // Waiting processes get errors.
        let mut unmount = command("umount", &["-f", "-l"]);
        let _ = unmount.arg(self.place.join("mnt")).output();
    }
}

/// Answers the first request of every mount (fuse(4)).
fn answer(device: &mut File, operation: u32, unique: &[u8]) {
    let mut body = match operation {
        INIT => vec![0_u8; 64],
        GETATTR => vec![0; 104],
        _ => return,
    };
    let mut put = |at: usize, number: u32| body[at..at + 4].copy_from_slice(&number.to_ne_bytes());
    if operation == INIT {
        // The version, and the maximum length of writes.
        for (at, number) in [(0, 7), (4, 31), (20, 4096)] {
            put(at, number);
        }
    } else {
        // Validity, number, mode and links of the root directory.
        for (at, number) in [(0, 1000), (16, 1), (76, 0o40755), (80, 2)] {
            put(at, number);
        }
    }
    let length = (16 + body.len() as u32).to_ne_bytes();
    let whole = [&length[..], &[0; 4], unique, &body].concat();
    device.write_all(&whole).expect("an answer");
}

#[test]
fn other_keys_are_served_beside_one_whose_file_system_does_not_answer() {
    let Some(hung) = Hung::mount(0) else {
        println!("skipped: only root can mount a file system, by /dev/fuse");
        return;
    };
    let daemon = Daemon::start(&hung.section());
    let key = hung.key();
    let line = format!(
        "the key hung is left out: {}: its file system",
        key.display()
    );
    wait_for("a line", || daemon.log().contains(&line));
    let asked = hung.asked();
    assert!(
        asked.iter().any(|own| ![INIT, GETATTR].contains(own)),
        "{asked:?}"
    );
    let connection = Connection::open(&daemon.socket()).expect("a connection");
    let key = &connection.keys()[0];
    let signed = connection.ask(Operation::Ed25519Sign, key, b"message", 64);
    assert!(signed.is_ok(), "{}", daemon.log());
}

/// Its program could make a process of root wait for ever, and nobody could kill that process.
#[test]
fn a_file_system_of_another_user_is_asked_nothing() {
    let Some(hung) = Hung::mount(33) else {
        println!("skipped: only root can mount a file system, by /dev/fuse");
        return;
    };
    let daemon = Daemon::start(&hung.section());
    let line = "user 33 has mounted a file system at ";
    wait_for("a line", || daemon.log().contains(line));
    assert!(
        hung.asked().iter().all(|own| *own == INIT),
        "{:?}",
        hung.asked()
    );
}
