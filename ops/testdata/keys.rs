//! RSA keys for tests and examples. Never use them for anything else.

use lockstep_ops::{RsaComponents, RsaKey};
use lockstep_testkit::RsaParts;

/// The test key of this size.
pub fn rsa(bits: usize) -> RsaKey {
    of_parts(&RsaParts::ordinary(bits))
}

/// The key with these parts.
pub fn of_parts(RsaParts { parts, .. }: &RsaParts) -> RsaKey {
    let [n, e, p, q, dp, dq, qinv] = parts;
    let components = RsaComponents {
        n,
        e,
        p,
        q,
        dp,
        dq,
        qinv,
    };
    RsaKey::new(&components).expect("the test key is sound")
}
