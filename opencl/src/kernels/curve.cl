// What both curves share. LIMBS is 8, and POINT_WORDS the number of words of a point.

#define WORDS 8

void constant_copy(uint *out, __constant const uint *from) {
    EACH for (int i = 0; i < WORDS; i++) out[i] = from[i];
}

// Returns all ones for zero, no ones for other numbers.
uint zero_mask(const uint *a) {
    uint bits = 0;
    EACH for (int i = 0; i < WORDS; i++) bits |= a[i];
    return ((bits | (0 - bits)) >> 31) - 1;
}

// Tables have the multiples of a point, by windows of four bits. Those of all items lie side by
// side, word by word.
#define ENTRIES 16
#define ENTRY(entry, word) (((ulong)(entry) * POINT_WORDS + (word)) * items + item)

void write_entry(__global uint *table, ulong item, ulong items, uint entry, const uint *point) {
    for (int i = 0; i < POINT_WORDS; i++) table[ENTRY(entry, i)] = point[i];
}

void read_entry(uint *point, __global const uint *table, ulong item, ulong items, uint entry) {
    for (int i = 0; i < POINT_WORDS; i++) point[i] = table[ENTRY(entry, i)];
}
