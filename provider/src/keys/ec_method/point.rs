//! Points of curves that the lanes have.

use lockstep_engine::Curve;

use crate::ffi::{self, EcGroup, EcPoint, Owned};
use crate::keys::number::{bytes, read};

/// Returns the curve of a group, if the lanes have it.
pub fn curve_of(group: &EcGroup) -> Option<Curve> {
    match ffi::EC_GROUP_get_curve_name(group) {
        ffi::NID_P256 => Some(Curve::P256),
        ffi::NID_P384 => Some(Curve::P384),
        _ => None,
    }
}

/// First byte of an uncompressed form: x and y follow.
const UNCOMPRESSED: u8 = 4;

/// Returns the uncompressed form of a point; None for infinity, or a point of another curve.
pub fn encoded(group: &EcGroup, point: &EcPoint) -> Option<Vec<u8>> {
    let length = curve_of(group)?.bytes();
    let (mut x, mut y, mut z) = (ffi::BN_new()?, ffi::BN_new()?, ffi::BN_new()?);
    let (to_x, to_y, to_z) = (Some(&mut *x), Some(&mut *y), Some(&mut *z));
    let found = ffi::EC_POINT_get_Jprojective_coordinates_GFp(group, point, to_x, to_y, to_z, None);
    // Only infinity has z = 0.
    if found != 1 || ffi::BN_is_zero(&z) == 1 {
        return None;
    }
    // All points that were decoded have z = 1. EC_POINT_get_affine_coordinates costs an inversion,
    // a tenth of an exchange.
    if ffi::BN_is_one(&z) != 1
        && ffi::EC_POINT_get_affine_coordinates(group, point, &mut x, &mut y, None) != 1
    {
        return None;
    }
    Some(
        [
            &[UNCOMPRESSED][..],
            &bytes(&x, length)?,
            &bytes(&y, length)?,
        ]
        .concat(),
    )
}

/// Returns the point with this uncompressed form; None if it is not on the curve.
pub fn decoded(group: &EcGroup, form: &[u8]) -> Option<Owned<EcPoint>> {
    let coordinates = form.strip_prefix(&[UNCOMPRESSED])?;
    let (first, second) = coordinates.split_at(coordinates.len() / 2);
    let (mut x, mut y) = (ffi::BN_new()?, ffi::BN_new()?);
    let mut point = ffi::EC_POINT_new(group)?;
    let is_point = read(first, &mut x)
        && read(second, &mut y)
        && ffi::EC_POINT_set_affine_coordinates(group, &mut point, &x, &y, None) == 1;
    is_point.then_some(point)
}
