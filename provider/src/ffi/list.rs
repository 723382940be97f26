//! The builder of parameters that the module passes.

use std::cell::Cell;
use std::ffi::{CStr, c_int, c_uint, c_void};
use std::marker::PhantomData;
use std::ptr::null_mut;

use super::params::{
    PARAM_INTEGER, PARAM_OCTET_STRING, PARAM_UNMODIFIED, PARAM_UNSIGNED_INTEGER, PARAM_UTF8_PTR,
    PARAM_UTF8_STRING, Params, ParamsMut,
};
use super::pointers::Text;
use super::types::Param;

/// At most `N - 1` parameters that the module passes, and the end mark. They borrow the values that
/// they describe.
pub struct List<'a, const N: usize> {
    params: [Param; N],
    count: usize,
    lifetime: PhantomData<&'a mut [u8]>,
}

// SAFETY: a shared list and the described values are only read: a callee can write them only
// through a list that is borrowed exclusively.
unsafe impl<const N: usize> Send for List<'_, N> {}
// SAFETY: as above.
unsafe impl<const N: usize> Sync for List<'_, N> {}

impl<'a, const N: usize> List<'a, N> {
    pub const fn new() -> List<'a, N> {
        List {
            params: [const { Param::end() }; N],
            count: 0,
            lifetime: PhantomData,
        }
    }

    pub fn octets(self, name: &'a CStr, bytes: &'a [u8]) -> List<'a, N> {
        let data = bytes.as_ptr().cast_mut().cast();
        self.with(name, PARAM_OCTET_STRING, data, bytes.len())
    }

    /// Adds an octet string to be filled.
    pub fn room(self, name: &'a CStr, bytes: &'a mut [u8]) -> List<'a, N> {
        let data = bytes.as_mut_ptr().cast();
        self.with(name, PARAM_OCTET_STRING, data, bytes.len())
    }

    pub fn utf8(self, name: &'a CStr, text: &'a CStr) -> List<'a, N> {
        let data = text.as_ptr().cast_mut().cast();
        self.with(name, PARAM_UTF8_STRING, data, text.count_bytes())
    }

    pub fn int(self, name: &'a CStr, number: &'a c_int) -> List<'a, N> {
        let data = std::ptr::from_ref(number).cast_mut().cast();
        self.with(name, PARAM_INTEGER, data, size_of::<c_int>())
    }

    pub fn uint(self, name: &'a CStr, number: &'a c_uint) -> List<'a, N> {
        let data = std::ptr::from_ref(number).cast_mut().cast();
        self.with(name, PARAM_UNSIGNED_INTEGER, data, size_of::<c_uint>())
    }

    pub fn size(self, name: &'a CStr, number: &'a usize) -> List<'a, N> {
        let data = std::ptr::from_ref(number).cast_mut().cast();
        self.with(name, PARAM_UNSIGNED_INTEGER, data, size_of::<usize>())
    }

    /// Adds a pointer to a string, to be filled.
    pub fn text_wanted(self, name: &'a CStr, text: &'a mut Option<Text<'_>>) -> List<'a, N> {
        let data = std::ptr::from_mut(text).cast();
        self.with(name, PARAM_UTF8_PTR, data, 0)
    }

    /// Adds a parameter with this type and size, and without a value.
    pub const fn described(self, name: &'a CStr, data_type: c_uint, size: usize) -> List<'a, N> {
        self.with(name, data_type, null_mut(), size)
    }

    pub fn as_params(&self) -> Params<'_> {
        // The entries before the end describe values that the list borrows.
        Params::new(&self.params)
    }

    pub fn as_params_mut(&mut self) -> ParamsMut<'_> {
        // As above. The callee only fills values that the list borrows exclusively.
        ParamsMut::new(&mut self.params)
    }

    /// Returns the length of the value that the callee set at this place; [`PARAM_UNMODIFIED`] if
    /// it set none.
    pub fn returned(&self, place: usize) -> usize {
        self.params[place].return_size.get()
    }

    const fn with(
        mut self,
        name: &CStr,
        data_type: c_uint,
        data: *mut c_void,
        size: usize,
    ) -> Self {
        let has_room = self.count + 1 < N;
        debug_assert!(has_room, "a list has room for one less");
        if has_room {
            self.params[self.count] = Param {
                key: name.as_ptr(),
                data_type,
                data,
                data_size: size,
                return_size: Cell::new(PARAM_UNMODIFIED),
            };
            self.count += 1;
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic = "room for one less"]
    fn a_list_keeps_its_end() {
        let number = 7;
        let _ = List::<2>::new().int(c"a", &number).int(c"b", &number);
    }
}
