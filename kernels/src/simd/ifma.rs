//! The operations that both widths of AVX-512 IFMA share, in one list.

/// Defines the lanes `$name` in vectors `$vector`: `intrinsics` lists the instructions of their
/// width, `$own` has the operations that differ.
macro_rules! ifma_lanes {
    (
        $name:ident($vector:ident) {
            intrinsics {
                set1: $set1:ident,
                madd52lo: $madd52lo:ident,
                madd52hi: $madd52hi:ident,
                add: $add:ident,
                sub: $sub:ident,
                and: $and:ident,
                xor: $xor:ident,
                srli: $srli:ident,
                srlv: $srlv:ident,
                ror: $ror:ident,
                ternarylogic: $ternarylogic:ident,
                srl: $srl:ident,
                sll: $sll:ident,
                test_mask: $test_mask:ident,
                cmpeq_mask: $cmpeq_mask:ident,
                mask_blend: $mask_blend:ident,
                mask_ternarylogic: $mask_ternarylogic:ident,
            }
            $($own:tt)*
        }
    ) => {
        /// Proof that the CPU and the operating system support AVX-512 IFMA; lanes with the order
        /// of work `O`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub(crate) struct $name<O = Beside>(pub(super) PhantomData<O>);

        impl $name {
            /// Returns the proof, if the CPU has the features.
            pub(crate) fn detect() -> Option<Self> {
                (cfg!(avx512)
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512ifma")
                    && is_x86_feature_detected!("bmi2"))
                .then_some(Self(PhantomData))
            }
        }

        // SAFETY: the vector is plain bits without padding, aligned to its length, 64 at most.
        unsafe impl Plain for $vector {}

        impl<O: Order> Simd for $name<O> {
            type Limb = $vector;
            type Mask = __mmask8;
            type Order = O;

            const LANES: usize = size_of::<$vector>() / 8;
            const TERNARY: bool = true;

            #[inline(always)]
            fn enter<R>(self, body: impl FnOnce() -> R) -> R {
                #[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512ifma,bmi2")]
                fn with_features<R>(body: impl FnOnce() -> R) -> R {
                    super::align_stack();
                    body()
                }
                // A build without AVX-512 generates no machine code for `body`.
                if !cfg!(avx512) {
                    unreachable!("`detect` finds nothing");
                }
                // SAFETY: `self` exists only where `detect` found these features.
                unsafe { with_features(body) }
            }

            #[inline(always)]
            fn splat(self, value: u64) -> $vector {
                // SAFETY: `self` proves the features.
                unsafe { $set1(value as i64) }
            }

            #[inline(always)]
            fn mul_lo(self, acc: $vector, a: $vector, b: $vector) -> $vector {
                // SAFETY: `self` proves the features.
                unsafe { $madd52lo(acc, a, b) }
            }

            #[inline(always)]
            fn mul_hi(self, acc: $vector, a: $vector, b: $vector) -> $vector {
                // SAFETY: `self` proves the features.
                unsafe { $madd52hi(acc, a, b) }
            }

            #[inline(always)]
            fn add(self, a: $vector, b: $vector) -> $vector {
                // SAFETY: `self` proves the features.
                unsafe { $add(a, b) }
            }

            #[inline(always)]
            fn sub(self, a: $vector, b: $vector) -> $vector {
                // SAFETY: `self` proves the features.
                unsafe { $sub(a, b) }
            }

            #[inline(always)]
            fn and(self, a: $vector, b: $vector) -> $vector {
                // SAFETY: `self` proves the features.
                unsafe { $and(a, b) }
            }

            #[inline(always)]
            fn xor(self, a: $vector, b: $vector) -> $vector {
                // SAFETY: `self` proves the features.
                unsafe { $xor(a, b) }
            }

            #[inline(always)]
            fn or_xor(self, a: $vector, b: $vector, c: $vector) -> $vector {
                // 0xf6 is the truth table of a | (b ^ c).
                self.ternary::<0xf6>(a, b, c)
            }

            #[inline(always)]
            fn halve(self, a: $vector) -> $vector {
                let a = whole(a);
                // SAFETY: `self` proves the features.
                unsafe { $srli::<1>(a) }
            }

            #[inline(always)]
            fn shift_right<const BITS: u32>(self, a: $vector) -> $vector {
                let a = whole(a);
                // SAFETY: `self` proves the features.
                unsafe { $srlv(a, self.splat(u64::from(BITS))) }
            }

            #[inline(always)]
            fn rotate_right<const BITS: i32>(self, a: $vector) -> $vector {
                // SAFETY: `self` proves the features.
                unsafe { $ror::<BITS>(a) }
            }

            #[inline(always)]
            fn ternary<const TABLE: i32>(self, a: $vector, b: $vector, c: $vector) -> $vector {
                // The taint check does not know the instruction.
                #[cfg(ct_msan)]
                return super::ternary_in_parts::<Self, TABLE>(self, a, b, c);
                // SAFETY: `self` proves the features.
                #[cfg(not(ct_msan))]
                unsafe {
                    $ternarylogic::<TABLE>(a, b, c)
                }
            }

            #[inline(always)]
            fn shift_right_by(self, a: $vector, count: u32) -> $vector {
                let a = whole(a);
                // SAFETY: `self` proves the features.
                unsafe { $srl(a, _mm_cvtsi32_si128(count as i32)) }
            }

            #[inline(always)]
            fn shift_left_by(self, a: $vector, count: u32) -> $vector {
                // SAFETY: `self` proves the features.
                unsafe { $sll(a, _mm_cvtsi32_si128(count as i32)) }
            }

            #[inline(always)]
            fn carry(self, a: $vector) -> $vector {
                let a = whole(a);
                // SAFETY: `self` proves the features.
                unsafe { $srli::<52>(a) }
            }

            #[inline(always)]
            fn any_bit(self, a: $vector, bits: $vector) -> __mmask8 {
                // SAFETY: `self` proves the features.
                unsafe { $test_mask(a, bits) }
            }

            #[inline(always)]
            fn equal(self, a: $vector, b: $vector) -> __mmask8 {
                // SAFETY: `self` proves the features.
                unsafe { $cmpeq_mask(a, b) }
            }

            #[inline(always)]
            fn select(self, mask: __mmask8, set: $vector, clear: $vector) -> $vector {
                // SAFETY: `self` proves the features.
                unsafe { $mask_blend(mask, clear, set) }
            }

            #[inline(always)]
            fn choose_in(
                self,
                mask: __mmask8,
                chooser: $vector,
                clear: $vector,
                set: $vector,
            ) -> $vector {
                #[cfg(ct_msan)]
                return self.select(mask, self.ternary::<0xac>(chooser, clear, set), chooser);
                // SAFETY: `self` proves the features. 0xac is the truth table of
                // chooser ? set : clear.
                #[cfg(not(ct_msan))]
                unsafe {
                    $mask_ternarylogic::<0xac>(chooser, mask, clear, set)
                }
            }

            $($own)*
        }
    };
}
pub(crate) use ifma_lanes;
