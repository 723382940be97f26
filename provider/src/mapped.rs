//! The program and its libraries, as the dynamic linker has mapped them: which of them an address
//! lies in.

use std::ffi::{c_int, c_void};
use std::mem::{MaybeUninit, offset_of};
use std::ops::Range;
use std::ptr::null;

use crate::ffi::Text;

/// A program or library that the dynamic linker has mapped.
pub struct MappedFile {
    /// Empty for the program itself.
    path: String,
    /// Where its parts lie.
    parts: Vec<Range<usize>>,
}

impl MappedFile {
    /// Its name for a message.
    pub fn shown(&self) -> String {
        if !self.path.is_empty() {
            return self.path.clone();
        }
        let program = std::env::current_exe();
        program.map_or("the program".to_owned(), |path| path.display().to_string())
    }
}

/// All files that are mapped now.
///
/// `dladdr` would give the same, but it searches all symbols of a file for each address, which
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

/// The file that an address lies in.
pub fn file_with(files: &[MappedFile], address: usize) -> Option<&MappedFile> {
    let lies_in = |file: &&MappedFile| file.parts.iter().any(|part| part.contains(&address));
    files.iter().find(lies_in)
}

/// Whether there is no function at this address, but the way to one that the linker has put into a
/// program at a fixed address, for a function that the program itself takes the address of. It
/// stands for the function in all files, so that all see one address. It leads to the function that
/// everybody else finds.
pub fn is_stub(address: *const c_void) -> bool {
    /// `RTLD_DL_SYMENT`: asks for the entry of the symbol table.
    const SYMBOL: c_int = 1;
    /// `SHN_UNDEF`: the file only uses the symbol.
    const UNDEFINED: u16 = 0;
    let mut about = MaybeUninit::<libc::Dl_info>::zeroed();
    let mut symbol: *const libc::Elf64_Sym = null();
    // SAFETY: both are written to; `symbol` gets NULL or an entry of a mapped file.
    unsafe {
        let found = libc::dladdr1(
            address,
            about.as_mut_ptr(),
            (&raw mut symbol).cast(),
            SYMBOL,
        );
        found != 0
            && about.assume_init().dli_saddr.cast_const() == address
            && symbol
                .as_ref()
                .is_some_and(|symbol| symbol.st_shndx == UNDEFINED)
    }
}

/// What the dynamic linker reports about a file: the beginning of `struct dl_phdr_info`. No one
/// else makes such values.
#[repr(C)]
struct About<'a> {
    /// What is added to the addresses in the file.
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

// SAFETY: the dynamic linker calls the function with what it tells about each file and with the
// second argument, while the call lasts.
#[allow(improper_ctypes, reason = "the list is only passed on")]
unsafe extern "C" {
    safe fn dl_iterate_phdr(
        note: extern "C" fn(&About, usize, &mut Vec<MappedFile>) -> c_int,
        files: &mut Vec<MappedFile>,
    ) -> c_int;
}

impl About<'_> {
    fn file(&self) -> MappedFile {
        // SAFETY: a file has so many program headers, which are mapped.
        let header = |at| unsafe { &*self.headers.add(at) };
        let headers = (0..usize::from(self.count)).map(header);
        let parts = headers
            .filter(|header| header.p_type == libc::PT_LOAD)
            .map(|header| {
                let start = self.base.wrapping_add(header.p_vaddr as usize);
                start..start.wrapping_add(header.p_memsz as usize)
            });
        MappedFile {
            path: self.name.map(Text::to_text).unwrap_or_default(),
            parts: parts.collect(),
        }
    }
}
