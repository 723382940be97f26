//! Decoders of references to keys: one takes DER out of PEM, and one for each key type makes keys
//! of the DER.
//!
//! libcrypto offers the decoder of PEM every PEM block from which a program loads a private key,
//! and gives the DER to the others. OpenSSL's own file store does the same, so a program that loads
//! a key by a URI, and the `openssl` command, read references too. A decoder of PEM reads exactly
//! one block, as OpenSSL's own does. Each of these decoders leaves other blocks to other decoders.
//!
//! A decoder sees bytes, and not where they come from. So a program has these decoders only if its
//! settings say so, and the settings name the daemon's socket, not the reference.

use std::ffi::{CStr, c_int};
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use lockstep_remote::is_ml_dsa;
use lockstep_remote::reference::{HEAD, LABEL, LONGEST_FILE, Reference};
use once_cell::race::OnceBox;
use zeroize::Zeroizing;

use crate::daemon::key::Key;
use crate::daemon::reference::{Public, Referable, Unreferable};
use crate::ffi::decoder::{Decode, DoesSelection, Freectx, Newctx};
use crate::ffi::{
    Ctx, Dispatch, List, OBJECT_PKEY, OwnedKey, Passphrase, ProvCtx, Reads, Receiver, Source, name,
    raise, select,
};
use crate::host::loader::Core;
use crate::process;
use crate::stock::families::Named;

/// OpenSSL's name for the form of DER.
pub const DER: &CStr = c"DER";
/// Structure of the DER, by which libcrypto finds its decoder.
const STRUCTURE: &CStr = c"LockstepKeyReference";
/// Properties of the decoder of PEM, and of the decoders of DER.
pub const OF_PEM: &CStr = c"provider=lockstep,input=pem";
pub const OF_DER: &CStr = c"provider=lockstep,input=der,structure=LockstepKeyReference";

/// Functions by which libcrypto's BIOs are read.
static READS: OnceBox<Option<Reads>> = OnceBox::new();

/// Notes the functions for BIOs of the libcrypto that loads the module.
pub fn prepare(core: &Core) {
    READS.get_or_init(|| Box::new(Reads::of(core.table())));
}

/// A decoder of PEM.
struct Unwrapper;

/// Returns the functions of the decoder of PEM.
pub fn unwrapping() -> [Dispatch; 3] {
    [
        Newctx::entry(|_: ProvCtx| Some(Box::new(Unwrapper))),
        Freectx::entry(|ctx: Option<Box<Unwrapper>>| drop(ctx)),
        Decode::entry(unwrap),
    ]
}

/// `OSSL_FUNC_decoder_decode`: 1 without a call of `receiver` leaves the block to other decoders.
fn unwrap(
    _ctx: Ctx<'_, Unwrapper>,
    input: Source<'_>,
    selection: c_int,
    receiver: Receiver<'_>,
    _passphrase: Passphrase,
) -> c_int {
    let Some(Some(reads)) = READS.get() else {
        return 1;
    };
    let block = block(input, *reads).filter(|_| wants_private(selection));
    let Some(block) = block else { return 1 };
    match Reference::der_in(&block).and_then(|der| Reference::from_der(&der).map(|_| der)) {
        Ok(der) => {
            let list = List::<4>::new()
                .int(name::OBJECT_PARAM_TYPE, &OBJECT_PKEY)
                .utf8(name::OBJECT_PARAM_DATA_STRUCTURE, STRUCTURE)
                .octets(name::OBJECT_PARAM_DATA, &der);
            receiver.receive(list.as_params())
        }
        Err(malformed) => {
            raise(malformed);
            0
        }
    }
}

/// Returns whether a program selects the private key. 0 selects any part.
fn wants_private(selection: c_int) -> bool {
    selection == 0 || selection & select::PRIVATE_KEY != 0
}

/// A decoder of DER for one type of keys.
struct Context<K> {
    provctx: ProvCtx,
    keys: PhantomData<fn() -> K>,
}

/// Returns the functions of the decoder of DER for this type of keys.
pub fn functions<K: Referable + Named>() -> [Dispatch; 4] {
    [
        Newctx::entry(newctx::<K>),
        Freectx::entry(freectx::<K>),
        DoesSelection::entry(does_selection),
        Decode::entry(decode::<K>),
    ]
}

/// `OSSL_FUNC_decoder_newctx`
fn newctx<K>(provctx: ProvCtx) -> Option<Box<Context<K>>> {
    let keys = PhantomData;
    Some(Box::new(Context { provctx, keys }))
}

/// `OSSL_FUNC_decoder_freectx`
fn freectx<K>(ctx: Option<Box<Context<K>>>) {
    drop(ctx);
}

/// `OSSL_FUNC_decoder_does_selection`
fn does_selection(_provctx: ProvCtx, selection: c_int) -> c_int {
    c_int::from(wants_private(selection))
}

/// `OSSL_FUNC_decoder_decode`: 1 without a call of `receiver` leaves the bytes to other decoders.
fn decode<K: Referable + Named>(
    ctx: Ctx<'_, Context<K>>,
    input: Source<'_>,
    _selection: c_int,
    receiver: Receiver<'_>,
    _passphrase: Passphrase,
) -> c_int {
    let (Some(ctx), Some(Some(reads))) = (ctx, READS.get()) else {
        return 1;
    };
    let Some(bytes) = bytes(input, *reads) else {
        return 1;
    };
    match key::<K>(ctx.provctx, &bytes) {
        Ok(Some(key)) => deliver(key, receiver),
        // The key has another type.
        Ok(None) => 1,
        Err(reason) => {
            raise(reason);
            0
        }
    }
}

/// Reads all bytes of the input, if it may be a reference.
#[inline(never)]
fn bytes(mut input: Source<'_>, reads: Reads) -> Option<Vec<u8>> {
    // The head may be the start of a private key; then no more is read.
    let mut head = Zeroizing::new([0; HEAD]);
    let filled = input.fill(reads, &mut *head);
    if !Reference::may_start_with(&head[..filled]) {
        return None;
    }
    let mut bytes = vec![0; LONGEST_FILE];
    bytes[..filled].copy_from_slice(&head[..filled]);
    let rest = input.fill(reads, &mut bytes[filled..]);
    bytes.truncate(filled + rest);
    Some(bytes)
}

/// Makes the key of a reference; None if the key has another type.
fn key<K: Referable + Named>(
    provctx: ProvCtx,
    bytes: &[u8],
) -> Result<Option<OwnedKey<K>>, String> {
    let (reference, public) = parsed(bytes)?;
    if !public.is::<K>() {
        return Ok(None);
    }
    let name = reference.name.clone();
    let to = referent(reference)?;
    let key = public.key::<K>(provctx).ok_or(Unreferable::Unserved);
    let referred = key.and_then(|mut key| K::refer(&mut key, to).map(|()| key));
    match referred {
        Ok(key) => Ok(Some(key)),
        Err(why) => Err(unusable(&name, why)),
    }
}

/// Parses a reference and its public half. Not generic, so that all types of keys share the code.
#[inline(never)]
fn parsed(bytes: &[u8]) -> Result<(Reference, Public), String> {
    let reference = Reference::from_der(bytes).map_err(|malformed| malformed.to_string())?;
    if let Some(public) = Public::parse(&reference.public) {
        return Ok((reference, public));
    }
    let name = reference.name;
    Err(match is_ml_dsa(&reference.public) {
        true => format!(
            "the reference to the key {name} is one to a key of ML-DSA, which OpenSSL has from \
             3.5 on; use a system with it, or a key of another kind"
        ),
        false => {
            format!("the reference to the key {name} holds a public key that OpenSSL cannot read")
        }
    })
}

/// Returns the daemon's key of a reference, if the settings allow it.
#[inline(never)]
fn referent(reference: Reference) -> Result<Arc<Key>, String> {
    let name = &reference.name;
    let Some(socket) = process::references() else {
        return Err(format!("key {name}: the settings allow no references"));
    };
    // The author of a reference must not choose the program that answers.
    if reference.socket.as_deref().is_some_and(|own| own != socket) {
        return Err(format!(
            "the reference to the key {name} names a key daemon at {}, and this program's settings \
             name the one at {}; if both are the same, set keyd_socket in the section of the \
             module to the first path",
            reference.socket().display(),
            socket.display()
        ));
    }
    Ok(Key::new(reference, socket))
}

#[inline(never)]
fn unusable(name: &str, why: Unreferable) -> String {
    format!("key {name}: {why}")
}

/// Gives a key to libcrypto, which has the module's key management load the key. As in OpenSSL's
/// own decoders, the reference that libcrypto passes on is a pointer to the key's pointer.
fn deliver<K: Referable + Named>(key: OwnedKey<K>, receiver: Receiver<'_>) -> c_int {
    /// The bytes of a pointer.
    #[repr(C, align(8))]
    struct Pointer([u8; size_of::<usize>()]);
    let key = ManuallyDrop::new(key);
    let object = std::ptr::from_ref(&**key).expose_provenance();
    let mut pointer = Pointer(object.to_ne_bytes());
    let list = List::<4>::new()
        .int(name::OBJECT_PARAM_TYPE, &OBJECT_PKEY)
        .utf8(name::OBJECT_PARAM_DATA_TYPE, K::NAME)
        .room(name::OBJECT_PARAM_REFERENCE, &mut pointer.0);
    let answer = receiver.receive(list.as_params());
    // The key management overwrites the pointer when it loads the key.
    if usize::from_ne_bytes(pointer.0) != 0 {
        K::release(ManuallyDrop::into_inner(key));
    }
    answer
}

/// Reads the next PEM block to its end, and returns the block if it is a reference.
fn block(mut input: Source<'_>, reads: Reads) -> Option<Vec<u8>> {
    // The block may be a private key.
    let mut room = Zeroizing::new([0; 256]);
    let mut block = Vec::new();
    let mut end = None;
    // A reference without an end is rejected later.
    while let Some(length) = input.line(reads, &mut *room) {
        let line = room[..length].trim_ascii_end();
        match &end {
            None => {
                let label = line
                    .strip_prefix(b"-----BEGIN ")
                    .and_then(|rest| rest.strip_suffix(b"-----"));
                let Some(label) = label else { continue };
                end = Some([b"-----END ", label, b"-----"].concat());
            }
            Some(end) if line == end => {
                block.extend_from_slice(line);
                break;
            }
            Some(_) => {}
        }
        if is_reference(end.as_deref()) && block.len() < LONGEST_FILE {
            block.extend_from_slice(line);
            block.push(b'\n');
        }
    }
    is_reference(end.as_deref()).then_some(block)
}

/// Returns whether a block that ends with this line is a reference.
fn is_reference(end: Option<&[u8]>) -> bool {
    let label = end.and_then(|end| end.strip_prefix(b"-----END "));
    label.and_then(|label| label.strip_suffix(b"-----")) == Some(LABEL.as_bytes())
}
