//! Points of curves that the lanes have.

use lockstep_engine::Curve;

use crate::ffi::{self, EcGroup, EcPoint, Owned};
use crate::number::bytes;

/// The curve of a group, if the lanes have it.
pub fn curve_of(group: &EcGroup) -> Option<Curve> {
    match ffi::EC_GROUP_get_curve_name(group) {
        ffi::NID_P256 => Some(Curve::P256),
        ffi::NID_P384 => Some(Curve::P384),
        _ => None,
    }
}

/// The uncompressed form of a point; None for infinity, or a point of another curve.
pub fn encoded(group: &EcGroup, point: &EcPoint) -> Option<Vec<u8>> {
    let length = curve_of(group)?.bytes();
    if let Some(form) = decoded_form(group, point, length) {
        return Some(form);
    }
    let mut form = vec![0; 1 + 2 * length];
    let (start, size) = (form.as_mut_ptr(), form.len());
    // SAFETY: `form` has room for as many bytes.
    let written = unsafe {
        ffi::EC_POINT_point2oct(group, point, ffi::POINT_UNCOMPRESSED, start, size, None)
    };
    (written == form.len()).then_some(form)
}

/// The uncompressed form of a point with z = 1, as all have that were decoded. To ask in the usual
/// way costs an inversion, and that a tenth of an exchange.
fn decoded_form(group: &EcGroup, point: &EcPoint, length: usize) -> Option<Vec<u8>> {
    let (mut x, mut y, mut z) = (ffi::BN_new()?, ffi::BN_new()?, ffi::BN_new()?);
    let (to_x, to_y, to_z) = (Some(&mut *x), Some(&mut *y), Some(&mut *z));
    let found = ffi::EC_POINT_get_Jprojective_coordinates_GFp(group, point, to_x, to_y, to_z, None);
    if found != 1 || ffi::BN_is_one(&z) != 1 {
        return None;
    }
    Some([&[4][..], &bytes(&x, length)?, &bytes(&y, length)?].concat())
}

/// The point with this form; None if it is not on the curve.
pub fn decoded(group: &EcGroup, form: &[u8]) -> Option<Owned<EcPoint>> {
    let mut point = ffi::EC_POINT_new(group)?;
    // SAFETY: as many bytes as said.
    let is_point =
        unsafe { ffi::EC_POINT_oct2point(group, &mut point, form.as_ptr(), form.len(), None) == 1 };
    is_point.then_some(point)
}
