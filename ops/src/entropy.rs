//! The randomness of the system.

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

/// Fills `bytes` from the kernel's generator; `None` if the kernel gives no randomness.
///
/// It makes the system call itself, for two reasons. The C library's function ends a thread that is
/// being cancelled, in the middle of a batch. Crates that read a file where the call is denied
/// would read another file, once the program has closed all descriptors and used their numbers
/// again.
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
