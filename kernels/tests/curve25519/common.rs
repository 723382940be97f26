//! Helpers of these tests.

pub use crate::batches::{Random, backends, every_fill, every_lane_and_fill};
pub use lockstep_testkit::hex_array as hex;

pub type Bytes = [u8; 32];

/// Returns all encodings of u-coordinates whose points have a small order, on the curve and on its
/// twist. As y-coordinates, some of them also have a small order.
pub fn small_order() -> Vec<Bytes> {
    [
        "0000000000000000000000000000000000000000000000000000000000000000",
        "0100000000000000000000000000000000000000000000000000000000000000",
        "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
        "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    ]
    .map(hex)
    .to_vec()
}

/// Returns the same points, followed by the same with the top bit flipped.
pub fn with_top_bits(mut points: Vec<Bytes>) -> Vec<Bytes> {
    for i in 0..points.len() {
        let mut other = points[i];
        other[31] ^= 0x80;
        points.push(other);
    }
    points
}
