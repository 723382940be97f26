//! RSA keys for tests and examples, made with `openssl genrsa`. Never use them for anything else.

use lockstep_engine::{RsaComponents, RsaKey};

/// The test key of this size.
pub fn rsa(bits: usize) -> RsaKey {
    let text = match bits {
        1024 => include_str!("rsa1024.txt"),
        2048 => include_str!("rsa2048.txt"),
        3072 => include_str!("rsa3072.txt"),
        4096 => include_str!("rsa4096.txt"),
        _ => panic!("there is no test key of {bits} bits"),
    };
    let part = |name: &str| -> Vec<u8> {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let hex = line.expect("every part is there").as_bytes();
        let digits = hex
            .chunks(2)
            .map(|two| std::str::from_utf8(two).expect("ASCII"));
        digits
            .map(|two| u8::from_str_radix(two, 16).expect("hexadecimal"))
            .collect()
    };
    let [n, e, p, q] = ["n", "e", "p", "q"].map(part);
    let [dp, dq, qinv] = ["dp", "dq", "qinv"].map(part);
    let components = RsaComponents {
        n: &n,
        e: &e,
        p: &p,
        q: &q,
        dp: &dp,
        dq: &dq,
        qinv: &qinv,
    };
    RsaKey::new(&components).expect("the test key is sound")
}
