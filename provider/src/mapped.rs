//! The program and its libraries, as the dynamic linker has mapped them: which of them an address
//! lies in.

use std::ffi::{CStr, c_int, c_void};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr::null;

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
/// `dladdr` would tell the same, but it searches all symbols of a file for each address: 2 ms for
/// ours, where this takes a few microseconds.
pub fn mapped_files() -> Vec<MappedFile> {
    unsafe extern "C" fn note(
        about: *mut libc::dl_phdr_info,
        _size: usize,
        files: *mut c_void,
    ) -> c_int {
        // SAFETY: the dynamic linker describes a file, whose program headers are mapped; `files` is
        // the list below.
        unsafe {
            let (about, files) = (&*about, &mut *files.cast::<Vec<MappedFile>>());
            let headers = (0..usize::from(about.dlpi_phnum)).map(|at| &*about.dlpi_phdr.add(at));
            let parts = headers
                .filter(|header| header.p_type == libc::PT_LOAD)
                .map(|header| {
                    let start = (about.dlpi_addr as usize).wrapping_add(header.p_vaddr as usize);
                    start..start.wrapping_add(header.p_memsz as usize)
                });
            files.push(MappedFile {
                path: match about.dlpi_name.is_null() {
                    true => String::new(),
                    false => CStr::from_ptr(about.dlpi_name)
                        .to_string_lossy()
                        .into_owned(),
                },
                parts: parts.collect(),
            });
        }
        0
    }
    let mut files: Vec<MappedFile> = Vec::new();
    // SAFETY: the function has the type that is called, and gets the list during the call only.
    unsafe { libc::dl_iterate_phdr(Some(note), (&raw mut files).cast()) };
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
