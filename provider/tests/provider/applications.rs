//! Programs of others, with a configuration that loads the module: what they print is what they
//! print without it. Those that are not installed are skipped.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::common::{Finished, Place, Process, dist};
use crate::tls::{Server, certificate};

/// The program, if it is installed; otherwise says that the test is skipped.
fn installed(program: &'static str) -> Option<&'static str> {
    let found = Path::new("/usr/bin").join(program).exists();
    if !found {
        println!("skipped: {program} is not installed");
    }
    found.then_some(program)
}

/// Runs a process without the module and with it. Returns what it did with it.
fn same<'a>(process: impl Fn() -> Process<'a>) -> Finished {
    let stock = process().succeed();
    let with = process().with_lockstep().succeed();
    assert!(!stock.stdout.is_empty(), "{stock}");
    assert_eq!(with.stdout, stock.stdout, "{with}");
    assert_eq!(with.stderr, stock.stderr, "{with}");
    with
}

#[test]
fn curl_fetches_by_key_agreements_on_lanes() {
    let Some(curl) = installed("curl") else {
        return;
    };
    let place = Place::new();
    place.write("page", b"the quick brown fox");
    let server = Server::start(&place, "rsa2048", "-WWW", false);
    let port = server.port;
    let arguments = format!(
        "--silent --show-error --noproxy * --max-time 20 --cacert rsa2048.crt --resolve \
         localhost:{port}:127.0.0.1 https://localhost:{port}/page"
    );
    let fetched = same(|| place.program(curl, &arguments));
    assert_eq!(fetched.text(), "the quick brown fox");
    let counters = fetched.counters();
    assert!(counters.operations() > 0, "{counters:?}\n{fetched}");
    assert_eq!(counters.failed_checks, 0, "{counters:?}");
}

#[test]
fn node_signs_as_without() {
    let Some(node) = installed("node") else {
        return;
    };
    let place = Place::new();
    let key = place.key("rsa2048");
    place.write(
        "sign.js",
        b"const crypto = require('crypto'), fs = require('fs');
        const key = fs.readFileSync(process.argv[2]);
        const signature = crypto.sign('sha256', Buffer.from('data'), key);
        const valid = crypto.verify('sha256', Buffer.from('data'), crypto.createPublicKey(key),
                                    signature);
        console.log(valid, signature.toString('hex'));",
    );
    let signed = same(|| place.program(node, &format!("sign.js {key}")));
    assert!(signed.text().starts_with("true "), "{signed}");
}

/// Its wheel has an OpenSSL of its own inside.
#[test]
fn the_cryptography_wheel_signs_as_without() {
    let Some(python) = installed("python3") else {
        return;
    };
    let place = Place::new();
    let key = place.key("rsa2048");
    place.write("find.py", b"import cryptography");
    if !place.program(python, "find.py").run().status.success() {
        println!("skipped: python3 has no cryptography");
        return;
    }
    place.write(
        "sign.py",
        b"import sys
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.serialization import load_pem_private_key
key = load_pem_private_key(open(sys.argv[1], 'rb').read(), None)
signature = key.sign(b'data', padding.PKCS1v15(), hashes.SHA256())
key.public_key().verify(signature, b'data', padding.PKCS1v15(), hashes.SHA256())
print(signature.hex())
",
    );
    same(|| place.program(python, &format!("sign.py {key}")));
}

/// Where the programs of the newest PostgreSQL are.
fn postgresql() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let programs = versions.flatten().map(|version| version.path().join("bin"));
    let newest = programs.filter(|path| path.join("postgres").exists()).max();
    if newest.is_none() {
        println!("skipped: PostgreSQL is not installed");
    }
    newest
}

#[test]
fn postgresql_serves_by_lanes() {
    let Some(programs) = postgresql() else {
        return;
    };
    let place = Place::new();
    let directory = place.path("");
    let directory = directory.display();
    certificate(&place, "rsa2048");
    place.write(
        "query.sql",
        b"select ssl from pg_stat_ssl where pid = pg_backend_pid()",
    );
    // It refuses to run as root.
    let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
    let by_user = |program: &str, arguments: &str| match is_root {
        true => {
            let user = "--reuid=nobody --regid=nogroup --clear-groups";
            place.program("setpriv", &format!("{user} {program} {arguments}"))
        }
        false => place.program(program, arguments),
    };
    let own_all = || {
        if is_root {
            place
                .program("chown", &format!("-R nobody {directory}"))
                .succeed();
        }
    };
    own_all();
    place.program("chmod", "600 rsa2048.pem").succeed();
    for (mode, path) in [("-w", place.path("")), ("-r", dist().join("lockstep.so"))] {
        let path = path.display();
        if !by_user("test", &format!("{mode} {path}"))
            .run()
            .status
            .success()
        {
            println!("skipped: the user nobody cannot reach {path}");
            return;
        }
    }
    let program = |name: &str| programs.join(name).display().to_string();
    let initialise = format!("-D {directory}/data -U nobody -A trust --no-sync");
    by_user(&program("initdb"), &initialise).succeed();

    let port = free_port();
    let options = [
        "listen_addresses=127.0.0.1",
        "unix_socket_directories=",
        "fsync=off",
        "ssl=on",
        &format!("ssl_cert_file={directory}/rsa2048.crt"),
        &format!("ssl_key_file={directory}/rsa2048.pem"),
    ];
    let arguments = format!("-D {directory}/data -p {port} -c {}", options.join(" -c "));
    let server = by_user(&program("postgres"), &arguments).with_lockstep();
    own_all();
    let server = server.start();
    let begun = Instant::now();
    let ready = format!("-q -h 127.0.0.1 -p {port}");
    let is_ready = || {
        let asked = place.program(program("pg_isready"), &ready);
        asked.env("PGSSLMODE", "disable").run().status.success()
    };
    while !is_ready() {
        assert!(
            begun.elapsed() < Duration::from_secs(30),
            "{}",
            server.describe()
        );
        sleep(Duration::from_millis(50));
    }
    for _ in 0..3 {
        let ask = format!("-h 127.0.0.1 -p {port} -U nobody -At -f query.sql postgres");
        let asked = place
            .program(program("psql"), &ask)
            .env("PGSSLMODE", "verify-ca")
            .env("PGSSLROOTCERT", "rsa2048.crt");
        assert_eq!(asked.succeed().text(), "t\n");
    }
    place
        .program("kill", &format!("-INT {}", server.pid()))
        .succeed();
    let ended = server.wait();
    let signed = ended
        .all_counters()
        .values()
        .map(|all| all.of("rsa2048"))
        .sum::<u64>();
    assert_eq!(signed, 3, "one for each connection: {ended}");
}

/// A port on which nobody listens now.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}
