//! Instructions that `OPENSSL_ia32cap` hides from OpenSSL, and so from the lanes.
//!
//! The variable is OpenSSL's own (OPENSSL_ia32cap(3)). It holds vectors of 64 bits, separated by
//! colons. A vector replaces the CPU's answer; a vector after a `~` clears its bits in the CPU's
//! answer. The constants below are these bits. The lanes use no instruction that the variable
//! hides from OpenSSL.

use lockstep_ops::Backend;

/// The variable of the environment.
pub(crate) const VARIABLE: &str = "OPENSSL_ia32cap";

/// Bits of the first vector: CPUID leaf 1, EDX and ECX.
const FXSR: u64 = 1 << 24;
const PCLMULQDQ: u64 = 1 << 33;
const XOP: u64 = 1 << 43;
const POPCNT: u64 = 1 << 55;
const AES: u64 = 1 << 57;
const OSXSAVE: u64 = 1 << 59;
const AVX: u64 = 1 << 60;

/// Bits of the second vector: CPUID leaf 7, EBX and ECX.
const BMI1: u64 = 1 << 3;
const AVX2: u64 = 1 << 5;
const BMI2: u64 = 1 << 8;
const AVX512F: u64 = 1 << 16;
const AVX512DQ: u64 = 1 << 17;
const ADX: u64 = 1 << 19;
const AVX512IFMA: u64 = 1 << 21;
const AVX512BW: u64 = 1 << 30;
const AVX512VL: u64 = 1 << 31;
const AVX512VBMI: u64 = 1 << 33;
const AVX512VBMI2: u64 = 1 << 38;
const VAES: u64 = 1 << 41;
const VPCLMULQDQ: u64 = 1 << 42;
const AVX512VNNI: u64 = 1 << 43;

const IFMA_LANES: [u64; 2] = [
    OSXSAVE | AVX | POPCNT,
    AVX2_LANES[1]
        | AVX512F
        | AVX512DQ
        | AVX512IFMA
        | AVX512BW
        | AVX512VL
        | AVX512VBMI
        | AVX512VBMI2
        | AVX512VNNI,
];
const AVX2_LANES: [u64; 2] = [OSXSAVE | AVX, AVX2 | BMI1 | BMI2 | ADX];
const AES_GCM: [u64; 2] = [
    PCLMULQDQ | AES | OSXSAVE | AVX,
    AVX2 | BMI2 | AVX512F | AVX512BW | AVX512VL | VAES | VPCLMULQDQ,
];

/// The bits of both vectors that a value hides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hidden([u64; 2]);

impl Hidden {
    pub(crate) fn by(value: &str) -> Hidden {
        let mut vectors = value.split(':');
        let first = vectors.next().unwrap_or_default();
        let mut hidden = match first {
            "" if value.starts_with(':') => 0,
            first => hidden_by(first),
        };
        // OpenSSL clears these bits too if FXSR is cleared.
        if first.starts_with('~') && hidden & FXSR != 0 {
            hidden |= PCLMULQDQ | XOP | AES | AVX;
        }
        let second = match (vectors.next(), vectors.next()) {
            // An empty vector before another colon hides nothing.
            (Some(""), Some(_)) => 0,
            // OpenSSL reads a missing second vector as zero.
            (second, _) => hidden_by(second.unwrap_or_default()),
        };
        Hidden([hidden, second])
    }

    /// Returns whether no instruction of these lanes is hidden.
    pub(crate) fn leaves(self, backend: Backend) -> bool {
        if backend == Backend::PORTABLE {
            return true;
        }
        self.leaves_all(match backend.is_avx2() {
            true => AVX2_LANES,
            false => IFMA_LANES,
        })
    }

    /// Returns whether no instruction of AES-GCM is hidden.
    pub(crate) fn leaves_aes_gcm(self) -> bool {
        self.leaves_all(AES_GCM)
    }

    fn leaves_all(self, needed: [u64; 2]) -> bool {
        self.0
            .iter()
            .zip(needed)
            .all(|(hidden, needed)| hidden & needed == 0)
    }
}

/// Returns the bits that one vector hides.
fn hidden_by(vector: &str) -> u64 {
    match vector.strip_prefix('~') {
        Some(cleared) => number(cleared),
        None => !number(vector),
    }
}

/// Reads a number as OpenSSL does: hexadecimal after `0x`, octal after `0`, up to the first
/// character that is not a digit.
fn number(text: &str) -> u64 {
    let (digits, base) = match text.strip_prefix('0') {
        None => (text, 10),
        Some(rest) => match rest.strip_prefix(['x', 'X']) {
            Some(digits) => (digits, 16),
            None => (rest, 8),
        },
    };
    let digits = digits.chars().map_while(|digit| digit.to_digit(base));
    digits.fold(0, |number: u64, digit| {
        number.wrapping_mul(base.into()).wrapping_add(digit.into())
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_value_hides_what_it_hides_from_openssl() {
        for (value, hidden) in [
            ("~0x200000200000000", [AES | PCLMULQDQ, !0]),
            (":~0x200000", [0, AVX512IFMA]),
            (":~0x20", [0, AVX2]),
            (":~040", [0, AVX2]),
            (":~32x", [0, AVX2]),
            (":0", [0, !0]),
            (":", [0, !0]),
            ("::0", [0, 0]),
            ("::", [0, 0]),
            (":0X209", [0, !0x209]),
            ("~0:~0x20000000000:0", [0, VAES]),
            ("~0x1000000:~0", [FXSR | PCLMULQDQ | XOP | AES | AVX, 0]),
            ("", [!0, !0]),
            ("0xffffffffffffffff:~0", [0, 0]),
            ("~0x1ffffffffffffffff:~0", [!0, 0]),
        ] {
            assert_eq!(Hidden::by(value), Hidden(hidden), "{value}");
        }
    }

    #[test]
    fn lanes_that_need_no_hidden_instruction_are_left() {
        for (value, ifma, avx2, aes_gcm) in [
            (":~0", true, true, true),
            (":~0x200000", false, true, true),
            (":~0x10000", false, true, false),
            (":~0x80000000", false, true, false),
            (":~0x20000000000", true, true, false),
            (":~0x20", false, false, false),
            (":~8", false, false, true),
            (":~0x100", false, false, false),
            (":~0x80000", false, false, true),
            (":~0x40000000", false, true, false),
            (":~0x200000000", false, true, true),
            (":~0x4000000000", false, true, true),
            (":~0x80000000000", false, true, true),
            ("~0x80000000000000:~0", false, true, true),
            ("~0x1000000000000000:~0", false, false, false),
            ("~0x200000000000000:~0", true, true, false),
            ("~0x200000000000000", false, false, false),
        ] {
            let hidden = Hidden::by(value);
            for backend in Backend::available() {
                let left = match backend.name() {
                    "portable" => true,
                    "avx2" => avx2,
                    _ => ifma,
                };
                assert_eq!(hidden.leaves(backend), left, "{value}: {backend:?}");
            }
            assert_eq!(hidden.leaves_all(IFMA_LANES), ifma, "{value}");
            assert_eq!(hidden.leaves_all(AVX2_LANES), avx2, "{value}");
            assert_eq!(hidden.leaves_aes_gcm(), aes_gcm, "{value}");
        }
    }
}
