//! Connections of a process that has no free descriptor, and of one that is stopped and continued.

use std::env;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use lockstep_remote::protocol::{GREETING, Offered, Uses, VERSION, Verdict, list, verdict};
use lockstep_remote::{Connection, Failure, Mark};
use lockstep_ring::Server;
use lockstep_testkit::TempDir;

/// Environment variable with the socket, and the number of descriptors that the child leaves
/// itself, if it uses up the others. The child is this program, and runs `a_client_process` alone.
const SOCKET: &str = "REMOTE_TEST_SOCKET";
const LEFT: &str = "REMOTE_TEST_LEFT";

/// The work of a child process. Without a parent it does nothing.
#[test]
fn a_client_process() {
    let Some(socket) = env::var_os(SOCKET).map(PathBuf::from) else {
        return;
    };
    let mut used = Vec::new();
    if let Ok(left) = env::var(LEFT) {
        used.extend(std::iter::from_fn(|| File::open("/dev/null").ok()));
        let left: usize = left.parse().expect("a number");
        used.truncate(used.len() - left);
    }
    let deadline = Instant::now() + Duration::from_secs(60);
    let opened = Connection::open_until(&socket, deadline, &Mark::new());
    drop(used);
    println!("\nopened: {:?}", opened.map(|own| own.keys().len()));
}

fn start(command: &mut Command, socket: &Path) -> Child {
    let command = command.env(SOCKET, socket).stdout(Stdio::piped());
    command.spawn().expect("a child")
}

/// Returns the line in which a child reports the result of its connection.
fn opened(child: &mut Child) -> String {
    let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
    let mut lines = lines.map_while(Result::ok);
    let line = lines.find_map(|line| Some(line.strip_prefix("opened: ")?.to_owned()));
    assert!(child.wait().expect("its end").success());
    line.expect("what it says")
}

/// Accepts the next client that has greeted.
fn accept(listener: &UnixListener) -> UnixStream {
    let (mut stream, _) = listener.accept().expect("a client");
    stream.read_exact(&mut [0; GREETING]).expect("a greeting");
    stream
}

fn ring() -> OwnedFd {
    Server::create(4).expect("a ring").1
}

/// Returns the bytes of an answer with one key.
fn accepting() -> Vec<u8> {
    let keys = [Offered {
        handle: 0,
        uses: Uses::default(),
        name: "a".to_owned(),
        public: vec![0x30, 0],
    }];
    let list = list(&keys).expect("a short list");
    [&verdict(VERSION, Verdict::Accepted, list.len())[..], &list].concat()
}

/// No descriptor for the socket, none for the ring that comes over it, and enough for both.
#[test]
fn a_process_without_descriptors_says_so() {
    let directory = TempDir::new("descriptors");
    let socket = directory.join("socket");
    let listener = UnixListener::bind(&socket).expect("a socket");
    let none = format!("Err({:?})", Failure::NoDescriptor);
    for (left, expected) in [("0", &none), ("1", &none), ("9", &"Ok(1)".to_owned())] {
        let program = env::current_exe().expect("this program");
        let script = "ulimit -n 64; exec \"$0\" --exact a_client_process --nocapture";
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).arg(program).env(LEFT, left);
        let mut child = start(&mut shell, &socket);
        if left != "0" {
            let mut stream = accept(&listener);
            let bytes = accepting();
            let sent = lockstep_ring::send(&stream, &bytes, ring().as_fd());
            // The client may have hung up.
            let _ = stream.write_all(&bytes[sent.expect("a client")..]);
        }
        assert_eq!(opened(&mut child), *expected, "{left} left");
    }
}

/// By a shell, a debugger or a container's freezer. A system call that waits for bytes with a
/// timeout ends when its process is continued.
#[test]
fn a_process_that_is_stopped_and_goes_on_is_accepted() {
    let directory = TempDir::new("stopped");
    let socket = directory.join("socket");
    let listener = UnixListener::bind(&socket).expect("a socket");
    let mut client = Command::new(env::current_exe().expect("this program"));
    client.args(["--exact", "a_client_process", "--nocapture"]);
    let mut child = start(&mut client, &socket);
    let number = child.id().to_string();
    let mut stream = accept(&listener);
    let stop = || {
        for _ in 0..5 {
            for signal in ["-STOP", "-CONT"] {
                let sent = Command::new("kill").args([signal, &number]).status();
                assert!(sent.expect("kill").success());
                thread::sleep(Duration::from_millis(2));
            }
        }
    };
    let bytes = accepting();
    stop();
    lockstep_ring::send(&stream, &bytes[..5], ring().as_fd()).expect("a client");
    stop();
    stream.write_all(&bytes[5..]).expect("a client");
    assert_eq!(opened(&mut child), "Ok(1)");
}
