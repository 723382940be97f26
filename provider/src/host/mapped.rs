//! The program and its libraries, as the dynamic linker has mapped them, and the file of an
//! address.

use std::ffi::{CString, c_int};
use std::mem::offset_of;
use std::ops::Range;

use crate::ffi::Text;
use crate::host::c_library::Scope;

/// A program or library that the dynamic linker has mapped.
pub struct MappedFile {
    /// Empty for the program itself.
    path: CString,
    /// Addresses of its parts.
    parts: Vec<Range<usize>>,
}

impl MappedFile {
    /// Returns its name for a message.
    pub fn shown(&self) -> String {
        if !self.path.is_empty() {
            return self.path.to_string_lossy().into_owned();
        }
        let program = std::env::current_exe();
        program.map_or("the program".to_owned(), |path| path.display().to_string())
    }

    /// Returns its first address, at which no other file begins.
    pub fn start(&self) -> usize {
        self.parts.first().map_or(0, |part| part.start)
    }

    /// Returns the symbols in this file and in the libraries that it needs. The file stays mapped
    /// from now on.
    pub fn symbols(&self) -> Option<Scope> {
        Scope::of_loaded((!self.path.is_empty()).then_some(&self.path))
    }
}

/// Returns all files that are mapped now.
///
/// `dladdr` would tell the same, but it searches all symbols of a file for each address, which
/// takes milliseconds instead of microseconds.
pub fn mapped_files() -> Vec<MappedFile> {
    extern "C" fn note(about: &About, _size: usize, files: &mut Vec<MappedFile>) -> c_int {
        files.push(about.file());
        0
    }
    let mut files = Vec::new();
    dl_iterate_phdr(note, &mut files);
    files
}

/// Returns the file in which an address lies.
pub fn file_with(files: &[MappedFile], address: usize) -> Option<&MappedFile> {
    let lies_in = |file: &&MappedFile| file.parts.iter().any(|part| part.contains(&address));
    files.iter().find(lies_in)
}

/// The dynamic linker's report about a file: the beginning of `struct dl_phdr_info`. Only the
/// linker makes such values.
#[repr(C)]
struct About<'a> {
    /// Offset from the addresses in the file to the addresses in memory.
    base: usize,
    name: Option<Text<'a>>,
    headers: *const libc::Elf64_Phdr,
    count: u16,
}

const _: () = {
    assert!(offset_of!(About, base) == offset_of!(libc::dl_phdr_info, dlpi_addr));
    assert!(offset_of!(About, name) == offset_of!(libc::dl_phdr_info, dlpi_name));
    assert!(offset_of!(About, headers) == offset_of!(libc::dl_phdr_info, dlpi_phdr));
    assert!(offset_of!(About, count) == offset_of!(libc::dl_phdr_info, dlpi_phnum));
};

// SAFETY: the dynamic linker calls the function with its report about each file and with the second
// argument, while the call lasts.
#[allow(improper_ctypes, reason = "the list is only passed on")]
unsafe extern "C" {
    safe fn dl_iterate_phdr(
        note: extern "C" fn(&About, usize, &mut Vec<MappedFile>) -> c_int,
        files: &mut Vec<MappedFile>,
    ) -> c_int;
}

impl About<'_> {
    fn file(&self) -> MappedFile {
        // SAFETY: a file has `count` program headers, which are mapped.
        let header = |at| unsafe { &*self.headers.add(at) };
        let headers = (0..usize::from(self.count)).map(header);
        let parts = headers
            .filter(|header| header.p_type == libc::PT_LOAD)
            .map(|header| {
                let start = self.base.wrapping_add(header.p_vaddr as usize);
                start..start.wrapping_add(header.p_memsz as usize)
            });
        MappedFile {
            path: self
                .name
                .map_or_else(CString::default, |name| name.to_cstr().to_owned()),
            parts: parts.collect(),
        }
    }
}
