//! Encapsulation and decapsulation.

use std::ffi::c_int;
use std::sync::Arc;

use lockstep_engine::{
    Bytes as Message, DecapsulateInput, EncapsulateInput, Kem, KemKey, Outcome, Secret, operation,
};

use super::keys::{Key, has_memory};
use super::mechanism::Mechanism;
use super::refused::refused;
use crate::ffi::kem::{
    Decapsulate, DecapsulateInit, Dupctx, Encapsulate, EncapsulateInit, Freectx, Newctx,
    SetCtxParams, SettableCtxParams,
};
use crate::ffi::{
    Bytes, Ctx, Dispatch, List, Own, PARAM_OCTET_STRING, Params, ProvCtx, SizedBuf, failed, name,
    reason,
};
use crate::route;

/// A context, and its operation.
enum Context {
    New,
    Encapsulate {
        kem: Kem,
        public: Message,
        /// Randomness of ML-KEM's secret, for tests with known answers.
        coins: Option<Secret>,
    },
    Decapsulate(Arc<KemKey>),
}

/// Returns the functions of the operation for a mechanism.
pub fn functions<M: Mechanism>() -> [Dispatch; 10] {
    [
        Newctx::entry(newctx),
        EncapsulateInit::entry(encapsulate_init),
        Encapsulate::entry(encapsulate),
        DecapsulateInit::entry(decapsulate_init),
        Decapsulate::entry(decapsulate),
        Freectx::entry(freectx),
        Dupctx::entry(dupctx),
        SetCtxParams::entry(set_ctx_params),
        SettableCtxParams::entry(settable_ctx_params::<M>),
        Dispatch::END,
    ]
}

/// `OSSL_FUNC_kem_newctx`
fn newctx(_: ProvCtx) -> Option<Box<Context>> {
    has_memory().then(|| Box::new(Context::New))
}

/// `OSSL_FUNC_kem_freectx`
fn freectx(ctx: Option<Box<Context>>) {
    drop(ctx);
}

/// `OSSL_FUNC_kem_dupctx`: a copy without the coins. Two secrets of the same coins would be the
/// same.
fn dupctx(ctx: Ctx<'_, Context>) -> Option<Box<Context>> {
    let ctx = ctx.filter(|_| has_memory())?;
    Some(Box::new(match ctx {
        Context::New => Context::New,
        Context::Encapsulate { kem, public, .. } => Context::Encapsulate {
            kem: *kem,
            public: public.clone(),
            coins: None,
        },
        Context::Decapsulate(key) => Context::Decapsulate(Arc::clone(key)),
    }))
}

/// `OSSL_FUNC_kem_encapsulate_init`
fn encapsulate_init(ctx: Ctx<'_, Context>, key: Option<&Own<Key>>, params: Params<'_>) -> c_int {
    let Some((ctx, key)) = ctx.zip(key) else {
        return c_int::from(failed(reason::MISSING_KEY));
    };
    let Some(public) = key.public() else {
        return c_int::from(failed(reason::MISSING_KEY));
    };
    *ctx = Context::Encapsulate {
        kem: key.kem,
        public: Message::from_slice(public),
        coins: None,
    };
    set_ctx_params(Some(ctx), params)
}

/// `OSSL_FUNC_kem_decapsulate_init`
fn decapsulate_init(ctx: Ctx<'_, Context>, key: Option<&Own<Key>>, params: Params<'_>) -> c_int {
    let Some((ctx, key)) = ctx.zip(key) else {
        return c_int::from(failed(reason::MISSING_KEY));
    };
    let Some(pair) = key.pair() else {
        return c_int::from(failed(reason::MISSING_KEY));
    };
    *ctx = Context::Decapsulate(Arc::clone(pair));
    set_ctx_params(Some(ctx), params)
}

/// `OSSL_FUNC_kem_set_ctx_params`: hybrids ignore coins, as OpenSSL's do.
fn set_ctx_params(ctx: Ctx<'_, Context>, params: Params<'_>) -> c_int {
    let Some(Context::Encapsulate { kem, coins, .. }) = ctx else {
        return 1;
    };
    if kem.is_hybrid() {
        return 1;
    }
    let Some(given) = params.get(name::KEM_PARAM_IKME) else {
        return 1;
    };
    let fits = |bytes: &&[u8]| bytes.len() == Kem::COINS_BYTES;
    *coins = given.octets().filter(fits).map(Secret::new);
    c_int::from(coins.is_some() || failed(reason::INVALID_SEED_LENGTH))
}

/// `OSSL_FUNC_kem_settable_ctx_params`
fn settable_ctx_params<'a, M: Mechanism>(_: Ctx<'a, Context>, _: ProvCtx) -> Params<'a> {
    static NOTHING: List<'static, 1> = List::new();
    static COINS: List<'static, 2> =
        List::new().described(name::KEM_PARAM_IKME, PARAM_OCTET_STRING, 0);
    match M::KEM {
        kem if kem.is_hybrid() => NOTHING.as_params(),
        _ => COINS.as_params(),
    }
}

/// `OSSL_FUNC_kem_encapsulate`: the caller gives the sizes of both outputs.
fn encapsulate(ctx: Ctx<'_, Context>, to: SizedBuf<'_>, secret: SizedBuf<'_>) -> c_int {
    let Some(Context::Encapsulate { kem, public, coins }) = ctx else {
        return c_int::from(failed(reason::MISSING_KEY));
    };
    let outputs = [(&to, kem.ciphertext_bytes()), (&secret, kem.shared_bytes())];
    if to.is_question() {
        let answered = outputs.map(|(output, bytes)| output.answer(bytes));
        return c_int::from(answered.contains(&true) || failed(reason::NULL_LENGTH_POINTER));
    }
    // Coins serve once, as with OpenSSL: two secrets of the same coins would be the same.
    let coins = coins.take();
    if secret.is_question() {
        return c_int::from(failed(reason::NULL_OUTPUT_BUFFER));
    }
    for (output, bytes) in outputs {
        let reason = match output.size() {
            None => reason::NULL_LENGTH_POINTER,
            Some(size) if size < bytes => reason::OUTPUT_BUFFER_TOO_SMALL,
            Some(_) => continue,
        };
        return c_int::from(failed(reason));
    }
    let input = || {
        Some(EncapsulateInput {
            kem: *kem,
            public: public.clone(),
            coins: coins.clone(),
        })
    };
    match route::serve_in_any_case(operation::Encapsulate(*kem), input) {
        Outcome::Done(made) => {
            let written = to.write(&made.ciphertext) && secret.write(made.secret.as_bytes());
            c_int::from(written || failed(reason::OUTPUT_BUFFER_TOO_SMALL))
        }
        Outcome::Declined(declined) => c_int::from(refused(&declined)),
        Outcome::NotAsked => c_int::from(failed(reason::MISSING_KEY)),
    }
}

/// `OSSL_FUNC_kem_decapsulate`: the caller may leave out the size of the room, as with OpenSSL.
fn decapsulate(ctx: Ctx<'_, Context>, secret: SizedBuf<'_>, from: Bytes<'_>) -> c_int {
    let Some(Context::Decapsulate(key)) = ctx else {
        return c_int::from(failed(reason::MISSING_KEY));
    };
    let kem = key.kem();
    if secret.is_question() {
        let answered = secret.answer(kem.shared_bytes());
        return c_int::from(answered || failed(reason::NULL_LENGTH_POINTER));
    }
    if !secret.holds(kem.shared_bytes()) {
        return c_int::from(failed(reason::OUTPUT_BUFFER_TOO_SMALL));
    }
    if from.len() != kem.ciphertext_bytes() {
        return c_int::from(failed(reason::WRONG_CIPHERTEXT_SIZE));
    }
    let input = || {
        Some(DecapsulateInput {
            key: Arc::clone(key),
            ciphertext: from.read(Message::from_slice)?,
        })
    };
    match route::serve_in_any_case(operation::Decapsulate(kem), input) {
        Outcome::Done(shared) => {
            #[cfg(feature = "fault-injection")]
            if crate::fault::planted("wrong-secret") {
                let mut wrong = shared.as_bytes().to_vec();
                wrong[0] ^= 1;
                return c_int::from(secret.write(&wrong));
            }
            let written = secret.write(shared.as_bytes());
            c_int::from(written || failed(reason::OUTPUT_BUFFER_TOO_SMALL))
        }
        Outcome::Declined(declined) => c_int::from(refused(&declined)),
        // The address of the ciphertext is NULL.
        Outcome::NotAsked => c_int::from(failed(reason::WRONG_CIPHERTEXT_SIZE)),
    }
}
