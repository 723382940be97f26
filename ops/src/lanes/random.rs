//! The randomness of a batch.
//!
//! Secret keys are drawn from the system, directly into their memory. Randomness that only hedges,
//! as that of nonces, is expanded by ChaCha20 (RFC 8439) from a seed of 256 bits that the system
//! gives. That takes a fifth of the time that the system takes. No generator outlives the call, so
//! no state is shared with a forked child, and none is seeded again. Copies of the seed may stay on
//! the stack, which no crate wipes.

use std::ops::Deref;

use chacha20::ChaCha20;
use chacha20::cipher::{KeyIvInit, StreamCipher};
use lockstep_kernels::wipe;
use zeroize::Zeroizing;

use crate::entropy;
use crate::fault::{IGNORED_RANDOMNESS, is_planted};

/// Length of a seed in bytes.
const SEED_BYTES: usize = 32;

/// Draws `count` pieces of randomness for secret keys; `None` if the system gives none.
pub(crate) fn secrets<const BYTES: usize>(count: usize) -> Option<Random<BYTES>> {
    let mut secrets = Random(vec![[0; BYTES]; count]);
    draw(secrets.0.as_flattened_mut())?;
    Some(secrets)
}

/// Draws `count` pieces of randomness that are not secret themselves; `None` if the system gives
/// none.
pub(crate) fn random<const BYTES: usize>(count: usize) -> Option<Random<BYTES>> {
    if BYTES * count <= SEED_BYTES {
        return secrets(count);
    }
    let mut random = Random(vec![[0; BYTES]; count]);
    let mut seed = Zeroizing::new([0; SEED_BYTES]);
    draw(&mut *seed)?;
    expand(&seed, random.0.as_flattened_mut());
    Some(random)
}

/// Fills `bytes` from the system; `None` if the system gives no randomness.
fn draw(bytes: &mut [u8]) -> Option<()> {
    let drawn = entropy::fill(bytes).is_some();
    (drawn || is_planted(IGNORED_RANDOMNESS)).then_some(())
}

/// Fills `bytes`, which are zero, with the key stream of the seed. A seed is used once, so the
/// nonce may be zero.
fn expand(seed: &[u8; SEED_BYTES], bytes: &mut [u8]) {
    ChaCha20::new(seed.into(), &[0; 12].into()).apply_keystream(bytes);
}

/// Randomness, wiped when it is dropped.
pub(crate) struct Random<const BYTES: usize>(Vec<[u8; BYTES]>);

impl<const BYTES: usize> Deref for Random<BYTES> {
    type Target = [[u8; BYTES]];

    fn deref(&self) -> &[[u8; BYTES]] {
        &self.0
    }
}

impl<const BYTES: usize> Drop for Random<BYTES> {
    fn drop(&mut self) {
        wipe(self.0.as_flattened_mut());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_never_repeat() {
        let mut all = Vec::new();
        for count in [1, 2, 3, 64, 64] {
            all.extend(random::<32>(count).unwrap().iter().copied());
            all.extend(secrets::<32>(count).unwrap().iter().copied());
        }
        let pieces = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), pieces);
        assert!(!all.contains(&[0; 32]));
    }

    /// RFC 8439, appendix A.1, test vectors 1 and 2: blocks 0 and 1 of the key 0.
    #[test]
    fn a_seed_is_expanded_as_the_rfc_has_it() {
        let mut bytes = [0; 64];
        expand(&[0; SEED_BYTES], &mut bytes);
        assert_eq!(bytes[..8], [0x76, 0xb8, 0xe0, 0xad, 0xa0, 0xf1, 0x3d, 0x90]);
        let mut long = [0; 300];
        expand(&[0; SEED_BYTES], &mut long);
        assert_eq!(long[..64], bytes, "a longer stream goes on");
        // Block 1: test vector 2.
        assert_eq!(
            long[64..72],
            [0x9f, 0x07, 0xe7, 0xbe, 0x55, 0x51, 0x38, 0x7a]
        );
    }
}
