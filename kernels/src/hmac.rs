//! HMAC with SHA-256 and SHA-384 (RFC 2104), in two steps: a key gives two states, and the states
//! give tags.
//!
//! So a caller that needs several tags of one key hashes the key once. With SHA-384, both states of
//! a key and the tags of several messages are computed side by side, in lanes.

use sha2::block_api::compress256;

use crate::backend::Backend;
use crate::secret::wipe;
use crate::sha512;
use crate::sha512::constants::{BLOCK_BYTES, INITIAL, INITIAL_384};

/// A hash function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hash {
    /// SHA-256.
    Sha256,
    /// SHA-384.
    Sha384,
}

/// The state of a hash function after some blocks, in words; with SHA-256 a word has 32 bits.
pub type State = [u64; 8];

/// The states of HMAC's inner and outer hash after the block that the key fills. They are as secret
/// as the key, so their owner wipes them.
pub type Keyed = [State; 2];

/// Number of bytes of the longest tag.
pub const TAG_BYTES: usize = 48;

/// A tag. A tag of SHA-256 is shorter and has zeros behind it.
pub type Tag = [u8; TAG_BYTES];

/// A block. SHA-256 uses the first half only.
type Block = [u8; BLOCK_BYTES];

/// The digests of an empty message.
const OF_NOTHING_256: Tag = [
    0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc, 0x1c, 0x14, 0x9a, 0xfb, 0xf4, 0xc8, 0x99, 0x6f, 0xb9, 0x24,
    0x27, 0xae, 0x41, 0xe4, 0x64, 0x9b, 0x93, 0x4c, 0xa4, 0x95, 0x99, 0x1b, 0x78, 0x52, 0xb8, 0x55,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
];
const OF_NOTHING_384: Tag = [
    0x38, 0xb0, 0x60, 0xa7, 0x51, 0xac, 0x96, 0x38, 0x4c, 0xd9, 0x32, 0x7e, 0xb1, 0xb1, 0xe3, 0x6a,
    0x21, 0xfd, 0xb7, 0x11, 0x14, 0xbe, 0x07, 0x43, 0x4c, 0x0c, 0xc7, 0xbf, 0x63, 0xf6, 0xe1, 0xda,
    0x27, 0x4e, 0xde, 0xbf, 0xe7, 0x6f, 0x65, 0xfb, 0xd5, 0x1a, 0xd2, 0xf1, 0x48, 0x98, 0xb9, 0x5b,
];

impl Hash {
    /// Returns whether this CPU has the instructions with which our code is as fast as OpenSSL's.
    pub fn is_fast(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        return match self {
            Self::Sha256 => is_x86_feature_detected!("sha"),
            Self::Sha384 => is_x86_feature_detected!("avx2"),
        };
        #[cfg(not(target_arch = "x86_64"))]
        false
    }

    /// Returns the number of bytes of a tag.
    pub const fn tag_bytes(self) -> usize {
        match self {
            Hash::Sha256 => 32,
            Hash::Sha384 => TAG_BYTES,
        }
    }

    const fn block_bytes(self) -> usize {
        match self {
            Hash::Sha256 => BLOCK_BYTES / 2,
            Hash::Sha384 => BLOCK_BYTES,
        }
    }

    /// Returns whether several tags of one key take less time together than one after the other.
    pub fn is_faster_together(self, backend: Backend) -> bool {
        self == Hash::Sha384 && sha512::has_lanes(backend)
    }

    /// Returns the digest of an empty message.
    pub fn digest_of_nothing(self) -> Tag {
        // A constant, because the crate `sha2` first asks the CPU for its features, again in each
        // forked child. On a virtual machine this question takes longer than a signature.
        match self {
            Hash::Sha256 => OF_NOTHING_256,
            Hash::Sha384 => OF_NOTHING_384,
        }
    }

    /// Computes the states `keyed` of a key, which is at most a block long.
    pub fn key(self, backend: Backend, key: &[u8], keyed: &mut Keyed) {
        debug_assert!(key.len() <= self.block_bytes());
        let mut blocks = [0x36, 0x5c].map(|pad| [pad; BLOCK_BYTES]);
        for block in &mut blocks {
            for (byte, key) in block.iter_mut().zip(key) {
                *byte ^= key;
            }
        }
        *keyed = [self.initial(); 2];
        self.compress(backend, keyed, &blocks);
        wipe(blocks.as_flattened_mut());
    }

    /// Computes the tag of each message. All messages must fill the same number of blocks.
    ///
    /// # Examples
    ///
    /// ```
    /// use lockstep_kernels::backend::Backend;
    /// use lockstep_kernels::hmac::{Hash, Keyed, TAG_BYTES};
    ///
    /// let mut keyed = Keyed::default(); // wipe it at the end
    /// Hash::Sha256.key(Backend::PORTABLE, b"Jefe", &mut keyed);
    /// let mut tags = [[0; TAG_BYTES]];
    /// let message = b"what do ya want for nothing?"; // RFC 4231, test case 2
    /// Hash::Sha256.authenticate(Backend::PORTABLE, &keyed, [message], &mut tags);
    /// assert_eq!(tags[0][..4], [0x5b, 0xdc, 0xc1, 0x46]);
    /// ```
    pub fn authenticate<const COUNT: usize>(
        self,
        backend: Backend,
        [inner, outer]: &Keyed,
        messages: [&[u8]; COUNT],
        tags: &mut [Tag; COUNT],
    ) {
        self.digest(backend, inner, messages, tags);
        let mut digests = *tags;
        let messages = digests.each_ref().map(|digest| &digest[..self.tag_bytes()]);
        self.digest(backend, outer, messages, tags);
        wipe(digests.as_flattened_mut());
    }

    /// Computes the digest of each message behind a block of the key; `keyed` is the state after
    /// that block.
    fn digest<const COUNT: usize>(
        self,
        backend: Backend,
        keyed: &State,
        messages: [&[u8]; COUNT],
        digests: &mut [Tag; COUNT],
    ) {
        let mut states = [*keyed; COUNT];
        let mut blocks = [[0; BLOCK_BYTES]; COUNT];
        let count = |message: &[u8]| (message.len() + self.trailer()).div_ceil(self.block_bytes());
        debug_assert!(
            messages
                .iter()
                .all(|message| count(message) == count(messages[0]))
        );
        for number in 0..count(messages[0]) {
            for (block, message) in blocks.iter_mut().zip(messages) {
                self.fill(block, message, number);
            }
            self.compress(backend, &mut states, &blocks);
        }
        for (digest, state) in digests.iter_mut().zip(&states) {
            self.write(state, digest);
        }
        wipe(blocks.as_flattened_mut());
        wipe(states.as_flattened_mut());
    }

    /// Returns the number of bytes that end a message: a bit, and the length in bits (FIPS 180-4,
    /// 5.1).
    const fn trailer(self) -> usize {
        1 + self.block_bytes() / 8
    }

    /// Writes block `number` of a message, with its padding. The message follows a block of the
    /// key.
    fn fill(self, block: &mut Block, message: &[u8], number: usize) {
        let size = self.block_bytes();
        let rest = message.get(number * size..).unwrap_or_default();
        let (block, count) = (&mut block[..size], rest.len().min(size));
        block[..count].copy_from_slice(&rest[..count]);
        block[count..].fill(0);
        // The bit follows the last byte, which may be in the block before.
        if count < size && number * size <= message.len() {
            block[count] = 0x80;
        }
        if rest.len() + self.trailer() <= size {
            let bits = 8 * (size + message.len()) as u64;
            block[size - 8..].copy_from_slice(&bits.to_be_bytes());
        }
    }

    fn initial(self) -> State {
        match self {
            // The same square roots as SHA-512's, with fewer bits (5.3.3).
            Hash::Sha256 => INITIAL.map(|word| word >> 32),
            Hash::Sha384 => INITIAL_384,
        }
    }

    /// Applies the compression function to each state with its block.
    fn compress(self, backend: Backend, states: &mut [State], blocks: &[Block]) {
        if self == Hash::Sha384 {
            return sha512::compress_each(backend, states, blocks);
        }
        for (state, block) in states.iter_mut().zip(blocks) {
            let mut words = state.map(|word| word as u32);
            compress256(&mut words, &block.as_chunks().0[..1]);
            *state = words.map(u64::from);
            wipe(&mut words);
        }
    }

    fn write(self, state: &State, digest: &mut Tag) {
        if self == Hash::Sha384 {
            for (bytes, word) in digest.as_chunks_mut().0.iter_mut().zip(state) {
                *bytes = word.to_be_bytes();
            }
        } else {
            for (bytes, word) in digest.as_chunks_mut().0.iter_mut().zip(state) {
                *bytes = (*word as u32).to_be_bytes();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use lockstep_testkit::{Random, hex};
    use sha2::{Digest, Sha256, Sha384};

    use super::*;

    const BOTH: [Hash; 2] = [Hash::Sha256, Hash::Sha384];

    /// Computes the tag by the definition in RFC 2104, with an independent hash function.
    fn expected<D: Digest>(block: usize, key: &[u8], message: &[u8]) -> Vec<u8> {
        let padded = |pad: u8| -> Vec<u8> {
            let key = key.iter().copied().chain([0; 128]).take(block);
            key.map(|byte| byte ^ pad).collect()
        };
        let inner = D::new().chain_update(padded(0x36)).chain_update(message);
        let outer = D::new()
            .chain_update(padded(0x5c))
            .chain_update(inner.finalize());
        outer.finalize().to_vec()
    }

    fn tag(hash: Hash, key: &[u8], message: &[u8]) -> Vec<u8> {
        let mut tags = Vec::new();
        for backend in Backend::available() {
            let mut keyed = Keyed::default();
            hash.key(backend, key, &mut keyed);
            let mut all = [[0; TAG_BYTES]; 3];
            hash.authenticate(backend, &keyed, [message; 3], &mut all);
            let mut alone = [[0; TAG_BYTES]];
            hash.authenticate(backend, &keyed, [message], &mut alone);
            assert_eq!(all, [alone[0]; 3], "{backend:?}");
            tags.push(alone[0]);
        }
        assert!(tags.iter().all(|tag| *tag == tags[0]), "backends differ");
        let (tag, rest) = tags[0].split_at(hash.tag_bytes());
        assert!(rest.iter().all(|&byte| byte == 0));
        tag.to_vec()
    }

    #[test]
    fn tags_are_those_of_rfc_4231() {
        let data = hex("4869205468657265");
        let [short, long] = BOTH.map(|hash| tag(hash, &[0x0b; 20], &data));
        assert_eq!(
            short,
            hex("b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7")
        );
        assert_eq!(
            long,
            hex(
                "afd03944d84895626b0825f4ab46907f15f9dadbe4101ec682aa034c7cebc59c\
                 faea9ea9076ede7f4af152e8b2fa9cb6"
            )
        );
    }

    #[test]
    fn tags_of_all_lengths_are_those_of_an_independent_hash_function() {
        let mut random = Random(7);
        for length in (0..300).step_by(if cfg!(miri) { 61 } else { 1 }) {
            let (key, message) = (random.vec(length % 65), random.vec(length));
            let [short, long] = BOTH.map(|hash| tag(hash, &key, &message));
            assert_eq!(short, expected::<Sha256>(64, &key, &message), "{length}");
            assert_eq!(long, expected::<Sha384>(128, &key, &message), "{length}");
        }
    }

    #[test]
    fn messages_side_by_side_stay_apart() {
        let mut random = Random(8);
        let messages: [[u8; 70]; 5] = std::array::from_fn(|_| random.bytes());
        for backend in Backend::available() {
            let mut keyed = Keyed::default();
            Hash::Sha384.key(backend, b"key", &mut keyed);
            let mut tags = [[0; TAG_BYTES]; 5];
            let texts = messages.each_ref().map(|message| &message[..]);
            Hash::Sha384.authenticate(backend, &keyed, texts, &mut tags);
            for (tag, message) in tags.iter().zip(&messages) {
                assert_eq!(tag[..], expected::<Sha384>(128, b"key", message));
            }
        }
    }

    #[test]
    fn digests_of_nothing_are_those_of_an_independent_crate() {
        assert_eq!(
            Hash::Sha256.digest_of_nothing()[..32],
            Sha256::digest(b"")[..]
        );
        assert_eq!(Hash::Sha256.digest_of_nothing()[32..], [0; 16]);
        assert_eq!(Hash::Sha384.digest_of_nothing(), Sha384::digest(b"")[..]);
    }
}
