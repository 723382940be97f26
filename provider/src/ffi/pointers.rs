//! Pointers of C as types: strings, and arrays that end with a special element.

use std::ffi::{CStr, c_char};
use std::marker::PhantomData;
use std::ptr::{NonNull, null};

use super::convert::{Absent, Answer, Passed, Pointer};

/// A C string as C passes it: a pointer to its first character.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Text<'a>(NonNull<c_char>, PhantomData<&'a CStr>);

// SAFETY: a string that is only read, as behind a `&CStr`.
unsafe impl Send for Text<'_> {}
// SAFETY: as above.
unsafe impl Sync for Text<'_> {}

impl<'a> Text<'a> {
    pub fn new(text: &'a CStr) -> Text<'a> {
        Text(NonNull::from(text).cast(), PhantomData)
    }

    pub fn to_cstr(self) -> &'a CStr {
        // SAFETY: the string of `new`, or a string that C gave for as long as the type says.
        unsafe { CStr::from_ptr(self.0.as_ptr()) }
    }

    /// Copies the string; bytes that are not UTF-8 become U+FFFD.
    pub fn to_text(self) -> String {
        self.to_cstr().to_string_lossy().into_owned()
    }
}

// SAFETY: a C string, or NULL.
unsafe impl Pointer<*const c_char> for Option<Text<'_>> {}

impl Passed<(*const c_char,)> for Option<Text<'_>> {
    fn into_raw(self) -> (*const c_char,) {
        (self.map_or(null(), |text| text.0.as_ptr()),)
    }
}

/// An element of arrays that end with a special element.
pub trait Terminator {
    fn is_end(&self) -> bool;
}

/// An array of C with a special element at its end, or no array.
#[repr(transparent)]
pub struct Terminated<'a, T>(*const T, PhantomData<&'a T>);

// SAFETY: elements that are only read, as behind a `&[T]`.
unsafe impl<T: Sync> Send for Terminated<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Terminated<'_, T> {}

impl<T> Clone for Terminated<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Terminated<'_, T> {}

impl<'a, T> Terminated<'a, T> {
    /// No array.
    pub const NONE: Self = Terminated(null(), PhantomData);

    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Returns the pointer, for a function of C.
    pub fn as_ptr(self) -> *const T {
        self.0
    }
}

impl<'a, T: Terminator> Terminated<'a, T> {
    /// Makes an array of these elements, the last of which is the end; without an end, no array.
    pub fn new(elements: &'a [T]) -> Self {
        match elements.last() {
            Some(last) if last.is_end() => Terminated(elements.as_ptr(), PhantomData),
            _ => Terminated::NONE,
        }
    }

    /// Returns the elements before the end.
    pub fn iter(self) -> impl Iterator<Item = &'a T> {
        let mut next = self.0;
        std::iter::from_fn(move || {
            // SAFETY: NULL, or an element of the array: the end, where we stop, is not passed.
            let element = unsafe { next.as_ref::<'a>() }.filter(|element| !element.is_end())?;
            next = next.wrapping_add(1);
            Some(element)
        })
    }
}

// SAFETY: such an array, or NULL.
unsafe impl<T> Pointer<*const T> for Terminated<'_, T> {}

impl<T> Passed<(*const T,)> for Terminated<'_, T> {
    fn into_raw(self) -> (*const T,) {
        (self.as_ptr(),)
    }
}

impl<T> Answer<*const T> for Terminated<'_, T> {
    const FAILED: *const T = null();

    fn into_answer(self) -> *const T {
        self.as_ptr()
    }
}

impl<T> Absent for Terminated<'_, T> {
    const ABSENT: Self = Terminated::NONE;
}

/// An array as [`Terminated`], or none, into whose elements answers are written. No other reference
/// to it exists.
#[repr(transparent)]
pub struct TerminatedMut<'a, T>(Terminated<'a, T>);

impl<'a, T> TerminatedMut<'a, T> {
    pub fn is_null(&self) -> bool {
        self.0.is_null()
    }
}

impl<'a, T: Terminator> TerminatedMut<'a, T> {
    /// Makes an array of these elements, the last of which is the end; without an end, no array.
    pub fn new(elements: &'a mut [T]) -> Self {
        let is_ended = elements.last().is_some_and(T::is_end);
        let first = elements.as_mut_ptr().cast_const();
        TerminatedMut(match is_ended {
            true => Terminated(first, PhantomData),
            false => Terminated::NONE,
        })
    }

    /// Returns the elements before the end.
    pub fn iter(&mut self) -> impl Iterator<Item = &T> {
        self.0.iter()
    }
}

// SAFETY: such an array, or NULL.
unsafe impl<T> Pointer<*mut T> for TerminatedMut<'_, T> {}

impl<T> Passed<(*mut T,)> for TerminatedMut<'_, T> {
    fn into_raw(self) -> (*mut T,) {
        (self.0.as_ptr().cast_mut(),)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Terminator for u8 {
        fn is_end(&self) -> bool {
            *self == 0
        }
    }

    #[test]
    fn an_array_is_read_up_to_its_end() {
        let read = |elements| Terminated::<u8>::new(elements).iter().count();
        assert_eq!(read(&[7, 8, 0]), 2);
        assert_eq!(read(&[7, 0, 8, 0]), 1);
        assert_eq!(read(&[0]), 0);
        assert!(Terminated::<u8>::new(&[7, 8]).is_null(), "it has no end");
        assert!(Terminated::<u8>::new(&[]).is_null());
        assert_eq!(Terminated::<u8>::NONE.iter().count(), 0);
        let (mut ended, mut endless) = ([7, 8, 0], [7, 8]);
        let mut answers = TerminatedMut::new(&mut ended);
        assert!(answers.iter().eq(&[7, 8]) && !answers.is_null());
        let mut none = TerminatedMut::new(&mut endless);
        assert!(none.is_null() && none.iter().count() == 0);
        assert!(TerminatedMut::<u8>::new(&mut []).is_null());
    }

    #[test]
    fn an_array_is_passed_by_the_place_of_its_first_element() {
        let mut elements = [7, 0];
        let place = elements.as_ptr();
        let array = Terminated::new(&elements);
        assert_eq!(
            [array.as_ptr(), array.into_raw().0, array.into_answer()],
            [place; 3]
        );
        let place = elements.as_mut_ptr();
        assert_eq!(TerminatedMut::new(&mut elements).into_raw().0, place);
    }

    #[test]
    fn a_string_is_what_it_was() {
        let text = Text::new(c"text");
        assert_eq!(text.to_cstr(), c"text");
        assert_eq!(text.to_text(), "text");
        assert_eq!(Passed::into_raw(None::<Text<'_>>), (null(),));
        assert_eq!(Some(text).into_raw().0, text.0.as_ptr());
    }
}
