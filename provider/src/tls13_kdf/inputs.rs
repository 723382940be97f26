//! The inputs of a derivation, and the derivation.

use std::ffi::{CStr, c_int};

use lockstep_kernels::backend::Backend;
use lockstep_kernels::hmac::Hash;
use lockstep_kernels::wipe;
use once_cell::race::OnceBox;

use super::hkdf::{Hkdf, Known, LONGEST_DATA, LONGEST_LABEL};
use super::kept::Kept;
use crate::ffi::{List, Params, Value, hkdf_mode, name};

/// Returns a hash function of TLS 1.3's cipher suites, by its names in the default provider.
fn hash_named(name: &[u8]) -> Option<Hash> {
    let is = |known: &[&[u8]]| known.iter().any(|known| known.eq_ignore_ascii_case(name));
    match name {
        // The names that libssl uses.
        b"SHA2-256" => Some(Hash::Sha256),
        b"SHA2-384" => Some(Hash::Sha384),
        _ if is(&[b"SHA2-256", b"SHA256", b"SHA-256"]) => Some(Hash::Sha256),
        _ if is(&[b"SHA2-384", b"SHA384", b"SHA-384"]) => Some(Hash::Sha384),
        _ => None,
    }
}

fn name_of(hash: Hash) -> &'static CStr {
    match hash {
        Hash::Sha256 => c"SHA2-256",
        Hash::Sha384 => c"SHA2-384",
    }
}

/// The parameters that are texts, by their names.
const TEXTS: [&CStr; 5] = [
    name::KDF_PARAM_KEY,
    name::KDF_PARAM_SALT,
    name::KDF_PARAM_PREFIX,
    name::KDF_PARAM_LABEL,
    name::KDF_PARAM_DATA,
];
const KEY: usize = 0;
const SALT: usize = 1;
const PREFIX: usize = 2;
const LABEL: usize = 3;
const DATA: usize = 4;

/// Length of the longest text: enough for the secret of every key exchange on a curve, alone or in
/// a pair.
const LONGEST: usize = 136;
/// Room for all texts of a derivation of libssl.
const ROOM: usize = 256;

/// The parameters of one derivation.
pub struct Inputs {
    mode: Option<c_int>,
    hash: Option<Hash>,
    /// The given texts, in a row.
    bytes: [u8; ROOM],
    used: usize,
    /// Bounds of each text. A text that was not given is empty here. A given text that is empty is
    /// not taken, because OpenSSL treats such texts in its own way.
    texts: [(usize, usize); TEXTS.len()],
}

impl Drop for Inputs {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Number of parameters, with the end.
const PARAMS: usize = 2 + TEXTS.len() + 1;

impl Inputs {
    pub const EMPTY: Inputs = Inputs {
        mode: None,
        hash: None,
        bytes: [0; ROOM],
        used: 0,
        texts: [(0, 0); TEXTS.len()],
    };

    pub fn clear(&mut self) {
        (self.mode, self.hash) = (None, None);
        wipe(&mut self.bytes[..self.used]);
        (self.used, self.texts) = (0, [(0, 0); TEXTS.len()]);
    }

    /// Takes parameters as libssl gives them; returns false for any others.
    pub fn read(&mut self, params: Params<'_>) -> bool {
        !params.is_null() && params.values().all(|param| self.take(param))
    }

    fn take(&mut self, param: Value<'_>) -> bool {
        let name = param.name();
        if let Some(place) = TEXTS.iter().position(|known| *known == name) {
            return self.take_text(place, param.octets());
        }
        if name == name::KDF_PARAM_MODE {
            return param
                .int()
                .is_some_and(|mode| self.mode.replace(mode).is_none());
        }
        let hash = match name == name::KDF_PARAM_DIGEST {
            true => param.utf8().and_then(hash_named),
            false => None,
        };
        hash.is_some_and(|hash| self.hash.replace(hash).is_none())
    }

    /// Copies a text, if there was none before; returns false if it is empty, missing or too long.
    fn take_text(&mut self, place: usize, from: Option<&[u8]>) -> bool {
        let is_new = self.text(place).is_empty();
        let Some(from) = from.filter(|from| is_new && (1..=LONGEST).contains(&from.len())) else {
            return false;
        };
        let (start, end) = (self.used, self.used + from.len());
        let to = self.bytes.get_mut(start..end);
        to.is_some_and(|to| {
            to.copy_from_slice(from);
            (self.used, self.texts[place]) = (end, (start, end));
            true
        })
    }

    fn text(&self, place: usize) -> &[u8] {
        let (start, end) = self.texts[place];
        &self.bytes[start..end]
    }

    /// Returns the inputs as parameters, for OpenSSL.
    pub fn params(&self) -> List<'_, PARAMS> {
        let mut list = List::new();
        if let (Some(mode), Some(hash)) = (&self.mode, self.hash) {
            list = list
                .int(name::KDF_PARAM_MODE, mode)
                .utf8(name::KDF_PARAM_DIGEST, name_of(hash));
        }
        for (place, name) in TEXTS.into_iter().enumerate() {
            if !self.text(place).is_empty() {
                list = list.octets(name, self.text(place));
            }
        }
        list
    }

    /// Fills `out`. Returns false, with `out` untouched, for a derivation that libssl does not
    /// make, and without memory for kept secrets.
    pub fn derive(&self, backend: Backend, out: &mut [u8]) -> bool {
        static KNOWN: [OnceBox<Known>; 2] = [OnceBox::new(), OnceBox::new()];
        let [key, salt, prefix, label, data] =
            [KEY, SALT, PREFIX, LABEL, DATA].map(|place| self.text(place));
        let Some(hash) = self.hash else { return false };
        let (size, hkdf) = (hash.tag_bytes(), Hkdf { hash, backend });
        // Both maxima are above the lengths that libssl uses, and below OpenSSL's limit.
        if prefix.is_empty()
            || label.is_empty()
            || prefix.len() + label.len() > LONGEST_LABEL
            || data.len() > LONGEST_DATA
            || !hash.is_fast()
        {
            return false;
        }
        let derived = match self.mode {
            Some(hkdf_mode::EXPAND_ONLY)
                if key.len() == size && (1..=size).contains(&out.len()) =>
            {
                Kept::with(|kept| hkdf.expand(kept, key, [prefix, label, data], out))
            }
            Some(hkdf_mode::EXTRACT_ONLY)
                if out.len() == size && [0, size].contains(&salt.len()) =>
            {
                let known = KNOWN[hash as usize].get_or_init(|| Box::new(hkdf.known()));
                Kept::with(|kept| hkdf.extract(known, kept, [salt, key], [prefix, label], out))
            }
            _ => None,
        };
        derived.is_some()
    }
}
