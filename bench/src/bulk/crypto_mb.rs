//! Intel's `crypto_mb`, from a shared library that is named at run time: eight items at a time.
//!
//! It gives digests, nonces and words of scalars to the library's functions, and the memory for
//! their results. All of that counts.

#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::ptr;

use lockstep_common::Failure;

use super::candidate::{Answer, Candidate, REFUSED};
use super::data::{Algorithm, Data, Kind};
use super::ecdsa::digest;

/// The name of this side.
pub const NAME: &str = "crypto_mb";

/// Number of items of a call.
const LANES: usize = 8;

/// Words of the longest scalar.
const WORDS: usize = 6;

/// Bytes that are read, and bytes that are written.
type Inputs = [*const u8; LANES];
type Outputs = [*mut u8; LANES];
type Scalars = [*const u64; LANES];

type VerifyEcdsa = unsafe extern "C" fn(
    r: *const *const u8,
    s: *const *const u8,
    digest: *const *const u8,
    x: *const *const u64,
    y: *const *const u64,
    z: *const *const u64,
    memory: *mut u8,
) -> u32;
type SignEcdsa = unsafe extern "C" fn(
    r: *const *mut u8,
    s: *const *mut u8,
    digest: *const *const u8,
    nonce: *const *const u64,
    secret: *const *const u64,
    memory: *mut u8,
) -> u32;
type VerifyEd25519 = unsafe extern "C" fn(
    r: *const *const u8,
    s: *const *const u8,
    message: *const *const u8,
    length: *const u32,
    public: *const *const u8,
) -> u32;
type SignEd25519 = unsafe extern "C" fn(
    r: *const *mut u8,
    s: *const *mut u8,
    message: *const *const u8,
    length: *const u32,
    secret: *const *const u8,
    public: *const *const u8,
) -> u32;
type Agree = unsafe extern "C" fn(
    shared: *const *mut u8,
    secret: *const *const u8,
    public: *const *const u8,
) -> u32;

/// What `mbx_getversion` returns.
#[repr(C)]
struct Version {
    numbers: [c_int; 3],
    target: [c_char; 4],
    texts: [*const c_char; 3],
}

/// The loaded library. It stays loaded until the process ends.
pub struct Library {
    handle: *mut c_void,
}

// SAFETY: `dlsym`, the only function that takes the handle, may be called by any thread.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

impl Library {
    /// Loads the library from a file.
    pub fn load(path: &Path) -> Result<Library, Failure> {
        let failed = |why: &str| {
            let line = format!("cannot load {}: {why}", path.display());
            Failure::new(line).remedy("build it: docs/benchmarks/against-others.md says how")
        };
        let name = CString::new(path.as_os_str().as_bytes()).map_err(|_| failed("a bad name"))?;
        // SAFETY: the name ends in zero. The caller vouches for the initialisers of the library.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
        match handle.is_null() {
            true => Err(failed(&last_error())),
            false => Ok(Library { handle }),
        }
    }

    /// Returns its version.
    pub fn version(&self) -> Option<String> {
        type Version = unsafe extern "C" fn() -> *const self::Version;
        // SAFETY: this is the type of the function by the library's header.
        let version: Version = unsafe { self.symbol("mbx_getversion") }.ok()?;
        // SAFETY: it takes nothing, and returns a constant of the library or null.
        let [major, minor, patch] = unsafe { version().as_ref() }?.numbers;
        Some(format!("{major}.{minor}.{patch}"))
    }

    /// The library, if it has the operation.
    pub fn candidate<'a>(&self, data: &'a Data) -> Result<Option<Candidate<'a>>, Failure> {
        let curve = match data.operation.algorithm {
            Algorithm::P256 => "nistp256",
            Algorithm::P384 => "nistp384",
            _ => "",
        };
        let candidate = match (data.operation.algorithm, data.operation.kind) {
            // Its function for key agreement is not called here yet.
            (Algorithm::P256 | Algorithm::P384, Kind::Agree) => return Ok(None),
            (Algorithm::P256 | Algorithm::P384, Kind::Sign) => {
                // SAFETY: this is the type of the function by the library's header.
                let sign = unsafe { self.symbol(&format!("mbx_{curve}_ecdsa_sign_mb8")) }?;
                sign_ecdsa(data, sign)
            }
            (Algorithm::P256 | Algorithm::P384, _) => {
                // SAFETY: as above.
                let verify = unsafe { self.symbol(&format!("mbx_{curve}_ecdsa_verify_mb8")) }?;
                verify_ecdsa(data, verify)
            }
            (Algorithm::Ed25519, Kind::Sign) => {
                // SAFETY: as above.
                let sign = unsafe { self.symbol("mbx_ed25519_sign_mb8") }?;
                sign_ed25519(data, sign)
            }
            (Algorithm::Ed25519, _) => {
                // SAFETY: as above.
                let verify = unsafe { self.symbol("mbx_ed25519_verify_mb8") }?;
                verify_ed25519(data, verify)
            }
            (Algorithm::X25519, _) => {
                // SAFETY: as above.
                let agree = unsafe { self.symbol("mbx_x25519_mb8") }?;
                agree_x25519(data, agree)
            }
            _ => return Ok(None),
        };
        Ok(Some(candidate))
    }

    /// Returns a function of the library.
    ///
    /// # Safety
    ///
    /// `F` is the type of a pointer to the function.
    unsafe fn symbol<F: Copy>(&self, name: &str) -> Result<F, Failure> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        let missing = || Failure::new(format!("the library has no {name}: {}", last_error()));
        let text = CString::new(name).map_err(|_| missing())?;
        // SAFETY: the handle is that of a loaded library, and the name ends in zero.
        let function = unsafe { libc::dlsym(self.handle, text.as_ptr()) };
        match function.is_null() {
            true => Err(missing()),
            // SAFETY: the sizes are the same, and the caller vouches for the type.
            false => Ok(unsafe { std::mem::transmute_copy(&function) }),
        }
    }
}

/// Why the dynamic linker has failed.
fn last_error() -> String {
    // SAFETY: it takes nothing.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "no reason is known".to_owned();
    }
    // SAFETY: the text ends in zero, and stays until this thread calls the linker again.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_string_lossy().into_owned()
}

/// Items of a call: the last one fills the lanes behind it.
fn calls(items: Range<usize>) -> impl Iterator<Item = (Range<usize>, [usize; LANES])> {
    let end = items.end;
    items.step_by(LANES).map(move |start| {
        let lanes = std::array::from_fn(|lane| (start + lane).min(end - 1));
        (start..(start + LANES).min(end), lanes)
    })
}

/// Whether a lane has succeeded, by the status of a call.
fn is_right(status: u32, lane: usize) -> bool {
    (status >> (4 * lane)) & 0xf == 0
}

fn verdicts(call: Range<usize>, status: u32, take: &mut dyn FnMut(usize, Answer<'_>)) {
    for (lane, item) in call.enumerate() {
        take(
            item,
            is_right(status, lane).then_some(&[][..]).ok_or(REFUSED),
        );
    }
}

/// Words of a number, the lowest first.
fn words(bytes: &[u8]) -> [u64; WORDS] {
    let mut words = [0; WORDS];
    for (word, bytes) in words.iter_mut().zip(bytes.rchunks_exact(8)) {
        *word = u64::from_be_bytes(bytes.try_into().expect("a chunk has eight bytes"));
    }
    words
}

fn pointers<T, const N: usize>(rows: &[[T; N]; LANES]) -> [*const T; LANES] {
    rows.each_ref().map(|row| row.as_ptr())
}

fn verify_ecdsa(data: &Data, verify: VerifyEcdsa) -> Candidate<'_> {
    let algorithm = data.operation.algorithm;
    let point = |public: &[u8]| {
        let (x, y) = public[1..].split_at(public.len() / 2);
        [words(x), words(y)]
    };
    let few = match data.operation.kind {
        Kind::VerifyFew => data
            .pairs()
            .iter()
            .map(|pair| point(&pair.public))
            .collect(),
        _ => Vec::new(),
    };
    Candidate::new(NAME, move |items, take| {
        for (call, lanes) in calls(items) {
            let points = lanes.map(|item| match few.get(data.key(item)) {
                Some(point) => *point,
                None => point(data.public(item)),
            });
            let (x, y) = (points.map(|[x, _]| x), points.map(|[_, y]| y));
            let digests = lanes.map(|item| digest(algorithm, data.message(item)));
            let digests: Inputs = digests.each_ref().map(|digest| digest.as_ptr());
            let halves = lanes.map(|item| {
                let signature = data.signature(item);
                signature.split_at(signature.len() / 2)
            });
            let (r, s) = (
                halves.map(|half| half.0.as_ptr()),
                halves.map(|half| half.1.as_ptr()),
            );
            let (x, y): (Scalars, Scalars) = (pointers(&x), pointers(&y));
            // SAFETY: each array has eight pointers. Each of them points to as many bytes or words
            // as a number of the curve has, which live until the end of this block. Without z the
            // points are affine, and without memory the library uses its stack.
            let status = unsafe {
                verify(
                    r.as_ptr(),
                    s.as_ptr(),
                    digests.as_ptr(),
                    x.as_ptr(),
                    y.as_ptr(),
                    ptr::null(),
                    ptr::null_mut(),
                )
            };
            verdicts(call, status, take);
        }
    })
}

fn sign_ecdsa(data: &Data, sign: SignEcdsa) -> Candidate<'_> {
    let algorithm = data.operation.algorithm;
    let (secret, length) = (words(&data.own().secret), data.own().secret.len());
    Candidate::new(NAME, move |items, take| {
        let secrets: Scalars = [secret.as_ptr(); LANES];
        for (call, lanes) in calls(items) {
            let digests = lanes.map(|item| digest(algorithm, data.message(item)));
            let digests: Inputs = digests.each_ref().map(|digest| digest.as_ptr());
            let mut random = [[0; 8 * WORDS]; LANES];
            let drawn = getrandom::fill(&mut random.as_flattened_mut()[..LANES * length]);
            // A nonce that is not below the order comes once in 2^32 draws; the call then fails.
            let flat = random.as_flattened();
            let nonces: [[u64; WORDS]; LANES] =
                std::array::from_fn(|lane| words(&flat[length * lane..][..length]));
            let nonces: Scalars = pointers(&nonces);
            let mut signatures = [[0; 16 * WORDS]; LANES];
            let places = signatures.each_mut();
            let places = places.map(|place| place.split_at_mut(length));
            let places = places.map(|(r, s)| [r.as_mut_ptr(), s.as_mut_ptr()]);
            let (r, s): (Outputs, Outputs) =
                (places.map(|place| place[0]), places.map(|place| place[1]));
            // SAFETY: each array has eight pointers. Each of them points to as many bytes or words
            // as a number of the curve has, which live until the end of this block; the places of
            // r and s do not overlap. Without memory the library uses its stack.
            let status = unsafe {
                sign(
                    r.as_ptr(),
                    s.as_ptr(),
                    digests.as_ptr(),
                    nonces.as_ptr(),
                    secrets.as_ptr(),
                    ptr::null_mut(),
                )
            };
            for (lane, item) in call.enumerate() {
                let is_right = drawn.is_ok() && is_right(status, lane);
                let signature = &signatures[lane][..2 * length];
                take(
                    item,
                    is_right.then_some(signature).ok_or("the library fails"),
                );
            }
        }
    })
}

fn verify_ed25519(data: &Data, verify: VerifyEd25519) -> Candidate<'_> {
    Candidate::new(NAME, move |items, take| {
        for (call, lanes) in calls(items) {
            let halves = lanes.map(|item| data.signature(item).split_at(32));
            let (r, s) = (
                halves.map(|half| half.0.as_ptr()),
                halves.map(|half| half.1.as_ptr()),
            );
            let messages: Inputs = lanes.map(|item| data.message(item).as_ptr());
            let lengths = lanes.map(|item| data.message(item).len() as u32);
            let publics: Inputs = lanes.map(|item| data.public(item).as_ptr());
            // SAFETY: each array has eight entries. The pointers are to 32 bytes each, those of
            // messages to as many bytes as their lengths say, and all of them outlive the call.
            let status = unsafe {
                verify(
                    r.as_ptr(),
                    s.as_ptr(),
                    messages.as_ptr(),
                    lengths.as_ptr(),
                    publics.as_ptr(),
                )
            };
            verdicts(call, status, take);
        }
    })
}

fn sign_ed25519(data: &Data, sign: SignEd25519) -> Candidate<'_> {
    Candidate::new(NAME, move |items, take| {
        let secrets: Inputs = [data.own().secret.as_ptr(); LANES];
        let publics: Inputs = [data.own().public.as_ptr(); LANES];
        for (call, lanes) in calls(items) {
            let messages: Inputs = lanes.map(|item| data.message(item).as_ptr());
            let lengths = lanes.map(|item| data.message(item).len() as u32);
            let mut signatures = [[0; 64]; LANES];
            let places = signatures.each_mut();
            let places = places.map(|place| place.split_at_mut(32));
            let places = places.map(|(r, s)| [r.as_mut_ptr(), s.as_mut_ptr()]);
            let (r, s): (Outputs, Outputs) =
                (places.map(|place| place[0]), places.map(|place| place[1]));
            // SAFETY: as in `verify_ed25519`; the places of r and s do not overlap.
            let status = unsafe {
                sign(
                    r.as_ptr(),
                    s.as_ptr(),
                    messages.as_ptr(),
                    lengths.as_ptr(),
                    secrets.as_ptr(),
                    publics.as_ptr(),
                )
            };
            give(call, status, &signatures, take);
        }
    })
}

fn agree_x25519(data: &Data, agree: Agree) -> Candidate<'_> {
    Candidate::new(NAME, move |items, take| {
        let secrets: Inputs = [data.own().secret.as_ptr(); LANES];
        for (call, lanes) in calls(items) {
            let publics: Inputs = lanes.map(|item| data.public(item).as_ptr());
            let mut shared = [[0; 32]; LANES];
            let places: Outputs = shared.each_mut().map(|place| place.as_mut_ptr());
            // SAFETY: each array has eight pointers to 32 bytes each, which outlive the call.
            let status = unsafe { agree(places.as_ptr(), secrets.as_ptr(), publics.as_ptr()) };
            give(call, status, &shared, take);
        }
    })
}

fn give<const N: usize>(
    call: Range<usize>,
    status: u32,
    results: &[[u8; N]; LANES],
    take: &mut dyn FnMut(usize, Answer<'_>),
) {
    for (lane, item) in call.enumerate() {
        let result = is_right(status, lane).then_some(&results[lane][..]);
        take(item, result.ok_or("the library fails"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_words_and_a_call_has_eight_items() {
        let number: Vec<u8> = (1..=16).collect();
        assert_eq!(
            words(&number)[..3],
            [0x090a_0b0c_0d0e_0f10, 0x0102_0304_0506_0708, 0]
        );
        let all: Vec<_> = calls(5..15).collect();
        assert_eq!(all[0], (5..13, [5, 6, 7, 8, 9, 10, 11, 12]));
        assert_eq!(all[1], (13..15, [13, 14, 14, 14, 14, 14, 14, 14]));
        assert!(is_right(0x8000_0020, 0) && !is_right(0x8000_0020, 1) && !is_right(0x8000_0020, 7));
    }

    #[test]
    fn a_file_that_is_no_library_is_refused() {
        let failure = Library::load(Path::new("/dev/null")).err().unwrap();
        let failure = format!("{failure:?}");
        assert!(failure.contains("cannot load /dev/null"), "{failure}");
    }
}
