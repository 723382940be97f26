//! JSON Web Keys (RFC 7517, RFC 7518, RFC 8037).

use base64ct::{Base64UrlUnpadded, Encoding as _};
use lockstep_ops::Curve;
use serde::Deserialize;
use serde_json::Value;
use zeroize::Zeroizing;

use crate::key::{self, Algorithm, KeyError, PrivateKey, PublicKey};

/// Type of a key.
enum Kind {
    Rsa,
    Curve(Curve),
    Other(Algorithm),
}

/// The members of a key that count, borrowed from its text, so that no secret text is copied.
#[derive(Deserialize)]
struct Members<'a> {
    kty: &'a str,
    crv: Option<&'a str>,
    x: Option<&'a str>,
    y: Option<&'a str>,
    d: Option<&'a str>,
    n: Option<&'a str>,
    e: Option<&'a str>,
    p: Option<&'a str>,
    q: Option<&'a str>,
    dp: Option<&'a str>,
    dq: Option<&'a str>,
    qi: Option<&'a str>,
}

impl PublicKey {
    /// Reads a JSON Web Key (RFC 7517). A private one gives its public half.
    pub fn from_jwk(text: &str) -> Result<PublicKey, KeyError> {
        public_of(&parse(text)?)
    }

    /// Reads a set of JSON Web Keys: the name of each key (`kid`), and the key or the reason why it
    /// cannot be read.
    pub fn from_jwk_set(text: &str) -> Result<Vec<Named>, KeyError> {
        let set: Value = serde_json::from_str(text).map_err(|_| KeyError::Jwk)?;
        let keys = set.get("keys").and_then(Value::as_array);
        let named = |key: &Value| {
            let name = key.get("kid").and_then(Value::as_str);
            let public = match is_for_signatures(key) {
                true => PublicKey::from_jwk(&key.to_string()),
                false => Err(KeyError::Purpose),
            };
            (name.map(str::to_owned), public)
        };
        Ok(keys.ok_or(KeyError::Jwk)?.iter().map(named).collect())
    }
}

/// A key of a set with its name, if it has one.
type Named = (Option<String>, Result<PublicKey, KeyError>);

impl PrivateKey {
    /// Reads a JSON Web Key (RFC 7517).
    pub fn from_jwk(text: &str) -> Result<PrivateKey, KeyError> {
        let key = parse(text)?;
        match kind(&key)? {
            Kind::Rsa => {
                let parts = [key.n, key.e, key.p, key.q, key.dp, key.dq, key.qi];
                let [n, e, p, q, dp, dq, qi] = parts.map(bytes);
                let numbers = [n?, e?, p?, q?, dp?, dq?, qi?];
                PrivateKey::of_numbers(numbers.each_ref().map(|number| &number[..]))
            }
            Kind::Curve(curve) => {
                let point = point(&key, curve)?;
                PrivateKey::of_scalar(curve, &bytes(key.d)?, Some(&point))
            }
            Kind::Other(algorithm) => {
                let private = PrivateKey::from_raw(algorithm, &bytes(key.d)?)?;
                match private.public.raw() == Some(&bytes(key.x)?[..]) {
                    true => Ok(private),
                    false => Err(KeyError::Malformed),
                }
            }
        }
    }
}

fn parse(text: &str) -> Result<Members<'_>, KeyError> {
    serde_json::from_str(text).map_err(|_| KeyError::Jwk)
}

/// Returns whether signatures may be checked with a key of a set (RFC 7517, 4.2 and 4.3).
fn is_for_signatures(key: &Value) -> bool {
    let is_used = key.get("use").is_none_or(|own| own == "sig");
    let operations = key.get("key_ops").and_then(Value::as_array);
    is_used && operations.is_none_or(|all| all.iter().any(|own| own == "verify"))
}

fn public_of(key: &Members<'_>) -> Result<PublicKey, KeyError> {
    match kind(key)? {
        Kind::Rsa => PublicKey::from_rsa(&bytes(key.n)?, &bytes(key.e)?),
        Kind::Curve(curve) => {
            let half = key::point(curve, &point(key, curve)?)?;
            Ok(PublicKey::of(half))
        }
        Kind::Other(algorithm) => PublicKey::from_raw(algorithm, &bytes(key.x)?),
    }
}

fn kind(key: &Members<'_>) -> Result<Kind, KeyError> {
    match (key.kty, key.crv) {
        ("RSA", _) => Ok(Kind::Rsa),
        ("EC", Some("P-256")) => Ok(Kind::Curve(Curve::P256)),
        ("EC", Some("P-384")) => Ok(Kind::Curve(Curve::P384)),
        ("OKP", Some("Ed25519")) => Ok(Kind::Other(Algorithm::Ed25519)),
        ("OKP", Some("X25519")) => Ok(Kind::Other(Algorithm::X25519)),
        ("EC" | "OKP", None) => Err(KeyError::Jwk),
        _ => Err(KeyError::Algorithm),
    }
}

/// Returns the point x, y, as SEC 1 writes it. Both have the length of the curve (RFC 7518, 6.2.1).
fn point(key: &Members<'_>, curve: Curve) -> Result<Vec<u8>, KeyError> {
    let (x, y) = (bytes(key.x)?, bytes(key.y)?);
    match x.len() == curve.bytes() && y.len() == curve.bytes() {
        true => Ok([&[4], &x[..], &y[..]].concat()),
        false => Err(KeyError::Malformed),
    }
}

/// Returns the bytes of a member in base64url.
fn bytes(member: Option<&str>) -> Result<Zeroizing<Vec<u8>>, KeyError> {
    let text = member.ok_or(KeyError::Jwk)?;
    let bytes = Base64UrlUnpadded::decode_vec(text).map_err(|_| KeyError::Malformed)?;
    Ok(Zeroizing::new(bytes))
}
