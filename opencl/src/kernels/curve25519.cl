// X25519 and Ed25519.
//
// Coordinates are numbers below 2^256, not always below p = 2^255 − 19: what carries out of the top
// counts 38, as 2^256 = 38 mod p.

// Computes a ← a + 38·carry, for a carry below 2^26.
void fold(uint *a, uint carry) {
    carry *= 38;
    EACH for (int i = 0; i < WORDS; i++) a[i] = add_carry(a[i], 0, &carry);
    // After another carry a is small.
    a[0] += 38 * carry;
}

void field_multiply(uint *out, const uint *a, const uint *b) {
    uint sum[2 * WORDS], carry;
    EACH for (int i = 0; i < 2 * WORDS; i++) sum[i] = 0;
    EACH for (int i = 0; i < WORDS; i++) {
        carry = 0;
        EACH for (int j = 0; j < WORDS; j++) {
            sum[i + j] = multiply_add(a[i], b[j], sum[i + j], &carry);
        }
        sum[i + WORDS] = carry;
    }
    carry = 0;
    EACH for (int i = 0; i < WORDS; i++) {
        out[i] = multiply_add(sum[i + WORDS], 38, sum[i], &carry);
    }
    fold(out, carry);
}

void field_square(uint *out, const uint *a) {
    field_multiply(out, a, a);
}

void field_add(uint *out, const uint *a, const uint *b) {
    uint carry = 0;
    EACH for (int i = 0; i < WORDS; i++) out[i] = add_carry(a[i], b[i], &carry);
    fold(out, carry);
}

void field_subtract(uint *out, const uint *a, const uint *b) {
    uint borrow = 0;
    EACH for (int i = 0; i < WORDS; i++) out[i] = subtract_borrow(a[i], b[i], &borrow);
    // What is borrowed counts 38, too; after another borrow the number is large.
    uint again = 0;
    out[0] = subtract_borrow(out[0], 38 * borrow, &again);
    EACH for (int i = 1; i < WORDS; i++) out[i] = subtract_borrow(out[i], 0, &again);
    out[0] -= 38 * again;
}

void field_small(uint *out, const uint *a, uint factor) {
    uint carry = 0;
    EACH for (int i = 0; i < WORDS; i++) out[i] = multiply_add(a[i], factor, 0, &carry);
    fold(out, carry);
}

// Computes a mod p, below p.
void field_freeze(uint *a) {
    uint carry = 19 * (a[WORDS - 1] >> 31);
    a[WORDS - 1] &= 0x7fffffff;
    EACH for (int i = 0; i < WORDS; i++) a[i] = add_carry(a[i], 0, &carry);
    // Below 2^255 + 19: a + 19 reaches 2^255 if a reaches p.
    uint sum[WORDS];
    carry = 19;
    EACH for (int i = 0; i < WORDS; i++) sum[i] = add_carry(a[i], 0, &carry);
    uint mask = 0 - (sum[WORDS - 1] >> 31);
    sum[WORDS - 1] &= 0x7fffffff;
    EACH for (int i = 0; i < WORDS; i++) a[i] = choose(mask, sum[i], a[i]);
}

// Computes out = a^(2^count).
void field_squares(uint *out, const uint *a, int count) {
    copy(out, a);
    for (int i = 0; i < count; i++) field_square(out, out);
}

// Computes out = a^(2^252 − 4), and eleventh = a^11. `out` is another number than `a`.
void field_power(uint *out, uint *eleventh, const uint *a) {
    uint b[WORDS], c[WORDS];
    field_square(b, a);
    field_squares(c, b, 2);
    field_multiply(c, c, a);
    field_multiply(eleventh, c, b);
    field_square(b, eleventh);
    field_multiply(out, b, c);
    // out = a^(2^5 − 1), then exponents 2^10 − 1, 2^20 − 1, 2^40 − 1 and 2^50 − 1.
    field_squares(b, out, 5);
    field_multiply(out, b, out);
    field_squares(b, out, 10);
    field_multiply(b, b, out);
    field_squares(c, b, 20);
    field_multiply(b, c, b);
    field_squares(b, b, 10);
    field_multiply(out, b, out);
    // 2^100 − 1, 2^200 − 1 and 2^250 − 1.
    field_squares(b, out, 50);
    field_multiply(b, b, out);
    field_squares(c, b, 100);
    field_multiply(b, c, b);
    field_squares(b, b, 50);
    field_multiply(b, b, out);
    field_squares(out, b, 2);
}

// Computes out = 1/a, and 0 for 0: a^(2^255 − 21).
void field_invert(uint *out, const uint *a) {
    uint b[WORDS], eleventh[WORDS];
    field_power(b, eleventh, a);
    field_squares(b, b, 3);
    field_multiply(out, b, eleventh);
}

// Swaps a and b if the mask has ones.
void field_swap(uint mask, uint *a, uint *b) {
    EACH for (int i = 0; i < WORDS; i++) {
        uint difference = mask & (a[i] ^ b[i]);
        a[i] ^= difference;
        b[i] ^= difference;
    }
}

// Agrees on secrets by X25519 (RFC 7748, section 5). A row of `keys` has a secret key and the peer's
// public key. A secret of zeros is the caller's to refuse.
__kernel void x25519(__global const uint *keys, __global uint *shared, uint count) {
    uint item = get_global_id(0);
    if (item >= count) return;
    uint k[WORDS], u[WORDS], x2[WORDS], z2[WORDS], x3[WORDS], z3[WORDS];
    uint a[WORDS], b[WORDS], c[WORDS], d[WORDS];
    load(k, keys + (ulong)item * 2 * WORDS);
    load(u, keys + (ulong)item * 2 * WORDS + WORDS);
    k[0] &= 0xfffffff8;
    k[WORDS - 1] = (k[WORDS - 1] & 0x7fffffff) | 0x40000000;
    u[WORDS - 1] &= 0x7fffffff;
    EACH for (int i = 0; i < WORDS; i++) x2[i] = z2[i] = z3[i] = 0;
    x2[0] = z3[0] = 1;
    copy(x3, u);
    uint swapped = 0;
    for (int word = WORDS - 1; word >= 0; word--) {
        uint bits = 0;
        EACH for (int i = 0; i < WORDS; i++) bits |= i == word ? k[i] : 0;
        for (int bit = 31; bit >= 0; bit--) {
            uint own = bits >> bit & 1;
            uint mask = 0 - (swapped ^ own);
            swapped = own;
            field_swap(mask, x2, x3);
            field_swap(mask, z2, z3);
            field_add(a, x2, z2);
            field_subtract(b, x2, z2);
            field_add(c, x3, z3);
            field_subtract(d, x3, z3);
            field_multiply(d, d, a);
            field_multiply(c, c, b);
            field_add(x3, d, c);
            field_square(x3, x3);
            field_subtract(z3, d, c);
            field_square(z3, z3);
            field_multiply(z3, z3, u);
            field_square(a, a);
            field_square(b, b);
            field_multiply(x2, a, b);
            field_subtract(c, a, b);
            field_small(d, c, 121665);
            field_add(d, d, a);
            field_multiply(z2, c, d);
        }
    }
    field_swap(0 - swapped, x2, x3);
    field_swap(0 - swapped, z2, z3);
    field_invert(a, z2);
    field_multiply(a, a, x2);
    field_freeze(a);
    EACH for (int i = 0; i < WORDS; i++) shared[(ulong)item * WORDS + i] = a[i];
}

// Ed25519. All that follows is public, and in variable time.

// d, 2·d, a root of −1, the base point, the order L of the group, and R² mod L.
__constant uint D[WORDS] = {0x135978a3, 0x75eb4dca, 0x4141d8ab, 0x00700a4d,
                            0x7779e898, 0x8cc74079, 0x2b6ffe73, 0x52036cee};
__constant uint TWICE_D[WORDS] = {0x26b2f159, 0xebd69b94, 0x8283b156, 0x00e0149a,
                                  0xeef3d130, 0x198e80f2, 0x56dffce7, 0x2406d9dc};
__constant uint ROOT[WORDS] = {0x4a0ea0b0, 0xc4ee1b27, 0xad2fe478, 0x2f431806,
                               0x3dfbd7a7, 0x2b4d0099, 0x4fc1df0b, 0x2b832480};
__constant uint BASE_X[WORDS] = {0x8f25d51a, 0xc9562d60, 0x9525a7b2, 0x692cc760,
                                 0xfdd6dc5c, 0xc0a4e231, 0xcd6e53fe, 0x216936d3};
__constant uint BASE_Y[WORDS] = {0x66666658, 0x66666666, 0x66666666, 0x66666666,
                                 0x66666666, 0x66666666, 0x66666666, 0x66666666};
__constant uint ORDER[WORDS] = {0x5cf5d3ed, 0x5812631a, 0xa2f79cd6, 0x14def9de, 0, 0, 0,
                                0x10000000};
__constant uint ORDER_R2[WORDS] = {0x449c0f01, 0xa40611e3, 0x68859347, 0xd00e1ba7,
                                   0x17f5be65, 0xceec73d2, 0x7c309a3d, 0x0399411b};
#define ORDER_N0 0x12547e1b

// A point in extended coordinates: X, Y, Z and T with x = X/Z, y = Y/Z and x·y = T/Z. In a table
// there are Y − X, Y + X, 2·Z and 2·d·T.
typedef struct {
    uint x[WORDS], y[WORDS], z[WORDS], t[WORDS];
} Point;

// Computes p ← 2·p: dbl-2008-hwcd of the Explicit-Formulas Database.
void point_double(Point *p) {
    uint a[WORDS], b[WORDS], c[WORDS], e[WORDS], f[WORDS], g[WORDS], h[WORDS];
    field_square(a, p->x);
    field_square(b, p->y);
    field_square(c, p->z);
    field_add(c, c, c);
    field_add(e, p->x, p->y);
    field_square(e, e);
    field_add(h, a, b);
    field_subtract(e, e, h);
    field_subtract(g, b, a);
    field_subtract(f, g, c);
    set_word(a, 0);
    field_subtract(h, a, h);
    field_multiply(p->x, e, f);
    field_multiply(p->y, g, h);
    field_multiply(p->t, e, h);
    field_multiply(p->z, f, g);
}

// Computes p ← p + q, for q as in a table: add-2008-hwcd-3, which is complete.
void point_add(Point *p, const Point *q) {
    uint a[WORDS], b[WORDS], c[WORDS], d[WORDS], e[WORDS], h[WORDS];
    field_subtract(a, p->y, p->x);
    field_multiply(a, a, q->x);
    field_add(b, p->y, p->x);
    field_multiply(b, b, q->y);
    field_multiply(c, p->t, q->t);
    field_multiply(d, p->z, q->z);
    field_subtract(e, b, a);
    field_add(h, b, a);
    field_subtract(a, d, c);
    field_add(b, d, c);
    field_multiply(p->x, e, a);
    field_multiply(p->y, b, h);
    field_multiply(p->t, e, h);
    field_multiply(p->z, a, b);
}

void point_neutral(Point *p) {
    EACH for (int i = 0; i < WORDS; i++) p->x[i] = p->y[i] = p->z[i] = p->t[i] = 0;
    p->y[0] = p->z[0] = 1;
}

// Returns p as in a table.
Point point_cached(const Point *p) {
    Point out;
    uint twice_d[WORDS];
    constant_copy(twice_d, TWICE_D);
    field_subtract(out.x, p->y, p->x);
    field_add(out.y, p->y, p->x);
    field_add(out.z, p->z, p->z);
    field_multiply(out.t, p->t, twice_d);
    return out;
}

// Writes the multiples of p, from 0 on.
void write_table(__global uint *table, ulong item, ulong items, const Point *p) {
    Point step = point_cached(p), sum;
    point_neutral(&sum);
    for (uint entry = 0; entry < ENTRIES; entry++) {
        Point cached = point_cached(&sum);
        write_entry(table, item, items, entry, (const uint *)&cached);
        point_add(&sum, &step);
    }
}

// Adds a multiple that a table has.
void add_multiple(Point *sum, __global const uint *table, ulong item, ulong items, uint entry) {
    Point cached;
    read_entry((uint *)&cached, table, item, items, entry);
    point_add(sum, &cached);
}

// Writes the table of the base point.
__kernel void ed25519_base(__global uint *table) {
    if (get_global_id(0) > 0) return;
    Point base;
    constant_copy(base.x, BASE_X);
    constant_copy(base.y, BASE_Y);
    set_word(base.z, 1);
    field_multiply(base.t, base.x, base.y);
    write_table(table, 0, 1, &base);
}

// Returns whether both are equal mod p.
bool field_equal(const uint *a, const uint *b) {
    uint difference[WORDS];
    field_subtract(difference, a, b);
    field_freeze(difference);
    return zero_mask(difference);
}

// Computes −A from its encoding, whose y need not be below p (RFC 8032, section 5.1.3); returns
// whether it is a point.
bool minus_point(Point *p, __global const uint *encoding) {
    uint u[WORDS], v[WORDS], w[WORDS], other[WORDS], factor[WORDS];
    load(p->y, encoding);
    uint sign = p->y[WORDS - 1] >> 31;
    p->y[WORDS - 1] &= 0x7fffffff;
    set_word(p->z, 1);
    // x² = u/v with u = y² − 1 and v = d·y² + 1. The root is u·v³·(u·v⁷)^((p − 5)/8), or that
    // times a root of −1.
    field_square(u, p->y);
    constant_copy(factor, D);
    field_multiply(v, u, factor);
    field_subtract(u, u, p->z);
    field_add(v, v, p->z);
    field_square(w, v);
    field_multiply(w, w, v);
    field_multiply(other, w, u);
    field_square(w, w);
    field_multiply(w, w, v);
    field_multiply(w, w, u);
    // (p − 5)/8 = 2^252 − 3.
    uint power[WORDS], eleventh[WORDS];
    field_power(power, eleventh, w);
    field_multiply(power, power, w);
    field_multiply(p->x, power, other);
    field_square(w, p->x);
    field_multiply(w, w, v);
    if (!field_equal(w, u)) {
        constant_copy(factor, ROOT);
        field_multiply(p->x, p->x, factor);
        field_square(w, p->x);
        field_multiply(w, w, v);
        if (!field_equal(w, u)) return false;
    }
    field_freeze(p->x);
    if ((p->x[0] & 1) == sign) {
        set_word(w, 0);
        field_subtract(p->x, w, p->x);
    }
    field_multiply(p->t, p->x, p->y);
    return true;
}

// Checks signatures without cofactor: whether the encoding of S·B − k·A is R. A row of `claims` has
// A, R and S, eight words each, and the hash k, sixteen words. A verdict of 1 is yes, of 0 no.
__kernel void ed25519_verify(__global const uint *claims, __global const uint *base,
                             __global uint *tables, __global uint *verdicts, uint count) {
    uint item = get_global_id(0);
    if (item >= count) return;
    __global const uint *claim = claims + (ulong)item * 5 * WORDS;
    verdicts[item] = 0;
    uint order[WORDS], r2[WORDS], s[WORDS], k[WORDS], a[WORDS];
    constant_copy(order, ORDER);
    constant_copy(r2, ORDER_R2);
    load(s, claim + 2 * WORDS);
    uint borrow = 0;
    for (int i = 0; i < WORDS; i++) subtract_borrow(s[i], order[i], &borrow);
    if (borrow == 0) return;
    // k = high·R + low mod L.
    load(a, claim + 4 * WORDS);
    multiply(k, a, r2, order, ORDER_N0);
    load(a, claim + 3 * WORDS);
    multiply(a, a, r2, order, ORDER_N0);
    uint one[WORDS];
    set_word(one, 1);
    multiply(a, a, one, order, ORDER_N0);
    add_mod(k, k, a, order);

    Point point;
    if (!minus_point(&point, claim)) return;
    write_table(tables, item, count, &point);
    point_neutral(&point);
    for (int window = 8 * WORDS - 1; window >= 0; window--) {
        for (int i = 0; i < 4; i++) point_double(&point);
        uint shift = 4 * (window % 8);
        add_multiple(&point, tables, item, count, k[window / 8] >> shift & (ENTRIES - 1));
        add_multiple(&point, base, 0, 1, s[window / 8] >> shift & (ENTRIES - 1));
    }
    field_invert(a, point.z);
    field_multiply(k, point.x, a);
    field_multiply(s, point.y, a);
    field_freeze(k);
    field_freeze(s);
    s[WORDS - 1] |= k[0] << 31;
    uint bits = 0;
    for (int i = 0; i < WORDS; i++) bits |= s[i] ^ claim[WORDS + i];
    verdicts[item] = bits == 0;
}
