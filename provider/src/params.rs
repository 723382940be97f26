//! The provider's parameters: what it tells.
//!
//! Beside the usual `name`, `version`, `buildinfo` and `status`, `OSSL_PROVIDER_get_params` answers
//! for `backend` (a string), for `lockstep-unaccelerated` (a string: a line for each operation that
//! stays with the default provider, its name, a colon and the reason; empty where there is none),
//! and for the counters listed in `COUNTERS` (64-bit unsigned integers).

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::null_mut;

use lockstep_engine::Snapshot;
use once_cell::race::OnceBox;

use crate::ffi::{self, Param};
use crate::{overlay, process};

/// The name of a parameter that tells a counter, and where it comes from.
type Counter = (&'static CStr, fn(&Snapshot) -> u64);

const COUNTERS: &[Counter] = &[
    (c"lockstep-operations", Snapshot::operations),
    (c"lockstep-batches", |s| s.batches),
    (c"lockstep-passes", |s| s.passes),
    (c"lockstep-fallbacks", Snapshot::fallbacks),
    (c"lockstep-failed-checks", |s| s.failed_checks),
    (c"lockstep-async-submitted", |s| s.async_submitted),
];

/// The strings among our parameters.
fn strings() -> &'static [(&'static CStr, CString)] {
    static STRINGS: OnceBox<Vec<(&'static CStr, CString)>> = OnceBox::new();
    STRINGS.get_or_init(|| {
        let backend = process::engine()
            .backend()
            .map_or("none", |backend| backend.name());
        let unaccelerated = overlay::unaccelerated();
        let strings = [
            (c"name", "Lockstep"),
            (c"version", env!("CARGO_PKG_VERSION")),
            (
                c"buildinfo",
                concat!("lockstep ", env!("CARGO_PKG_VERSION")),
            ),
            (c"backend", backend),
            (c"lockstep-unaccelerated", &unaccelerated),
        ];
        let strings = strings
            .into_iter()
            .filter_map(|(key, value)| Some((key, CString::new(value).ok()?)));
        Box::new(strings.collect())
    })
}

/// `OSSL_FUNC_provider_gettable_params`
pub unsafe extern "C" fn gettable(_provctx: *mut c_void) -> *const Param {
    struct Description(Vec<Param>);
    // SAFETY: immutable once made; keys are static.
    unsafe impl Send for Description {}
    // SAFETY: as above.
    unsafe impl Sync for Description {}
    static DESCRIPTION: OnceBox<Description> = OnceBox::new();
    let describe = |key: &'static CStr, data_type, data_size| Param {
        key: key.as_ptr(),
        data_type,
        data: null_mut(),
        data_size,
        return_size: 0,
    };
    DESCRIPTION
        .get_or_init(|| {
            let mut params: Vec<Param> = strings()
                .iter()
                .map(|(key, _)| describe(key, ffi::PARAM_UTF8_PTR, 0))
                .collect();
            params.push(describe(
                c"status",
                ffi::PARAM_UNSIGNED_INTEGER,
                size_of::<c_int>(),
            ));
            params.extend(
                COUNTERS
                    .iter()
                    .map(|(key, _)| describe(key, ffi::PARAM_UNSIGNED_INTEGER, size_of::<u64>())),
            );
            params.push(Param::END);
            Box::new(Description(params))
        })
        .0
        .as_ptr()
}

/// `OSSL_FUNC_provider_get_params`
///
/// Returns 0 if a known parameter was asked for with an unsuitable type or size; unknown ones are
/// left untouched.
pub unsafe extern "C" fn get(_provctx: *mut c_void, mut params: *mut Param) -> c_int {
    let snapshot = process::engine().metrics();
    if params.is_null() {
        return 0;
    }
    loop {
        // SAFETY: the caller's array ends with a NULL key, where we stop.
        let param = unsafe { &mut *params };
        if param.key.is_null() {
            return 1;
        }
        // SAFETY: keys are C strings.
        let key = unsafe { CStr::from_ptr(param.key) };
        let answered = if let Some((_, value)) = strings().iter().find(|(name, _)| *name == key) {
            // SAFETY: a parameter of the caller; the string lives as long as the process.
            unsafe { set_string(param, value) }
        } else if key == c"status" {
            // SAFETY: a parameter of the caller.
            unsafe { set_unsigned(param, 1) }
        } else if let Some((_, counter)) = COUNTERS.iter().find(|(name, _)| *name == key) {
            // SAFETY: a parameter of the caller.
            unsafe { set_unsigned(param, counter(&snapshot)) }
        } else {
            true
        };
        if !answered {
            return 0;
        }
        // SAFETY: the end has not been reached.
        params = unsafe { params.add(1) };
    }
}

/// # Safety
/// `param` describes writable memory of its type, or NULL.
unsafe fn set_string(param: &mut Param, value: &'static CStr) -> bool {
    param.return_size = value.to_bytes().len();
    if param.data.is_null() {
        return true;
    }
    if param.data_type != ffi::PARAM_UTF8_PTR {
        return false;
    }
    // SAFETY: a UTF8_PTR parameter points to a pointer.
    unsafe { *param.data.cast::<*const c_char>() = value.as_ptr() };
    true
}

/// # Safety
/// `param` describes writable memory of its type, or NULL.
unsafe fn set_unsigned(param: &mut Param, value: u64) -> bool {
    // `status` has been asked for as a signed integer too (OSSL_PARAM_construct_int).
    if !matches!(
        param.data_type,
        ffi::PARAM_UNSIGNED_INTEGER | ffi::PARAM_INTEGER
    ) {
        return false;
    }
    if param.data.is_null() {
        param.return_size = size_of::<u64>();
        return true;
    }
    param.return_size = param.data_size;
    // SAFETY (both): as many bytes as the parameter says it has.
    match param.data_size {
        4 => match u32::try_from(value) {
            // SAFETY: see above.
            Ok(value) => unsafe { param.data.cast::<u32>().write_unaligned(value) },
            Err(_) => return false,
        },
        // SAFETY: see above.
        8 => unsafe { param.data.cast::<u64>().write_unaligned(value) },
        _ => return false,
    }
    true
}
