//! `OSSL_PARAM`: the only reader of parameters; the [list](super::list) is the only builder.

use std::ffi::{CStr, c_char, c_int, c_uint};
use std::ptr::null;

use super::buffers::Bytes;
use super::convert::Argument as _;
use super::pointers::{Terminated, TerminatedMut};
use super::symbols::{
    OSSL_PARAM_get_octet_string_ptr, OSSL_PARAM_get_size_t, OSSL_PARAM_set_int,
    OSSL_PARAM_set_octet_ptr, OSSL_PARAM_set_octet_string, OSSL_PARAM_set_size_t,
};
use super::types::Param;

/// `OSSL_PARAM_INTEGER`
pub const PARAM_INTEGER: c_uint = 1;
/// `OSSL_PARAM_UNSIGNED_INTEGER`
pub const PARAM_UNSIGNED_INTEGER: c_uint = 2;
/// `OSSL_PARAM_UTF8_STRING`
pub const PARAM_UTF8_STRING: c_uint = 4;
/// `OSSL_PARAM_OCTET_STRING`
pub const PARAM_OCTET_STRING: c_uint = 5;
/// `OSSL_PARAM_UTF8_PTR`
pub const PARAM_UTF8_PTR: c_uint = 6;
/// `OSSL_PARAM_OCTET_PTR`
pub const PARAM_OCTET_PTR: c_uint = 7;
/// `OSSL_PARAM_UNMODIFIED`: the returned size of a parameter without an answer.
pub const PARAM_UNMODIFIED: usize = usize::MAX;

/// Parameters to read. While they are used, the array and the described values can be read and do
/// not change.
pub type Params<'a> = Terminated<'a, Param>;

/// Parameters that a caller asks for. While they are used, the array and the described values can
/// be written, and no other code uses them.
pub type ParamsMut<'a> = TerminatedMut<'a, Param>;

impl<'a> Params<'a> {
    pub fn is_empty(self) -> bool {
        self.values().next().is_none()
    }

    pub fn get(self, name: &CStr) -> Option<Value<'a>> {
        self.values().find(|value| value.name() == name)
    }

    pub fn values(self) -> impl Iterator<Item = Value<'a>> {
        self.iter().map(Value)
    }
}

impl ParamsMut<'_> {
    pub fn questions(&mut self) -> impl Iterator<Item = Question<'_>> {
        self.iter().map(Question)
    }
}

/// A parameter to read.
#[derive(Clone, Copy)]
pub struct Value<'a>(&'a Param);

impl<'a> Value<'a> {
    pub fn name(self) -> &'a CStr {
        // SAFETY: every key before the end is a C string (OSSL_PARAM(3)) that lives as long as the
        // array.
        unsafe { CStr::from_ptr(self.0.key) }
    }

    /// An octet string; None for another type, or without a value.
    pub fn octets(self) -> Option<&'a [u8]> {
        self.bytes_of(PARAM_OCTET_STRING)
    }

    /// Returns an octet string, given directly or by a pointer; an empty string needs no address.
    /// None for another type, or if the bytes are missing.
    pub fn octets_or_pointed(self) -> Option<&'a [u8]> {
        let (mut start, mut length) = (null(), 0);
        if self.0.data_type == PARAM_OCTET_PTR && self.0.data.is_null() {
            return None;
        }
        // SAFETY: a parameter with its value, and places for the answers.
        let found = unsafe { OSSL_PARAM_get_octet_string_ptr(self.0, &mut start, &mut length) };
        if found != 1 || length == 0 {
            return (found == 1).then_some(&[]);
        }
        let is_slice = !start.is_null() && isize::try_from(length).is_ok();
        // SAFETY: `length` readable bytes, which live as long as the array.
        is_slice.then(|| unsafe { std::slice::from_raw_parts(start.cast(), length) })
    }

    /// Returns an octet string with or without a value; None for another type. The size (size_t)-1
    /// stands for `whole` bytes (EVP_CTRL_GCM_SET_IV_FIXED).
    pub fn octets_or_whole(self, whole: usize) -> Option<Bytes<'a>> {
        let Param {
            data, data_size, ..
        } = *self.0;
        let size = if data_size == usize::MAX {
            whole
        } else {
            data_size
        };
        // SAFETY: the parameter has `size` readable bytes, which live as long as the array, by its
        // size or by its name. `Bytes::read` refuses more than `isize::MAX`.
        let octets = || unsafe { Bytes::from_raw((data.cast_const(), size)) };
        (self.0.data_type == PARAM_OCTET_STRING).then(octets)
    }

    /// Returns whether the size is (size_t)-1.
    pub fn is_sizeless(self) -> bool {
        self.0.data_size == usize::MAX
    }

    /// Returns a number; None for another type, or if it is negative or too large.
    pub fn size(self) -> Option<usize> {
        let mut size = 0;
        // SAFETY: a parameter with its value, and a place for the number.
        let is_one = unsafe { OSSL_PARAM_get_size_t(self.0, &mut size) } == 1;
        is_one.then_some(size)
    }

    /// Returns all bytes of a UTF-8 string, also after a zero byte; None for another type, or
    /// without a value.
    pub fn utf8(self) -> Option<&'a [u8]> {
        self.bytes_of(PARAM_UTF8_STRING)
    }

    /// An `int`; None for another type or size, or without a value.
    pub fn int(self) -> Option<c_int> {
        let bytes = self.bytes_of(PARAM_INTEGER)?;
        Some(c_int::from_ne_bytes(bytes.try_into().ok()?))
    }

    fn bytes_of(self, data_type: c_uint) -> Option<&'a [u8]> {
        let is_it = self.0.data_type == data_type && !self.0.data.is_null();
        is_it.then(|| {
            // SAFETY: the parameter describes `data_size` readable bytes, which live as long as the
            // array.
            unsafe { std::slice::from_raw_parts(self.0.data.cast(), self.0.data_size) }
        })
    }
}

/// A parameter that a caller asks for.
pub struct Question<'a>(&'a Param);

impl Question<'_> {
    pub fn name(&self) -> &CStr {
        Value(self.0).name()
    }

    /// Answers with a string; false for a parameter of another type.
    pub fn answer_text(&mut self, text: &'static CStr) -> bool {
        self.0.return_size.set(text.to_bytes().len());
        if self.0.data.is_null() {
            return true;
        }
        self.0.data_type == PARAM_UTF8_PTR && self.put(text.as_ptr())
    }

    /// Returns the size of the room for the answer, in bytes.
    pub fn room(&self) -> usize {
        self.0.data_size
    }

    /// Answers with a size; false for a parameter of another type, or without room for it.
    pub fn answer_size(&mut self, size: usize) -> bool {
        // SAFETY: the parameter has the room that it says (OSSL_PARAM(3)).
        unsafe { OSSL_PARAM_set_size_t(std::ptr::from_ref(self.0).cast_mut(), size) == 1 }
    }

    /// Writes the last of these octets, as many as the room holds. Room of 0 bytes stands for room
    /// for all octets (EVP_CTRL_GCM_IV_GEN). Returns false for a parameter of another type or
    /// without a place.
    pub fn answer_end_of(&mut self, octets: &[u8]) -> bool {
        let param = self.0;
        if param.data_type != PARAM_OCTET_STRING || param.data.is_null() {
            return false;
        }
        let room = match param.data_size {
            0 => octets.len(),
            room => room.min(octets.len()),
        };
        let end = &octets[octets.len() - room..];
        // SAFETY: the parameter has room for `room` bytes, by the rules in this function's comment.
        unsafe {
            param
                .data
                .cast::<u8>()
                .copy_from_nonoverlapping(end.as_ptr(), room)
        };
        true
    }

    /// Answers with octets, or with a pointer to them, as the type demands, by OpenSSL's rules. The
    /// pointer is valid as long as the octets are.
    pub fn answer_octets_or_pointer(&mut self, bytes: &[u8]) -> bool {
        let param = std::ptr::from_ref(self.0).cast_mut();
        let (start, length) = (bytes.as_ptr().cast(), bytes.len());
        // SAFETY: the parameter has the room that it says (OSSL_PARAM(3)); C's functions write to
        // the described value and to the size of the answer, which is a `Cell`.
        unsafe {
            OSSL_PARAM_set_octet_string(param, start, length) == 1
                || OSSL_PARAM_set_octet_ptr(param, start, length) == 1
        }
    }

    /// Answers with octets, by OpenSSL's rules: the size of the answer is set even if there is no
    /// room.
    pub fn answer_octet_string(&mut self, bytes: &[u8]) -> bool {
        let param = std::ptr::from_ref(self.0).cast_mut();
        // SAFETY: as for `answer_octets_or_pointer`.
        unsafe { OSSL_PARAM_set_octet_string(param, bytes.as_ptr().cast(), bytes.len()) == 1 }
    }

    /// Answers with octets; false for a parameter of another type, or without room for them.
    pub fn answer_octets(&mut self, bytes: &[u8]) -> bool {
        let param = self.0;
        if param.data_type != PARAM_OCTET_STRING {
            return false;
        }
        param.return_size.set(bytes.len());
        if param.data.is_null() {
            return true;
        }
        let fits = bytes.len() <= param.data_size;
        if fits {
            let room: *mut u8 = param.data.cast();
            // SAFETY: the parameter has room for `data_size` bytes (OSSL_PARAM(3)).
            unsafe { room.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        }
        fits
    }

    /// Answers with an `int`, by OpenSSL's rules: in any numeric type and size that can hold it.
    pub fn answer_int(&mut self, number: c_int) -> bool {
        // SAFETY: the parameter has the room that it says (OSSL_PARAM(3)).
        unsafe { OSSL_PARAM_set_int(std::ptr::from_ref(self.0).cast_mut(), number) == 1 }
    }

    /// Answers with a number; false for a parameter of another type or size.
    pub fn answer_number(&mut self, number: u64) -> bool {
        let param = self.0;
        // `status` has been asked for as a signed integer too (OSSL_PARAM_construct_int).
        if !matches!(param.data_type, PARAM_UNSIGNED_INTEGER | PARAM_INTEGER) {
            return false;
        }
        if param.data.is_null() {
            param.return_size.set(size_of::<u64>());
            return true;
        }
        param.return_size.set(param.data_size);
        match param.data_size {
            8 => self.put(number),
            4 => u32::try_from(number).is_ok_and(|number| self.put(number)),
            _ => false,
        }
    }

    /// Writes the answer; returns false if there is no room for it.
    fn put<T: Copy>(&mut self, answer: T) -> bool {
        let room = match self.0.data_type {
            PARAM_UTF8_PTR => size_of::<*const c_char>(),
            _ => self.0.data_size,
        };
        let fits = !self.0.data.is_null() && size_of::<T>() <= room;
        if fits {
            // SAFETY: the parameter has room for `room` bytes (OSSL_PARAM(3)).
            unsafe { self.0.data.cast::<T>().write_unaligned(answer) };
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::ffi::c_void;
    use std::ptr::null_mut;

    use super::*;
    use crate::ffi::{List, Text};

    #[test]
    fn what_is_built_is_read() {
        let number = -7;
        let list = List::<4>::new()
            .octets(c"a", b"xyz")
            .utf8(c"b", c"text")
            .int(c"c", &number);
        let params = list.as_params();
        let names: Vec<&CStr> = params.values().map(Value::name).collect();
        assert_eq!(names, [c"a", c"b", c"c"]);
        assert!(!params.is_empty());
        let get = |name| params.get(name).unwrap();
        assert_eq!(get(c"a").octets(), Some(&b"xyz"[..]));
        assert_eq!(get(c"b").utf8(), Some(&b"text"[..]));
        assert_eq!(get(c"c").int(), Some(-7));
        // No other type than its own.
        assert_eq!((get(c"a").utf8(), get(c"a").int()), (None, None));
        assert!(get(c"b").octets().is_none() && params.get(c"d").is_none());
        assert!(get(c"b").octets_or_pointed().is_none());
        assert_eq!(get(c"a").octets_or_pointed(), Some(&b"xyz"[..]));
        assert!(Params::NONE.is_empty() && List::<1>::new().as_params().is_empty());
    }

    #[test]
    fn octets_are_read_where_a_pointer_leads() {
        let (bytes, nowhere) = (b"xyz".as_ptr(), null::<u8>());
        let pointer = |place: *const *const u8| place.cast_mut().cast::<c_void>();
        for (data_type, data, data_size, found) in [
            (PARAM_OCTET_PTR, pointer(&bytes), 3, Some(&b"xyz"[..])),
            (PARAM_OCTET_PTR, pointer(&nowhere), 0, Some(&[])),
            (PARAM_OCTET_PTR, pointer(&nowhere), 3, None),
            (PARAM_OCTET_PTR, null_mut(), 0, None),
            (PARAM_OCTET_STRING, null_mut(), 0, Some(&[])),
            (PARAM_OCTET_STRING, null_mut(), 3, None),
            (PARAM_UTF8_STRING, bytes.cast_mut().cast(), 3, None),
        ] {
            let param = Param {
                key: c"octets".as_ptr(),
                data_type,
                data,
                data_size,
                return_size: Cell::new(PARAM_UNMODIFIED),
            };
            assert_eq!(
                Value(&param).octets_or_pointed(),
                found,
                "{data_type} {data_size}"
            );
        }
    }

    /// Returns a parameter of this type with this many bytes.
    fn param(data_type: c_uint, data: *mut c_void, data_size: usize) -> Param {
        Param {
            key: c"one".as_ptr(),
            data_type,
            data,
            data_size,
            return_size: Cell::new(PARAM_UNMODIFIED),
        }
    }

    #[test]
    fn a_number_is_read_from_what_holds_one() {
        let (size, unsigned, negative) = (7_usize, 8_u32, -1);
        let list = List::<4>::new()
            .size(c"size", &size)
            .uint(c"uint", &unsigned)
            .int(c"int", &negative);
        let sizes = list.as_params().values().map(Value::size);
        assert_eq!(sizes.collect::<Vec<_>>(), [Some(7), Some(8), None]);
        let list = List::<2>::new().octets(c"octets", &[7; 8]);
        assert_eq!(list.as_params().get(c"octets").and_then(Value::size), None);
        // An int of another size, and one without a value.
        let mut bytes = [7; 8];
        for (data, size) in [(bytes.as_mut_ptr().cast(), 8), (null_mut(), 4)] {
            assert_eq!(Value(&param(PARAM_INTEGER, data, size)).int(), None);
        }
    }

    #[test]
    fn a_described_parameter_has_no_value() {
        let list = List::<3>::new()
            .described(c"a", PARAM_OCTET_STRING, 9)
            .described(c"b", PARAM_UTF8_STRING, 0);
        let params = list.as_params();
        let [a, b] = [c"a", c"b"].map(|name| params.get(name).expect("it is there"));
        assert_eq!((a.octets(), b.utf8()), (None, None));
        assert_eq!((a.0.data_type, a.0.data_size), (PARAM_OCTET_STRING, 9));
    }

    #[test]
    fn octets_without_a_size_are_as_many_as_there_can_be() {
        let bytes = b"abcdef".as_ptr().cast_mut().cast();
        let whole = |param: &Param| {
            let octets = Value(param).octets_or_whole(4)?;
            octets.read(<[u8]>::to_vec)
        };
        let [sized, sizeless] = [2, usize::MAX].map(|size| param(PARAM_OCTET_STRING, bytes, size));
        assert_eq!(whole(&sized).as_deref(), Some(&b"ab"[..]));
        assert_eq!(whole(&sizeless).as_deref(), Some(&b"abcd"[..]));
        assert!(Value(&sizeless).is_sizeless() && !Value(&sized).is_sizeless());
        assert_eq!(whole(&param(PARAM_UTF8_STRING, bytes, 2)), None);
    }

    /// Answers a question whose room has `room` of eight bytes; returns the verdict, the bytes, and
    /// the size of the answer.
    fn answered(
        data_type: c_uint,
        room: usize,
        answer: impl Fn(&mut Question<'_>) -> bool,
    ) -> (bool, [u8; 8], usize) {
        let mut bytes = [0; 8];
        let param = param(data_type, bytes.as_mut_ptr().cast(), room);
        let mut question = Question(&param);
        assert_eq!((question.name(), question.room()), (c"one", room));
        let is_answered = answer(&mut question);
        (is_answered, bytes, param.return_size.get())
    }

    /// Answers a question for the size alone; returns the verdict and the size.
    fn counted(data_type: c_uint, answer: impl Fn(&mut Question<'_>) -> bool) -> (bool, usize) {
        let param = param(data_type, null_mut(), 0);
        (answer(&mut Question(&param)), param.return_size.get())
    }

    #[test]
    fn octets_are_answered_where_there_is_room_for_them() {
        const UNMODIFIED: usize = PARAM_UNMODIFIED;
        let (string, other) = (PARAM_OCTET_STRING, PARAM_UTF8_STRING);
        let (none, three) = ([0; 8], [1, 2, 3, 0, 0, 0, 0, 0]);
        let octets = |question: &mut Question<'_>| question.answer_octets(&[1, 2, 3]);
        assert_eq!(answered(string, 3, octets), (true, three, 3));
        assert_eq!(answered(string, 8, octets), (true, three, 3));
        assert_eq!(answered(string, 2, octets), (false, none, 3));
        assert_eq!(answered(other, 8, octets), (false, none, UNMODIFIED));
        assert_eq!(counted(string, octets), (true, 3));
        // OpenSSL's own rules.
        let octets = |question: &mut Question<'_>| question.answer_octet_string(&[1, 2, 3]);
        assert_eq!(answered(string, 3, octets), (true, three, 3));
        assert_eq!(answered(string, 2, octets), (false, none, 3));
        assert!(!answered(other, 8, octets).0);
        static THREE: [u8; 3] = [1, 2, 3];
        let octets = |question: &mut Question<'_>| question.answer_octets_or_pointer(&THREE);
        assert_eq!(answered(string, 3, octets), (true, three, 3));
        let pointer = THREE.as_ptr().addr().to_ne_bytes();
        assert_eq!(answered(PARAM_OCTET_PTR, 8, octets), (true, pointer, 3));
        assert!(!answered(other, 8, octets).0 && !answered(string, 2, octets).0);
        // The last ones, as many as there is room for.
        let end = |question: &mut Question<'_>| question.answer_end_of(&[1, 2, 3]);
        for (room, expected) in [(0, three), (2, [2, 3, 0, 0, 0, 0, 0, 0]), (8, three)] {
            assert_eq!(answered(string, room, end), (true, expected, UNMODIFIED));
        }
        assert_eq!(answered(other, 3, end), (false, none, UNMODIFIED));
        assert!(!counted(string, end).0);
    }

    #[test]
    fn numbers_are_answered_in_the_type_and_size_that_is_asked_for() {
        let (signed, unsigned) = (PARAM_INTEGER, PARAM_UNSIGNED_INTEGER);
        let number = |question: &mut Question<'_>| question.answer_number(7);
        let none = ([0; 8], PARAM_UNMODIFIED);
        for data_type in [signed, unsigned] {
            for size in [4, 8] {
                let (is_answered, bytes, returned) = answered(data_type, size, number);
                let written = u64::from_le_bytes(bytes);
                assert_eq!((is_answered, written, returned), (true, 7, size));
            }
            assert_eq!(counted(data_type, number), (true, 8));
        }
        let (is_answered, bytes, returned) = answered(PARAM_OCTET_STRING, 8, number);
        assert_eq!((is_answered, (bytes, returned)), (false, none));
        for answer in [
            |question: &mut Question<'_>| question.answer_size(7),
            |question: &mut Question<'_>| question.answer_int(7),
        ] {
            let (is_answered, bytes, _) = answered(unsigned, 8, answer);
            assert_eq!((is_answered, u64::from_le_bytes(bytes)), (true, 7));
            assert!(!answered(PARAM_UTF8_STRING, 8, answer).0);
        }
        // Nothing is written where there is no room or no place.
        let put = |question: &mut Question<'_>| question.put(7_u32);
        assert_eq!(answered(unsigned, 3, put).1, [0; 8]);
        assert!(!answered(unsigned, 3, put).0 && answered(unsigned, 4, put).0);
        let nowhere = param(unsigned, null_mut(), 8);
        assert!(!Question(&nowhere).put(7_u32));
    }

    static HELLO: &CStr = c"hello";

    #[test]
    fn a_string_is_answered_by_its_place_alone() {
        let text = |question: &mut Question<'_>| question.answer_text(HELLO);
        let place = HELLO.as_ptr().addr().to_ne_bytes();
        assert_eq!(answered(PARAM_UTF8_PTR, 0, text), (true, place, 5));
        assert_eq!(answered(PARAM_UTF8_STRING, 8, text), (false, [0; 8], 5));
        assert_eq!(counted(PARAM_UTF8_PTR, text), (true, 5));
    }

    #[test]
    fn an_answer_fits_its_question() {
        let (mut text, mut bytes) = (None, [0; 2]);
        let mut list = List::<3>::new()
            .text_wanted(c"text", &mut text)
            .room(c"bytes", &mut bytes);
        let mut questions = list.as_params_mut();
        let answered: Vec<bool> = questions
            .questions()
            .map(|mut question| question.answer_text(HELLO))
            .collect();
        assert_eq!(answered, [true, false]);
        assert_eq!(list.returned(0), 5);
        assert_eq!(text.map(Text::to_cstr), Some(HELLO));

        for (size, number, fits) in [
            (4, 5, true),
            (8, 1 << 40, true),
            (4, 1 << 40, false),
            (2, 5, false),
        ] {
            let mut bytes = [0u8; 8];
            let param = Param {
                key: c"number".as_ptr(),
                data_type: PARAM_UNSIGNED_INTEGER,
                data: bytes.as_mut_ptr().cast(),
                data_size: size,
                return_size: Cell::new(PARAM_UNMODIFIED),
            };
            assert_eq!(Question(&param).answer_number(number), fits);
            let written = if fits { number } else { 0 };
            assert_eq!(u64::from_le_bytes(bytes), written);
        }
    }
}
