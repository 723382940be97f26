//! The messages on the daemon's socket, and the meaning of the numbers in a ring.
//!
//! A client connects and sends a greeting. The daemon answers with a verdict; if it welcomes the
//! client, a ring comes with it, and the list of keys that the client may use follows. Nothing more
//! is sent. Each side learns of the other's end by the end of the connection.
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
//! A package is upgraded while the daemon and its clients run, and each of them is restarted when
//! somebody likes. So both sides speak two versions: their own, and that of the release before. A
//! client greets with the latest that it speaks. The daemon answers in the latest that both speak.
//! It turns a client away in the earlier version, which is known to all whom it could serve.
//!
//! | version | what it changed |
//! |---|---|
//! | 3 | a daemon turned away each greeting of another version, and named its own |
//! | 4 | it answers a later one in its own. A client whose greeting an earlier daemon turned away greets once more, in that one's version. Keys of ML-DSA, and rings with long answers for those who may use one |

use std::fmt;

use crate::reference::{LONGEST_NAME, is_name};

const MAGIC: [u8; 8] = *b"keyd1\r\n\0";
/// Changes with the messages, with the operations and their numbers, and with the layout of the
/// ring. What differs between two versions is told apart in this file.
pub const VERSION: u32 = 4;
/// The version of the release before.
pub const EARLIER: u32 = VERSION - 1;
/// The length of a greeting.
pub const GREETING: usize = 12;
/// The length of a verdict.
pub const VERDICT: usize = 20;
/// The longest list of keys.
pub const LONGEST_LIST: usize = 4 << 20;

/// What a client asks for. The result of each is of a length that the key tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Operation {
    /// input^d mod n: both as long as the modulus.
    RsaPrivate = 1,
    /// A digest, to r ‖ s.
    EcdsaSign = 2,
    /// A message, to R ‖ S.
    Ed25519Sign = 3,
    /// The same as `RsaPrivate`, for a process that has the key itself and asks to save CPU time:
    /// the daemon may wait for others to share a pass with.
    DeferrableRsaPrivate = 4,
    /// ML-DSA: μ, 64 bytes that stand for the message and its context, to a signature. The daemon
    /// draws what hedges it.
    MlDsaSign = 5,
    /// The same without anything drawn: the same μ has the same signature.
    DeterministicMlDsaSign = 6,
}

impl Operation {
    /// Every operation.
    pub const ALL: [Operation; 6] = [
        Operation::RsaPrivate,
        Operation::EcdsaSign,
        Operation::Ed25519Sign,
        Operation::DeferrableRsaPrivate,
        Operation::MlDsaSign,
        Operation::DeterministicMlDsaSign,
    ];

    /// The operation with this number.
    pub fn from_number(number: u16) -> Option<Operation> {
        Self::ALL.into_iter().find(|own| *own as u16 == number)
    }

    /// Whether the operation with this number may wait for others.
    pub fn is_deferrable(number: u16) -> bool {
        number == Operation::DeferrableRsaPrivate as u16
    }
}

/// Statuses of answers, beside those of the ring.
pub mod status {
    pub use lockstep_ring::status::DONE;
    /// The client may not use the key so, or there is no such key.
    pub const FORBIDDEN: u16 = 1;
    /// The input does not fit the key or the operation.
    pub const UNFIT: u16 = 2;
    /// The client has asked for more than its share. It may ask again.
    pub const BUSY: u16 = 3;
    /// The daemon could not do it.
    pub const FAILED: u16 = 4;
}

/// How the daemon answers a greeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Verdict {
    /// The ring is here, and the list follows.
    Welcome = 0,
    /// The daemon serves as many clients as it may.
    Full = 1,
    /// The client may use none of the keys.
    Stranger = 2,
    /// The daemon speaks another version.
    OtherVersion = 3,
    /// The daemon could not make a ring.
    Failed = 4,
}

impl Verdict {
    const ALL: [Verdict; 5] = [
        Verdict::Welcome,
        Verdict::Full,
        Verdict::Stranger,
        Verdict::OtherVersion,
        Verdict::Failed,
    ];
}

/// What a client may do with a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Uses {
    /// Have signatures made.
    pub sign: bool,
    /// Have any number raised to the private exponent: decrypt, and so sign what it likes as well.
    pub decrypt: bool,
}

impl Uses {
    /// Whether it may do anything.
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
    /// What stands for it in the ring.
    pub handle: u64,
    /// What it may be used for.
    pub uses: Uses,
    /// Its name.
    pub name: String,
    /// Its public half, as a SubjectPublicKeyInfo.
    pub public: Vec<u8>,
}

/// A message does not keep to the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;

/// The version in which the daemon serves a client that greets in this one; `None` if there is none
/// that both speak.
pub fn common(greeted: u32) -> Option<u32> {
    let common = greeted.min(VERSION);
    (common >= EARLIER).then_some(common)
}

/// Whether clients of a version know keys of ML-DSA, and rings with long answers.
pub fn has_ml_dsa(version: u32) -> bool {
    version >= 4
}

/// A client's first message, in a version that it speaks.
pub fn greeting(version: u32) -> [u8; GREETING] {
    let mut bytes = [0; GREETING];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..].copy_from_slice(&version.to_le_bytes());
    bytes
}

/// The version in a greeting.
pub fn read_greeting(bytes: &[u8; GREETING]) -> Result<u32, Broken> {
    let mut rest = Rest(bytes);
    rest.magic()?;
    rest.u32()
}

/// The daemon's answer to a greeting that it does not welcome. Every client reads it that speaks a
/// version which the daemon does.
pub fn refusal(why: Verdict) -> [u8; VERDICT] {
    verdict(EARLIER, why, 0)
}

/// The daemon's answer to a greeting, in the version that both speak.
pub fn verdict(version: u32, verdict: Verdict, list_bytes: usize) -> [u8; VERDICT] {
    let mut bytes = [0; VERDICT];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&version.to_le_bytes());
    bytes[12..16].copy_from_slice(&(verdict as u32).to_le_bytes());
    bytes[16..].copy_from_slice(&(list_bytes as u32).to_le_bytes());
    bytes
}

/// A verdict, the version that the daemon speaks, and the length of the list behind it.
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

/// How many bytes of a list a key takes.
pub fn listed_bytes(name: &str, public: &[u8]) -> usize {
    12 + name.len() + public.len()
}

/// A list of keys; `None` for what no list can hold.
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

/// The keys in a list.
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

/// What is not read yet of a message.
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
        // The release before knows no other version than its own.
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
        // Of its key, 14 bytes of a list are no public half.
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
        let welcome = |length| read_verdict(&verdict(VERSION, Verdict::Welcome, length));
        assert_eq!(welcome(4 << 20), Ok((Verdict::Welcome, VERSION, 4 << 20)));
        assert_eq!(welcome((4 << 20) + 1), Err(Broken));
    }

    #[test]
    fn what_is_no_message_is_refused() {
        let mut other = greeting(VERSION);
        other[0] ^= 1;
        assert_eq!(read_greeting(&other), Err(Broken));
        let mut long = verdict(VERSION, Verdict::Welcome, 0);
        long[16..].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(read_verdict(&long), Err(Broken));
        let mut unknown = verdict(VERSION, Verdict::Welcome, 0);
        unknown[12] = 99;
        assert_eq!(read_verdict(&unknown), Err(Broken));
        for version in [EARLIER - 1, VERSION + 1] {
            let other = verdict(version, Verdict::Welcome, 7);
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
