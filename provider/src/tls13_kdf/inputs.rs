//! What a derivation is made from, and the derivation.

use std::ffi::{CStr, c_int};

use once_cell::race::OnceBox;
use sha2::{Sha256, Sha384};
use zeroize::{Zeroize as _, Zeroizing};

use super::hkdf::{Hasher, Known, authenticate, expand};
use crate::ffi::{List, Params, Value, hkdf_mode, name};

/// The digests of TLS 1.3's cipher suites.
#[derive(Clone, Copy, PartialEq)]
enum Hash {
    Sha256,
    Sha384,
}

impl Hash {
    /// By the names that the default provider has for them.
    fn named(name: &[u8]) -> Option<Hash> {
        let is = |known: &[&str]| {
            let mut known = known.iter();
            known.any(|known| known.as_bytes().eq_ignore_ascii_case(name))
        };
        if is(&["SHA2-256", "SHA256", "SHA-256"]) {
            Some(Hash::Sha256)
        } else if is(&["SHA2-384", "SHA384", "SHA-384"]) {
            Some(Hash::Sha384)
        } else {
            None
        }
    }

    fn name(self) -> &'static CStr {
        match self {
            Hash::Sha256 => c"SHA2-256",
            Hash::Sha384 => c"SHA2-384",
        }
    }
}

/// A parameter's bytes; none if it was not given. OpenSSL treats empty ones in its own way, so they
/// are not taken.
struct Kept {
    bytes: [u8; Kept::ROOM],
    length: usize,
}

impl Kept {
    /// For the secret of every key exchange on a curve, alone or in a pair.
    const ROOM: usize = 136;

    const EMPTY: Kept = Kept {
        bytes: [0; Kept::ROOM],
        length: 0,
    };

    fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// Copies the bytes of a parameter, if there were none before; false if they are empty, missing
    /// or too long.
    fn take(&mut self, from: Option<&[u8]>) -> bool {
        let Some(from) = from.filter(|from| self.length == 0 && !from.is_empty()) else {
            return false;
        };
        let to = self.bytes.get_mut(..from.len());
        to.is_some_and(|to| {
            to.copy_from_slice(from);
            self.length = from.len();
            true
        })
    }

    fn clear(&mut self) {
        self.bytes[..self.length].zeroize();
        self.length = 0;
    }
}

/// The parameters of one derivation.
pub struct Inputs {
    mode: Option<c_int>,
    hash: Option<Hash>,
    key: Kept,
    salt: Kept,
    prefix: Kept,
    label: Kept,
    data: Kept,
}

impl Drop for Inputs {
    fn drop(&mut self) {
        self.clear();
    }
}

/// The longest digest's bytes.
pub const LONGEST: usize = 48;

/// How many parameters that is, and the end.
const PARAMS: usize = 7 + 1;

impl Inputs {
    pub const EMPTY: Inputs = Inputs {
        mode: None,
        hash: None,
        key: Kept::EMPTY,
        salt: Kept::EMPTY,
        prefix: Kept::EMPTY,
        label: Kept::EMPTY,
        data: Kept::EMPTY,
    };

    pub fn clear(&mut self) {
        (self.mode, self.hash) = (None, None);
        let Inputs {
            key,
            salt,
            prefix,
            label,
            data,
            ..
        } = self;
        for bytes in [key, salt, prefix, label, data] {
            bytes.clear();
        }
    }

    /// Takes parameters as libssl gives them; false for any other.
    pub fn read(&mut self, params: Params<'_>) -> bool {
        !params.is_null() && params.values().all(|param| self.take(param))
    }

    fn take(&mut self, param: Value<'_>) -> bool {
        let name = param.name();
        if name == name::KDF_PARAM_MODE {
            return param
                .int()
                .is_some_and(|mode| self.mode.replace(mode).is_none());
        }
        if name == name::KDF_PARAM_DIGEST {
            let hash = param.utf8().and_then(Hash::named);
            return hash.is_some_and(|hash| self.hash.replace(hash).is_none());
        }
        let mut texts = [
            (name::KDF_PARAM_KEY, &mut self.key),
            (name::KDF_PARAM_SALT, &mut self.salt),
            (name::KDF_PARAM_PREFIX, &mut self.prefix),
            (name::KDF_PARAM_LABEL, &mut self.label),
            (name::KDF_PARAM_DATA, &mut self.data),
        ];
        let text = texts.iter_mut().find(|(known, _)| *known == name);
        text.is_some_and(|(_, text)| text.take(param.octets()))
    }

    /// The same as parameters, for OpenSSL.
    pub fn params(&self) -> List<'_, PARAMS> {
        let mut list = List::new();
        if let (Some(mode), Some(hash)) = (&self.mode, self.hash) {
            list = list
                .int(name::KDF_PARAM_MODE, mode)
                .utf8(name::KDF_PARAM_DIGEST, hash.name());
        }
        for (name, text) in [
            (name::KDF_PARAM_KEY, &self.key),
            (name::KDF_PARAM_SALT, &self.salt),
            (name::KDF_PARAM_PREFIX, &self.prefix),
            (name::KDF_PARAM_LABEL, &self.label),
            (name::KDF_PARAM_DATA, &self.data),
        ] {
            if text.length != 0 {
                list = list.octets(name, text.as_slice());
            }
        }
        list
    }

    /// Fills `out`. False, and `out` untouched, for what libssl would not ask for.
    pub fn derive(&self, out: &mut [u8]) -> bool {
        match self.hash {
            Some(Hash::Sha256) if is_x86_feature_detected!("sha") => {
                static KNOWN: OnceBox<Known<32>> = OnceBox::new();
                let known = KNOWN.get_or_init(|| Box::new(Known::new::<Sha256>()));
                self.derive_with::<Sha256, _>(known, out)
            }
            Some(Hash::Sha384) => {
                static KNOWN: OnceBox<Known<48>> = OnceBox::new();
                let known = KNOWN.get_or_init(|| Box::new(Known::new::<Sha384>()));
                self.derive_with::<Sha384, _>(known, out)
            }
            _ => false,
        }
    }

    /// `N` is the digest's length.
    fn derive_with<H: Hasher, const N: usize>(&self, known: &Known<N>, out: &mut [u8]) -> bool {
        let [prefix, label] = [self.prefix.as_slice(), self.label.as_slice()];
        let data = self.data.as_slice();
        // More than libssl asks for, and less than OpenSSL has room for.
        if prefix.is_empty()
            || label.is_empty()
            || prefix.len() + label.len() > 249
            || data.len() > 64
        {
            return false;
        }
        match self.mode {
            Some(hkdf_mode::EXPAND_ONLY)
                if self.key.length == N && (1..=N).contains(&out.len()) =>
            {
                expand::<H>(self.key.as_slice(), [prefix, label, data], out);
                true
            }
            Some(hkdf_mode::EXTRACT_ONLY)
                if out.len() == N && [0, N].contains(&self.salt.length) =>
            {
                let mut salt = Zeroizing::new([0; N]);
                match (self.salt.as_slice(), self.key.as_slice()) {
                    ([], []) => {
                        out.copy_from_slice(&known.early);
                        return true;
                    }
                    ([], _) => {}
                    (early, _) if known.derives(early, prefix, label) => *salt = known.derived,
                    // RFC 8446, 7.1: derived from what the last stage left, with no messages.
                    (last, _) => expand::<H>(last, [prefix, label, &known.no_messages], &mut *salt),
                }
                let secret = match self.key.as_slice() {
                    [] => &[0; N],
                    secret => secret,
                };
                authenticate::<H>(&*salt, &[secret], out);
                true
            }
            _ => false,
        }
    }
}
