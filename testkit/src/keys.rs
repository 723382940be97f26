//! RSA keys for tests. They are public: never use them for anything else.

use crate::hex;

/// A key as the bytes of its parts.
#[derive(Clone, Debug)]
pub struct RsaParts {
    /// Name of the key's properties: its exponent, and which prime is the greater.
    pub name: &'static str,
    /// n, e, p, q, dp, dq and qinv, big-endian.
    pub parts: [Vec<u8>; 7],
}

/// Returns all keys with a modulus of `bits` bits: 1024, 2048, 3072 or 4096.
pub fn rsa_keys(bits: usize) -> Vec<RsaParts> {
    include_str!("rsa_keys.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| {
            let mut fields = line.split(' ');
            if fields.next()?.parse() != Ok(bits) {
                return None;
            }
            Some(RsaParts {
                name: fields.next()?,
                parts: std::array::from_fn(|_| hex(fields.next().expect("seven parts"))),
            })
        })
        .collect()
}

impl RsaParts {
    /// Returns an ordinary key of `bits` bits, with the exponent 65537, as `openssl genrsa` makes
    /// them.
    ///
    /// # Panics
    ///
    /// If there is no key of this size.
    pub fn ordinary(bits: usize) -> RsaParts {
        rsa_keys(bits)
            .into_iter()
            .find(|key| key.name == "e65537_p>q")
            .unwrap_or_else(|| panic!("there is no test key of {bits} bits"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_has_an_ordinary_key() {
        for bits in [1024, 2048, 3072, 4096] {
            let [n, e, ..] = RsaParts::ordinary(bits).parts;
            assert_eq!((n.len(), e), (bits / 8, vec![1, 0, 1]));
            assert!(rsa_keys(bits).len() >= 5);
        }
        assert!(rsa_keys(512).is_empty());
    }
}
