//! RSA keys by their parts, right ones and wrong ones, and keys of the curves by their bytes.

use std::path::Path;

use openssl::bn::{BigNum, BigNumContext, BigNumRef};
use openssl::ec::{EcGroup, EcKey, EcPoint};
use openssl::nid::Nid;
use openssl::pkey::PKey;
use openssl::rsa::Rsa;

use lockstep_testkit::hex;

/// The parts of a private key. Nothing keeps them consistent.
#[derive(Debug)]
pub struct Parts {
    pub n: BigNum,
    pub e: BigNum,
    pub d: BigNum,
    pub p: BigNum,
    pub q: BigNum,
    pub dp: BigNum,
    pub dq: BigNum,
    pub qinv: BigNum,
}

impl Parts {
    /// The right key with these primes and this public exponent, which must be invertible.
    pub fn new(p: &BigNumRef, q: &BigNumRef, e: &BigNumRef) -> Parts {
        let mut lambda = number(0);
        lambda
            .checked_mul(&minus_one(p), &minus_one(q), &mut context())
            .expect("memory");
        let mut d = number(0);
        d.mod_inverse(e, &lambda, &mut context())
            .expect("an invertible exponent");
        let mut parts = Parts {
            n: product(p, q),
            e: copy(e),
            d,
            p: copy(p),
            q: copy(q),
            dp: number(0),
            dq: number(0),
            qinv: number(1),
        };
        parts.dp = remainder(&parts.d, &minus_one(p));
        parts.dq = remainder(&parts.d, &minus_one(q));
        // With p = q there is no inverse; 1 stands for it.
        let _ = parts.qinv.mod_inverse(q, p, &mut context());
        parts
    }

    pub fn from_pem(path: &Path) -> Parts {
        let pem = std::fs::read(path).expect("a key");
        let key = Rsa::private_key_from_pem(&pem).expect("an RSA key");
        Parts::new(key.p().expect("p"), key.q().expect("q"), key.e())
    }

    /// Only n and e of a key; the rest is zero.
    pub fn public_of(path: &Path) -> Parts {
        let pem = std::fs::read(path).expect("a key");
        let key = Rsa::private_key_from_pem(&pem).expect("an RSA key");
        let none = || number(0);
        Parts {
            n: copy(key.n()),
            e: copy(key.e()),
            d: none(),
            p: none(),
            q: none(),
            dp: none(),
            dq: none(),
            qinv: none(),
        }
    }

    /// A right key whose modulus has exactly this odd number of bits.
    pub fn with_bits(bits: i32, e: &BigNumRef) -> Parts {
        loop {
            let parts = Parts::new(&prime((bits + 1) / 2), &prime(bits - (bits + 1) / 2), e);
            if parts.n.num_bits() == bits {
                return parts;
            }
        }
    }

    pub fn duplicate(&self) -> Parts {
        let Parts {
            n,
            e,
            d,
            p,
            q,
            dp,
            dq,
            qinv,
        } = self;
        Parts {
            n: copy(n),
            e: copy(e),
            d: copy(d),
            p: copy(p),
            q: copy(q),
            dp: copy(dp),
            dq: copy(dq),
            qinv: copy(qinv),
        }
    }

    /// From n, e, d, p, q, dP, dQ and qInv in hexadecimal digits.
    pub fn from_hex(words: &[&str]) -> Parts {
        let part = |at: usize| BigNum::from_slice(&hex(words[at])).expect("a number");
        Parts {
            n: part(0),
            e: part(1),
            d: part(2),
            p: part(3),
            q: part(4),
            dp: part(5),
            dq: part(6),
            qinv: part(7),
        }
    }

    /// With p and q in the order that the caller wants.
    pub fn ordered(self, p_is_greater: bool) -> Parts {
        match (self.p > self.q) == p_is_greater {
            true => self,
            false => Parts::new(&self.q, &self.p, &self.e),
        }
    }

    /// The traditional encoding, RSAPrivateKey.
    pub fn der(&self) -> Vec<u8> {
        let mut body = vec![2, 1, 0];
        let Parts {
            n,
            e,
            d,
            p,
            q,
            dp,
            dq,
            qinv,
        } = self;
        for part in [n, e, d, p, q, dp, dq, qinv] {
            let mut bytes = part.to_vec();
            if bytes.first().is_none_or(|first| first & 0x80 != 0) {
                bytes.insert(0, 0);
            }
            body.extend(tagged(2, &bytes));
        }
        tagged(0x30, &body)
    }

    pub fn bytes(&self) -> usize {
        self.n.num_bytes() as usize
    }

    /// m^e mod n, as long as the modulus.
    pub fn public(&self, m: &[u8]) -> Vec<u8> {
        let m = BigNum::from_slice(m).expect("a number");
        let mut power = number(0);
        power
            .mod_exp(&m, &self.e, &self.n, &mut context())
            .expect("a power");
        self.block(&power)
    }

    /// A number as long as the modulus.
    pub fn block(&self, number: &BigNumRef) -> Vec<u8> {
        number
            .to_vec_padded(self.n.num_bytes())
            .expect("a number that fits")
    }
}

/// Tag, length and content of DER.
fn tagged(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len().to_be_bytes();
    let significant: Vec<u8> = length.into_iter().skip_while(|byte| *byte == 0).collect();
    let mut out = vec![tag];
    match significant.as_slice() {
        [] => out.push(0),
        [short] if *short < 0x80 => out.push(*short),
        long => {
            out.push(0x80 | long.len() as u8);
            out.extend(long);
        }
    }
    out.extend(content);
    out
}

/// A prime of exactly so many bits, with the highest two set.
pub fn prime(bits: i32) -> BigNum {
    let mut prime = number(0);
    prime
        .generate_prime(bits, false, None, None)
        .expect("a prime");
    prime
}

/// The same, such that e is invertible.
pub fn coprime_prime(bits: i32, e: &BigNumRef) -> BigNum {
    loop {
        let prime = prime(bits);
        let mut divisor = number(0);
        divisor
            .gcd(&minus_one(&prime), e, &mut context())
            .expect("memory");
        if divisor == number(1) {
            return prime;
        }
    }
}

pub fn power_of_two(exponent: i32) -> BigNum {
    let mut power = number(0);
    power.set_bit(exponent).expect("memory");
    power
}

pub fn number(value: u32) -> BigNum {
    BigNum::from_u32(value).expect("memory")
}

pub fn copy(number: &BigNumRef) -> BigNum {
    number.to_owned().expect("memory")
}

pub fn product(a: &BigNumRef, b: &BigNumRef) -> BigNum {
    let mut product = number(0);
    product.checked_mul(a, b, &mut context()).expect("memory");
    product
}

pub fn sum(a: &BigNumRef, b: &BigNumRef) -> BigNum {
    let mut sum = number(0);
    sum.checked_add(a, b).expect("memory");
    sum
}

pub fn minus_one(a: &BigNumRef) -> BigNum {
    let mut difference = number(0);
    difference.checked_sub(a, &number(1)).expect("memory");
    difference
}

fn remainder(a: &BigNumRef, modulus: &BigNumRef) -> BigNum {
    let mut remainder = number(0);
    remainder
        .nnmod(a, modulus, &mut context())
        .expect("a modulus");
    remainder
}

fn context() -> BigNumContext {
    BigNumContext::new().expect("memory")
}

/// A private key on a named curve, by its scalar, as DER; None if OpenSSL takes no such key.
pub fn ec_private(curve: Nid, scalar: &BigNumRef) -> Option<Vec<u8>> {
    let group = EcGroup::from_curve_name(curve).expect("a curve");
    let mut public = EcPoint::new(&group).expect("a point");
    public.mul_generator2(&group, scalar, &mut context()).ok()?;
    let key = EcKey::from_private_components(&group, scalar, &public).ok()?;
    PKey::from_ec_key(key).ok()?.private_key_to_der().ok()
}

/// The affine coordinates of the point that belongs to a scalar.
pub fn ec_public(curve: Nid, scalar: &BigNumRef) -> (BigNum, BigNum) {
    let group = EcGroup::from_curve_name(curve).expect("a curve");
    let mut public = EcPoint::new(&group).expect("a point");
    public
        .mul_generator2(&group, scalar, &mut context())
        .expect("a point");
    let (mut x, mut y) = (number(0), number(0));
    public
        .affine_coordinates(&group, &mut x, &mut y, &mut context())
        .expect("coordinates");
    (x, y)
}

/// An X25519 or Ed25519 key of whatever length (RFC 8410).
pub fn private_25519(algorithm: u8, secret: &[u8]) -> Vec<u8> {
    let parts = [
        vec![2, 1, 0],
        identifier_25519(algorithm),
        der(4, &der(4, secret)),
    ];
    der(0x30, &parts.concat())
}

/// The same for public keys.
pub fn public_25519(algorithm: u8, public: &[u8]) -> Vec<u8> {
    let string = [&[0], public].concat();
    der(
        0x30,
        &[identifier_25519(algorithm), der(3, &string)].concat(),
    )
}

fn identifier_25519(algorithm: u8) -> Vec<u8> {
    der(0x30, &der(6, &[0x2b, 0x65, algorithm]))
}

/// An element of DER.
pub fn der(tag: u8, content: &[u8]) -> Vec<u8> {
    let head = match content.len() {
        length @ 0..128 => vec![tag, length as u8],
        length @ 128..256 => vec![tag, 0x81, length as u8],
        length => vec![tag, 0x82, (length >> 8) as u8, length as u8],
    };
    [&head, content].concat()
}

/// The last byte of the object identifier of X25519.
pub const X25519: u8 = 0x6e;
/// The last byte of the object identifier of Ed25519.
pub const ED25519: u8 = 0x70;
