// Arithmetic modulo odd numbers n of LIMBS words of 32 bits, the lowest first. R = 2^(32·LIMBS).
//
// No step depends on a value: sums carry through all words, and n is subtracted under a mask.

#ifdef UNROLLED
#define EACH _Pragma("unroll")
#else
#define EACH
#endif

// Returns the low word of a·b + c + carry, and leaves the high one in carry. It cannot overflow.
uint multiply_add(uint a, uint b, uint c, uint *carry) {
    ulong sum = (ulong)a * b + c + *carry;
    *carry = (uint)(sum >> 32);
    return (uint)sum;
}

// Returns a + b + carry without its carry, which is left in carry.
uint add_carry(uint a, uint b, uint *carry) {
    ulong sum = (ulong)a + b + *carry;
    *carry = (uint)(sum >> 32);
    return (uint)sum;
}

// Returns a − b − borrow, and leaves the new borrow, 0 or 1.
uint subtract_borrow(uint a, uint b, uint *borrow) {
    ulong difference = (ulong)a - b - *borrow;
    *borrow = (uint)(difference >> 63);
    return (uint)difference;
}

// Returns a where the mask has ones, b where it has zeros.
uint choose(uint mask, uint a, uint b) {
    return b ^ (mask & (a ^ b));
}

void load(uint *out, __global const uint *from) {
    EACH for (int i = 0; i < LIMBS; i++) out[i] = from[i];
}

void store(__global uint *to, const uint *a) {
    EACH for (int i = 0; i < LIMBS; i++) to[i] = a[i];
}

void copy(uint *out, const uint *a) {
    EACH for (int i = 0; i < LIMBS; i++) out[i] = a[i];
}

#if defined(__NV_CL_C_VERSION) && defined(UNROLLED)

// For NVIDIA. Its compiler makes one IMAD.WIDE.U32.X of a pair `mad.lo.cc` and `madc.hi.cc`, which
// adds a product and a carry to two words; from C it makes three to five instructions. The carry of
// a function is that of the one before, so their calls follow each other as they stand. LIMBS is a
// multiple of 8.
#define INLINE static inline __attribute__((always_inline))

// Computes the words to[0] and to[1] of a·b + from[0] + W·from[1], plus the carry.
#define PRODUCT(NAME, INSTRUCTION)                                                                 \
    INLINE void NAME(uint *to, uint a, uint b, uint from0, uint from1) {                           \
        asm volatile(INSTRUCTION " %0, %2, %3, %4; madc.hi.cc.u32 %1, %2, %3, %5;"                 \
                     : "=&r"(to[0]), "=r"(to[1]) : "r"(a), "r"(b), "r"(from0), "r"(from1));        \
    }
PRODUCT(product_first, "mad.lo.cc.u32")
PRODUCT(product_next, "madc.lo.cc.u32")

#define ADDING(NAME, INSTRUCTION)                                                                  \
    INLINE uint NAME(uint a, uint b) {                                                             \
        uint out;                                                                                  \
        asm volatile(INSTRUCTION " %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b));                     \
        return out;                                                                                \
    }
ADDING(add_first, "add.cc.u32")
ADDING(add_next, "addc.cc.u32")
ADDING(add_last, "addc.u32")
ADDING(subtract_first, "sub.cc.u32")
ADDING(subtract_next, "subc.cc.u32")
ADDING(subtract_last, "subc.u32")

// As the function of this name below.
INLINE void reduce_once(uint *a, uint top, const uint *n) {
    uint difference[LIMBS];
    difference[0] = subtract_first(a[0], n[0]);
    EACH for (int i = 1; i < LIMBS; i++) difference[i] = subtract_next(a[i], n[i]);
    uint keep = subtract_last(top, 0);
    EACH for (int i = 0; i < LIMBS; i++) a[i] = choose(keep, a[i], difference[i]);
}

// A number under way is Σ even[i]·W^i + Σ odd[i]·W^(i + 1) + top·W^(LIMBS + 1), W = 2^32: neighbours
// in a chain of carries are two words apart. `even` and `odd` change roles with each division by W,
// after which the words of `odd` are two places too high until `next_row` moves them.

// Computes sum ← sum + factor·(words of v at even places), from the place `from` on.
INLINE void add_chain(uint *sum, const uint *v, uint factor, int from) {
    EACH for (int i = 0; i < LIMBS; i += 2) {
        if (i < from) continue;
        if (i == from) product_first(sum + i, v[i], factor, sum[i], sum[i + 1]);
        else product_next(sum + i, v[i], factor, sum[i], sum[i + 1]);
    }
}

// Adds the carry of `even` and another word to the highest word.
INLINE void carry_up(uint *odd, uint *top, uint word) {
    odd[LIMBS - 1] = add_next(odd[LIMBS - 1], word);
    *top = add_last(*top, 0);
}

// Moves the words of `odd`, and adds v·factor and the carry of the lowest word.
INLINE void next_row(uint *even, uint *odd, uint *top, const uint *v, uint factor) {
    EACH for (int i = 0; i < LIMBS; i += 2) {
        bool is_last = i == LIMBS - 2;
        uint low = is_last ? 0 : odd[i + 2], high = is_last ? *top : odd[i + 3];
        product_next(odd + i, v[i + 1], factor, low, high);
    }
    *top = add_last(0, 0);
    add_chain(even, v, factor, 0);
    carry_up(odd, top, 0);
}

// Adds the multiple of n that makes the lowest word zero.
INLINE void clear_lowest(uint *even, uint *odd, uint *top, const uint *n, uint n0) {
    uint factor = even[0] * n0;
    add_chain(odd, n + 1, factor, 0);
    *top = add_last(*top, 0);
    add_chain(even, n, factor, 0);
    carry_up(odd, top, 0);
}

// Computes out = (even + odd/W) mod n after the last division.
INLINE void finish(uint *out, uint *even, const uint *odd, uint top, const uint *n) {
    even[0] = add_first(even[0], odd[1]);
    EACH for (int i = 1; i < LIMBS; i++) even[i] = add_next(even[i], i < LIMBS - 1 ? odd[i + 1] : 0);
    top = add_last(top, 0);
    reduce_once(even, top, n);
    copy(out, even);
}

#define EIGHT(ROW, i)                                                                              \
    ROW(even, odd, i) ROW(odd, even, i + 1) ROW(even, odd, i + 2) ROW(odd, even, i + 3)            \
    ROW(even, odd, i + 4) ROW(odd, even, i + 5) ROW(even, odd, i + 6) ROW(odd, even, i + 7)

INLINE void multiply_row(uint *even, uint *odd, uint *top, const uint *a, uint factor,
                         const uint *n, uint n0) {
    even[0] = add_first(even[0], odd[1]);
    next_row(even, odd, top, a, factor);
    clear_lowest(even, odd, top, n, n0);
}

// As the function of this name below.
void multiply(uint *out, const uint *a, const uint *b, const uint *n, uint n0) {
    uint even[LIMBS], odd[LIMBS], top = 0;
    EACH for (int i = 0; i < LIMBS; i++) even[i] = odd[i] = 0;
#define ROW(even, odd, i) multiply_row(even, odd, &top, a, b[i], n, n0);
    for (int i = 0; i < LIMBS; i += 8) {
        EIGHT(ROW, i)
    }
#undef ROW
    finish(out, even, odd, top, n);
}

// Computes sum ← sum + a[i]·(words of a[i] + 2·(the words above it), at the places shift, shift + 2
// and so on), from the place `from` of the sum on.
INLINE void square_chain(uint *sum, const uint *a, int i, int shift, int from) {
    EACH for (int k = 0; k < LIMBS; k += 2) {
        if (k < from) continue;
        int j = k + shift;
        uint v = j == i ? a[j] : j == i + 1 ? a[j] << 1 : a[j] << 1 | a[j - 1] >> 31;
        if (k == from) product_first(sum + k, v, a[i], sum[k], sum[k + 1]);
        else product_next(sum + k, v, a[i], sum[k], sum[k + 1]);
    }
}

// Adds a[i]·(a[i] + 2·(the words above it)), from the place i on.
INLINE void add_squares(uint *even, uint *odd, uint *top, const uint *a, int i) {
    square_chain(odd, a, i, 1, i & ~1);
    *top = add_last(*top, 0);
    if (i == LIMBS - 1) return;
    square_chain(even, a, i, 0, i + 1 & ~1);
    carry_up(odd, top, a[i] & (0 - (a[LIMBS - 1] >> 31)));
}

// A row of a square above the first. The multiple of n comes before the products, which are all
// above the lowest word.
INLINE void square_row(uint *even, uint *odd, uint *top, const uint *a, int i, const uint *n,
                       uint n0) {
    even[0] = add_first(even[0], odd[1]);
    next_row(even, odd, top, n, even[0] * n0);
    add_squares(even, odd, top, a, i);
}

// As the function of this name below. Compilers unroll no loop of rows as long as these.
#if LIMBS <= 48
INLINE void square(uint *out, const uint *a, const uint *n, uint n0) {
    uint even[LIMBS], odd[LIMBS], top = 0;
    EACH for (int i = 0; i < LIMBS; i++) even[i] = odd[i] = 0;
    add_squares(even, odd, &top, a, 0);
    clear_lowest(even, odd, &top, n, n0);
#define ROW(even, odd, i)                                                                          \
    if (i > 0 && i < LIMBS) square_row(even, odd, &top, a, i, n, n0);
    EIGHT(ROW, 0) EIGHT(ROW, 8) EIGHT(ROW, 16) EIGHT(ROW, 24) EIGHT(ROW, 32) EIGHT(ROW, 40)
#undef ROW
    finish(out, even, odd, top, n);
}
#define SQUARE
#endif

#else

// Computes a ← a − n if a + top·R ≥ n, for a + top·R < 2n.
void reduce_once(uint *a, uint top, const uint *n) {
    uint difference[LIMBS], borrow = 0;
    EACH for (int i = 0; i < LIMBS; i++) difference[i] = subtract_borrow(a[i], n[i], &borrow);
    subtract_borrow(top, 0, &borrow);
    uint keep = 0 - borrow;
    EACH for (int i = 0; i < LIMBS; i++) a[i] = choose(keep, a[i], difference[i]);
}

// Computes out = a·b/R mod n, below n, for a < R and b < n, or a < n and b < R. n0 is −1/n modulo
// 2^32. `out` may be `a` or `b`. Coarsely integrated operand scanning: C. Koç, T. Acar, B. Kaliski,
// "Analyzing and comparing Montgomery multiplication algorithms", 1996.
void multiply(uint *out, const uint *a, const uint *b, const uint *n, uint n0) {
    uint sum[LIMBS], top = 0;
    EACH for (int i = 0; i < LIMBS; i++) sum[i] = 0;
    for (int i = 0; i < LIMBS; i++) {
        uint carry = 0, over = 0, factor = b[i];
        EACH for (int j = 0; j < LIMBS; j++) sum[j] = multiply_add(a[j], factor, sum[j], &carry);
        top = add_carry(top, carry, &over);
        factor = sum[0] * n0;
        carry = 0;
        multiply_add(n[0], factor, sum[0], &carry);
        EACH for (int j = 1; j < LIMBS; j++) {
            sum[j - 1] = multiply_add(n[j], factor, sum[j], &carry);
        }
        uint second = 0;
        sum[LIMBS - 1] = add_carry(top, carry, &second);
        top = over + second;
    }
    reduce_once(sum, top, n);
    copy(out, sum);
}

#endif

#ifndef SQUARE
// Computes out = a²/R mod n, below n, for a < n. `out` may be `a`.
void square(uint *out, const uint *a, const uint *n, uint n0) {
    multiply(out, a, a, n, n0);
}
#endif

// Computes out = a + b mod n for a, b < n.
void add_mod(uint *out, const uint *a, const uint *b, const uint *n) {
    uint carry = 0;
    EACH for (int i = 0; i < LIMBS; i++) out[i] = add_carry(a[i], b[i], &carry);
    reduce_once(out, carry, n);
}

// Computes out = a − b mod n for a, b < n.
void subtract_mod(uint *out, const uint *a, const uint *b, const uint *n) {
    uint borrow = 0, carry = 0;
    EACH for (int i = 0; i < LIMBS; i++) out[i] = subtract_borrow(a[i], b[i], &borrow);
    uint mask = 0 - borrow;
    EACH for (int i = 0; i < LIMBS; i++) out[i] = add_carry(out[i], n[i] & mask, &carry);
}

void set_word(uint *out, uint word) {
    EACH for (int i = 0; i < LIMBS; i++) out[i] = 0;
    out[0] = word;
}
