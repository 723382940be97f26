//! Signs a DNS zone with one call for all signatures.
//!
//! ```text
//! openssl genpkey -algorithm ed25519 -out key.pem
//! sign_zone example.org zone key.pem signed [--nsec3] [--threads NUMBER]
//! ```
//!
//! reads the file `zone` and writes the file `signed`. A key on P-256 makes algorithm 13, a key of
//! Ed25519 algorithm 15. The key signs the zone and the DNSKEY records. For a trial,
//! `sign_zone --make 1000000 example.org zone` writes a zone of this number of names.
//! `sign_zone --time 4000000 P-256 --threads 1` signs as many record sets of such zones, piece by
//! piece, and prints the time of the cryptography alone.
//!
//! The crate `domain` reads the zone, sorts it, makes the chain of NSEC or NSEC3 records and
//! composes the bytes to sign (RFC 4034, section 3.1.8.1). It asks a key for one signature after
//! the other. [`Collector`] is a key that keeps the bytes and returns their number in the place of
//! a signature. `sign_many` then signs all of them, and each signature takes the place of its
//! number.

use std::cell::RefCell;
use std::env;
use std::error::Error;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::ops::Range;
use std::time::{Duration, Instant};

use bytes::Bytes;
use domain::base::iana::{Class, Rtype, SecurityAlgorithm};
use domain::base::name::FlattenInto;
use domain::base::zonefile_fmt::{DisplayKind, ZonefileFmt};
use domain::base::{Name, Record};
use domain::crypto::sign::{SignError, SignRaw, Signature};
use domain::dnssec::sign::SigningConfig;
use domain::dnssec::sign::denial::config::DenialConfig;
use domain::dnssec::sign::denial::nsec3::GenerateNsec3Config;
use domain::dnssec::sign::error::SigningError;
use domain::dnssec::sign::keys::SigningKey;
use domain::dnssec::sign::records::{DefaultSorter, SortedRecords};
use domain::dnssec::sign::signatures::rrsigs::sign_rrset;
use domain::dnssec::sign::traits::SignableZoneInPlace;
use domain::rdata::dnssec::Timestamp;
use domain::rdata::{Dnskey, ZoneRecordData};
use domain::zonefile::inplace::{Entry, Zonefile};
use lockstep::{Algorithm, PrivateKey, Scheme, ToSign, Workers, rows};

const USAGE: &str = "\
usage: sign_zone ORIGIN ZONE KEY.pem SIGNED [--nsec3] [--threads NUMBER]
       sign_zone --make NAMES ORIGIN ZONE
       sign_zone --time SETS P-256|Ed25519 [--threads NUMBER]";

type Data = ZoneRecordData<Bytes, Name<Bytes>>;
type Zone = SortedRecords<Name<Bytes>, Data, DefaultSorter>;
type Outcome<T = ()> = Result<T, Box<dyn Error>>;

fn main() -> Outcome {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["--make", names, origin, zone] => Ok(fs::write(zone, made(origin, 0..names.parse()?))?),
        ["--time", sets, algorithm, ref options @ ..] => {
            let (denial, workers) = chosen(options)?;
            let algorithm = Algorithm::from_name(algorithm).ok_or(USAGE)?;
            let (signed, time) = time(sets.parse()?, algorithm, denial, &workers)?;
            println!(
                "{signed} record sets, {}: {:.3} s of cryptography alone, {:.0} a second \
                 ({}, {} threads)",
                algorithm.name(),
                time.as_secs_f64(),
                signed as f64 / time.as_secs_f64(),
                workers.lanes(),
                workers.threads(),
            );
            Ok(())
        }
        [origin, zone, key, signed, ref options @ ..] if !origin.starts_with('-') => {
            let (denial, workers) = chosen(options)?;
            let start = Instant::now();
            let key = PrivateKey::from_pem(&fs::read(key)?)?;
            let zone = sign(&fs::read(zone)?, origin, &key, denial, &workers)?;
            zone.write(&mut BufWriter::new(File::create(signed)?))?;
            println!(
                "{} signatures: {:.3} s of cryptography, {:.3} s in all ({}, {} threads)",
                zone.signatures,
                zone.cryptography.as_secs_f64(),
                start.elapsed().as_secs_f64(),
                workers.lanes(),
                workers.threads(),
            );
            Ok(())
        }
        _ => Err(USAGE.into()),
    }
}

/// Reads the options.
fn chosen(options: &[&str]) -> Outcome<(Denial, Workers)> {
    let (mut denial, mut workers) = (Denial::Nsec, Workers::new());
    let mut options = options.iter();
    while let Some(option) = options.next() {
        match (*option, options.as_slice().first()) {
            ("--nsec3", _) => denial = Denial::Nsec3,
            ("--threads", Some(number)) => {
                workers = workers.with_threads(number.parse()?);
                options.next();
            }
            _ => return Err(USAGE.into()),
        }
    }
    Ok((denial, workers))
}

/// Signs at least this number of record sets with a new key, in zones of [`NAMES`] names; returns
/// how many, and the time of the cryptography alone.
pub(crate) fn time(
    sets: usize,
    algorithm: Algorithm,
    denial: Denial,
    workers: &Workers,
) -> Outcome<(usize, Duration)> {
    let pair = workers.generate_many(algorithm, 1)?;
    let key = PrivateKey::from_raw(algorithm, pair.secret(0))?;
    let (mut first, mut signed, mut time) = (0, 0, Duration::ZERO);
    while signed < sets {
        // Each name has two record sets or more.
        let names = NAMES.min((sets - signed).div_ceil(2));
        let text = made("example.org", first..first + names);
        let zone = sign(text.as_bytes(), "example.org", &key, denial, workers)?;
        first += names;
        signed += zone.signatures;
        time += zone.cryptography;
    }
    Ok((signed, time))
}

/// Number of names of the zones that are timed, which take some hundred megabytes each.
const NAMES: usize = 100_000;

/// How a zone proves that a name does not exist.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Denial {
    /// NSEC (RFC 4034).
    Nsec,
    /// NSEC3 without further iterations, salt and opt-out (RFC 5155, RFC 9276).
    Nsec3,
}

/// A signed zone.
pub(crate) struct Signed {
    /// All records, in canonical order.
    records: Vec<Record<Name<Bytes>, Data>>,
    /// Number of signatures.
    pub(crate) signatures: usize,
    /// Time that the signatures took, without the rest.
    pub(crate) cryptography: Duration,
}

/// Validity of the signatures: from an hour ago, for clocks that are slow, for 30 days.
const SLACK: u32 = 3600;
const VALIDITY: u32 = 30 * 24 * 3600;

/// Flags of a key that signs the zone and is a secure entry point (RFC 4034, section 2.1.1).
const FLAGS: u16 = 257;

/// Signs a zone file.
pub(crate) fn sign(
    text: &[u8],
    origin: &str,
    key: &PrivateKey,
    denial: Denial,
    workers: &Workers,
) -> Outcome<Signed> {
    let apex: Name<Bytes> = origin.parse()?;
    let mut zone = read(text, &apex)?;
    let (dnskey, scheme) = dnskey(key)?;
    let soa = zone.find_soa().ok_or("the zone has no SOA record")?;
    let public = Bytes::from(dnskey.public_key().clone());
    let own = Dnskey::new(FLAGS, 3, dnskey.algorithm(), public)?;
    let own = Record::new(apex.clone(), soa.class(), soa.ttl(), own.into());
    zone.extend([own]);

    let now = Timestamp::now().into_int();
    let inception = Timestamp::from(now.wrapping_sub(SLACK));
    let expiration = Timestamp::from(now.wrapping_add(VALIDITY));
    let denial = match denial {
        Denial::Nsec => DenialConfig::default(),
        Denial::Nsec3 => DenialConfig::Nsec3(GenerateNsec3Config::default()),
    };
    let config = SigningConfig::new(denial, inception, expiration);
    let signer = SigningKey::new(apex.clone(), FLAGS, Collector::new(dnskey));
    let told = |error: SigningError| error.to_string();
    zone.sign_zone(&apex, &config, &[&signer]).map_err(told)?;
    // `sign_zone` leaves out the sets that a key-signing key signs.
    let is_of_keys = |kind| matches!(kind, Rtype::DNSKEY | Rtype::CDS | Rtype::CDNSKEY);
    let of_keys = zone
        .rrsets()
        .filter(|set| is_of_keys(set.rtype()) && *set.owner() == apex)
        .map(|set| sign_rrset(&signer, &set, inception, expiration));
    let of_keys = of_keys.collect::<Result<Vec<_>, _>>().map_err(told)?;
    zone.extend(of_keys.into_iter().map(Record::from_record));

    let messages = signer.raw_secret_key().messages.take();
    let items = rows(messages.len(), |number| {
        ToSign::new(key, messages.get(number))
    });
    let start = Instant::now();
    let signatures = workers.sign_many(scheme, &items)?;
    let cryptography = start.elapsed();

    let mut records = zone.into_inner();
    for record in &mut records {
        if let ZoneRecordData::Rrsig(rrsig) = record.data_mut() {
            let signature = signatures.get(Collector::number(rrsig.signature()))?;
            rrsig.set_signature(Bytes::copy_from_slice(signature));
        }
    }
    Ok(Signed {
        records,
        signatures: signatures.len(),
        cryptography,
    })
}

/// Reads a zone without signatures.
fn read(text: &[u8], apex: &Name<Bytes>) -> Outcome<Zone> {
    let mut file = Zonefile::from(text);
    file.set_origin(apex.clone());
    file.set_default_class(Class::IN);
    let mut records = Vec::new();
    while let Some(entry) = file.next_entry()? {
        let Entry::Record(record) = entry else {
            return Err("an included file: put its records into the zone file".into());
        };
        let record: Record<Name<Bytes>, Data> = record.flatten_into();
        if let kind @ (Rtype::RRSIG | Rtype::NSEC | Rtype::NSEC3 | Rtype::NSEC3PARAM) =
            record.rtype()
        {
            return Err(format!("the zone has {kind} records: pass it without signatures").into());
        }
        records.push(record);
    }
    let zone = Zone::from(records);
    for pair in zone.windows(2) {
        let [one, other] = pair else { continue };
        if one.owner() == other.owner() && one.rtype() == other.rtype() && one.ttl() != other.ttl()
        {
            let (owner, kind) = (one.owner(), one.rtype());
            return Err(format!("the {kind} records of {owner} have several TTLs").into());
        }
    }
    Ok(zone)
}

/// Returns the record data of the key's public half (RFC 6605, RFC 8080), and its scheme.
fn dnskey(key: &PrivateKey) -> Outcome<(Dnskey<Vec<u8>>, Scheme)> {
    let public = key.public();
    let raw = public.raw().unwrap_or_default();
    let (algorithm, scheme, bytes) = match key.algorithm() {
        // Without the byte that says that the point is not compressed.
        Algorithm::P256 => (SecurityAlgorithm::ECDSAP256SHA256, Scheme::ES256, &raw[1..]),
        Algorithm::Ed25519 => (SecurityAlgorithm::ED25519, Scheme::ED25519, raw),
        other => return Err(format!("{} signs no zones here", other.name()).into()),
    };
    let key = Dnskey::new(FLAGS, 3, algorithm, bytes.to_vec())?;
    Ok((key, scheme))
}

/// A key that signs later.
#[derive(Debug)]
struct Collector {
    dnskey: Dnskey<Vec<u8>>,
    messages: RefCell<Messages>,
}

impl Collector {
    fn new(dnskey: Dnskey<Vec<u8>>) -> Collector {
        let messages = RefCell::default();
        Collector { dnskey, messages }
    }

    /// Returns the number in the place of a signature.
    fn number(signature: &[u8]) -> usize {
        let number = signature
            .first_chunk()
            .map(|bytes| u64::from_le_bytes(*bytes));
        number.unwrap_or(u64::MAX) as usize
    }
}

impl SignRaw for Collector {
    fn algorithm(&self) -> SecurityAlgorithm {
        self.dnskey.algorithm()
    }

    fn dnskey(&self) -> Dnskey<Vec<u8>> {
        self.dnskey.clone()
    }

    fn sign_raw(&self, data: &[u8]) -> Result<Signature, SignError> {
        let number = self.messages.borrow_mut().push(data);
        let mut place = Box::new([0; 64]);
        place[..8].copy_from_slice(&(number as u64).to_le_bytes());
        Ok(match self.algorithm() {
            SecurityAlgorithm::ED25519 => Signature::Ed25519(place),
            _ => Signature::EcdsaP256Sha256(place),
        })
    }
}

/// Messages, one behind the other.
#[derive(Debug, Default)]
struct Messages {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Messages {
    fn len(&self) -> usize {
        self.ends.len()
    }

    /// Adds a message; returns its number.
    fn push(&mut self, message: &[u8]) -> usize {
        self.bytes.extend_from_slice(message);
        self.ends.push(self.bytes.len());
        self.ends.len() - 1
    }

    fn get(&self, number: usize) -> &[u8] {
        let start = match number {
            0 => 0,
            number => self.ends[number - 1],
        };
        &self.bytes[start..self.ends[number]]
    }
}

impl Signed {
    /// Writes the zone as a zone file, the SOA record first.
    pub(crate) fn write(&self, file: &mut impl Write) -> Outcome {
        let is_soa = |record: &&Record<_, Data>| record.rtype() == Rtype::SOA;
        let first = self.records.iter().filter(is_soa);
        let others = self.records.iter().filter(|record| !is_soa(record));
        for record in first.chain(others) {
            writeln!(file, "{}", record.display_zonefile(DisplayKind::Simple))?;
        }
        Ok(file.flush()?)
    }
}

/// Returns a zone of names with these numbers: delegations, hosts, texts, mail exchangers, aliases,
/// wildcards, and names below others that have no records.
pub(crate) fn made(origin: &str, names: Range<usize>) -> String {
    let mut zone = format!(
        "$ORIGIN {}.\n$TTL 3600\n\
         @ SOA ns hostmaster 1 7200 900 1209600 300\n\
         @ NS ns\n@ NS ns.Elsewhere.example.\nns A 192.0.2.1\nns AAAA 2001:db8::1\n",
        origin.trim_end_matches('.')
    );
    for number in names {
        let (a, b) = ((number >> 8) & 255, number & 255);
        // A String takes all that is written to it.
        let _ = match number % 8 {
            0 => writeln!(
                zone,
                "n{number} NS ns.n{number}\nns.n{number} A 198.51.{a}.{b}"
            ),
            1 => writeln!(
                zone,
                "n{number} NS ns.elsewhere.example.\nn{number} NS NS2.elsewhere.example.\n\
                 n{number} DS {a} 13 2 {number:064x}"
            ),
            2 => writeln!(
                zone,
                "Host{number} A 203.0.{a}.{b}\nHost{number} A 203.1.{a}.{b}\n\
                 Host{number} AAAA 2001:db8::{number:x}"
            ),
            3 => writeln!(
                zone,
                "n{number} TXT \"a text; with a \\\"quote\\\"\" \"{}\"",
                "x".repeat(b)
            ),
            4 => writeln!(zone, "n{number} MX 10 Mail\nn{number} A 203.0.{a}.{b}"),
            5 => writeln!(zone, "n{number} CNAME ns"),
            6 => writeln!(zone, "*.n{number} A 203.0.{a}.{b}"),
            _ => writeln!(zone, "a.b.n{number} SRV 1 2 443 ns"),
        };
    }
    zone
}
