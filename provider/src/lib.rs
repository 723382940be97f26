//! `lockstep.so`: an OpenSSL 3 provider that runs public key operations on vector lanes.
//!
//! The module is an *overlay* over OpenSSL's own default provider. Its dispatch tables are the
//! default provider's tables, function by function; what differs is the arithmetic inside a key
//! object, whose `RSA_METHOD` or `EC_KEY_METHOD` hands it to the engine. Padding, digests,
//! parameters, encodings and errors are OpenSSL's own code, of the version that is installed.
//! X25519 and Ed25519 keys have no method: there the exchange and the signature are [`keys::wrapped`].
//! And TLS 1.3's key derivation ([`tls13_kdf`]) is done here, as OpenSSL spends more on its
//! look-ups than on hashing, and so is AES-GCM for OpenSSL 3.0 ([`aes_gcm`]).
//!
//! [`ffi`] has OpenSSL's C interface, and the shims by which C calls the module's safe functions;
//! [`host::c_library`] has functions of the C library. [`host::loader`] binds our calls to the libcrypto that
//! loads us, which it finds among the files that are [`host::mapped`]. The way of a signature, in files:
//! [`stock`] finds the default provider's tables, [`host::instance`] the default provider of the
//! application, whose context they work with; [`overlay`] offers them, with the functions wrapped
//! that make keys ([`keys::keymgmt`], [`keys::generation`]); [`keys::rsa_method`], [`keys::ec_method`], [`keys::xdh`] and
//! [`keys::eddsa`] take the arithmetic, with what is [`keys::attached`] to a key object, [`jobs::async_job`] pauses
//! an async job instead of blocking its thread (what it waits for lies in its [`jobs::wait_ctx`]),
//! [`host::stack`] finds room for a thread that has little, [`host::settings`] reads `openssl.cnf`, and
//! [`process`] owns the engine of this process.
//! Keys that the key daemon holds come in by a [`daemon::decoder`] of files that name them
//! ([`daemon::reference`], [`keys::ed25519_keys`]). [`daemon::key`] asks the daemon for their operations, over
//! the connection of this process ([`daemon::connection`]); an async job finds the answer in [`jobs::answer`].
//! The daemon may also be asked for what this process could compute itself ([`keys::shared_key`]).
//! In a program whose processes share OpenSSL's objects, the module offers nothing
//! ([`host::shared_memory`]). `docs/decisions/0001-overlay.md` and `0004-curves.md` say why.

#![allow(unsafe_code, reason = "calls of libcrypto, and calls by it")]

mod aes_gcm;
mod ahead;
mod daemon;
#[cfg(feature = "fault-injection")]
mod fault;
mod ffi;
mod first;
mod host;
mod jobs;
mod kem;
mod keys;
mod overlay;
mod params;
mod process;
mod stock;
mod tls13_kdf;

use std::ffi::{c_int, c_void};

use ffi::{CoreHandle, Dispatch, ProvCtx, Terminated, provider};
use host::loader::Core;

/// Entry point of the module, called by libcrypto once per library context that loads it.
///
/// Returns 1, or 0 with the reason in the error queue of the libcrypto that calls.
///
/// # Safety
/// Called by libcrypto: `input` is a dispatch table that ends with id 0, the output pointers are
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn OSSL_provider_init(
    handle: *const CoreHandle,
    input: Terminated<'_, Dispatch>,
    output: &mut *const Dispatch,
    provctx: &mut *mut c_void,
) -> c_int {
    // SAFETY: libcrypto's arguments, used during this call.
    let core = unsafe { Core::new(handle, input) };
    match start(&core) {
        Ok(context) => {
            *output = PROVIDER.as_ptr();
            *provctx = context;
            1
        }
        Err(reason) => {
            core.raise(&reason);
            0
        }
    }
}

/// Starts one more provider instance; returns its context, or why it cannot be.
fn start(core: &Core) -> Result<*mut c_void, String> {
    // Before anything of libcrypto is called.
    core.bind()?;
    if host::shared_memory::reason().is_some() {
        process::attach(host::settings::read(core), in_child)?;
        process::say_that_we_stand_back();
        // Nothing is offered, so nothing is done with a context.
        return Ok(core.handle().cast_mut().cast());
    }
    daemon::decoder::prepare(core);
    process::attach(host::settings::read(core), in_child)?;
    match stock::stock() {
        Some(stock) => {
            overlay::prepare(core.param("openssl-version"));
            Ok(host::instance::begin(core, stock).as_ptr())
        }
        None => {
            process::detach();
            Err(
                "OpenSSL's default provider cannot be loaded, and lockstep works with its functions"
                    .to_owned(),
            )
        }
    }
}

/// In a forked child: what the parent has of threads, connections and memory for keys stays behind.
extern "C" fn in_child() {
    process::forget_engine();
    daemon::connection::after_fork();
    lockstep_vault::after_fork();
}

static PROVIDER: [Dispatch; 6] = [
    provider::Teardown::entry(teardown),
    provider::GettableParams::entry(params::gettable),
    provider::GetParams::entry(params::get),
    provider::QueryOperation::entry(overlay::query_operation),
    provider::GetCapabilities::entry(overlay::capabilities),
    Dispatch::END,
];

/// `OSSL_FUNC_provider_teardown`
fn teardown(provctx: ProvCtx) {
    process::detach();
    host::instance::end(provctx);
}
