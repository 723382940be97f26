//! New key pairs, for requests and for the pool.

use std::iter::repeat_with;

use super::group::Group;
use super::nist::for_curve;
use crate::failed::Failed;
use crate::keys::Keypair;
use crate::kinds::KeyKind;
use crate::lanes::{Lanes, Memory};

/// A new key pair of this kind.
#[derive(Clone, Copy, Debug)]
pub struct Keygen(pub KeyKind);

impl Lanes {
    /// Makes the key pairs of a batch, and others for the pool. Returns the number of all pairs.
    pub(super) fn keypairs(
        &self,
        kind: KeyKind,
        memory: &mut Memory,
        Group { inputs, answers }: Group<'_, (), Keypair>,
    ) -> usize {
        let count = self.pool.count_to_make(kind, inputs.len());
        let made = match kind {
            KeyKind::Kem(kem) => match memory.ml_kem(kem.parameter_set()) {
                Some(scratch) => self.kem_keypairs(kem, scratch, count),
                None => {
                    answers.fail(Failed::NoMemory);
                    return 0;
                }
            },
            curve => self.curve_keypairs(curve, count),
        };
        let mut made = made.unwrap_or_default().into_iter();
        answers.give(
            inputs
                .iter()
                .map(|()| made.next().ok_or(Failed::Randomness)),
        );
        if count > inputs.len() {
            self.pool.put(kind, self.home.here(), made);
        }
        count
    }

    /// Returns a key pair on a curve for each request: from the pool, or new ones, made with others
    /// for the pool. `None` if the system gave no randomness.
    pub(super) fn pairs(&self, kind: KeyKind, requests: usize) -> Option<Vec<Keypair>> {
        let here = self.home.here();
        let of_pool = repeat_with(|| self.pool.take(kind, here));
        let mut pairs: Vec<_> = of_pool.take(requests).map_while(|pair| pair).collect();
        let missing = requests - pairs.len();
        if missing > 0 {
            let count = self.pool.count_to_make(kind, missing);
            let mut made = self.curve_keypairs(kind, count)?.into_iter();
            pairs.extend(made.by_ref().take(missing));
            self.pool.put(kind, here, made);
        }
        Some(pairs)
    }

    /// Makes key pairs on a curve; `None` if the system gave no randomness, or if the kind is no
    /// curve.
    fn curve_keypairs(&self, kind: KeyKind, count: usize) -> Option<Vec<Keypair>> {
        match kind {
            KeyKind::X25519 => self.x25519_keypairs(count),
            KeyKind::Nist(curve) => for_curve!(curve, self.nist_keypairs(count)),
            KeyKind::Kem(_) => None,
        }
    }
}
