// RSA. A work item computes a public operation, or a private one modulo one of the primes.
//
// A row of `keys` belongs to a modulus, which has all its bits:
//
//   words             | public         | private: of p, then of q
//   0 to LIMBS        | n              | p
//   LIMBS to 2·LIMBS  | R² mod n       | R² mod p, by `prepare`
//   2·LIMBS           | −1/n mod 2^32  | the same, by `prepare`
//   2·LIMBS + 1       | e              | d mod p − 1, LIMBS words
//   3·LIMBS + 1       |                | 1/q mod p; zeros in the row of q

// Computes out = R − n. This is R mod n, as n is above R/2.
void set_one(uint *out, const uint *n) {
    uint borrow = 0;
    EACH for (int i = 0; i < LIMBS; i++) out[i] = subtract_borrow(0, n[i], &borrow);
}

// Computes R² mod n and −1/n of each row. LIMBS doublings of R mod n make R·2^LIMBS, and five
// squarings R·2^(32·LIMBS).
__kernel void prepare(__global uint *keys, uint stride, uint count) {
    uint item = get_global_id(0);
    if (item >= count) return;
    __global uint *row = keys + (ulong)item * stride;
    uint n[LIMBS], a[LIMBS];
    load(n, row);
    // Each step doubles the number of right bits of 1/n, which are three at first.
    uint inverse = n[0];
    for (int i = 0; i < 4; i++) inverse *= 2 - n[0] * inverse;
    uint n0 = 0 - inverse;
    set_one(a, n);
    for (int i = 0; i < LIMBS; i++) add_mod(a, a, a, n);
    for (int i = 0; i < 5; i++) multiply(a, a, a, n, n0);
    store(row + LIMBS, a);
    row[2 * LIMBS] = n0;
}

// Computes s^e mod n for s < n and an odd e from 3, in variable time. The last product is with s
// itself, which leaves the Montgomery form.
__kernel void power(__global const uint *keys, uint stride, __global const uint *which,
                    __global const uint *inputs, __global uint *outputs, uint count) {
    uint item = get_global_id(0);
    if (item >= count) return;
    __global const uint *row = keys + (ulong)which[item] * stride;
    uint n[LIMBS], s[LIMBS], base[LIMBS], a[LIMBS];
    load(n, row);
    uint n0 = row[2 * LIMBS], e = row[2 * LIMBS + 1];
    load(s, inputs + (ulong)item * LIMBS);
    load(a, row + LIMBS);
    multiply(base, s, a, n, n0);
    copy(a, base);
    for (int bit = 30 - (int)clz(e); bit > 0; bit--) {
        multiply(a, a, a, n, n0);
        if (e >> bit & 1) multiply(a, a, base, n, n0);
    }
    multiply(a, a, a, n, n0);
    multiply(a, a, s, n, n0);
    store(outputs + (ulong)item * LIMBS, a);
}

// Number of entries of a table: windows have four bits.
#define ENTRIES 16

// Computes c^d modulo p in the even work items, and modulo q in the odd ones. The table of an item
// lies in `tables`, word by word beside those of the others. Every entry is read in each window.
__kernel void halves(__global const uint *keys, uint stride, __global const uint *which,
                     __global const uint *inputs, __global uint *tables, __global uint *powers,
                     uint count) {
    uint item = get_global_id(0);
    if (item >= count) return;
    ulong place = 2 * (ulong)which[item / 2] + item % 2;
    __global const uint *row = keys + place * stride;
    __global const uint *input = inputs + (ulong)(item / 2) * 2 * LIMBS;
    __global const uint *exponent = row + 2 * LIMBS + 1;
    uint n[LIMBS], a[LIMBS], base[LIMBS], entry[LIMBS];
    load(n, row);
    uint n0 = row[2 * LIMBS];

    // c = high·R + low, in Montgomery form: R² takes high to high·R, and c to c·R. The compiler
    // may write out each product that stands here, so few do.
    load(entry, row + LIMBS);
    EACH for (int i = 0; i < LIMBS; i++) base[i] = 0;
    for (int part = 1; part >= 0; part--) {
        load(a, input + part * LIMBS);
        reduce_once(a, 0, n);
        add_mod(base, base, a, n);
        multiply(base, base, entry, n, n0);
    }

    // The table: R, c·R, c²·R and so on.
    set_one(a, n);
    tables += item;
    for (int k = 0; k < ENTRIES; k++) {
        __global uint *place = tables + (ulong)k * LIMBS * count;
        for (int i = 0; i < LIMBS; i++, place += count) *place = a[i];
        multiply(a, a, base, n, n0);
    }

    // The last product, with 1, leaves the Montgomery form.
    set_one(a, n);
    for (int window = 8 * LIMBS - 1; window >= -1; window--) {
        set_word(entry, window < 0);
        if (window >= 0) {
            for (int i = 0; i < 4; i++) square(a, a, n, n0);
            uint digit = exponent[window / 8] >> (4 * (window % 8)) & (ENTRIES - 1);
            uint masks[ENTRIES];
            // The difference is from 0 to 15: minus one, only zero borrows.
            EACH for (uint k = 0; k < ENTRIES; k++) masks[k] = 0 - (((k ^ digit) - 1) >> 31);
            for (int i = 0; i < LIMBS; i++) {
                __global const uint *place = tables + (ulong)i * count;
                EACH for (int k = 0; k < ENTRIES; k++) {
                    entry[i] |= masks[k] & *place;
                    place += (ulong)LIMBS * count;
                }
            }
        }
        multiply(a, a, entry, n, n0);
    }
    store(powers + (ulong)item * LIMBS, a);
}

// Computes m_q + q·((m_p − m_q)·(1/q) mod p), from m_p and m_q in `powers`.
__kernel void recombine(__global const uint *keys, uint stride, __global const uint *which,
                        __global const uint *powers, __global uint *outputs, uint count) {
    uint item = get_global_id(0);
    if (item >= count) return;
    __global const uint *of_p = keys + 2 * (ulong)which[item] * stride;
    __global const uint *of_q = of_p + stride;
    __global const uint *m_p = powers + 2 * (ulong)item * LIMBS;
    __global const uint *m_q = m_p + LIMBS;
    __global uint *output = outputs + 2 * (ulong)item * LIMBS;
    uint n[LIMBS], a[LIMBS], b[LIMBS], sum[2 * LIMBS];
    load(n, of_p);
    uint n0 = of_p[2 * LIMBS];
    // m_q is below q, and so below 2p: both primes are above R/2.
    load(b, m_q);
    EACH for (int i = 0; i < LIMBS; i++) sum[i] = b[i];
    EACH for (int i = LIMBS; i < 2 * LIMBS; i++) sum[i] = 0;
    reduce_once(b, 0, n);
    load(a, m_p);
    subtract_mod(a, a, b, n);
    load(b, of_p + LIMBS);
    multiply(a, a, b, n, n0);
    load(b, of_p + 3 * LIMBS + 1);
    multiply(a, a, b, n, n0);
    // The sum is below p·q.
    for (int i = 0; i < LIMBS; i++) {
        uint carry = 0, factor = of_q[i];
        EACH for (int j = 0; j < LIMBS; j++) {
            sum[i + j] = multiply_add(a[j], factor, sum[i + j], &carry);
        }
        sum[i + LIMBS] = carry;
    }
    for (int i = 0; i < 2 * LIMBS; i++) output[i] = sum[i];
}
