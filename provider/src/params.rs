//! The parameters that the provider reports.
//!
//! Beside the usual `name`, `version`, `buildinfo` and `status`, `OSSL_PROVIDER_get_params` answers
//! for `backend` (a string), for `lockstep-unaccelerated` (a string: a line for each operation that
//! stays with the default provider, its name, a colon and the reason; empty where there is none),
//! and for the counters listed in `COUNTERS` (64-bit unsigned integers).

use std::ffi::{CStr, CString, c_int};

use lockstep_engine::{Snapshot, version};
use once_cell::race::OnceBox;

use crate::ffi::{List, PARAM_UNSIGNED_INTEGER, PARAM_UTF8_PTR, Params, ParamsMut, ProvCtx, name};
use crate::overlay;
use crate::process;

/// Name of a parameter that reports a counter, and its source.
type Counter = (&'static CStr, fn(&Snapshot) -> u64);

const COUNTERS: &[Counter] = &[
    (c"lockstep-operations", Snapshot::operations),
    (c"lockstep-batches", |s| s.batches),
    (c"lockstep-passes", |s| s.passes),
    (c"lockstep-fallbacks", Snapshot::fallbacks),
    (c"lockstep-failed-checks", |s| s.failed_checks),
    (c"lockstep-async-submitted", |s| s.async_submitted),
];

/// Returns the parameters that are strings.
fn strings() -> &'static [(&'static CStr, CString)] {
    static STRINGS: OnceBox<Vec<(&'static CStr, CString)>> = OnceBox::new();
    STRINGS.get_or_init(|| {
        let (version, unaccelerated) = (version(), overlay::unaccelerated());
        let strings = [
            (name::PROV_PARAM_NAME, "Lockstep"),
            (name::PROV_PARAM_VERSION, &version),
            (name::PROV_PARAM_BUILDINFO, &version),
            (c"backend", process::lanes()),
            (c"lockstep-unaccelerated", &unaccelerated),
        ];
        let strings = strings
            .into_iter()
            .filter_map(|(key, value)| Some((key, CString::new(value).ok()?)));
        Box::new(strings.collect())
    })
}

/// Maximum number of parameters, with the end.
const ROOM: usize = 16;

/// `OSSL_FUNC_provider_gettable_params`
pub fn gettable(_provctx: ProvCtx) -> Params<'static> {
    static DESCRIPTION: OnceBox<List<'static, ROOM>> = OnceBox::new();
    let describe = || {
        let mut list = List::new();
        for (key, _) in strings() {
            list = list.described(key, PARAM_UTF8_PTR, 0);
        }
        list = list.described(
            name::PROV_PARAM_STATUS,
            PARAM_UNSIGNED_INTEGER,
            size_of::<c_int>(),
        );
        for (key, _) in COUNTERS {
            list = list.described(key, PARAM_UNSIGNED_INTEGER, size_of::<u64>());
        }
        Box::new(list)
    };
    DESCRIPTION.get_or_init(describe).as_params()
}

/// `OSSL_FUNC_provider_get_params`
///
/// Returns 0 if a known parameter was asked for with an unsuitable type or size; unknown ones are
/// left untouched.
pub fn get(_provctx: ProvCtx, mut params: ParamsMut<'_>) -> c_int {
    let snapshot = process::counted();
    if params.is_null() {
        return 0;
    }
    let all_fit = params.questions().all(|mut question| {
        let name = question.name();
        let text = strings().iter().find(|(key, _)| *key == name);
        let counter = COUNTERS.iter().find(|(key, _)| *key == name);
        let is_status = name == name::PROV_PARAM_STATUS;
        match (text, counter) {
            (Some((_, text)), _) => question.answer_text(text),
            (_, Some((_, counter))) => question.answer_number(counter(&snapshot)),
            _ => !is_status || question.answer_number(1),
        }
    });
    c_int::from(all_fit)
}
