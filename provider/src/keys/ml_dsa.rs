//! ML-DSA signatures (FIPS 204): the module's contexts around OpenSSL's own signature, which is
//! there from OpenSSL 3.5 on.
//!
//! OpenSSL's context takes keys and parameters as usual. The module's context notes the key and the
//! parameters that say how a message is represented and where randomness comes from. For a
//! signature or a check in one call, the caller's thread hashes the message to μ, without a copy of
//! it, and asks the engine to sign or check μ. All other calls are left to OpenSSL's own function,
//! with its own context: messages that are long or in pieces, a question for the length, a buffer
//! too short, parameters that the module does not know, and a declined request.
//!
//! A key may be a [reference](crate::daemon::reference): then the key daemon signs μ, and nothing
//! is left to OpenSSL, whose object has no private half.

mod context;
mod form;
mod keys;
mod signing;
mod verifying;

use crate::ffi::{Dispatch, signature};

pub use keys::{Keys, key_wrappers};

/// All functions that OpenSSL's table may have, with the module's contexts.
pub fn wrappers<K: Keys>() -> [Dispatch; 19] {
    [
        signature::Newctx::entry(context::newctx::<K>),
        signature::SignMessageInit::entry(context::sign_message_init::<K>),
        signature::SignMessageUpdate::entry(context::sign_message_update::<K>),
        signature::SignMessageFinal::entry(signing::sign_message_final::<K>),
        signature::Sign::entry(signing::sign::<K>),
        signature::VerifyMessageInit::entry(context::verify_message_init::<K>),
        signature::VerifyMessageUpdate::entry(context::verify_message_update::<K>),
        signature::VerifyMessageFinal::entry(context::verify_message_final::<K>),
        signature::Verify::entry(verifying::verify::<K>),
        signature::DigestSignInit::entry(context::digest_sign_init::<K>),
        signature::DigestSign::entry(signing::digest_sign::<K>),
        signature::DigestVerifyInit::entry(context::digest_verify_init::<K>),
        signature::DigestVerify::entry(verifying::digest_verify::<K>),
        signature::Freectx::entry(context::freectx::<K>),
        signature::Dupctx::entry(context::dupctx::<K>),
        signature::GetCtxParams::entry(context::get_ctx_params::<K>),
        signature::GettableCtxParams::entry(context::gettable_ctx_params::<K>),
        signature::SetCtxParams::entry(context::set_ctx_params::<K>),
        signature::SettableCtxParams::entry(context::settable_ctx_params::<K>),
    ]
}
