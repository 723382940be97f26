//! Programs of other projects, with a configuration that loads the module: they print the same as
//! without it. A program that is not installed is skipped.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::common::{Finished, Place, Process, Running, dist};
use crate::tls::{Server, certificate};

/// The program, if it is installed; otherwise says that the test is skipped.
fn installed(program: &'static str) -> Option<&'static str> {
    let found = Path::new("/usr/bin").join(program).exists();
    if !found {
        println!("skipped: {program} is not installed");
    }
    found.then_some(program)
}

/// Runs a process without the module and with it, and returns the second run.
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
    let by_user = |program: &str, arguments: &str| match is_root() {
        true => {
            let user = "--reuid=nobody --regid=nogroup --clear-groups";
            place.program("setpriv", &format!("{user} {program} {arguments}"))
        }
        false => place.program(program, arguments),
    };
    let own_all = || {
        if is_root() {
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

/// The master process passes on the variables of the environment that its configuration lists, and
/// the process that serves has another user.
#[test]
fn postfix_serves_by_lanes() {
    if !Path::new("/usr/sbin/postfix").exists() || !is_root() {
        println!("skipped: Postfix is not installed, or this is not root, who must start it");
        return;
    }
    let place = Place::new();
    certificate(&place, "rsa2048");
    let port = free_port();
    let directory = place.path("");
    let directory = directory.display();
    for path in ["etc", "queue", "data"] {
        fs::create_dir(place.path(path)).unwrap();
    }
    place.program("chown", "-R postfix data").succeed();
    place
        .program("chmod", &format!("o+rx {directory}"))
        .succeed();
    place.write(
        "etc/main.cf",
        format!(
            "compatibility_level = 3.6
queue_directory = {directory}/queue
data_directory = {directory}/data
command_directory = /usr/sbin
daemon_directory = /usr/lib/postfix/sbin
mail_owner = postfix
setgid_group = postdrop
maillog_file = /dev/stdout
maillog_file_prefixes = /dev
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
myhostname = localhost
mydestination =
smtpd_tls_chain_files = {directory}/rsa2048.pem, {directory}/rsa2048.crt
smtpd_tls_security_level = may
import_environment = MAIL_CONFIG OPENSSL_CONF LOCKSTEP_STATS_DIR LOCKSTEP_STATS_KEEP
  LOCKSTEP_SYSLOG LOCKSTEP_LONE LOCKSTEP_BACKEND
"
        )
        .as_bytes(),
    );
    place.write(
        "etc/master.cf",
        format!(
            "127.0.0.1:{port} inet n - n - 1 smtpd
postlog unix-dgram n - n - 1 postlogd
tlsmgr unix - - n 1000? 1 tlsmgr
rewrite unix - - n - - trivial-rewrite
cleanup unix n - n - 0 cleanup
anvil unix - - n - 1 anvil
proxymap unix - - n - - proxymap
"
        )
        .as_bytes(),
    );
    let module = dist().join("lockstep.so").display().to_string();
    let reached = place.program("setpriv", &format!("--reuid=postfix test -r {module}"));
    if !reached.run().status.success() {
        println!("skipped: the user postfix cannot reach {module}");
        return;
    }
    let postfix = |command: &str| {
        let arguments = format!("-c {directory}/etc {command}");
        place.program("/usr/sbin/postfix", &arguments)
    };
    let server = postfix("start-fg").with_lockstep().start();
    wait_for_port(port, &server);
    for _ in 0..3 {
        let ask = format!(
            "s_client -starttls smtp -connect 127.0.0.1:{port} -CAfile rsa2048.crt \
             -verify_return_error -brief"
        );
        place.stock(&ask).succeed();
    }
    postfix("stop").succeed();
    let ended = server.wait();
    let signed = ended.all_counters();
    let signed: u64 = signed.values().map(|all| all.of("rsa2048")).sum();
    assert_eq!(signed, 3, "one for each connection: {ended}");
}

/// OpenSSH 9.2 signs by functions of libcrypto that ask no provider: it loads the module, and works
/// as it does without.
#[test]
fn sshd_serves_as_without() {
    let sshd = Path::new("/usr/sbin/sshd");
    let (Some(ssh), true) = (installed("ssh"), sshd.exists()) else {
        println!("skipped: OpenSSH's server is not installed");
        return;
    };
    if is_root() {
        // Where it confines its processes.
        fs::create_dir_all("/run/sshd").unwrap();
    }
    let place = Place::new();
    let directory = place.path("");
    let directory = directory.display();
    place.write(
        "keys.sh",
        b"for type in rsa ecdsa ed25519; do
    ssh-keygen -q -t $type -N '' -f host_$type || exit
    echo '[127.0.0.1]:'$1 $(cut -d' ' -f1,2 host_$type.pub) >> known
done
ssh-keygen -q -t ecdsa -N '' -f user",
    );
    let port = free_port();
    place.program("sh", &format!("keys.sh {port}")).succeed();
    place.write(
        "sshd.conf",
        format!(
            "ListenAddress 127.0.0.1:{port}
HostKey {directory}/host_rsa
HostKey {directory}/host_ecdsa
HostKey {directory}/host_ed25519
AuthorizedKeysFile {directory}/user.pub
StrictModes no
UsePAM no
PidFile none
PermitRootLogin yes
"
        )
        .as_bytes(),
    );
    let server = place
        .program(sshd, &format!("-D -e -f {directory}/sshd.conf"))
        .with_lockstep()
        .start();
    wait_for_port(port, &server);
    let maps = fs::read_to_string(format!("/proc/{}/maps", server.pid())).unwrap();
    assert!(maps.contains("lockstep.so"), "{maps}");
    for algorithm in ["rsa-sha2-256", "ecdsa-sha2-nistp256", "ssh-ed25519"] {
        let options = format!(
            "-F none -p {port} -i user -o UserKnownHostsFile=known -o IdentitiesOnly=yes \
             -o BatchMode=yes -o HostKeyAlgorithms={algorithm} 127.0.0.1 echo {algorithm}"
        );
        let answered = place.program(ssh, &options).succeed();
        assert_eq!(answered.text(), format!("{algorithm}\n"));
    }
}

fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

/// Waits until a server listens.
fn wait_for_port(port: u16, server: &Running) {
    let begun = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        let waited = begun.elapsed();
        assert!(waited < Duration::from_secs(30), "{}", server.describe());
        sleep(Duration::from_millis(50));
    }
}

/// A port on which nobody listens now.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}
