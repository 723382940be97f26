//! Certificates that renew, by the lines of `docs/user/renewal.md`: clients of an ACME server, of
//! Kubernetes and of HAProxy's socket put a new key and certificate into the place of those before,
//! again and again, under load. No handshake may fail, each new certificate is served, and lanes
//! sign with its key.
//!
//! `LOCKSTEP_RENEWALS` says how often each renews. A client that is not installed, and pebble, are
//! passed over with a line.

use std::cell::Cell;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use openssl::ssl::{SslConnector, SslMethod};
use openssl::x509::X509;

use crate::client::{Client, Load, wait_for};
use crate::daemon::{Daemon, allow_references};
use crate::keyd::renewals;
use crate::site::{Site, has_ifma, is_installed, path, within};

const DOCUMENT: &str = "renewal.md";

/// The name in the certificates of the ACME server.
const NAME: &str = "www.example.com";

/// Clients that connect all the time.
const CLIENTS: usize = 4;

/// How often each client renews, if nobody says more.
const USUAL: usize = 2;

/// An ACME server, in the directory of a site. It takes each challenge for solved, and its
/// certificates live for ten minutes, so each renewal is due at once.
struct Authority(Child);

/// The server's own certificate and its configuration, and certbot's directories.
const SET_UP: &str = r#"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 9 -subj /CN=localhost \
    -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout pebble.key -out pebble.crt
mkdir -p www .config/letsencrypt
cat > .config/letsencrypt/cli.ini <<END
config-dir = $PWD/letsencrypt
work-dir = $PWD/certbot
logs-dir = $PWD/certbot
no-random-sleep-on-renew = true
END
cat > pebble.json <<END
{"pebble": {
    "listenAddress": "127.0.0.1:PORT",
    "managementListenAddress": "127.0.0.1:MANAGEMENT",
    "certificate": "pebble.crt",
    "privateKey": "pebble.key",
    "httpPort": 5002,
    "tlsPort": 5001,
    "certificateValidityPeriod": 600,
    "profiles": {"default": {"description": "short", "validityPeriod": 600}},
    "retryAfter": {"authz": 1, "order": 1}
}}
END
"#;

const RUN: &str = "export PEBBLE_VA_NOSLEEP=1 PEBBLE_VA_ALWAYS_VALID=1 PEBBLE_WFE_NONCEREJECT=0
export PEBBLE_AUTHZREUSE=100
exec pebble -config pebble.json > pebble.log 2>&1";

impl Authority {
    /// Starts it, and tells the site's programs where it is. Its root is in `root.crt`.
    fn start(site: &mut Site) -> Authority {
        let free = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("a port"));
        let [port, management] =
            free.map(|free| free.local_addr().expect("bound").port().to_string());
        let set_up = SET_UP.replace("PORT", &port);
        site.shell(&set_up.replace("MANAGEMENT", &management));
        let authority = Authority(site.script(RUN).spawn().expect("sh runs"));
        let trusted = site.path("pebble.crt");
        let root = || root_of(&management, &trusted);
        wait_for("authority", || root().is_some());
        site.write("root.crt", &root().expect("it answers"));
        let directory = format!("https://127.0.0.1:{port}/dir");
        site.set("AUTHORITY", directory.into());
        for variable in [
            "REQUESTS_CA_BUNDLE",
            "LEGO_CA_CERTIFICATES",
            "CURL_CA_BUNDLE",
        ] {
            site.set(variable, trusted.clone());
        }
        site.set("HOME", site.path("."));
        site.set("LEGO_PATH", site.path("lego-files"));
        site.set("LE_WORKING_DIR", site.path("acme.sh"));
        authority
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The root that pebble has made for itself.
fn root_of(port: &str, trusted: &Path) -> Option<String> {
    let stream = TcpStream::connect(format!("127.0.0.1:{port}")).ok()?;
    let mut builder = SslConnector::builder(SslMethod::tls_client()).ok()?;
    builder.set_ca_file(trusted).ok()?;
    let mut session = builder.build().connect("localhost", stream).ok()?;
    let request = b"GET /roots/0 HTTP/1.0\r\n\r\n";
    session.write_all(request).ok()?;
    let mut answer = String::new();
    session.read_to_string(&mut answer).ok()?;
    let start = answer.find("-----BEGIN")?;
    Some(answer[start..].to_owned())
}

/// Whether these programs are there; says so if not.
fn are_there(programs: &[&str]) -> bool {
    let missing = programs.iter().find(|program| !is_installed(program));
    if let Some(missing) = missing {
        println!("skipped: this system has no {missing}");
    }
    missing.is_none()
}

/// The script that clients run after each renewal: the server's lines for a reload.
fn write_hook(site: &mut Site, before: &str) {
    let directory = site.path("");
    let reload = site.lines("reload");
    let directory = directory.display();
    let lines = format!("#!/bin/sh\nset -eu\ncd '{directory}'\n{before}\n{reload}");
    site.write("hook", &lines);
    let hook = format!("sh {}", site.path("hook").display());
    site.set("HOOK", hook.into());
}

/// The first certificate in a file.
fn first_in(file: &Path) -> X509 {
    let text = fs::read(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    X509::from_pem(&text).expect("a certificate")
}

fn public(certificate: &X509) -> Vec<u8> {
    let key = certificate.public_key().expect("a key");
    key.public_key_to_der().expect("a key")
}

/// A server whose certificate is renewed under load.
struct Renewing<'a> {
    site: &'a Site,
    client: &'a Client,
    /// Where the newest certificate is; `None` if it is in the server's memory alone.
    file: Option<&'a str>,
    /// How many signatures have been made as they ought to be.
    signatures: &'a dyn Fn() -> u64,
}

impl Renewing<'_> {
    fn shown(&self) -> Option<X509> {
        let shown = self.client.shown().ok()?;
        X509::from_pem(&shown).ok()
    }

    /// Waits until every new client is shown a certificate with another key than this one's.
    fn settle(&self, before: &X509) {
        let new = self
            .file
            .map(|file| public(&first_in(&self.site.path(file))));
        assert_ne!(new, Some(public(before)), "the key is the same as before");
        let is_new = |shown: &X509| match &new {
            Some(new) => public(shown) == *new,
            None => public(shown) != public(before),
        };
        let in_a_row = Cell::new(0);
        let has_settled = within(Duration::from_secs(30), || {
            let is_new = self.shown().is_some_and(|shown| is_new(&shown));
            in_a_row.set(if is_new { in_a_row.get() + 1 } else { 0 });
            in_a_row.get() >= 8
        });
        let logs = || self.site.logs();
        assert!(has_settled, "the server keeps the old key: {}", logs());
    }

    /// Renews the certificate `count` times, and prints the result.
    fn under_load(&self, what: &str, count: usize, renew: impl Fn(usize)) {
        let load = Load::start(self.client, CLIENTS);
        load.shake_hands(20);
        for number in 0..count {
            let before = self.shown().expect("a certificate");
            renew(number);
            self.settle(&before);
            let made = (self.signatures)();
            let has_signed = within(Duration::from_secs(30), || (self.signatures)() > made);
            let logs = || self.site.logs();
            assert!(has_signed, "no signature as it ought to be: {}", logs());
            load.shake_hands(10);
        }
        let done = load.done();
        load.flawless(self.site);
        println!("{what}: {count} renewals, more than {done} handshakes, none failed");
    }
}

/// Where a server's certificates come from, and how it reads them. `$PWD` stands for its directory.
struct Case {
    source: Source,
    server: &'static str,
    /// The server's file of settings, and the words there that name certificate and key.
    settings: &'static str,
    words: &'static [&'static str],
    /// The same words after the first certificate has been issued.
    issued: &'static [&'static str],
    /// The same words with references in the places of keys.
    referred: &'static [&'static str],
    /// The newest certificate.
    certificate: &'static str,
    /// The keys, for the daemon.
    keys: &'static str,
    shape: &'static str,
}

#[derive(Clone, Copy)]
enum Source {
    /// An ACME client, by its lines in the document.
    Acme(&'static str),
    /// A script, which puts `new.crt` and `new.key` into their places.
    Script(&'static str, &'static str),
}

impl Source {
    fn name(self) -> &'static str {
        match self {
            Source::Acme(name) | Source::Script(name, _) => name,
        }
    }

    /// The subject of the certificates, and their issuer.
    fn client(self, site: &Site) -> Client {
        match self {
            Source::Acme(_) => Client::trusting(site, &[&site.path("root.crt")]).of_name(NAME),
            Source::Script(..) => Client::trusting(site, &[&site.path("ca.crt")]),
        }
    }

    /// The first certificate.
    fn issue(self, site: &Site) {
        match self {
            Source::Acme(name) => _ = site.perform_of(DOCUMENT, name),
            Source::Script(_, put) => {
                site.shell(SIGNER);
                site.shell(&[SIGN, put].concat());
            }
        }
    }

    /// Renews it, and has the server reloaded.
    fn renew(self, site: &Site) {
        match self {
            Source::Acme(name) => _ = site.perform_of(DOCUMENT, &format!("{name}-renew")),
            Source::Script(_, put) => _ = site.shell(&[SIGN, put, "\n$HOOK"].concat()),
        }
    }
}

/// Somebody who signs certificates.
const SIGNER: &str = "
echo subjectAltName=DNS:localhost > names
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 9 -subj /CN=signer \\
    -keyout ca.key -out ca.crt
";

/// A new key, and a certificate of it.
const SIGN: &str = "
openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=localhost \\
    -keyout new.key -out new.csr
openssl x509 -req -in new.csr -CA ca.crt -CAkey ca.key -days 9 -extfile names -out new.crt
";

/// How many renewals come right one after the other.
const QUICK: usize = 12;

/// As many pairs.
const MANY: &str = "
mkdir made
for number in $(seq 0 LAST); do
SIGN
mv new.key made/$number.key
mv new.crt made/$number.crt
done
";

/// Puts a pair into its place.
const NEXT: &str = "
cp made/NUMBER.crt new.crt
mv made/NUMBER.key keys/site.key
";

/// Waits for the daemon.
const WAIT: &str = "$LOCKSTEP/lockstep keyd --config keyd.conf wait";

/// The daemon's settings, above its keys.
const KEEP: &str = "
cat > keyd.conf <<END
socket = $PWD/keyd.sock
user = $(id -un)

END
";

/// Starts the daemon, and waits until it has written the references to these keys.
fn start_daemon<'a>(site: &'a mut Site, keys: &str) -> Daemon<'a> {
    site.set("KEYS", site.path(keys));
    site.shell(KEEP);
    site.perform_of(DOCUMENT, "keyd");
    let daemon = Daemon::spawn(site, None);
    let wait = || site.script(WAIT).status();
    let has_written = || wait().is_ok_and(|status| status.success());
    wait_for("references", has_written);
    daemon
}

/// Has the server read its settings anew, and waits until nobody serves by the old ones.
fn replace_workers(site: &Site) {
    let before = site.workers();
    site.perform("reload");
    wait_for("new workers", || site.has_replaced(&before));
}

/// Renewals without the key daemon, and then with it.
fn renews(case: &Case) {
    let source = case.source;
    let is_acme = matches!(source, Source::Acme(_));
    if is_acme && !are_there(&["pebble", source.name()]) {
        return;
    }
    let mut authority = None;
    let site = Site::start_changed(case.server, |site| {
        if is_acme {
            authority = Some(Authority::start(site));
        }
        write_hook(site, "");
        allow_references(site);
        if case.issued.iter().any(|word| word.contains("store:")) {
            site.rewrite("start", "/usr/sbin/nginx", "nginx");
        }
    });
    let Some(mut site) = site else { return };
    let own = site.path("").display().to_string();
    let own = own.trim_end_matches('/');
    let have_it_read = |site: &Site, before: &[&str], after: &[&str]| {
        for (before, after) in before.iter().zip(after) {
            let [before, after] = [before, after].map(|word| word.replace("$PWD", own));
            site.edit(case.settings, &before, &after);
        }
    };
    let first = Client::of(&site).shown().expect("a certificate");
    let first = X509::from_pem(&first).expect("a certificate");
    let before = site.workers();
    source.issue(&site);
    if is_acme {
        // By the hook. HAProxy would miss the next reload in the middle of this one.
        wait_for("new workers", || site.has_replaced(&before));
    }
    have_it_read(&site, case.words, case.issued);
    replace_workers(&site);
    let client = source.client(&site);
    let what = format!("{} for {}", source.name(), case.server);
    let renewing = Renewing {
        site: &site,
        client: &client,
        file: Some(case.certificate),
        signatures: &|| by_server(&site, case.shape),
    };
    renewing.settle(&first);
    renewing.under_load(&what, renewals(USUAL), |_| source.renew(&site));
    // With the key daemon.
    write_hook(&mut site, WAIT);
    let daemon = start_daemon(&mut site, case.keys);
    let site = daemon.site();
    have_it_read(site, case.issued, case.referred);
    replace_workers(site);
    let renewing = Renewing {
        site,
        client: &client,
        file: Some(case.certificate),
        signatures: &|| daemon.signatures(case.shape).0,
    };
    let what = format!("{what}, with the key daemon");
    let (_, before) = daemon.signatures(case.shape);
    renewing.under_load(&what, renewals(USUAL), |_| source.renew(site));
    let (_, after) = daemon.signatures(case.shape);
    assert_eq!(after, before, "the server has signed itself");
}

/// How many signatures the server's lanes have made; without AVX-512 IFMA they make key shares
/// alone.
fn by_server(site: &Site, shape: &str) -> u64 {
    match has_ifma() {
        true => site.on_lanes(shape),
        false => site.on_lanes("x25519-keygen"),
    }
}

#[test]
fn certbot_renews_for_nginx() {
    renews(&Case {
        source: Source::Acme("certbot"),
        server: "nginx",
        settings: "nginx.conf",
        words: &["site.crt;", "site.key;"],
        issued: &[
            "letsencrypt/live/www.example.com/fullchain.pem;",
            "letsencrypt/live/www.example.com/privkey.pem;",
        ],
        referred: &[
            "references/www.example.com/fullchain.pem;",
            "references/www.example.com/privkey.pem;",
        ],
        certificate: "letsencrypt/live/www.example.com/cert.pem",
        keys: "letsencrypt/live/*/privkey.pem",
        shape: "p256-sign",
    });
}

#[test]
fn lego_renews_for_apache() {
    renews(&Case {
        source: Source::Acme("lego"),
        server: "apache",
        settings: "httpd.conf",
        words: &["site.crt", "site.key"],
        issued: &[
            "lego-files/certificates/www.example.com.crt",
            "lego-files/certificates/www.example.com.key",
        ],
        referred: &[
            "references/www.example.com.crt",
            "references/www.example.com.key",
        ],
        certificate: "lego-files/certificates/www.example.com.crt",
        keys: "lego-files/certificates/*.key",
        shape: "p256-sign",
    });
}

#[test]
fn acme_sh_renews_for_haproxy() {
    renews(&Case {
        source: Source::Acme("acme.sh"),
        server: "haproxy",
        settings: "haproxy.cfg",
        words: &["crt site.pem"],
        issued: &["crt certs/site.pem"],
        referred: &["crt references/site.pem"],
        certificate: "certs/site.pem",
        keys: "certs/*.key",
        shape: "rsa2048",
    });
}

/// As the kubelet writes a volume: all files change by one link, and the old ones go.
const VOLUME: &str = "
before=$(readlink volume/..data || true)
next=..$(date +%s.%N)
mkdir -p volume/$next
cp new.crt volume/$next/tls.crt
cp new.key volume/$next/tls.key
ln -s $next volume/..data_tmp
mv -T volume/..data_tmp volume/..data
for name in tls.crt tls.key; do
    [ -e volume/$name ] || ln -s ..data/$name volume/$name
done
[ -z \"$before\" ] || rm -r volume/$before
";

#[test]
fn cert_manager_renews_for_nginx() {
    renews(&Case {
        source: Source::Script("cert-manager's volume", VOLUME),
        server: "nginx",
        settings: "nginx.conf",
        words: &["site.crt;", "site.key;"],
        issued: &["volume/tls.crt;", "volume/tls.key;"],
        referred: &["references/tls.crt;", "references/tls.key;"],
        certificate: "volume/tls.crt",
        keys: "volume/tls.key",
        shape: "p256-sign",
    });
}

/// As systemd writes the credentials of a unit: the directory is another one.
const CREDENTIALS: &str = "
mkdir -m 700 next
cp new.crt new.key next
chmod 400 next/*
[ ! -e credentials ] || mv credentials before
mv next credentials
rm -rf before
";

#[test]
fn credentials_of_systemd_change_for_nginx() {
    renews(&Case {
        source: Source::Script("systemd's credentials", CREDENTIALS),
        server: "nginx",
        settings: "nginx.conf",
        words: &["site.crt;", "site.key;"],
        issued: &["credentials/new.crt;", "credentials/new.key;"],
        referred: &["references/new.crt;", "references/new.key;"],
        certificate: "credentials/new.crt",
        keys: "credentials/new.key",
        shape: "p256-sign",
    });
}

/// Whether the program of this name says that it is at least of this version; says so if not.
fn is_recent(program: &str, option: &str, version: [u32; 3]) -> bool {
    let mut command = Command::new(program);
    let output = command.arg(option).env("PATH", path()).output();
    let said = output.map(|output| [output.stdout, output.stderr].concat());
    let said = String::from_utf8_lossy(&said.unwrap_or_default()).into_owned();
    let numbers = |text: &str| {
        let parts = text.split(|c: char| !c.is_ascii_digit());
        let parts: Vec<u32> = parts.take(3).map_while(|part| part.parse().ok()).collect();
        parts
    };
    let start = said.find(|c: char| c.is_ascii_digit());
    let found = numbers(&said[start.unwrap_or(said.len())..]);
    let is_recent = found >= version.to_vec();
    if !is_recent {
        println!("skipped: this {program}, {found:?}, is older than {version:?}");
    }
    is_recent
}

#[test]
fn nginx_reads_its_key_from_a_store() {
    if !is_recent("nginx", "-v", [1, 27, 4]) {
        return;
    }
    renews(&Case {
        source: Source::Script("store:", "cp new.key live.key; cp new.crt live.crt"),
        server: "nginx",
        settings: "nginx.conf",
        words: &["site.crt;", "site.key;"],
        issued: &["live.crt;", "store:file:$PWD/live.key;"],
        referred: &["live.crt;", "store:file:$PWD/references/live.key;"],
        certificate: "live.crt",
        keys: "live.key",
        shape: "p256-sign",
    });
}

/// HAProxy takes each certificate by its socket, first with its key, then with a reference.
#[test]
fn haproxy_takes_certificates_by_its_socket() {
    if !are_there(&["socat"]) {
        return;
    }
    let site = Site::start_changed("haproxy", |site| {
        allow_references(site);
        let socket = "global\n    stats socket unix@admin.sock mode 600 level admin\n";
        site.edit("haproxy.cfg", "global\n", socket);
        site.shell(SIGNER);
        site.set("KEY", site.path("new.key"));
    });
    let Some(mut site) = site else { return };
    let client = Source::Script("", "").client(&site);
    let first = Client::of(&site).shown().expect("a certificate");
    let first = X509::from_pem(&first).expect("a certificate");
    let rsa = SIGN.replace("ec -pkeyopt ec_paramgen_curve:P-256", "rsa:2048");
    let renewing = Renewing {
        site: &site,
        client: &client,
        file: Some("new.crt"),
        signatures: &|| by_server(&site, "rsa2048"),
    };
    let take = |site: &Site, before: &str| {
        site.shell(&[&rsa, before].concat());
        let said = site.perform_of(DOCUMENT, "socket");
        assert!(said.contains("Success!"), "{said}");
    };
    take(&site, "");
    renewing.settle(&first);
    renewing.under_load("haproxy's socket", renewals(USUAL), |_| take(&site, ""));
    let with_key = "mkdir -p keys; mv new.key keys/site.key\n";
    site.shell("mkdir keys; cp new.key keys/site.key");
    site.set("KEY", site.path("references/site.key"));
    let daemon = start_daemon(&mut site, "keys/*.key");
    let site = daemon.site();
    let take = || take(site, &[with_key, WAIT].concat());
    take();
    let (_, before) = daemon.signatures("rsa2048");
    let renewing = Renewing {
        site,
        client: &client,
        file: Some("new.crt"),
        signatures: &|| daemon.signatures("rsa2048").0,
    };
    let what = "haproxy's socket, with the key daemon";
    renewing.under_load(what, renewals(USUAL), |_| take());
    // One right after the other: the server's list of the daemon's keys is young each time.
    let last = (QUICK - 1).to_string();
    site.shell(&MANY.replace("SIGN", &rsa).replace("LAST", &last));
    let load = Load::start(&client, CLIENTS);
    load.shake_hands(20);
    for number in 0..QUICK {
        site.shell(&[&NEXT.replace("NUMBER", &number.to_string()), WAIT].concat());
        let said = site.perform_of(DOCUMENT, "socket");
        assert!(said.contains("Success!"), "{said}");
        load.shake_hands(2 * CLIENTS as u64);
    }
    load.flawless(site);
    let (_, after) = daemon.signatures("rsa2048");
    assert_eq!(after, before, "the server has signed itself");
}

#[test]
fn haproxy_renews_by_itself() {
    if !are_there(&["pebble", "socat"]) || !is_recent("haproxy", "-v", [3, 2, 0]) {
        return;
    }
    let mut authority = None;
    let site = Site::start_changed("haproxy", |site| {
        authority = Some(Authority::start(site));
        site.write_of(DOCUMENT, "acme.cfg");
        let trusting = "global\n    httpclient.ssl.verify none\n";
        site.edit("acme.cfg", "global\n", trusting);
        site.rewrite("start", "-f haproxy.cfg", "-f acme.cfg");
    });
    let Some(site) = site else { return };
    let client = Source::Acme("").client(&site);
    // Its own certificate is for another name and not trusted.
    let first = Client::of(&site).shown().expect("a certificate");
    let first = X509::from_pem(&first).expect("a certificate");
    let renewing = Renewing {
        site: &site,
        client: &client,
        file: None,
        signatures: &|| by_server(&site, "rsa2048"),
    };
    let renew = || drop(site.perform_of(DOCUMENT, "haproxy-renew"));
    renew();
    renewing.settle(&first);
    renewing.under_load("haproxy by itself", renewals(USUAL), |_| renew());
}
