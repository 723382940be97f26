//! Subjects of measurements, and how either side does each.

use std::sync::Arc;

use lockstep_common::Failure;
use lockstep_engine::{
    Backend, BackendChoice, Bytes, Config, Curve, DecapsulateInput, EcKey, EcdhInput,
    EcdsaSignInput, EcdsaVerifyInput, Ed25519Key, Ed25519SignInput, Ed25519VerifyInput,
    EncapsulateInput, Encapsulated, Engine, Kem, KemKey, KeyKind, Keypair, Request, Response,
    RsaInput, RsaKey, Secret, Shape, Size, X25519Input, measure,
};
use openssl::bn::{BigNum, BigNumContext};
use openssl::ec::{EcGroup, EcPoint, PointConversionForm};
use openssl::ecdsa::EcdsaSig;
use openssl::error::ErrorStack;
use openssl::nid::Nid;
use openssl::pkey::{Id, PKey, Private};
use openssl::pkey_ctx::PkeyCtx;
use openssl::sign::{Signer, Verifier};

use crate::stock;

/// What the curves sign: as long as a SHA-384, more than P-256 takes.
const DIGEST: [u8; 48] = [0xa5; 48];

/// A private or public key operation; of RSA, signing with a usual exponent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation(Shape);

impl Operation {
    /// All that there are.
    pub fn all() -> impl Iterator<Item = Operation> {
        let is_usual = |shape: &Shape| match shape {
            Shape::Rsa { wide_exponent, .. } => !wide_exponent,
            _ => true,
        };
        Shape::ALL.into_iter().filter(is_usual).map(Operation)
    }

    /// Signing with RSA.
    pub fn rsa(size: Size) -> Operation {
        Operation(Shape::Rsa {
            size,
            wide_exponent: false,
        })
    }

    /// The size of RSA's modulus.
    pub fn size(self) -> Option<Size> {
        match self.0 {
            Shape::Rsa { size, .. } => Some(size),
            _ => None,
        }
    }

    /// What it is to the engine.
    pub fn shape(self) -> Shape {
        self.0
    }

    /// As it is asked for.
    pub fn argument(self) -> &'static str {
        self.0.name()
    }

    /// All names, as they are asked for.
    pub fn names() -> String {
        let names: Vec<&str> = Operation::all().map(Operation::argument).collect();
        names.join(", ")
    }

    /// As it stands in the report.
    pub fn name(self) -> String {
        match self.0.is_rsa() {
            true => format!("{}-sign", self.argument()),
            false => self.argument().to_owned(),
        }
    }

    /// Whether the libcrypto of this program has it: OpenSSL has ML-KEM from 3.5 on, and there its
    /// side is not written yet.
    pub fn has_stock(self) -> bool {
        !self.0.is_kem()
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

/// libcrypto's side of what it may lack: nobody asks for it.
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
        let engine = Engine::new(Config {
            backend: BackendChoice::Named(Backend::PORTABLE),
            key_pool: 0,
            ..Config::default()
        });
        let pair = measure::keypair(&engine, KeyKind::Kem(kem)).ok();
        let key = pair.and_then(|pair| KemKey::of_pair(kem, &pair));
        let key = key.ok_or_else(|| Failure::new("the portable lanes cannot make a key"))?;
        Ok(Peer {
            engine,
            key: Arc::new(key),
        })
    }

    fn ask(&self, request: Request) -> Option<Response> {
        measure::blocking(&self.engine, request).ok()
    }

    fn decapsulation(&self, ciphertext: &[u8]) -> Request {
        Request::Decapsulate(DecapsulateInput {
            key: Arc::clone(&self.key),
            ciphertext: Bytes::from_slice(ciphertext),
        })
    }
}

/// Whether an answer is right.
type Judge = dyn Fn(&Response) -> Result<bool, ErrorStack> + Send + Sync;

/// The operation again and again on one context, as `openssl speed` does it.
type Work = Box<dyn FnMut() -> Result<(), ErrorStack>>;

impl Subject {
    /// Makes the keys.
    pub fn new(operation: Operation) -> Result<Subject, Failure> {
        let made = match operation.shape() {
            Shape::Rsa { size, .. } => return Subject::rsa(size),
            Shape::EcdsaSign(curve) => Subject::ecdsa_sign(curve),
            Shape::EcdsaVerify(curve) => Subject::ecdsa_verify(curve),
            Shape::Ecdh(curve) => Subject::ecdh(curve),
            Shape::Keypair(KeyKind::X25519) => Ok(Subject::x25519_keypair()),
            Shape::Keypair(KeyKind::Nist(curve)) => Ok(Subject::nist_keypair(curve)),
            Shape::X25519 => Subject::x25519(),
            Shape::Ed25519Sign => Subject::ed25519_sign(),
            Shape::Ed25519Verify => Subject::ed25519_verify(),
            Shape::Keypair(KeyKind::Kem(kem)) => Ok(Subject::kem_keypair(kem)),
            Shape::Encapsulate(kem) => return Subject::encapsulate(kem),
            Shape::Decapsulate(kem) => return Subject::decapsulate(kem),
        };
        made.map_err(|error| Failure::new(format!("cannot make a key: {error}")))
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

    /// Whether libcrypto agrees with what the engine answered.
    pub fn accepts(&self, response: &Response) -> Result<bool, Failure> {
        (self.accepts)(response)
            .map_err(|error| Failure::new(format!("libcrypto cannot check this: {error}")))
    }

    fn rsa(size: Size) -> Result<Subject, Failure> {
        let stock = stock::Key::generate(size.bits() as u32)?;
        let key = stock
            .with_components(RsaKey::new)
            .map_err(|error| Failure::new(format!("the lanes cannot use the key: {error}")))?;
        let key = Arc::new(key);
        let input = stock.padded_message();
        let expected = stock
            .signer()
            .and_then(|mut signer| signer.sign().map(<[u8]>::to_vec))
            .map_err(|error| Failure::new(format!("libcrypto cannot sign: {error}")))?;
        let request = move || {
            Request::RsaPrivate(RsaInput {
                key: key.clone(),
                input: input.clone().into(),
            })
        };
        Ok(Subject {
            request: Box::new(request),
            stock: Box::new(move || {
                let mut signer = stock.signer()?;
                Ok(Box::new(move || signer.sign().map(drop)))
            }),
            accepts: Box::new(move |response| {
                Ok(matches!(response, Response::Rsa(signature) if signature.as_bytes() == expected))
            }),
        })
    }

    fn ecdsa_sign(curve: Curve) -> Result<Subject, ErrorStack> {
        let pkey = generate(curve)?;
        let (key, _) = engine_key(curve, &pkey)?;
        let checker = pkey.clone();
        Ok(Subject {
            request: Box::new(move || {
                Request::EcdsaSign(EcdsaSignInput {
                    key: key.clone(),
                    digest: Bytes::from_slice(digest(curve)),
                })
            }),
            stock: Box::new(move || {
                let mut context = PkeyCtx::new(&pkey)?;
                context.sign_init()?;
                let mut signature = vec![0; pkey.size()];
                Ok(Box::new(move || {
                    context.sign(digest(curve), Some(&mut signature)).map(drop)
                }))
            }),
            accepts: Box::new(move |response| {
                let Response::Signature(bytes) = response else {
                    return Ok(false);
                };
                let (r, s) = bytes.split_at(curve.bytes());
                let (r, s) = (BigNum::from_slice(r)?, BigNum::from_slice(s)?);
                EcdsaSig::from_private_components(r, s)?
                    .verify(digest(curve), checker.ec_key()?.as_ref())
            }),
        })
    }

    fn ecdsa_verify(curve: Curve) -> Result<Subject, ErrorStack> {
        let pkey = generate(curve)?;
        let (_, public) = engine_key(curve, &pkey)?;
        let signed = EcdsaSig::sign(digest(curve), pkey.ec_key()?.as_ref())?;
        let der = signed.to_der()?;
        let bytes = curve.bytes() as i32;
        let signature = [
            signed.r().to_vec_padded(bytes)?,
            signed.s().to_vec_padded(bytes)?,
        ];
        let signature = signature.concat();
        Ok(Subject {
            request: Box::new(move || {
                Request::EcdsaVerify(EcdsaVerifyInput {
                    curve,
                    public: public.clone(),
                    digest: digest(curve).to_vec().into(),
                    signature: signature.clone(),
                })
            }),
            stock: Box::new(move || {
                let mut context = PkeyCtx::new(&pkey)?;
                context.verify_init()?;
                let der = der.clone();
                Ok(Box::new(move || {
                    context.verify(digest(curve), &der).map(drop)
                }))
            }),
            accepts: Box::new(|response| Ok(matches!(response, Response::Verified(true)))),
        })
    }

    fn ecdh(curve: Curve) -> Result<Subject, ErrorStack> {
        let (ours, theirs) = (generate(curve)?, generate(curve)?);
        let (key, _) = engine_key(curve, &ours)?;
        let (_, peer) = engine_key(curve, &theirs)?;
        let peer = Bytes::from(peer);
        let request = move || {
            Request::Ecdh(EcdhInput {
                key: key.clone(),
                peer: peer.clone(),
            })
        };
        Subject::agreement(ours, theirs, request)
    }

    fn x25519() -> Result<Subject, ErrorStack> {
        let (ours, theirs) = (PKey::generate_x25519()?, PKey::generate_x25519()?);
        let secret = Secret::new(&ours.raw_private_key()?);
        let peer = Bytes::from(theirs.raw_public_key()?);
        let request = move || {
            Request::X25519(X25519Input {
                secret: secret.clone(),
                peer: peer.clone(),
            })
        };
        Subject::agreement(ours, theirs, request)
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
        Ok(Subject {
            request: Box::new(request),
            stock: Box::new(move || {
                let mut context = context()?;
                let mut secret = vec![0; length];
                Ok(Box::new(move || {
                    context.derive(Some(&mut secret)).map(drop)
                }))
            }),
            accepts: Box::new(move |response| {
                Ok(matches!(response, Response::Secret(secret) if secret.as_bytes() == expected))
            }),
        })
    }

    fn x25519_keypair() -> Subject {
        Subject::keypair(
            KeyKind::X25519,
            || {
                let mut context = PkeyCtx::new_id(Id::X25519)?;
                context.keygen_init()?;
                Ok(context)
            },
            |Keypair { secret, public }| {
                let key = PKey::private_key_from_raw_bytes(secret.as_bytes(), Id::X25519)?;
                Ok(key.raw_public_key()? == public[..])
            },
        )
    }

    fn nist_keypair(curve: Curve) -> Subject {
        Subject::keypair(
            KeyKind::Nist(curve),
            move || generator(curve),
            move |Keypair { secret, public }| {
                let group = EcGroup::from_curve_name(nid(curve))?;
                let mut context = BigNumContext::new()?;
                let scalar = BigNum::from_slice(secret.as_bytes())?;
                let mut point = EcPoint::new(&group)?;
                point.mul_generator2(&group, &scalar, &mut context)?;
                let form = PointConversionForm::UNCOMPRESSED;
                Ok(point.to_bytes(&group, form, &mut context)? == public[..])
            },
        )
    }

    fn kem_keypair(kem: Kem) -> Subject {
        Subject {
            request: Box::new(move || Request::Keypair(KeyKind::Kem(kem))),
            stock: Box::new(no_stock),
            accepts: Box::new(move |response| match response {
                // The public key follows from the private one.
                Response::Keypair(pair) => {
                    let private = pair.secret.as_bytes().get(..kem.private_bytes());
                    let key = private.and_then(|private| KemKey::new(kem, private).ok());
                    Ok(key.is_some_and(|key| key.public() == &pair.public[..]))
                }
                _ => Ok(false),
            }),
        }
    }

    /// What portable lanes decapsulate.
    fn encapsulate(kem: Kem) -> Result<Subject, Failure> {
        let peer = Peer::new(kem)?;
        let public = Bytes::from_slice(peer.key.public());
        Ok(Subject {
            request: Box::new(move || {
                Request::Encapsulate(EncapsulateInput {
                    kem,
                    public: public.clone(),
                    coins: None,
                })
            }),
            stock: Box::new(no_stock),
            accepts: Box::new(move |response| match response {
                Response::Encapsulated(Encapsulated { ciphertext, secret }) => {
                    let found = peer.ask(peer.decapsulation(ciphertext));
                    Ok(matches!(found, Some(Response::Secret(found))
                        if found.as_bytes() == secret.as_bytes()))
                }
                _ => Ok(false),
            }),
        })
    }

    /// What portable lanes encapsulate.
    fn decapsulate(kem: Kem) -> Result<Subject, Failure> {
        let peer = Peer::new(kem)?;
        let made = peer.ask(Request::Encapsulate(EncapsulateInput {
            kem,
            public: Bytes::from_slice(peer.key.public()),
            coins: None,
        }));
        let Some(Response::Encapsulated(Encapsulated { ciphertext, secret })) = made else {
            return Err(Failure::new("the portable lanes cannot encapsulate"));
        };
        Ok(Subject {
            request: Box::new(move || peer.decapsulation(&ciphertext)),
            stock: Box::new(no_stock),
            accepts: Box::new(move |response| {
                Ok(matches!(response, Response::Secret(found)
                    if found.as_bytes() == secret.as_bytes()))
            }),
        })
    }

    fn keypair(
        kind: KeyKind,
        context: impl Fn() -> Result<PkeyCtx<()>, ErrorStack> + Send + Sync + 'static,
        is_pair: impl Fn(&Keypair) -> Result<bool, ErrorStack> + Send + Sync + 'static,
    ) -> Subject {
        Subject {
            request: Box::new(move || Request::Keypair(kind)),
            stock: Box::new(move || {
                let mut context = context()?;
                Ok(Box::new(move || context.keygen().map(drop)))
            }),
            accepts: Box::new(move |response| match response {
                Response::Keypair(pair) => is_pair(pair),
                _ => Ok(false),
            }),
        }
    }

    fn ed25519_sign() -> Result<Subject, ErrorStack> {
        let (pkey, expected) = ed25519()?;
        let key =
            Ed25519Key::new(&pkey.raw_private_key()?).expect("libcrypto's keys are well formed");
        let key = Arc::new(key);
        Ok(Subject {
            request: Box::new(move || {
                Request::Ed25519Sign(Ed25519SignInput {
                    key: key.clone(),
                    message: Bytes::from_slice(&DIGEST),
                })
            }),
            stock: Box::new(move || {
                let mut signer = Signer::new_without_digest(&pkey)?;
                let mut signature = [0; 64];
                Ok(Box::new(move || {
                    signer.sign_oneshot(&mut signature, &DIGEST).map(drop)
                }))
            }),
            accepts: Box::new(move |response| {
                Ok(matches!(response, Response::Signature(bytes) if bytes[..] == expected))
            }),
        })
    }

    fn ed25519_verify() -> Result<Subject, ErrorStack> {
        let (pkey, signature) = ed25519()?;
        let public = pkey.raw_public_key()?;
        let signed = signature.clone();
        let pkey = Arc::new(pkey);
        Ok(Subject {
            request: Box::new(move || {
                Request::Ed25519Verify(Ed25519VerifyInput {
                    public: public.clone(),
                    message: DIGEST.to_vec().into(),
                    signature: signed.clone(),
                })
            }),
            stock: Box::new(move || {
                let (pkey, signature) = (pkey.clone(), signature.clone());
                Ok(Box::new(move || {
                    Verifier::new_without_digest(&pkey)?
                        .verify_oneshot(&signature, &DIGEST)
                        .map(drop)
                }))
            }),
            accepts: Box::new(|response| Ok(matches!(response, Response::Verified(true)))),
        })
    }
}

/// A key, and what it signs `DIGEST` with.
fn ed25519() -> Result<(PKey<Private>, Vec<u8>), ErrorStack> {
    let pkey = PKey::generate_ed25519()?;
    let signature = Signer::new_without_digest(&pkey)?.sign_oneshot_to_vec(&DIGEST)?;
    Ok((pkey, signature))
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
