//! The operations in assembly, with two chains of carries side by side (BMI2 and ADX).
//!
//! `mulx` does not change the flags, `adcx` adds with the carry flag and `adox` with the overflow
//! flag. So the lower halves of a row's products are added in one chain and the upper halves in
//! another, and eight sums stay in registers. The compiler cannot generate that.
//!
//! After a row, the lowest sum is complete, and the row has begun a new sum, in the column above
//! the others. The new sum takes the register of the lowest one. So each row names the registers
//! in another order.
//!
//! | register | holds |
//! |---|---|
//! | r8 to r15 | the sums of eight columns |
//! | rdx | the word that a row multiplies by |
//! | rax, rcx | the halves of a product |
//! | rbp | zero |
//! | rdi, rsi, rbx | addresses; in a reduction rsi is −1/n |
//!
//! The compiler reserves rbx and rbp, so they are pushed and popped.

use core::arch::asm;

use super::multiplier::{Block, Multiplier};

/// Proof that the CPU has ADX, BMI2 and AVX2.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Adx(());

impl Adx {
    /// Returns the proof, if the CPU has the features.
    pub(crate) fn detect() -> Option<Self> {
        (is_x86_feature_detected!("adx")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("avx2"))
        .then_some(Self(()))
    }
}

/// Adds a word times rdx to the sums `$low` and `$high`.
macro_rules! product {
    ($word:expr, $low:literal, $high:literal) => {
        concat!(
            "mulx rcx, rax, qword ptr [",
            $word,
            "]\n",
            "adcx ",
            $low,
            ", rax\n",
            "adox ",
            $high,
            ", rcx\n",
        )
    };
}

/// The last product of a row: `$top` becomes its upper half plus both carries, which fits.
macro_rules! last_product {
    ($word:expr, $low:literal, $top:literal) => {
        concat!(
            "mulx ",
            $top,
            ", rax, qword ptr [",
            $word,
            "]\n",
            "adcx ",
            $low,
            ", rax\n",
            "adox ",
            $top,
            ", rbp\n",
            "adcx ",
            $top,
            ", rbp\n",
        )
    };
}

/// A row of eight products by rdx. `$add` comes before the first, with both flags clear, and
/// `$retire` after it, when the sum `$a` is complete.
macro_rules! row {
    (
        $add:expr, $retire:expr,
        $a:literal $b:literal $c:literal $d:literal $e:literal $f:literal $g:literal $h:literal
    ) => {
        concat!(
            "xor eax, eax\n",
            $add,
            product!("rdi", $a, $b),
            $retire,
            product!("rdi + 8", $b, $c),
            product!("rdi + 16", $c, $d),
            product!("rdi + 24", $d, $e),
            product!("rdi + 32", $e, $f),
            product!("rdi + 40", $f, $g),
            product!("rdi + 48", $g, $h),
            last_product!("rdi + 56", $h, $a),
        )
    };
}

/// Row number `$i` of a product: by word `$i` at rsi. Word `$i` at rbx is added to the lowest sum,
/// which is then stored there.
macro_rules! product_row {
    ($i:literal, $a:literal $($others:literal)*) => {
        concat!(
            "mov rdx, qword ptr [rsi + 8*", $i, "]\n",
            row!(
                concat!("adox ", $a, ", qword ptr [rbx + 8*", $i, "]\n"),
                concat!("mov qword ptr [rbx + 8*", $i, "], ", $a, "\n"),
                $a $($others)*
            ),
        )
    };
}

/// Row number `$i` of a reduction: by a word of m, which is stored in word `$i` at rbx. The lowest
/// sum becomes zero.
macro_rules! reduction_row {
    ($i:literal, $a:literal $($others:literal)*) => {
        concat!(
            "mov rdx, ", $a, "\n",
            "imul rdx, rsi\n",
            "mov qword ptr [rbx + 8*", $i, "], rdx\n",
            row!("", "", $a $($others)*),
        )
    };
}

/// Eight rows, after which each sum is in the register of the sum eight columns below.
macro_rules! eight_rows {
    ($row:ident) => {
        concat!(
            $row!("0", "r8" "r9" "r10" "r11" "r12" "r13" "r14" "r15"),
            $row!("1", "r9" "r10" "r11" "r12" "r13" "r14" "r15" "r8"),
            $row!("2", "r10" "r11" "r12" "r13" "r14" "r15" "r8" "r9"),
            $row!("3", "r11" "r12" "r13" "r14" "r15" "r8" "r9" "r10"),
            $row!("4", "r12" "r13" "r14" "r15" "r8" "r9" "r10" "r11"),
            $row!("5", "r13" "r14" "r15" "r8" "r9" "r10" "r11" "r12"),
            $row!("6", "r14" "r15" "r8" "r9" "r10" "r11" "r12" "r13"),
            $row!("7", "r15" "r8" "r9" "r10" "r11" "r12" "r13" "r14"),
        )
    };
}

/// Loads the sums from the eight words at `$at`.
macro_rules! load_sums {
    ($at:literal) => {
        concat!(
            "mov r8, qword ptr [",
            $at,
            "]\n",
            "mov r9, qword ptr [",
            $at,
            " + 8]\n",
            "mov r10, qword ptr [",
            $at,
            " + 16]\n",
            "mov r11, qword ptr [",
            $at,
            " + 24]\n",
            "mov r12, qword ptr [",
            $at,
            " + 32]\n",
            "mov r13, qword ptr [",
            $at,
            " + 40]\n",
            "mov r14, qword ptr [",
            $at,
            " + 48]\n",
            "mov r15, qword ptr [",
            $at,
            " + 56]\n",
        )
    };
}

/// Stores the sums to the eight words at `$at`.
macro_rules! store_sums {
    ($at:literal) => {
        concat!(
            "mov qword ptr [",
            $at,
            "], r8\n",
            "mov qword ptr [",
            $at,
            " + 8], r9\n",
            "mov qword ptr [",
            $at,
            " + 16], r10\n",
            "mov qword ptr [",
            $at,
            " + 24], r11\n",
            "mov qword ptr [",
            $at,
            " + 32], r12\n",
            "mov qword ptr [",
            $at,
            " + 40], r13\n",
            "mov qword ptr [",
            $at,
            " + 48], r14\n",
            "mov qword ptr [",
            $at,
            " + 56], r15\n",
        )
    };
}

/// Adds the sums and CF to the eight words at `$at`.
macro_rules! add_sums {
    ($at:literal) => {
        concat!(
            "adc r8, qword ptr [",
            $at,
            "]\n",
            "adc r9, qword ptr [",
            $at,
            " + 8]\n",
            "adc r10, qword ptr [",
            $at,
            " + 16]\n",
            "adc r11, qword ptr [",
            $at,
            " + 24]\n",
            "adc r12, qword ptr [",
            $at,
            " + 32]\n",
            "adc r13, qword ptr [",
            $at,
            " + 40]\n",
            "adc r14, qword ptr [",
            $at,
            " + 48]\n",
            "adc r15, qword ptr [",
            $at,
            " + 56]\n",
            store_sums!($at),
        )
    };
}

/// Row `$i` of the products of different words at rsi: word `$i` times each word above it.
/// Afterwards the two lowest sums, columns 2i + 1 and 2i + 2, are complete.
macro_rules! triangle_row {
    ($i:literal, [$($j:literal $low:literal $high:literal)*] $top_low:literal $top:literal) => {
        concat!(
            "mov rdx, qword ptr [rsi + 8*", $i, "]\n",
            "xor eax, eax\n",
            $(product!(concat!("rsi + 8*", $j), $low, $high),)*
            last_product!("rsi + 56", $top_low, $top),
        )
    };
}

/// Two columns of [`Multiplier::double`]: the square of word `$i` at rsi, and the words `$low` and
/// `$high` at rdi.
macro_rules! doubled {
    ($i:literal, $low:literal, $high:literal) => {
        concat!(
            "mov rdx, qword ptr [rsi + 8*",
            $i,
            "]\n",
            "mulx rcx, rax, rdx\n",
            "mov r8, qword ptr [rdi + 8*",
            $low,
            "]\n",
            "mov r9, qword ptr [rdi + 8*",
            $high,
            "]\n",
            "adcx r8, r8\n",
            "adox r8, rax\n",
            "adcx r9, r9\n",
            "adox r9, rcx\n",
            "mov qword ptr [rdi + 8*",
            $low,
            "], r8\n",
            "mov qword ptr [rdi + 8*",
            $high,
            "], r9\n",
        )
    };
}

impl Multiplier for Adx {
    #[inline(always)]
    fn enter<R>(self, body: impl FnOnce() -> R) -> R {
        #[target_feature(enable = "avx2,bmi2,adx")]
        fn with_features<R>(body: impl FnOnce() -> R) -> R {
            body()
        }
        // SAFETY: the value proves that the CPU has the features.
        unsafe { with_features(body) }
    }

    #[inline(never)]
    fn multiply_add(self, t: &mut [Block], c: &mut Block, a: &Block, b: &[Block]) {
        assert!(t.len() == b.len() && !b.is_empty());
        // SAFETY: the CPU has the instructions. The assembly reads eight words at `a` and at `c`,
        // and at `b` and `t` as many blocks as both have. It writes `t` and `c`, and leaves rbx,
        // rbp and the stack unchanged.
        unsafe {
            asm!(
                "push rbx",
                "push rbp",
                "push rcx",
                "push rdx",
                "mov rbx, rax",
                load_sums!("rcx"),
                "xor ebp, ebp",
                "2:",
                eight_rows!(product_row),
                "add rbx, 64",
                "add rdi, 64",
                "dec qword ptr [rsp]",
                "jnz 2b",
                "pop rdx",
                "pop rcx",
                store_sums!("rcx"),
                "pop rbp",
                "pop rbx",
                inout("rax") t.as_mut_ptr() => _,
                inout("rcx") c => _,
                inout("rdx") b.len() => _,
                inout("rdi") b.as_ptr() => _,
                in("rsi") a,
                out("r8") _, out("r9") _, out("r10") _, out("r11") _,
                out("r12") _, out("r13") _, out("r14") _, out("r15") _,
            );
        }
    }

    #[inline(never)]
    fn reduce(self, t: &mut [Block], n: &[Block], k0: u64, carry: bool) -> bool {
        assert!(t.len() == n.len() + 1 && !n.is_empty());
        let mut carry = u64::from(carry);
        // SAFETY: the CPU has the instructions. The assembly reads as many blocks at `n` as there
        // are, reads and writes one more at `t`, and leaves rbx, rbp and the stack unchanged.
        unsafe {
            asm!(
                "push rbx",
                "push rbp",
                "push rcx",
                "push rdx",
                "mov rbx, rax",
                load_sums!("rbx"),
                "xor ebp, ebp",
                eight_rows!(reduction_row),
                // m is in the lowest block.
                "mov rsi, rbx",
                "add rbx, 64",
                "dec qword ptr [rsp]",
                "jz 3f",
                "2:",
                "add rdi, 64",
                eight_rows!(product_row),
                "add rbx, 64",
                "dec qword ptr [rsp]",
                "jnz 2b",
                "3:",
                "pop rdx",
                "pop rcx",
                // CF = the carry
                "neg rcx",
                add_sums!("rbx"),
                "mov ecx, 0",
                "adc ecx, ecx",
                "pop rbp",
                "pop rbx",
                inout("rax") t.as_mut_ptr() => _,
                inout("rcx") carry,
                inout("rdx") n.len() => _,
                inout("rdi") n.as_ptr() => _,
                inout("rsi") k0 => _,
                out("r8") _, out("r9") _, out("r10") _, out("r11") _,
                out("r12") _, out("r13") _, out("r14") _, out("r15") _,
            );
        }
        carry != 0
    }

    #[inline(never)]
    fn triangle(self, t: &mut Block, c: &mut Block, a: &Block) {
        // SAFETY: the CPU has the instructions. The assembly reads eight words at `t` and at `a`,
        // writes `t` and `c`, and leaves rbx, rbp and the stack unchanged.
        unsafe {
            asm!(
                "push rbx",
                "push rbp",
                "mov rbx, rcx",
                // Columns 1 to 7; column 0 has no product.
                load_sums!("rdi"),
                "xor ebp, ebp",
                triangle_row!(
                    "0",
                    ["1" "r9" "r10" "2" "r10" "r11" "3" "r11" "r12" "4" "r12" "r13"
                     "5" "r13" "r14" "6" "r14" "r15"] "r15" "r8"
                ),
                "mov qword ptr [rdi + 8], r9",
                "mov qword ptr [rdi + 16], r10",
                triangle_row!(
                    "1",
                    ["2" "r11" "r12" "3" "r12" "r13" "4" "r13" "r14" "5" "r14" "r15"
                     "6" "r15" "r8"] "r8" "r9"
                ),
                "mov qword ptr [rdi + 24], r11",
                "mov qword ptr [rdi + 32], r12",
                triangle_row!(
                    "2",
                    ["3" "r13" "r14" "4" "r14" "r15" "5" "r15" "r8" "6" "r8" "r9"] "r9" "r10"
                ),
                "mov qword ptr [rdi + 40], r13",
                "mov qword ptr [rdi + 48], r14",
                triangle_row!("3", ["4" "r15" "r8" "5" "r8" "r9" "6" "r9" "r10"] "r10" "r11"),
                "mov qword ptr [rdi + 56], r15",
                "mov qword ptr [rbx], r8",
                triangle_row!("4", ["5" "r9" "r10" "6" "r10" "r11"] "r11" "r12"),
                "mov qword ptr [rbx + 8], r9",
                "mov qword ptr [rbx + 16], r10",
                triangle_row!("5", ["6" "r11" "r12"] "r12" "r13"),
                "mov qword ptr [rbx + 24], r11",
                "mov qword ptr [rbx + 32], r12",
                triangle_row!("6", [] "r13" "r14"),
                "mov qword ptr [rbx + 40], r13",
                "mov qword ptr [rbx + 48], r14",
                "mov qword ptr [rbx + 56], rbp",
                "pop rbp",
                "pop rbx",
                inout("rcx") c => _,
                in("rdi") t,
                in("rsi") a,
                out("rax") _,
                out("rdx") _,
                out("r8") _, out("r9") _, out("r10") _, out("r11") _,
                out("r12") _, out("r13") _, out("r14") _, out("r15") _,
            );
        }
    }

    #[inline(never)]
    fn double(self, t: &mut [Block], a: &[Block]) {
        assert!(t.len() == 2 * a.len() && !a.is_empty());
        // SAFETY: the CPU has the instructions. The assembly reads as many blocks as there are at
        // `a`, and reads and writes twice as many at `t`.
        unsafe {
            asm!(
                // The carries of both chains into the next block.
                "xor r10d, r10d",
                "xor r11d, r11d",
                "2:",
                "mov eax, 0x7fffffff",
                "mov edx, -1",
                // OF = r11, CF = 0
                "add eax, r11d",
                // CF = r10
                "adcx edx, r10d",
                doubled!("0", "0", "1"),
                doubled!("1", "2", "3"),
                doubled!("2", "4", "5"),
                doubled!("3", "6", "7"),
                doubled!("4", "8", "9"),
                doubled!("5", "10", "11"),
                doubled!("6", "12", "13"),
                doubled!("7", "14", "15"),
                "mov r10d, 0",
                "mov r11d, 0",
                "adcx r10, r10",
                "adox r11, r11",
                "add rsi, 64",
                "add rdi, 128",
                "dec {count}",
                "jnz 2b",
                count = inout(reg) a.len() => _,
                inout("rdi") t.as_mut_ptr() => _,
                inout("rsi") a.as_ptr() => _,
                out("rax") _,
                out("rcx") _,
                out("rdx") _,
                out("r8") _, out("r9") _, out("r10") _, out("r11") _,
                options(nostack),
            );
        }
    }
}
