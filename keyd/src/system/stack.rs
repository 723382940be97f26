//! Wiping of the stack.

use std::hint::black_box;

use zeroize::Zeroize as _;

/// Overwrites the next `BYTES` bytes of the thread's stack. Otherwise the secrets of past
/// computations would stay there while the thread waits.
#[inline(never)]
pub fn wipe_stack<const BYTES: usize>() {
    let mut room = [0_u8; BYTES];
    room.zeroize();
    black_box(&room);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_stays_on_a_stack_that_is_wiped() {
        use std::os::unix::fs::FileExt as _;
        const BYTES: usize = 4096;
        #[inline(never)]
        fn leave() -> u64 {
            let room = black_box([0xa5_u8; BYTES]);
            let place = room.as_ptr().addr() as u64;
            black_box(&room);
            place
        }
        let memory = std::fs::File::open("/proc/self/mem").expect("/proc");
        let traces = |place| {
            // On the heap: an array would overwrite the traces on the stack.
            let mut seen = vec![0; BYTES];
            memory
                .read_exact_at(&mut seen, place)
                .expect("its own stack");
            seen.iter().filter(|byte| **byte == 0xa5).count()
        };
        let place = leave();
        assert!(
            traces(place) > BYTES / 2,
            "it is found where nobody wipes it"
        );
        let place = leave();
        wipe_stack::<{ 64 << 10 }>();
        assert!(traces(place) < 64);
    }
}
