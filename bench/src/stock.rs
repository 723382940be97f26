//! OpenSSL's own implementation, which lockstep is compared with, and the keys of the measurements.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use lockstep_common::Failure;
use lockstep_engine::RsaComponents;
use openssl::error::ErrorStack;
use openssl::pkey::{PKey, Private};
use openssl::pkey_ctx::PkeyCtx;
use openssl::rsa::{Padding, Rsa};

/// The message of `openssl speed`: 36 bytes, padded as PKCS#1 v1.5 has it, without a digest.
const MESSAGE: [u8; 36] = *b"lockstep signs on vector lanes......";

/// Starts this program anew, without a configuration, if the environment names one: it might load
/// lockstep, and libcrypto would then be compared with itself.
pub fn insist() -> Result<(), Failure> {
    const NONE: &str = "/dev/null";
    match std::env::var_os("OPENSSL_CONF") {
        Some(path) if path != NONE => {
            let program = std::env::current_exe().map_err(|e| Failure::new(e.to_string()))?;
            let mut again = Command::new(program);
            again
                .args(std::env::args_os().skip(1))
                .env("OPENSSL_CONF", NONE);
            Err(Failure::new(format!(
                "cannot start without OPENSSL_CONF: {}",
                again.exec()
            ))
            .remedy("unset OPENSSL_CONF"))
        }
        _ => Ok(()),
    }
}

/// Random bytes.
pub fn random(count: usize) -> Result<Vec<u8>, Failure> {
    let mut bytes = vec![0; count];
    openssl::rand::rand_bytes(&mut bytes)
        .map_err(|error| Failure::new(format!("libcrypto has no randomness: {error}")))?;
    Ok(bytes)
}

/// An RSA key as libcrypto has it.
pub struct Key {
    rsa: Rsa<Private>,
    pkey: PKey<Private>,
}

impl Key {
    pub fn generate(bits: u32) -> Result<Key, Failure> {
        let generate = || -> Result<Key, ErrorStack> {
            let rsa = Rsa::generate(bits)?;
            // By way of DER, so that the key lives in the provider from the start, as one read from
            // a file does.
            let pkey = PKey::private_key_from_der(&rsa.private_key_to_der()?)?;
            Ok(Key { rsa, pkey })
        };
        generate().map_err(|error| Failure::new(format!("cannot make a key: {error}")))
    }

    /// Calls `use_them` with the numbers of this key.
    pub fn with_components<R>(&self, use_them: impl FnOnce(&RsaComponents<'_>) -> R) -> R {
        let part = |part: Option<&openssl::bn::BigNumRef>| part.map(|n| n.to_vec());
        let part = |number| part(number).unwrap_or_default();
        let (n, e) = (self.rsa.n().to_vec(), self.rsa.e().to_vec());
        let (p, q) = (part(self.rsa.p()), part(self.rsa.q()));
        let (dp, dq, qinv) = (
            part(self.rsa.dmp1()),
            part(self.rsa.dmq1()),
            part(self.rsa.iqmp()),
        );
        use_them(&RsaComponents {
            n: &n,
            e: &e,
            p: &p,
            q: &q,
            dp: &dp,
            dq: &dq,
            qinv: &qinv,
        })
    }

    /// The message as the private key operation sees it: PKCS#1 v1.5, as long as the modulus.
    pub fn padded_message(&self) -> Vec<u8> {
        let mut block = vec![0xff; self.rsa.size() as usize];
        let separator = block.len() - MESSAGE.len() - 1;
        block[0] = 0;
        block[1] = 1;
        block[separator] = 0;
        block[separator + 1..].copy_from_slice(&MESSAGE);
        block
    }

    /// Returns a signer with this key that can be used again and again.
    pub fn signer(&self) -> Result<Signer, ErrorStack> {
        let mut context = PkeyCtx::new(&self.pkey)?;
        context.sign_init()?;
        context.set_rsa_padding(Padding::PKCS1)?;
        Ok(Signer {
            context,
            signature: vec![0; self.rsa.size() as usize],
        })
    }
}

/// `EVP_PKEY_sign` on one context.
pub struct Signer {
    context: PkeyCtx<Private>,
    signature: Vec<u8>,
}

impl Signer {
    pub fn sign(&mut self) -> Result<&[u8], ErrorStack> {
        self.context.sign(&MESSAGE, Some(&mut self.signature))?;
        Ok(&self.signature)
    }
}
