//! Subjects of measurements, and how either side does each.

use std::sync::Arc;

use lockstep_common::Failure;
use lockstep_engine::{
    Backend, BackendChoice, Bytes, Config, Curve, DecapsulateInput, EcKey, EcdhInput,
    EcdsaSignInput, EcdsaVerifyInput, Ed25519Key, Ed25519SignInput, Ed25519VerifyInput,
    EncapsulateInput, Encapsulated, Engine, Kem, KemKey, KeyKind, Keypair, MlDsa, MlDsaKey,
    MlDsaSignInput, MlDsaVerifyInput, Request, Response, RsaInput, RsaKey, Secret, Shape, Size,
    X25519Input, direct,
};
use openssl::bn::{BigNum, BigNumContext};
use openssl::ec::{EcGroup, EcPoint, PointConversionForm};
use openssl::ecdsa::EcdsaSig;
use openssl::error::ErrorStack;
use openssl::nid::Nid;
use openssl::pkey::{Id, PKey, Private};
use openssl::pkey_ctx::PkeyCtx;
use openssl::rand::rand_bytes;
use openssl::sign::{Signer, Verifier};

use crate::stock;

/// The input of signatures on curves: as long as a SHA-384, more than P-256 takes.
const DIGEST: [u8; 48] = [0xa5; 48];

/// A private or public key operation; of RSA, signing with a usual exponent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation(Shape);

impl Operation {
    /// All operations.
    pub fn all() -> impl Iterator<Item = Operation> {
        let is_usual = |shape: &Shape| match shape {
            Shape::Rsa { wide_exponent, .. } => !wide_exponent,
            _ => true,
        };
        Shape::ALL.into_iter().filter(is_usual).map(Operation)
    }

    /// The size of RSA's modulus.
    pub fn size(self) -> Option<Size> {
        match self.0 {
            Shape::Rsa { size, .. } => Some(size),
            _ => None,
        }
    }

    /// Its shape in the engine.
    pub fn shape(self) -> Shape {
        self.0
    }

    /// As it is asked for.
    pub fn argument(self) -> &'static str {
        self.0.name()
    }

    /// As it stands in the report.
    pub fn name(self) -> String {
        match self.0.is_rsa() {
            true => format!("{}-sign", self.argument()),
            false => self.argument().to_owned(),
        }
    }

    /// Whether the libcrypto of this program has it: OpenSSL has ML-KEM and ML-DSA from 3.5 on, and
    /// there its side is not written yet.
    pub fn has_stock(self) -> bool {
        !self.0.is_kem() && !self.0.is_ml_dsa()
    }

    /// How many requests one batch takes.
    pub fn most(self) -> usize {
        match self.0.is_rsa() {
            true => lockstep_kernels::rsa::BATCH,
            false => MOST,
        }
    }
}

/// The most requests that a batch of any operation takes.
pub const MOST: usize = 64;

/// OpenSSL alone doing the operation once, for one thread.
pub type Stock<'a> = Box<dyn FnMut() -> Result<(), Failure> + 'a>;

/// One operation with keys that both sides have.
pub struct Subject {
    request: Box<dyn Fn() -> Request + Send + Sync>,
    stock: Box<dyn Fn() -> Result<Work, ErrorStack> + Send + Sync>,
    accepts: Box<Judge>,
}

/// Whether an answer is right.
type Judge = dyn Fn(&Response) -> Result<bool, ErrorStack> + Send + Sync;

/// The operation again and again on one context, as `openssl speed` does it.
type Work = Box<dyn FnMut() -> Result<(), ErrorStack>>;

impl Subject {
    /// Makes the keys.
    pub fn new(operation: Operation) -> Result<Subject, Failure> {
        let made = match operation.shape() {
            Shape::Rsa { size, .. } => return rsa(size),
            Shape::EcdsaSign(curve) => ecdsa_sign(curve),
            Shape::EcdsaVerify(curve) => ecdsa_verify(curve),
            Shape::Ecdh(curve) => ecdh(curve),
            Shape::X25519 => x25519(),
            Shape::Ed25519Sign => ed25519_sign(),
            Shape::Ed25519Verify => ed25519_verify(),
            Shape::Keypair(kind) => Ok(keypair(kind)),
            Shape::Encapsulate(kem) => return encapsulate(kem),
            Shape::Decapsulate(kem) => return decapsulate(kem),
            Shape::MlDsaSign(set) => return Ok(ml_dsa_sign(&ml_dsa_key(set)?)),
            Shape::MlDsaVerify(set) => return ml_dsa_verify(&ml_dsa_key(set)?),
        };
        made.map_err(|error| Failure::new(format!("cannot make a key: {error}")))
    }

    /// A request for the engine, libcrypto's side, and whether it agrees with an answer.
    fn of(
        request: impl Fn() -> Request + Send + Sync + 'static,
        stock: impl Fn() -> Result<Work, ErrorStack> + Send + Sync + 'static,
        accepts: impl Fn(&Response) -> Result<bool, ErrorStack> + Send + Sync + 'static,
    ) -> Subject {
        Subject {
            request: Box::new(request),
            stock: Box::new(stock),
            accepts: Box::new(accepts),
        }
    }

    /// A request for the engine.
    pub fn request(&self) -> Request {
        (self.request)()
    }

    /// libcrypto's side.
    pub fn stock(&self) -> Result<Stock<'_>, Failure> {
        let failed = |error: ErrorStack| Failure::new(format!("libcrypto cannot do this: {error}"));
        let mut work = (self.stock)().map_err(failed)?;
        Ok(Box::new(move || work().map_err(failed)))
    }

    /// Whether libcrypto agrees with the engine's answer.
    pub fn accepts(&self, response: &Response) -> Result<bool, Failure> {
        (self.accepts)(response)
            .map_err(|error| Failure::new(format!("libcrypto cannot check this: {error}")))
    }
}

fn rsa(size: Size) -> Result<Subject, Failure> {
    let stock = stock::Key::generate(size.bits() as u32)?;
    let key = stock
        .with_components(RsaKey::new)
        .map_err(|error| Failure::new(format!("the lanes cannot use the key: {error}")))?;
    let (key, input) = (Arc::new(key), stock.padded_message());
    let expected = stock
        .signer()
        .and_then(|mut signer| signer.sign().map(<[u8]>::to_vec))
        .map_err(|error| Failure::new(format!("libcrypto cannot sign: {error}")))?;
    let request = move || {
        let (key, input) = (key.clone(), input.clone().into());
        Request::RsaPrivate(RsaInput { key, input })
    };
    let stock = move || {
        let mut signer = stock.signer()?;
        Ok(Box::new(move || signer.sign().map(drop)) as Work)
    };
    Ok(Subject::of(request, stock, move |response| {
        Ok(matches!(response, Response::Rsa(signature) if signature.as_bytes() == expected))
    }))
}

fn ecdsa_sign(curve: Curve) -> Result<Subject, ErrorStack> {
    let pkey = generate(curve)?;
    let (key, _) = engine_key(curve, &pkey)?;
    let checker = pkey.clone();
    let request = move || {
        let (key, digest) = (key.clone(), Bytes::from_slice(digest(curve)));
        Request::EcdsaSign(EcdsaSignInput { key, digest })
    };
    let stock = move || {
        let mut context = PkeyCtx::new(&pkey)?;
        context.sign_init()?;
        let mut signature = vec![0; pkey.size()];
        let sign = move || context.sign(digest(curve), Some(&mut signature)).map(drop);
        Ok(Box::new(sign) as Work)
    };
    Ok(Subject::of(request, stock, move |response| {
        let Response::Signature(bytes) = response else {
            return Ok(false);
        };
        let (r, s) = bytes.split_at(curve.bytes());
        let (r, s) = (BigNum::from_slice(r)?, BigNum::from_slice(s)?);
        EcdsaSig::from_private_components(r, s)?.verify(digest(curve), checker.ec_key()?.as_ref())
    }))
}

fn ecdsa_verify(curve: Curve) -> Result<Subject, ErrorStack> {
    let pkey = generate(curve)?;
    let (_, public) = engine_key(curve, &pkey)?;
    let signed = EcdsaSig::sign(digest(curve), pkey.ec_key()?.as_ref())?;
    let (der, bytes) = (signed.to_der()?, curve.bytes() as i32);
    let (r, s) = (
        signed.r().to_vec_padded(bytes)?,
        signed.s().to_vec_padded(bytes)?,
    );
    let signature = [r, s].concat();
    let request = move || {
        Request::EcdsaVerify(EcdsaVerifyInput {
            curve,
            public: public.clone(),
            digest: digest(curve).to_vec().into(),
            signature: signature.clone(),
        })
    };
    let stock = move || {
        let mut context = PkeyCtx::new(&pkey)?;
        context.verify_init()?;
        let der = der.clone();
        Ok(Box::new(move || context.verify(digest(curve), &der).map(drop)) as Work)
    };
    Ok(Subject::of(request, stock, is_verified))
}

fn ecdh(curve: Curve) -> Result<Subject, ErrorStack> {
    let (ours, theirs) = (generate(curve)?, generate(curve)?);
    let (key, _) = engine_key(curve, &ours)?;
    let (_, peer) = engine_key(curve, &theirs)?;
    let peer = Bytes::from(peer);
    agreement(ours, theirs, move || {
        let (key, peer) = (key.clone(), peer.clone());
        Request::Ecdh(EcdhInput { key, peer })
    })
}

fn x25519() -> Result<Subject, ErrorStack> {
    let (ours, theirs) = (PKey::generate_x25519()?, PKey::generate_x25519()?);
    let secret = Secret::new(&ours.raw_private_key()?);
    let peer = Bytes::from(theirs.raw_public_key()?);
    agreement(ours, theirs, move || {
        let (secret, peer) = (secret.clone(), peer.clone());
        Request::X25519(X25519Input { secret, peer })
    })
}

/// The engine does it with `request`, libcrypto with the keys themselves.
fn agreement(
    ours: PKey<Private>,
    theirs: PKey<Private>,
    request: impl Fn() -> Request + Send + Sync + 'static,
) -> Result<Subject, ErrorStack> {
    let context = move || {
        let mut context = PkeyCtx::new(&ours)?;
        context.derive_init()?;
        context.derive_set_peer(&theirs)?;
        Ok::<_, ErrorStack>(context)
    };
    let mut expected = Vec::new();
    context()?.derive_to_vec(&mut expected)?;
    let length = expected.len();
    let stock = move || {
        let (mut context, mut secret) = (context()?, vec![0; length]);
        Ok(Box::new(move || context.derive(Some(&mut secret)).map(drop)) as Work)
    };
    Ok(Subject::of(request, stock, move |response| {
        Ok(is_secret(response, &expected))
    }))
}

fn ed25519_sign() -> Result<Subject, ErrorStack> {
    let (pkey, expected) = ed25519()?;
    let key = Ed25519Key::new(&pkey.raw_private_key()?);
    let key = Arc::new(key.expect("libcrypto's keys are well formed"));
    let request = move || {
        let (key, message) = (key.clone(), Bytes::from_slice(&DIGEST));
        Request::Ed25519Sign(Ed25519SignInput { key, message })
    };
    let stock = move || {
        let (mut signer, mut signature) = (Signer::new_without_digest(&pkey)?, [0; 64]);
        let sign = move || signer.sign_oneshot(&mut signature, &DIGEST).map(drop);
        Ok(Box::new(sign) as Work)
    };
    Ok(Subject::of(request, stock, move |response| {
        Ok(matches!(response, Response::Signature(bytes) if bytes[..] == expected))
    }))
}

fn ed25519_verify() -> Result<Subject, ErrorStack> {
    let (pkey, signature) = ed25519()?;
    let (public, signed) = (pkey.raw_public_key()?, signature.clone());
    let request = move || {
        Request::Ed25519Verify(Ed25519VerifyInput {
            public: public.clone(),
            message: DIGEST.to_vec().into(),
            signature: signed.clone(),
        })
    };
    let stock = move || {
        let (pkey, signature) = (pkey.clone(), signature.clone());
        Ok(Box::new(move || {
            let mut verifier = Verifier::new_without_digest(&pkey)?;
            verifier.verify_oneshot(&signature, &DIGEST).map(drop)
        }) as Work)
    };
    Ok(Subject::of(request, stock, is_verified))
}

/// A key, and its signature of `DIGEST`.
fn ed25519() -> Result<(PKey<Private>, Vec<u8>), ErrorStack> {
    let pkey = PKey::generate_ed25519()?;
    let signature = Signer::new_without_digest(&pkey)?.sign_oneshot_to_vec(&DIGEST)?;
    Ok((pkey, signature))
}

fn keypair(kind: KeyKind) -> Subject {
    let stock = move || {
        let mut context = match kind {
            KeyKind::X25519 => {
                let mut context = PkeyCtx::new_id(Id::X25519)?;
                context.keygen_init()?;
                context
            }
            KeyKind::Nist(curve) => generator(curve)?,
            KeyKind::Kem(_) => return no_stock(),
        };
        Ok(Box::new(move || context.keygen().map(drop)) as Work)
    };
    Subject::of(
        move || Request::Keypair(kind),
        stock,
        move |response| match response {
            Response::Keypair(pair) => is_pair(kind, pair),
            _ => Ok(false),
        },
    )
}

/// Whether the public key follows from the private one.
fn is_pair(kind: KeyKind, Keypair { secret, public }: &Keypair) -> Result<bool, ErrorStack> {
    let secret = secret.as_bytes();
    Ok(match kind {
        KeyKind::X25519 => {
            let key = PKey::private_key_from_raw_bytes(secret, Id::X25519)?;
            key.raw_public_key()? == public[..]
        }
        KeyKind::Nist(curve) => {
            let group = EcGroup::from_curve_name(nid(curve))?;
            let mut context = BigNumContext::new()?;
            let mut point = EcPoint::new(&group)?;
            point.mul_generator2(&group, &*BigNum::from_slice(secret)?, &mut context)?;
            let form = PointConversionForm::UNCOMPRESSED;
            point.to_bytes(&group, form, &mut context)? == public[..]
        }
        KeyKind::Kem(kem) => {
            let private = secret.get(..kem.private_bytes());
            let key = private.and_then(|private| KemKey::new(kem, private).ok());
            key.is_some_and(|key| key.public() == &public[..])
        }
    })
}

/// libcrypto's side of an operation that it may lack: nobody asks for it.
fn no_stock() -> Result<Work, ErrorStack> {
    Ok(Box::new(|| Err(ErrorStack::get())))
}

/// The other end of a key encapsulation, on portable lanes.
struct Peer {
    engine: Engine,
    key: Arc<KemKey>,
}

impl Peer {
    fn new(kem: Kem) -> Result<Peer, Failure> {
        let engine = portable();
        let pair = direct::keypair(&engine, KeyKind::Kem(kem)).ok();
        let key = pair.and_then(|pair| KemKey::of_pair(kem, &pair));
        let key = key.ok_or_else(|| Failure::new("the portable lanes cannot make a key"))?;
        let key = Arc::new(key);
        Ok(Peer { engine, key })
    }

    fn ask(&self, request: Request) -> Option<Response> {
        direct::blocking(&self.engine, request).ok()
    }

    fn encapsulation(&self, kem: Kem) -> Request {
        let public = Bytes::from_slice(self.key.public());
        Request::Encapsulate(EncapsulateInput {
            kem,
            public,
            coins: None,
        })
    }

    fn decapsulation(&self, ciphertext: &[u8]) -> Request {
        let (key, ciphertext) = (Arc::clone(&self.key), Bytes::from_slice(ciphertext));
        Request::Decapsulate(DecapsulateInput { key, ciphertext })
    }
}

/// An encapsulation, which portable lanes decapsulate.
fn encapsulate(kem: Kem) -> Result<Subject, Failure> {
    let peer = Arc::new(Peer::new(kem)?);
    let asking = Arc::clone(&peer);
    let request = move || asking.encapsulation(kem);
    Ok(Subject::of(
        request,
        no_stock,
        move |response| match response {
            Response::Encapsulated(Encapsulated { ciphertext, secret }) => {
                let found = peer.ask(peer.decapsulation(ciphertext));
                Ok(found.is_some_and(|found| is_secret(&found, secret.as_bytes())))
            }
            _ => Ok(false),
        },
    ))
}

/// A decapsulation of a ciphertext from portable lanes.
fn decapsulate(kem: Kem) -> Result<Subject, Failure> {
    let peer = Peer::new(kem)?;
    let made = peer.ask(peer.encapsulation(kem));
    let Some(Response::Encapsulated(Encapsulated { ciphertext, secret })) = made else {
        return Err(Failure::new("the portable lanes cannot encapsulate"));
    };
    let request = move || peer.decapsulation(&ciphertext);
    Ok(Subject::of(request, no_stock, move |response| {
        Ok(is_secret(response, secret.as_bytes()))
    }))
}

fn ml_dsa_key(set: MlDsa) -> Result<Arc<MlDsaKey>, Failure> {
    let mut seed = [0; 32];
    let failed = |error: ErrorStack| Failure::new(format!("cannot make a key: {error}"));
    rand_bytes(&mut seed).map_err(failed)?;
    let key = MlDsaKey::from_seed(set, &seed);
    Ok(Arc::new(key.map_err(|error| {
        Failure::new(format!("cannot make a key: {error}"))
    })?))
}

fn ml_dsa_input(key: &Arc<MlDsaKey>) -> MlDsaSignInput {
    let (key, mut mu) = (Arc::clone(key), key.mu());
    mu.update(&DIGEST);
    MlDsaSignInput {
        key,
        mu: mu.finish(),
        randomness: None,
    }
}

/// Signatures are verified before they become an answer.
fn ml_dsa_sign(key: &Arc<MlDsaKey>) -> Subject {
    let key = Arc::clone(key);
    Subject::of(
        move || Request::MlDsaSign(ml_dsa_input(&key)),
        no_stock,
        |response| Ok(matches!(response, Response::MlDsa(_))),
    )
}

/// A verification of a signature from portable lanes.
fn ml_dsa_verify(key: &Arc<MlDsaKey>) -> Result<Subject, Failure> {
    let engine = portable();
    let input = ml_dsa_input(key);
    let (key, mu) = (Arc::clone(key), input.mu);
    let made = direct::blocking(&engine, Request::MlDsaSign(input));
    let Ok(Response::MlDsa(signature)) = made else {
        return Err(Failure::new("the portable lanes cannot sign"));
    };
    let request = move || {
        Request::MlDsaVerify(MlDsaVerifyInput {
            key: Arc::clone(&key),
            mu,
            signature: Bytes::from_slice(signature.as_bytes()),
        })
    };
    Ok(Subject::of(request, no_stock, is_verified))
}

/// An engine with portable lanes.
fn portable() -> Engine {
    Engine::new(Config {
        backend: BackendChoice::Named(Backend::PORTABLE),
        ..Config::default()
    })
}

fn is_secret(response: &Response, expected: &[u8]) -> bool {
    matches!(response, Response::Secret(secret) if secret.as_bytes() == expected)
}

fn is_verified(response: &Response) -> Result<bool, ErrorStack> {
    Ok(matches!(response, Response::Verified(true)))
}

/// libcrypto's number of a curve.
pub fn nid(curve: Curve) -> Nid {
    match curve {
        Curve::P256 => Nid::X9_62_PRIME256V1,
        Curve::P384 => Nid::SECP384R1,
    }
}

/// As much of the digest as the curve takes.
fn digest(curve: Curve) -> &'static [u8] {
    &DIGEST[..curve.bytes()]
}

fn generator(curve: Curve) -> Result<PkeyCtx<()>, ErrorStack> {
    let mut context = PkeyCtx::new_id(Id::EC)?;
    context.keygen_init()?;
    context.set_ec_paramgen_curve_nid(nid(curve))?;
    Ok(context)
}

fn generate(curve: Curve) -> Result<PKey<Private>, ErrorStack> {
    generator(curve)?.keygen()
}

/// The key for the engine, and its uncompressed point.
fn engine_key(curve: Curve, pkey: &PKey<Private>) -> Result<(Arc<EcKey>, Vec<u8>), ErrorStack> {
    let key = pkey.ec_key()?;
    let scalar = key.private_key().to_vec_padded(curve.bytes() as i32)?;
    let form = PointConversionForm::UNCOMPRESSED;
    let mut context = BigNumContext::new()?;
    let public = key.public_key().to_bytes(key.group(), form, &mut context)?;
    let key = EcKey::new(curve, &scalar, Some(&public)).expect("libcrypto's keys are well formed");
    Ok((Arc::new(key), public))
}
