//! Programs in which OpenSSL's objects outlive the process that made them.
//!
//! Some servers give OpenSSL memory that their processes share (`CRYPTO_set_mem_functions`), and
//! hand connections from one worker to another: Kamailio and OpenSIPS do. OpenSSL keeps a context
//! whole in that memory. The module's part of it belongs to one process: boxes in its own heap,
//! prepared keys, its table of key objects, requests in a queue. In another process the same
//! address leads to something else, to the key of another connection at the worst. So in such a
//! program the module [stands back](reason): it loads, and offers nothing.
//!
//! Most programs that replace OpenSSL's memory functions only count the allocations, and share
//! nothing: MySQL, Traffic Server, Erlang. There the module serves. So the module decides by the
//! mappings in which OpenSSL's allocations lie, once, when it is loaded: after its first allocation
//! OpenSSL refuses other memory functions. `docs/decisions/fork-and-teardown.md` says more.

use std::ffi::c_void;
use std::fs;
use std::ops::Range;

use once_cell::race::OnceBox;

use crate::ffi;

/// Returns the reason why the module offers nothing in this process; None if it serves.
pub fn reason() -> Option<&'static str> {
    static REASON: OnceBox<Option<&'static str>> = OnceBox::new();
    *REASON.get_or_init(|| Box::new(found()))
}

const SHARED: &str = "the program gives OpenSSL memory that several processes share, so objects of \
                      OpenSSL may be used by processes that did not make them";
const UNKNOWN: &str = "the program has replaced OpenSSL's memory functions, and it cannot be seen \
                       whether several processes share that memory, because /proc/self/maps cannot \
                       be read";

fn found() -> Option<&'static str> {
    #[cfg(feature = "fault-injection")]
    if crate::fault::planted("shared-memory") {
        return None;
    }
    if ffi::has_own_memory_functions() {
        return None;
    }
    let blocks = Blocks::take();
    // The file names in it are arbitrary bytes.
    match fs::read("/proc/self/maps") {
        Err(_) => Some(UNKNOWN),
        Ok(maps) if blocks.are_private(&String::from_utf8_lossy(&maps)) => None,
        Ok(_) => Some(SHARED),
    }
}

/// Blocks of OpenSSL's memory. An allocator may take blocks of different sizes from different
/// mappings.
struct Blocks(Vec<*mut c_void>);

/// Sizes from the smallest objects to the buffers of a connection.
const SIZES: [usize; 12] = [
    8, 24, 64, 200, 512, 1024, 3000, 8192, 20_000, 65_536, 200_000, 600_000,
];

impl Blocks {
    /// Allocates one block of each size, as far as there is memory.
    fn take() -> Blocks {
        ffi::ERR_set_mark();
        // SAFETY: no size is zero.
        let block = |size| unsafe { ffi::CRYPTO_malloc(size, c"lockstep".as_ptr(), 0) };
        let blocks = SIZES.map(block).into_iter();
        let blocks = blocks.filter(|block| !block.is_null()).collect();
        ffi::ERR_pop_to_mark();
        Blocks(blocks)
    }

    /// Returns whether all blocks lie in private mappings; `maps` is the text of `/proc/self/maps`.
    /// Returns false if there is no block.
    fn are_private(&self, maps: &str) -> bool {
        let private: Vec<Range<usize>> = maps.lines().filter_map(private).collect();
        let is_private = |block: &*mut c_void| {
            let address = block.addr();
            private.iter().any(|mapping| mapping.contains(&address))
        };
        !self.0.is_empty() && self.0.iter().all(is_private)
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        for block in &self.0 {
            // SAFETY: a block of `take`, freed once.
            unsafe { ffi::CRYPTO_free(*block, c"lockstep".as_ptr(), 0) };
        }
    }
}

/// Returns the addresses of the mapping in a line of `/proc/self/maps` (proc(5)); None if the
/// mapping is not private.
fn private(line: &str) -> Option<Range<usize>> {
    let (addresses, rest) = line.split_once(' ')?;
    let (start, end) = addresses.split_once('-')?;
    let number = |text| usize::from_str_radix(text, 16).ok();
    let is_private = rest.as_bytes().get(3) == Some(&b'p');
    is_private.then_some(number(start)?..number(end)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
5581a7a00000-5581a7a21000 rw-p 00000000 00:00 0                          [heap]
7f04c0000000-7f04c4000000 rw-s 00000000 00:01 1027                       /dev/zero (deleted)
7f04d0000000-7f04d0021000 rw-p 00000000 00:00 0
";

    fn blocks(addresses: &[usize]) -> Blocks {
        let blocks = addresses
            .iter()
            .map(|&at| std::ptr::without_provenance_mut(at));
        Blocks(blocks.collect())
    }

    #[track_caller]
    fn expect(addresses: &[usize], are_private: bool) {
        let blocks = std::mem::ManuallyDrop::new(blocks(addresses));
        assert_eq!(blocks.are_private(MAPS), are_private, "{addresses:x?}");
    }

    #[test]
    fn one_block_in_a_shared_mapping_is_enough() {
        expect(&[0x5581_a7a0_0010, 0x7f04_d000_0000], true);
        expect(&[0x5581_a7a0_0010, 0x7f04_c000_0010], false);
        expect(&[0x7f04_c3ff_ffff], false);
        // The end address is not part of a mapping.
        expect(&[0x7f04_d002_0fff], true);
        expect(&[0x7f04_d002_1000], false);
        expect(&[], false);
    }

    #[test]
    fn lines_that_say_something_else_are_no_private_mapping() {
        for line in [
            "",
            "nonsense",
            "7f04-7f05",
            "7f04-7f05 rw-",
            "zz-7f05 rw-p 0",
            "7f04 rw-p",
        ] {
            assert_eq!(private(line), None, "{line}");
        }
    }

    #[test]
    fn openssls_own_memory_is_private_and_its_functions_are_known() {
        assert!(ffi::has_own_memory_functions());
        let blocks = Blocks::take();
        let maps = fs::read_to_string("/proc/self/maps").expect("proc");
        assert!(blocks.are_private(&maps));
        assert_eq!(reason(), None);
    }
}
