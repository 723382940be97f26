//! AES-GCM by EVP: OpenSSL's own beside that of the module, both in this process.

use std::time::{Duration, Instant};

use lockstep_common::{Failure, own_module};
use openssl::cipher::Cipher;
use openssl::cipher_ctx::CipherCtx;
use openssl::error::ErrorStack;
use openssl::lib_ctx::LibCtx;
use openssl::provider::Provider;
use serde_json::{Value, json};

use crate::handshakes::Side;
use crate::json::Decimal;
use crate::measure::{self, Figure, Quiet, Slice, Units};
use crate::progress::Progress;
use crate::stock;
use crate::table::Table;

/// The bytes of a message. 1,350 is the length of a packet.
const SIZES: [usize; 6] = [16, 64, 256, 1350, 16 << 10, 1 << 20];

/// Rounds at least, however short the time.
const ROUNDS: usize = 3;

const IV_BYTES: usize = 12;
const TAG_BYTES: usize = 16;
/// As much as TLS 1.3 authenticates beside a record.
const HEADER: [u8; 5] = [0x17, 0x03, 0x03, 0x40, 0x11];

/// A cipher that can be measured.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct AesGcm {
    /// As it is asked for.
    pub name: &'static str,
    key_bytes: usize,
}

impl AesGcm {
    /// All ciphers.
    pub fn all() -> impl Iterator<Item = AesGcm> {
        let all = [
            ("aes-128-gcm", 16),
            ("aes-192-gcm", 24),
            ("aes-256-gcm", 32),
        ];
        all.into_iter()
            .map(|(name, key_bytes)| AesGcm { name, key_bytes })
    }
}

/// Where a side's ciphers are from.
fn properties(side: Side) -> &'static str {
    match side {
        Side::Stock => "provider=default",
        Side::Lockstep => "provider=lockstep",
    }
}

/// The units that its work keeps busy.
fn units(side: Side) -> Units {
    match side {
        Side::Stock => Units::Scalar,
        Side::Lockstep => Units::Lanes,
    }
}

/// One figure.
pub struct Row {
    op: &'static str,
    bytes: usize,
    side: Side,
    figure: Figure,
}

impl Row {
    fn gb_per_s(&self) -> f64 {
        self.figure.ops_per_s * self.bytes as f64 / 1e9
    }

    fn cycles_per_byte(&self) -> f64 {
        self.figure.cycles_per_op / self.bytes as f64
    }

    pub fn document(&self) -> Value {
        json!({
            "op": self.op, "bytes": self.bytes, "impl": self.side.name(),
            "gb_per_s": Decimal::<3>(self.gb_per_s()),
            "cycles_per_byte": Decimal::<3>(self.cycles_per_byte()),
            "slices_kept": self.figure.kept, "slices": self.figure.all,
        })
    }
}

/// A library context with OpenSSL's own ciphers and the module's.
struct Library {
    // The providers go before the context.
    _providers: [Provider; 2],
    context: LibCtx,
}

impl Library {
    fn load() -> Result<Library, Failure> {
        let module = own_module()?;
        let directory = module.parent().unwrap_or(&module).to_string_lossy();
        let load = || -> Result<Library, ErrorStack> {
            let context = LibCtx::new()?;
            Provider::set_default_search_path(Some(&context), &directory)?;
            let load = |name| Provider::load(Some(&context), name);
            Ok(Library {
                _providers: [load("default")?, load("lockstep")?],
                context,
            })
        };
        load().map_err(|error| {
            let what = format!("libcrypto does not load {}: {error}", module.display());
            Failure::new(what).remedy("lockstep doctor")
        })
    }
}

/// One implementation that encrypts messages, one after the other.
struct Sealer {
    context: CipherCtx,
    iv: [u8; IV_BYTES],
    data: Vec<u8>,
    tag: [u8; TAG_BYTES],
}

impl Sealer {
    /// None if there is no such implementation.
    fn new(
        library: &Library,
        cipher: AesGcm,
        side: Side,
        key: &[u8],
        bytes: usize,
    ) -> Result<Option<Sealer>, ErrorStack> {
        let fetched = Cipher::fetch(Some(&library.context), cipher.name, Some(properties(side)));
        let Ok(fetched) = fetched else {
            return Ok(None);
        };
        let mut context = CipherCtx::new()?;
        context.encrypt_init(Some(&fetched), Some(key), None)?;
        Ok(Some(Sealer {
            context,
            iv: [0; IV_BYTES],
            data: vec![0; bytes],
            tag: [0; TAG_BYTES],
        }))
    }

    /// Encrypts a message with the next IV, with the calls that libssl makes for a record.
    fn seal(&mut self) -> Result<(), ErrorStack> {
        let number = self.iv.last_chunk_mut::<8>().expect("an IV is longer");
        *number = (u64::from_be_bytes(*number) + 1).to_be_bytes();
        let bytes = self.data.len();
        self.context.encrypt_init(None, None, Some(&self.iv))?;
        self.context.cipher_update(&HEADER, None)?;
        self.context.cipher_update_inplace(&mut self.data, bytes)?;
        self.context.cipher_final(&mut [])?;
        self.context.tag(&mut self.tag)
    }

    fn seal_many(&mut self, count: u64) -> Result<(), ErrorStack> {
        (0..count).try_for_each(|_| self.seal())
    }
}

/// Measures ciphers on the CPU of this thread, for so long each figure.
pub fn measure(ciphers: &[AesGcm], time: Duration) -> Result<Vec<Row>, Failure> {
    if ciphers.is_empty() {
        return Ok(Vec::new());
    }
    let library = Library::load()?;
    let mut rows = Vec::new();
    for &cipher in ciphers {
        let mut progress = Progress::new(cipher.name);
        for bytes in SIZES {
            progress.show(&format!("{bytes} bytes"));
            rows.extend(rows_of(&library, cipher, bytes, time)?);
        }
        progress.finish();
    }
    Ok(rows)
}

fn rows_of(
    library: &Library,
    cipher: AesGcm,
    bytes: usize,
    time: Duration,
) -> Result<Vec<Row>, Failure> {
    let key = stock::random(cipher.key_bytes)?;
    let mut sealers = Vec::new();
    for side in Side::ALL {
        if let Some(sealer) = Sealer::new(library, cipher, side, &key, bytes).map_err(failed)? {
            sealers.push((side, sealer));
        }
    }
    check(&mut sealers)?;
    // Each look at the clock takes as long as a short message.
    let at_once = (SIZES[4] / bytes).max(1) as u64;
    let quiet = Quiet::calibrate();
    let budget = time * sealers.len() as u32;
    let mut slices: Vec<Vec<Slice>> = vec![Vec::new(); sealers.len()];
    let mut failure = None;
    let start = Instant::now();
    while slices[0].len() < ROUNDS || start.elapsed() < budget {
        for ((side, sealer), slices) in sealers.iter_mut().zip(&mut slices) {
            slices.push(measure::slice(quiet, units(*side), || {
                if let Err(error) = sealer.seal_many(at_once) {
                    failure = Some(error);
                }
                at_once
            }));
        }
    }
    if let Some(error) = failure {
        return Err(failed(error));
    }
    let rows = sealers.iter().zip(&slices).map(|((side, _), slices)| Row {
        op: cipher.name,
        bytes,
        side: *side,
        figure: Figure::of(slices),
    });
    Ok(rows.collect())
}

fn failed(error: ErrorStack) -> Failure {
    Failure::new(format!("libcrypto does not encrypt: {error}"))
}

/// Both must make the same of some messages before it is worth measuring how fast.
fn check(sealers: &mut [(Side, Sealer)]) -> Result<(), Failure> {
    for (_, sealer) in sealers.iter_mut() {
        sealer.seal_many(3).map_err(failed)?;
    }
    let mut made = sealers.iter().map(|(_, sealer)| (&sealer.data, sealer.tag));
    let first = made.next();
    match made.all(|other| Some(other) == first) {
        true => Ok(()),
        false => Err(Failure::new(
            "the module and libcrypto encrypt differently: please report this",
        )),
    }
}

/// For reading. Ratios compare with OpenSSL.
pub fn to_table(rows: &[Row]) -> String {
    let heads = "cipher, by EVP | bytes |  | GB/s | cycles/byte | x stock | quiet slices";
    let mut table = Table::new(3, heads);
    for row in rows {
        let is_its_stock = |other: &&Row| {
            other.side == Side::Stock && (other.op, other.bytes) == (row.op, row.bytes)
        };
        let stock = rows.iter().find(is_its_stock);
        let ratio = stock.map_or("-".to_owned(), |stock| {
            format!("{:.2}", row.gb_per_s() / stock.gb_per_s())
        });
        table.add([
            row.op.to_owned(),
            row.bytes.to_string(),
            row.side.name().to_owned(),
            format!("{:.3}", row.gb_per_s()),
            format!("{:.3}", row.cycles_per_byte()),
            ratio,
            row.figure.slices(),
        ]);
    }
    let mut out = table.to_string();
    if !rows.is_empty() && rows.iter().all(|row| row.side == Side::Stock) {
        out.push_str(
            "\nThe module leaves AES-GCM to this OpenSSL, whose own code is as fast (3.1 or later, \
             or a CPU without VAES).\n",
        );
    }
    out
}
