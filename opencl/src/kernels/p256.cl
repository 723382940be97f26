// ECDSA on P-256: checks in variable time, since all that they see is public, and signatures, whose
// steps do not depend on secrets.

// p, the order n, R² modulo each, b, and the base point; the last three in Montgomery form.
__constant uint PRIME[WORDS] = {0xffffffff, 0xffffffff, 0xffffffff, 0, 0, 0, 1, 0xffffffff};
__constant uint PRIME_R2[WORDS] = {3, 0, 0xffffffff, 0xfffffffb,
                                   0xfffffffe, 0xffffffff, 0xfffffffd, 4};
__constant uint ORDER[WORDS] = {0xfc632551, 0xf3b9cac2, 0xa7179e84, 0xbce6faad,
                                0xffffffff, 0xffffffff, 0, 0xffffffff};
__constant uint ORDER_R2[WORDS] = {0xbe79eea2, 0x83244c95, 0x49bd6fa6, 0x4699799c,
                                   0x2b6bec59, 0x2845b239, 0xf3d95620, 0x66e12d94};
__constant uint CURVE_B[WORDS] = {0x29c4bddf, 0xd89cdf62, 0x78843090, 0xacf005cd,
                                  0xf7212ed6, 0xe5a220ab, 0x04874834, 0xdc30061d};
__constant uint BASE_X[WORDS] = {0x18a9143c, 0x79e730d4, 0x5fedb601, 0x75ba95fc,
                                 0x77622510, 0x79fb732b, 0xa53755c6, 0x18905f76};
__constant uint BASE_Y[WORDS] = {0xce95560a, 0xddf25357, 0xba19e45c, 0x8b4ab8e4,
                                 0xdd21f325, 0xd2e88688, 0x25885d85, 0x8571ff18};
#define PRIME_N0 1
#define ORDER_N0 0xee00bc4f

// Products, sums and differences modulo p.
void field_multiply(uint *out, const uint *a, const uint *b) {
    uint p[WORDS];
    constant_copy(p, PRIME);
    multiply(out, a, b, p, PRIME_N0);
}

void field_square(uint *out, const uint *a) {
    field_multiply(out, a, a);
}

void field_add(uint *out, const uint *a, const uint *b) {
    uint p[WORDS];
    constant_copy(p, PRIME);
    add_mod(out, a, b, p);
}

void field_subtract(uint *out, const uint *a, const uint *b) {
    uint p[WORDS];
    constant_copy(p, PRIME);
    subtract_mod(out, a, b, p);
}

bool is_zero(const uint *a) {
    return zero_mask(a);
}

bool is_equal(const uint *a, const uint *b) {
    uint bits = 0;
    EACH for (int i = 0; i < WORDS; i++) bits |= a[i] ^ b[i];
    return bits == 0;
}

// Returns whether a < b.
bool is_below(const uint *a, const uint *b) {
    uint borrow = 0;
    EACH for (int i = 0; i < WORDS; i++) subtract_borrow(a[i], b[i], &borrow);
    return borrow == 1;
}

// A point in Jacobian coordinates, in Montgomery form: x = X/Z², y = Y/Z³. Z is zero at infinity.
typedef struct {
    uint x[WORDS], y[WORDS], z[WORDS];
} Point;

// Computes p ← 2·p: dbl-2001-b of the Explicit-Formulas Database.
void point_double(Point *p) {
    uint alpha[WORDS], beta[WORDS], gamma[WORDS], delta[WORDS], a[WORDS];
    field_square(delta, p->z);
    field_square(gamma, p->y);
    field_multiply(beta, p->x, gamma);
    field_subtract(a, p->x, delta);
    field_add(alpha, p->x, delta);
    field_multiply(alpha, alpha, a);
    field_add(a, alpha, alpha);
    field_add(alpha, a, alpha);
    field_add(p->z, p->y, p->z);
    field_square(p->z, p->z);
    field_subtract(p->z, p->z, gamma);
    field_subtract(p->z, p->z, delta);
    field_add(beta, beta, beta);
    field_add(beta, beta, beta);
    field_square(p->x, alpha);
    field_subtract(p->x, p->x, beta);
    field_subtract(p->x, p->x, beta);
    field_square(gamma, gamma);
    field_add(gamma, gamma, gamma);
    field_add(gamma, gamma, gamma);
    field_add(gamma, gamma, gamma);
    field_subtract(a, beta, p->x);
    field_multiply(p->y, alpha, a);
    field_subtract(p->y, p->y, gamma);
}

// Computes p ← p + q, for all p and q.
void point_add(Point *p, const Point *q) {
    if (is_zero(q->z)) return;
    if (is_zero(p->z)) {
        *p = *q;
        return;
    }
    // u = X·Z'² and s = Y·Z'³ of each point, h and r their differences.
    uint own[WORDS], other[WORDS], u[WORDS], s[WORDS], h[WORDS], r[WORDS];
    field_square(own, p->z);
    field_square(other, q->z);
    field_multiply(u, p->x, other);
    field_multiply(h, q->x, own);
    field_subtract(h, h, u);
    field_multiply(s, p->y, q->z);
    field_multiply(s, s, other);
    field_multiply(r, q->y, p->z);
    field_multiply(r, r, own);
    field_subtract(r, r, s);
    if (is_zero(h)) {
        if (is_zero(r)) point_double(p);
        else set_word(p->z, 0);
        return;
    }
    field_multiply(p->z, p->z, q->z);
    field_multiply(p->z, p->z, h);
    field_square(own, h);
    field_multiply(u, u, own);
    field_multiply(own, own, h);
    field_multiply(s, s, own);
    field_square(p->x, r);
    field_subtract(p->x, p->x, own);
    field_subtract(p->x, p->x, u);
    field_subtract(p->x, p->x, u);
    field_subtract(u, u, p->x);
    field_multiply(p->y, r, u);
    field_subtract(p->y, p->y, s);
}

// Writes the multiples of p, from 0 on.
void write_table(__global uint *table, ulong item, ulong items, const Point *p) {
    Point sum = *p;
    set_word(sum.z, 0);
    for (uint entry = 0; entry < ENTRIES; entry++) {
        write_entry(table, item, items, entry, (const uint *)&sum);
        point_add(&sum, p);
    }
}

// Adds a multiple that a table has.
void add_multiple(Point *sum, __global const uint *table, ulong item, ulong items, uint digit) {
    Point other;
    if (digit == 0) return;
    read_entry((uint *)&other, table, item, items, digit);
    point_add(sum, &other);
}

// Puts a number into Montgomery form.
void to_field(uint *out, const uint *a) {
    uint r2[WORDS];
    constant_copy(r2, PRIME_R2);
    field_multiply(out, a, r2);
}

// Computes out = 1/a, and 0 for 0, in Montgomery form modulo the prime n: a^(n − 2). Branches depend
// on n alone, of which the lowest word is above 1.
void invert(uint *out, const uint *a, const uint *n, uint n0) {
    uint power[WORDS];
    copy(power, a);
    for (int bit = 254; bit >= 0; bit--) {
        multiply(power, power, power, n, n0);
        uint word = n[bit / 32] - (bit < 32 ? 2 : 0);
        if (word >> (bit % 32) & 1) multiply(power, power, a, n, n0);
    }
    copy(out, power);
}

// Returns the base point.
Point base_point(void) {
    Point base;
    constant_copy(base.x, BASE_X);
    constant_copy(base.y, BASE_Y);
    set_word(base.z, 1);
    to_field(base.z, base.z);
    return base;
}

// Writes the table of the base point.
__kernel void p256_base(__global uint *table) {
    if (get_global_id(0) > 0) return;
    Point base = base_point();
    write_table(table, 0, 1, &base);
}

// Checks signatures (FIPS 186-5, section 6.4.2). A row of `claims` has x and y of the key, r, s and
// the digest, eight words each. A verdict of 1 is yes; 0 is no, also for what is no key.
__kernel void p256_verify(__global const uint *claims, __global const uint *base,
                          __global uint *tables, __global uint *verdicts, uint count) {
    uint item = get_global_id(0);
    if (item >= count) return;
    __global const uint *claim = claims + (ulong)item * 5 * WORDS;
    verdicts[item] = 0;
    uint prime[WORDS], order[WORDS], a[WORDS], b[WORDS], r[WORDS], w[WORDS];
    constant_copy(prime, PRIME);
    constant_copy(order, ORDER);

    // The key is a point: x, y < p and y² = x³ − 3·x + b.
    Point point;
    load(point.x, claim);
    load(point.y, claim + WORDS);
    if (!is_below(point.x, prime) || !is_below(point.y, prime)) return;
    to_field(point.x, point.x);
    to_field(point.y, point.y);
    set_word(point.z, 1);
    to_field(point.z, point.z);
    field_square(a, point.x);
    for (int i = 0; i < 3; i++) field_subtract(a, a, point.z);
    field_multiply(a, a, point.x);
    constant_copy(b, CURVE_B);
    field_add(a, a, b);
    field_square(b, point.y);
    if (!is_equal(a, b)) return;

    // 0 < r, s < n.
    load(r, claim + 2 * WORDS);
    load(a, claim + 3 * WORDS);
    if (is_zero(r) || !is_below(r, order) || is_zero(a) || !is_below(a, order)) return;

    // w = 1/s.
    constant_copy(b, ORDER_R2);
    multiply(a, a, b, order, ORDER_N0);
    invert(w, a, order, ORDER_N0);
    // Factors of the base point and of the key: digest/s and r/s mod n.
    load(a, claim + 4 * WORDS);
    multiply(a, a, w, order, ORDER_N0);
    multiply(b, r, w, order, ORDER_N0);

    write_table(tables, item, count, &point);
    Point sum;
    EACH for (int i = 0; i < WORDS; i++) sum.x[i] = sum.y[i] = sum.z[i] = 0;
    for (int window = 8 * WORDS - 1; window >= 0; window--) {
        for (int i = 0; i < 4; i++) point_double(&sum);
        uint shift = 4 * (window % 8);
        add_multiple(&sum, base, 0, 1, a[window / 8] >> shift & 15);
        add_multiple(&sum, tables, item, count, b[window / 8] >> shift & 15);
    }
    if (is_zero(sum.z)) return;

    // x mod n = r: x is r, or r + n if that is below p.
    field_square(w, sum.z);
    to_field(a, r);
    field_multiply(a, a, w);
    uint is_right = is_equal(a, sum.x), carry = 0;
    for (int i = 0; i < WORDS; i++) r[i] = add_carry(r[i], order[i], &carry);
    if (carry == 0 && is_below(r, prime)) {
        to_field(a, r);
        field_multiply(a, a, w);
        is_right |= is_equal(a, sum.x);
    }
    verdicts[item] = is_right;
}

// Signatures. k·G is a comb of four tables with four teeth: bit 64·t + 16·j + m of k is tooth t of
// table j in round m, which has a doubling and an addition from each table.
#define TEETH 4
#define COMBS 4
#define ROUNDS 16

// Writes x and y of the sums of 2^(64·t + 16·j)·G over the teeth t of each entry of table j. An item
// computes one of them.
__kernel void p256_comb(__global uint *table) {
    uint item = get_global_id(0);
    if (item >= COMBS * ENTRIES) return;
    Point step = base_point(), sum = step;
    set_word(sum.z, 0);
    for (uint bit = 0; bit < 256; bit++) {
        bool is_tooth = bit % 64 == ROUNDS * (item / ENTRIES);
        if (is_tooth && item >> bit / 64 & 1) point_add(&sum, &step);
        point_double(&step);
    }
    uint prime[WORDS], a[WORDS], b[WORDS];
    constant_copy(prime, PRIME);
    invert(a, sum.z, prime, PRIME_N0);
    field_square(b, a);
    field_multiply(sum.x, sum.x, b);
    field_multiply(b, b, a);
    field_multiply(sum.y, sum.y, b);
    for (int i = 0; i < WORDS; i++) {
        table[item * 2 * WORDS + i] = sum.x[i];
        table[item * 2 * WORDS + WORDS + i] = sum.y[i];
    }
}

// Computes p ← p + (x, y) where the mask has ones, for p other than ±(x, y). No step depends on a
// value.
void point_add_masked(Point *p, const uint *x, const uint *y, uint mask) {
    uint h[WORDS], r[WORDS], u[WORDS], s[WORDS];
    Point sum;
    field_square(u, p->z);
    field_multiply(h, x, u);
    field_subtract(h, h, p->x);
    field_multiply(r, u, p->z);
    field_multiply(r, r, y);
    field_subtract(r, r, p->y);
    field_multiply(sum.z, p->z, h);
    field_square(s, h);
    field_multiply(u, p->x, s);
    field_multiply(s, s, h);
    field_square(sum.x, r);
    field_subtract(sum.x, sum.x, s);
    field_subtract(sum.x, sum.x, u);
    field_subtract(sum.x, sum.x, u);
    field_subtract(u, u, sum.x);
    field_multiply(sum.y, r, u);
    field_multiply(s, s, p->y);
    field_subtract(sum.y, sum.y, s);
    uint infinity = zero_mask(p->z);
    set_word(u, 1);
    to_field(u, u);
    EACH for (int i = 0; i < WORDS; i++) {
        p->x[i] = choose(mask, choose(infinity, x[i], sum.x[i]), p->x[i]);
        p->y[i] = choose(mask, choose(infinity, y[i], sum.y[i]), p->y[i]);
        p->z[i] = choose(mask, choose(infinity, u[i], sum.z[i]), p->z[i]);
    }
}

// Signs digests (FIPS 186-5, section 6.4.1). A row of `inputs` has a nonce of sixteen words, which
// is taken modulo n, the secret key and the digest. A signature is r and s, or zeros for a key, a
// nonce or a result that is out of range. No step depends on a value; `comb` is read whole.
//
// A sum of the comb never meets the entry that is added, or minus that: their bits of k lie at other
// places, and both numbers together are below n.
__kernel void p256_sign(__global const uint *inputs, __constant const uint *comb,
                        __global uint *signatures, uint count) {
    uint item = get_global_id(0);
    if (item >= count) return;
    __global const uint *input = inputs + (ulong)item * 4 * WORDS;
    uint prime[WORDS], order[WORDS], r2[WORDS], one[WORDS], k[WORDS], a[WORDS], b[WORDS];
    constant_copy(prime, PRIME);
    constant_copy(order, ORDER);
    constant_copy(r2, ORDER_R2);
    set_word(one, 1);

    // k = high·R + low mod n.
    load(k, input + WORDS);
    multiply(k, k, r2, order, ORDER_N0);
    load(a, input);
    multiply(a, a, r2, order, ORDER_N0);
    multiply(a, a, one, order, ORDER_N0);
    add_mod(k, k, a, order);

    Point sum;
    EACH for (int i = 0; i < WORDS; i++) sum.x[i] = sum.y[i] = sum.z[i] = 0;
    for (int round = ROUNDS - 1; round >= 0; round--) {
        point_double(&sum);
        for (uint j = 0; j < COMBS; j++) {
            uint bit = ROUNDS * j + round, digit = 0;
            EACH for (uint t = 0; t < TEETH; t++) {
                uint word = choose(0 - (bit / 32), k[2 * t + 1], k[2 * t]);
                digit |= (word >> (bit % 32) & 1) << t;
            }
            EACH for (int i = 0; i < WORDS; i++) a[i] = b[i] = 0;
            for (uint entry = 1; entry < ENTRIES; entry++) {
                __constant const uint *point = comb + (j * ENTRIES + entry) * 2 * WORDS;
                // The difference is from 0 to 15: minus one, only zero borrows.
                uint mask = 0 - (((entry ^ digit) - 1) >> 31);
                EACH for (int i = 0; i < WORDS; i++) {
                    a[i] |= mask & point[i];
                    b[i] |= mask & point[WORDS + i];
                }
            }
            point_add_masked(&sum, a, b, 0 - ((0 - digit) >> 31));
        }
    }

    // r = x mod n, with x = X/Z² below p, and so below 2n.
    uint r[WORDS], s[WORDS];
    invert(a, sum.z, prime, PRIME_N0);
    field_square(a, a);
    field_multiply(r, sum.x, a);
    field_multiply(r, r, one);
    reduce_once(r, 0, order);
    // s = (digest + r·d)/k.
    uint bad = zero_mask(k) | zero_mask(r), borrow = 0;
    multiply(k, k, r2, order, ORDER_N0);
    invert(k, k, order, ORDER_N0);
    load(a, input + 2 * WORDS);
    bad |= zero_mask(a);
    for (int i = 0; i < WORDS; i++) subtract_borrow(a[i], order[i], &borrow);
    bad |= borrow - 1;
    multiply(a, a, r2, order, ORDER_N0);
    multiply(s, a, r, order, ORDER_N0);
    load(a, input + 3 * WORDS);
    reduce_once(a, 0, order);
    add_mod(s, s, a, order);
    multiply(s, s, k, order, ORDER_N0);
    bad |= zero_mask(s);
    EACH for (int i = 0; i < WORDS; i++) {
        signatures[(ulong)item * 2 * WORDS + i] = r[i] & ~bad;
        signatures[(ulong)item * 2 * WORDS + WORDS + i] = s[i] & ~bad;
    }
}
