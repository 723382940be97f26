//! Random numbers for tests.

/// Random numbers that are the same in every run (SplitMix64), from a seed.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// Returns the next 64 bits.
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns an array of random bytes.
    pub fn bytes<const COUNT: usize>(&mut self) -> [u8; COUNT] {
        std::array::from_fn(|_| self.word() as u8)
    }

    /// Returns `count` random bytes.
    pub fn vec(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.word() as u8).collect()
    }

    /// Returns bytes with long runs of equal bits, which make long carries.
    pub fn runs<const COUNT: usize>(&mut self) -> [u8; COUNT] {
        let mut left = 0;
        let mut fill = 0;
        std::array::from_fn(|_| {
            if left == 0 {
                left = self.word() % 12 + 1;
                fill = [0, 0xff, self.word() as u8][self.word() as usize % 3];
            }
            left -= 1;
            fill
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first numbers of the seed 1234567, as the reference implementation of SplitMix64 gives
    /// them.
    #[test]
    fn numbers_are_those_of_the_reference() {
        let mut random = Random(1_234_567);
        assert_eq!(random.word(), 6_457_827_717_110_365_317);
        assert_eq!(random.word(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn arrays_and_vectors_hold_the_same_bytes() {
        assert_eq!(Random(7).bytes::<5>().to_vec(), Random(7).vec(5));
    }
}
