//! The randomness of the system.

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

/// Fills `bytes` from the kernel's generator; `None` if it gives none.
///
/// By the system call alone. The C library's function ends a thread that is being cancelled, in the
/// middle of a batch. And a crate that reads a file where the call is denied reads another one,
/// once the program has closed all descriptors and used their numbers again.
pub(crate) fn fill(mut bytes: &mut [u8]) -> Option<()> {
    while !bytes.is_empty() {
        match getrandom(&mut *bytes, GetRandomFlags::empty()) {
            Ok(count @ 1..) => bytes = &mut bytes[count..],
            Err(Errno::INTR) => {}
            _ => return None,
        }
    }
    Some(())
}
