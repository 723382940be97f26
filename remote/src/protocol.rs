//! The messages on the daemon's socket, and the meaning of the numbers in a ring.
//!
//! A client connects and sends a greeting. The daemon answers with a verdict. If it accepts the
//! client, a ring comes with the verdict, and the list of the client's keys follows. Nothing more
//! is sent. Each side notices the other's end by the end of the connection.
//!
//! ```text
//! greeting   magic: 8 bytes, version: u32
//! verdict    magic: 8 bytes, version: u32, verdict: u32, length of the list: u32
//! list       for each key: handle: u64, uses: u8,
//!            length of the name: u8, name, length of the public half: u16, public half
//! ```
//!
//! Numbers are little-endian.
//!
//! # Versions
//!
//! A package is upgraded while the daemon and its clients run, and each of them may be restarted at
//! any time. So both sides speak two versions: their own, and that of the previous release. A
//! client greets in its latest version. The daemon answers in the latest common one. It writes a
//! rejection in the earlier version, since all clients that it could serve know that version.
//!
//! | version | changes |
//! |---|---|
//! | 3 | a daemon rejects each greeting of another version, and names its own |
//! | 4 | a daemon answers a later greeting in its own version. A client whose greeting an earlier daemon rejects greets once more, in that daemon's version. Keys of ML-DSA, and rings with long answers for clients that may use one |

use std::fmt;

use crate::reference::{LONGEST_NAME, is_name};

const MAGIC: [u8; 8] = *b"keyd1\r\n\0";
/// Version of the messages, of the operations and their numbers, and of the ring's layout. Only
/// this file handles differences between two versions.
pub const VERSION: u32 = 4;
/// The version of the previous release.
pub const EARLIER: u32 = VERSION - 1;
/// Length of a greeting in bytes.
pub const GREETING: usize = 12;
/// Length of a verdict in bytes.
pub const VERDICT: usize = 20;
/// Maximum length of a list of keys in bytes.
pub const LONGEST_LIST: usize = 4 << 20;

/// Operations. The key determines the length of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Operation {
    /// input^d mod n. Input and result are as long as the modulus.
    RsaPrivate = 1,
    /// A digest to r ‖ s.
    EcdsaSign = 2,
    /// A message to R ‖ S.
    Ed25519Sign = 3,
    /// The same as `RsaPrivate`, for a process that has the key itself and asks to save CPU time.
    /// The daemon may wait for other requests, to share a pass with them.
    DeferrableRsaPrivate = 4,
    /// ML-DSA: μ to a signature. μ is a hash of the message and its context, and has 64 bytes. The
    /// daemon draws the randomness of hedged signing.
    MlDsaSign = 5,
    /// The same as `MlDsaSign`, without randomness: equal inputs have equal signatures.
    DeterministicMlDsaSign = 6,
}

impl Operation {
    /// All operations.
    pub const ALL: [Operation; 6] = [
        Operation::RsaPrivate,
        Operation::EcdsaSign,
        Operation::Ed25519Sign,
        Operation::DeferrableRsaPrivate,
        Operation::MlDsaSign,
        Operation::DeterministicMlDsaSign,
    ];

    /// Returns the operation with this number.
    pub fn from_number(number: u16) -> Option<Operation> {
        Self::ALL.into_iter().find(|own| *own as u16 == number)
    }

    /// Returns whether the operation with this number may wait for others.
    pub fn is_deferrable(number: u16) -> bool {
        number == Operation::DeferrableRsaPrivate as u16
    }
}

/// Statuses of answers, in addition to those of the ring.
pub mod status {
    pub use lockstep_ring::status::DONE;
    /// There is no such key, or the client may not use it for this operation.
    pub const FORBIDDEN: u16 = 1;
    /// The input does not fit the key or the operation.
    pub const UNFIT: u16 = 2;
    /// The client has exceeded its rate, and may repeat the request.
    pub const BUSY: u16 = 3;
    /// The daemon failed to compute the result.
    pub const FAILED: u16 = 4;
}

/// The daemon's answer to a greeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Verdict {
    /// The ring comes with it, and the list follows.
    Accepted = 0,
    /// The daemon has no place for another client.
    Full = 1,
    /// The client may not use any key.
    Stranger = 2,
    /// The daemon does not speak this version.
    OtherVersion = 3,
    /// The daemon could not create a ring.
    Failed = 4,
}

impl Verdict {
    const ALL: [Verdict; 5] = [
        Verdict::Accepted,
        Verdict::Full,
        Verdict::Stranger,
        Verdict::OtherVersion,
        Verdict::Failed,
    ];
}

/// The permitted operations of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Uses {
    /// Signatures.
    pub sign: bool,
    /// Any number to the power of the private exponent: decryption, but also any signature.
    pub decrypt: bool,
}

impl Uses {
    /// Returns whether any operation is permitted.
    pub fn any(self) -> bool {
        self.sign || self.decrypt
    }

    fn byte(self) -> u8 {
        u8::from(self.sign) | u8::from(self.decrypt) << 1
    }
}

impl fmt::Display for Uses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.sign, self.decrypt) {
            (true, true) => "sign, decrypt",
            (true, false) => "sign",
            (false, true) => "decrypt",
            (false, false) => "nothing",
        })
    }
}

/// A key that a client may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offered {
    /// Number of the key in the ring.
    pub handle: u64,
    /// The permitted operations.
    pub uses: Uses,
    /// Its name.
    pub name: String,
    /// Its public half, as a SubjectPublicKeyInfo.
    pub public: Vec<u8>,
}

/// A message violates the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;

/// Returns the version in which the daemon serves a client that greets in `greeted`; `None` if
/// there is no common one.
pub fn common(greeted: u32) -> Option<u32> {
    let common = greeted.min(VERSION);
    (common >= EARLIER).then_some(common)
}

/// Returns whether clients of a version know keys of ML-DSA and rings with long answers.
pub fn has_ml_dsa(version: u32) -> bool {
    version >= 4
}

/// Returns a client's first message, in a version that it speaks.
pub fn greeting(version: u32) -> [u8; GREETING] {
    let mut bytes = [0; GREETING];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..].copy_from_slice(&version.to_le_bytes());
    bytes
}

/// Returns the version in a greeting.
pub fn read_greeting(bytes: &[u8; GREETING]) -> Result<u32, Broken> {
    let mut rest = Rest(bytes);
    rest.magic()?;
    rest.u32()
}

/// Returns the rejection of a greeting. Clients of all versions that the daemon speaks can read it.
pub fn refusal(why: Verdict) -> [u8; VERDICT] {
    verdict(EARLIER, why, 0)
}

/// Returns the answer to a greeting, in the common version.
pub fn verdict(version: u32, verdict: Verdict, list_bytes: usize) -> [u8; VERDICT] {
    let mut bytes = [0; VERDICT];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&version.to_le_bytes());
    bytes[12..16].copy_from_slice(&(verdict as u32).to_le_bytes());
    bytes[16..].copy_from_slice(&(list_bytes as u32).to_le_bytes());
    bytes
}

/// Returns a verdict, the version of the daemon, and the length of the list behind it.
pub fn read_verdict(bytes: &[u8; VERDICT]) -> Result<(Verdict, u32, usize), Broken> {
    let mut rest = Rest(bytes);
    rest.magic()?;
    let version = rest.u32()?;
    if !(EARLIER..=VERSION).contains(&version) {
        return Ok((Verdict::OtherVersion, version, 0));
    }
    let (number, length) = (rest.u32()?, rest.u32()? as usize);
    let verdict = Verdict::ALL.into_iter().find(|own| *own as u32 == number);
    if length > LONGEST_LIST {
        return Err(Broken);
    }
    Ok((verdict.ok_or(Broken)?, version, length))
}

/// Returns the number of bytes that a key takes in a list.
pub fn listed_bytes(name: &str, public: &[u8]) -> usize {
    12 + name.len() + public.len()
}

/// Returns a list of keys; `None` if they do not fit.
pub fn list(keys: &[Offered]) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    for key in keys {
        if key.name.len() > LONGEST_NAME {
            return None;
        }
        bytes.extend(key.handle.to_le_bytes());
        bytes.extend([key.uses.byte(), key.name.len() as u8]);
        bytes.extend(key.name.as_bytes());
        bytes.extend(u16::try_from(key.public.len()).ok()?.to_le_bytes());
        bytes.extend(&key.public);
    }
    (bytes.len() <= LONGEST_LIST).then_some(bytes)
}

/// Returns the keys in a list.
pub fn read_list(bytes: &[u8]) -> Result<Vec<Offered>, Broken> {
    let mut rest = Rest(bytes);
    let mut keys = Vec::new();
    while !rest.0.is_empty() {
        let handle = u64::from_le_bytes(rest.array()?);
        let [uses, name_length] = rest.array()?;
        let name = rest.take(name_length.into())?;
        let name = str::from_utf8(name).ok().filter(|name| is_name(name));
        let public_length = u16::from_le_bytes(rest.array()?);
        keys.push(Offered {
            handle,
            uses: Uses {
                sign: uses & 1 != 0,
                decrypt: uses & 2 != 0,
            },
            name: name.ok_or(Broken)?.to_owned(),
            public: rest.take(public_length.into())?.to_vec(),
        });
    }
    Ok(keys)
}

/// The unread rest of a message.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Broken> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Broken)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Broken> {
        self.take(N)?.try_into().map_err(|_| Broken)
    }

    fn u32(&mut self) -> Result<u32, Broken> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn magic(&mut self) -> Result<(), Broken> {
        match self.array()? == MAGIC {
            true => Ok(()),
            false => Err(Broken),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str, uses: Uses) -> Offered {
        Offered {
            handle: u64::MAX - 7,
            uses,
            name: name.to_owned(),
            public: vec![0x30, 1, 0],
        }
    }

    #[test]
    fn messages_are_read_as_they_were_written() {
        for version in [EARLIER, VERSION] {
            assert_eq!(read_greeting(&greeting(version)), Ok(version));
            for own in Verdict::ALL {
                let written = verdict(version, own, 77);
                assert_eq!(read_verdict(&written), Ok((own, version, 77)));
                assert_eq!(read_verdict(&refusal(own)), Ok((own, EARLIER, 0)));
            }
        }
        let uses = |sign, decrypt| Uses { sign, decrypt };
        let keys = [
            key("a", uses(true, false)),
            key("b.c", uses(false, true)),
            key("d", uses(true, true)),
        ];
        let written = list(&keys).expect("a list");
        assert_eq!(read_list(&written).as_deref(), Ok(&keys[..]));
        assert_eq!(read_list(&[]), Ok(Vec::new()));
        for operation in Operation::ALL {
            assert_eq!(Operation::from_number(operation as u16), Some(operation));
        }
        assert_eq!(Operation::from_number(0), None);
    }

    #[test]
    fn two_neighbouring_releases_speak_one_version() {
        for (greeted, spoken) in [
            (EARLIER - 1, None),
            (EARLIER, Some(EARLIER)),
            (VERSION, Some(VERSION)),
            (VERSION + 1, Some(VERSION)),
            (u32::MAX, Some(VERSION)),
        ] {
            assert_eq!(common(greeted), spoken, "{greeted}");
        }
        assert_eq!([EARLIER, VERSION].map(has_ml_dsa), [false, true]);
        // The previous release only knows its own version.
        assert_eq!(refusal(Verdict::Full)[8..12], EARLIER.to_le_bytes());
    }

    #[test]
    fn uses_are_told() {
        let uses = |sign, decrypt| Uses { sign, decrypt };
        for (uses, any, text) in [
            (uses(false, false), false, "nothing"),
            (uses(true, false), true, "sign"),
            (uses(false, true), true, "decrypt"),
            (uses(true, true), true, "sign, decrypt"),
        ] {
            assert_eq!((uses.any(), uses.to_string().as_str()), (any, text));
        }
        let is_deferrable = |operation: &Operation| Operation::is_deferrable(*operation as u16);
        let deferrable = Operation::ALL.into_iter().filter(is_deferrable);
        assert!(deferrable.eq([Operation::DeferrableRsaPrivate]));
    }

    #[test]
    fn names_and_lists_have_bounds() {
        let longest = key(&"a".repeat(LONGEST_NAME), Uses::default());
        let written = list(std::slice::from_ref(&longest)).expect("a list");
        let length = listed_bytes(&longest.name, &longest.public);
        assert_eq!(written.len(), length);
        assert_eq!(read_list(&written), Ok(vec![longest]));
        let longer = key(&"a".repeat(LONGEST_NAME + 1), Uses::default());
        assert_eq!(list(&[longer]), None);
        // A key takes 14 bytes of a list in addition to its public half.
        let filled = |length: usize| {
            let public = |length| Offered {
                public: vec![0; length],
                ..key("aa", Uses::default())
            };
            let mut keys = vec![public(0x8000 - 14); length / 0x8000];
            keys.push(public(length % 0x8000));
            list(&keys).map(|list| list.len())
        };
        const MOST: usize = LONGEST_LIST - 14;
        assert_eq!(filled(MOST), Some(LONGEST_LIST));
        assert_eq!(filled(MOST + 1), None);
        let accepted = |length| read_verdict(&verdict(VERSION, Verdict::Accepted, length));
        assert_eq!(accepted(4 << 20), Ok((Verdict::Accepted, VERSION, 4 << 20)));
        assert_eq!(accepted((4 << 20) + 1), Err(Broken));
    }

    #[test]
    fn what_is_no_message_is_refused() {
        let mut other = greeting(VERSION);
        other[0] ^= 1;
        assert_eq!(read_greeting(&other), Err(Broken));
        let mut long = verdict(VERSION, Verdict::Accepted, 0);
        long[16..].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(read_verdict(&long), Err(Broken));
        let mut unknown = verdict(VERSION, Verdict::Accepted, 0);
        unknown[12] = 99;
        assert_eq!(read_verdict(&unknown), Err(Broken));
        for version in [EARLIER - 1, VERSION + 1] {
            let other = verdict(version, Verdict::Accepted, 7);
            let read = Ok((Verdict::OtherVersion, version, 0));
            assert_eq!(read_verdict(&other), read);
        }
        let keys = [key("abc", Uses::default())];
        let written = list(&keys).expect("a list");
        for end in 1..written.len() {
            assert_eq!(read_list(&written[..end]), Err(Broken), "{end}");
        }
        let bad_name = list(&[key("a b", Uses::default())]).expect("a list");
        assert_eq!(read_list(&bad_name), Err(Broken));
    }
}
