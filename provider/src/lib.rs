//! `lockstep.so`: an OpenSSL 3 provider that runs public-key operations on vector lanes.
//!
//! libcrypto enters by [`OSSL_provider_init`], and calls the functions of the tables that
//! [`overlay`] offers. The module is an *overlay* over OpenSSL's own default provider. Its dispatch
//! tables are the default provider's tables, function by function. Only the arithmetic inside a key
//! object differs: its `RSA_METHOD` or `EC_KEY_METHOD` hands it to the engine. Padding, digests,
//! parameters, encodings and errors are OpenSSL's own code, of the installed version.
//!
//! | folder | contents |
//! |---|---|
//! | [`ffi`] | OpenSSL's C interface, and the shims by which C calls safe functions |
//! | [`host`] | the program around the module: its libcrypto, memory, stacks, settings |
//! | [`stock`] | the default provider's own tables |
//! | [`keys`] | key objects whose arithmetic runs on lanes |
//! | [`jobs`] | OpenSSL's async jobs: pause and wake-up |
//! | [`daemon`] | keys of the key daemon |
//! | [`kem`], [`aes_gcm`], [`tls13_kdf`] | algorithms with contexts of the module's own |
//! | [`route`] | the choice between the key daemon, the lanes and OpenSSL |
//! | [`process`] | the engine of this process |
//! | [`ahead`] | look-ups that handshakes need, made before a fork |
//!
//! X25519 and Ed25519 objects have no method. For them the module wraps the contexts of the
//! exchange and the signature ([`keys::wrapped`]). TLS 1.3's key derivation is done here because
//! OpenSSL spends more on its look-ups than on hashing. AES-GCM is for OpenSSL 3.0 only. In a
//! program whose processes share OpenSSL's objects, the module offers nothing
//! ([`host::shared_memory`]).
//!
//! The crate has no arithmetic of its own. ARCHITECTURE.md follows a signature through its files;
//! `docs/decisions/overlay.md` has the reasons.

#![allow(unsafe_code, reason = "calls of libcrypto, and calls by it")]

mod aes_gcm;
mod ahead;
mod daemon;
#[cfg(feature = "fault-injection")]
mod fault;
mod ffi;
mod host;
mod jobs;
mod kem;
mod keys;
mod overlay;
mod params;
mod process;
mod route;
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

/// Starts one more provider instance; returns its context, or the reason of a failure.
fn start(core: &Core) -> Result<*mut c_void, String> {
    // Before any function of libcrypto is called.
    core.bind()?;
    if host::shared_memory::reason().is_some() {
        process::attach(host::settings::read(core), in_child)?;
        process::say_that_we_stand_back();
        // The module offers nothing, so the context is never used.
        return Ok(core.handle().cast_mut().cast());
    }
    daemon::decoder::prepare(core);
    process::attach(host::settings::read(core), in_child)?;
    match stock::stock() {
        Some(stock) => {
            let version = core.param("openssl-version");
            overlay::prepare(version.and_then(|version| version.into_string().ok()));
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

/// Prepares a forked child, which has none of its parent's threads, connections and memory for
/// keys.
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
