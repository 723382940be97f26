//! The curve of Ed25519 in plain numbers: for keys and signatures that no signer makes.

use num_bigint::BigUint;

/// x and y of a point.
pub type EdwardsPoint = [BigUint; 2];

/// The curve −x² + y² = 1 + d·x²·y² modulo p = 2^255 − 19, and the order L of its base point.
#[derive(Debug)]
pub struct Edwards {
    p: BigUint,
    d: BigUint,
    order: BigUint,
}

impl Edwards {
    /// Returns the curve.
    pub fn new() -> Self {
        let p = (BigUint::from(1_u8) << 255) - 19_u8;
        let inverse = BigUint::from(121_666_u32).modpow(&(&p - 2_u8), &p);
        let d = (&p - 121_665_u32) * inverse % &p;
        let low = BigUint::from(27_742_317_777_372_353_535_851_937_790_883_648_493_u128);
        let order = (BigUint::from(1_u8) << 252) + low;
        Self { p, d, order }
    }

    /// Returns L.
    pub fn order(&self) -> &BigUint {
        &self.order
    }

    /// Returns RFC 8032's base point, whose x is even and whose y is 4/5.
    pub fn base(&self) -> EdwardsPoint {
        let four = BigUint::from(4_u8);
        self.decode(&little_endian(&self.divide(&four, &5_u8.into())))
    }

    /// Returns a point of order 8.
    pub fn of_order_8(&self) -> EdwardsPoint {
        let encoding = "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05";
        self.decode(&crate::hex_array(encoding))
    }

    fn divide(&self, a: &BigUint, b: &BigUint) -> BigUint {
        a * b.modpow(&(&self.p - 2_u8), &self.p) % &self.p
    }

    /// Returns the sum of two points.
    pub fn add(&self, [x1, y1]: &EdwardsPoint, [x2, y2]: &EdwardsPoint) -> EdwardsPoint {
        let p = &self.p;
        let product = &self.d * x1 % p * x2 % p * y1 % p * y2 % p;
        let one = BigUint::from(1_u8);
        let x = self.divide(&(x1 * y2 + y1 * x2), &(&one + &product));
        let y = self.divide(&(y1 * y2 + x1 * x2), &(&one + p - &product));
        [x, y]
    }

    /// Returns k times a point.
    pub fn multiply(&self, k: &BigUint, point: &EdwardsPoint) -> EdwardsPoint {
        let mut sum = [BigUint::ZERO, BigUint::from(1_u8)];
        for i in (0..k.bits()).rev() {
            sum = self.add(&sum, &sum);
            if k.bit(i) {
                sum = self.add(&sum, point);
            }
        }
        sum
    }

    /// Returns the point of an encoding.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn decode(&self, bytes: &[u8; 32]) -> EdwardsPoint {
        let (p, one) = (&self.p, BigUint::from(1_u8));
        let sign = bytes[31] >> 7 == 1;
        let y = BigUint::from_bytes_le(bytes) % (&one << 255);
        let yy = &y * &y % p;
        let xx = self.divide(&(&yy + p - &one), &(&self.d * &yy + &one));
        let mut x = xx.modpow(&((p + 3_u8) >> 3), p);
        if &x * &x % p != xx {
            x = x * BigUint::from(2_u8).modpow(&((p - &one) >> 2), p) % p;
        }
        assert_eq!(&x * &x % p, xx, "not a point");
        if x.bit(0) != sign && x != BigUint::ZERO {
            x = p - x;
        }
        [x, y]
    }

    /// Returns the encoding of a point.
    pub fn encode(&self, [x, y]: &EdwardsPoint) -> [u8; 32] {
        let mut bytes = little_endian(y);
        bytes[31] |= u8::from(x.bit(0)) << 7;
        bytes
    }

    /// Returns the encodings of a point that are not canonical: with y + p, and with a sign of x =
    /// 0.
    pub fn other_encodings(&self, [x, y]: &EdwardsPoint) -> Vec<[u8; 32]> {
        let own = self.encode(&[x.clone(), y.clone()]);
        let mut all = Vec::new();
        for y in [y.clone(), y + &self.p] {
            if y.bits() > 255 {
                continue;
            }
            let unsigned = little_endian(&y);
            let mut signed = unsigned;
            signed[31] |= 0x80;
            match *x == BigUint::ZERO {
                true => all.extend([unsigned, signed]),
                false => all.push(if x.bit(0) { signed } else { unsigned }),
            }
        }
        all.retain(|encoding| *encoding != own);
        all
    }
}

impl Default for Edwards {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the 32 bytes of a number, the lowest first.
///
/// # Panics
///
/// If it has more.
pub fn little_endian(number: &BigUint) -> [u8; 32] {
    let mut bytes = number.to_bytes_le();
    bytes.resize(bytes.len().max(32), 0);
    bytes.try_into().expect("32 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_base_point_has_order_l_and_the_other_one_8() {
        let curve = Edwards::new();
        let (base, neutral) = (curve.base(), [BigUint::ZERO, BigUint::from(1_u8)]);
        assert!(!base[0].bit(0));
        assert_eq!(curve.multiply(curve.order(), &base), neutral);
        let small = curve.of_order_8();
        assert_eq!(curve.multiply(&8_u8.into(), &small), neutral);
        assert_ne!(curve.multiply(&4_u8.into(), &small), neutral);
    }
}
