/* Passes over the words of a draw, four at a time: with instructions that every CPU has, because gcc makes no such code
 * of the loops of draw.pxi, which says what they are for. Powers are at least 0. */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { FOUR = 4 };
typedef float four_floats __attribute__((vector_size(16)));
typedef int32_t four_ints __attribute__((vector_size(16)));
typedef int64_t two_longs __attribute__((vector_size(16)));
typedef double four_doubles __attribute__((vector_size(32)));

static inline four_floats four_at(const float *p) {
    four_floats x;
    memcpy(&x, p, sizeof x);
    return x;
}

/* Return a power, rounded to the last bit of the grid, which is 1.5 times a power of two. */
static inline double on_grid(float power, double grid) { return (power + grid) - grid; }

/* Return the sum of the rounded powers of the words above a bar. */
static inline double sum_on_grid(const float *values, const float *powers, ptrdiff_t n, float bar, double grid) {
    four_doubles sums = {0};
    double rest = 0;
    ptrdiff_t i = 0, whole = n / FOUR * FOUR;
    for (; i < whole; i += FOUR) {
        four_floats kept = (four_floats)((four_ints)four_at(powers + i) & (four_at(values + i) > bar));
        sums += (__builtin_convertvector(kept, four_doubles) + grid) - grid;
    }
    for (; i < n; i++) rest += on_grid(values[i] > bar ? powers[i] : 0, grid);
    return (sums[0] + sums[1]) + (sums[2] + sums[3]) + rest;
}

/* Return the first place from i on whose number is in (low, high]; n if there is none. */
static inline ptrdiff_t place_between(const float *values, ptrdiff_t i, ptrdiff_t n, float low, float high) {
    for (; i + FOUR <= n; i += FOUR) {
        four_floats x = four_at(values + i);
        two_longs found = (two_longs)((x > low) & (x <= high));
        if (found[0] | found[1]) break;
    }
    while (i < n && !(values[i] > low && values[i] <= high)) i++;
    return i;
}

/* Keep the powers of the words that are at least `least`, and above the bar or as high as it with an id up to `last`;
 * make all others 0. */
static inline void keep_from(const float *values, const int *ids, ptrdiff_t n, float bar, int last, float least,
                             float *powers) {
    ptrdiff_t i = 0, whole = n / FOUR * FOUR;
    for (; i < whole; i += FOUR) {
        four_floats x = four_at(values + i);
        four_ints id, power;
        memcpy(&id, ids + i, sizeof id);
        memcpy(&power, powers + i, sizeof power);
        power &= ((x > bar) | ((x == bar) & (id <= last))) & (x >= least);
        memcpy(powers + i, &power, sizeof power);
    }
    for (; i < n; i++)
        if (!((values[i] > bar || (values[i] == bar && ids[i] <= last)) && values[i] >= least)) powers[i] = 0;
}
