/* The search for 4-bit weights of one row; engine/weights/int4.py has the formula and the bytes of a block.
 *
 * For the scales of the row, each group chooses the multiplier, the offset and the codes with the least squared error
 * among several widths: what part of the range of its weights the 16 steps cover, so that weights at the ends may be
 * cut. Then the row chooses the scale of least squares for these codes, and the groups choose again.
 *
 * Four groups are searched at a time, one in each lane. No multiplication is fused with an addition, and the compiler
 * may reorder no sum, so the bytes are the same on every CPU. */

#include <math.h>
#include <stddef.h>

enum { GROUP = 16, LANES = 4, BLOCK = 32, BLOCK_BYTES = 19 }; /* weights of a group; groups at a time; of a block */

static const float TOP_Q = 15, TOP_M = 15, TOP_OFFSET = 127; /* the largest code, multiplier and offset */

typedef float lanes __attribute__((vector_size(16)));
typedef int mask __attribute__((vector_size(16)));

/* Four groups of a row: what is searched, and the best so far. */
typedef struct {
    lanes x[GROUP];         /* the weights, divided by the largest of the row */
    lanes weight[GROUP];    /* how much the squared error of each counts */
    lanes total;            /* the sum of `weight` */
    lanes low, high;        /* the range of x */
    lanes error;            /* the least weighted sum of squared errors so far, and what gives it: */
    lanes m, o, q[GROUP];   /* x is about scale m q + offset_scale o: multiplier, offset, and codes 0 to 15 */
} int4_groups;

#define INLINE static inline __attribute__((always_inline))

/* Whole numbers nearest to |x| < 2^22, half to even: floats near 1.5 * 2^23 have no fraction. rintf would be a call. */
INLINE lanes nearest(lanes x) { return (x + 12582912.0f) - 12582912.0f; }

/* In each lane, x where `where` is set, otherwise y. */
INLINE lanes choose(mask where, lanes x, lanes y) { return (lanes)((where & (mask)x) | (~where & (mask)y)); }

INLINE lanes all(float x) { return (lanes){x, x, x, x}; }

INLINE lanes limited(lanes x, float least, float most) {
    x = choose(x > least, x, all(least));
    return choose(x < most, x, all(most));
}

/* The codes of x, from 0 to TOP_Q: the nearest step above the offset. inverse: of the step. */
INLINE lanes code_of(lanes x, lanes offset, lanes inverse) {
    x = (x - offset) * inverse;
    x = (lanes)((x > 0) & (mask)x);
    return nearest(choose(x < TOP_Q, x, all(TOP_Q)));
}

/* Try one width, and keep it in the lanes where its error is the least so far.
 *
 * The step follows from the width. A first offset centres the 16 steps on the range. The second is that of least
 * squares for the codes of the first, sum weight (x - step code) / sum weight; codes and error follow from it. */
INLINE void try_width(int4_groups *g, float width, float scale, float offset_scale) {
    lanes q[GROUP], residual, o, offset, error = all(0), sum = all(0);
    lanes m = nearest(limited((g->high - g->low) * (width / TOP_Q / scale), 1, TOP_M)), step = scale * m;
    lanes inverse = 1 / step;       /* of the step */
    float inverse_offset_scale = 1 / offset_scale;
    mask better;
    lanes centre = (g->high + g->low) / 2;
    o = nearest(limited((centre - TOP_Q / 2 * step) * inverse_offset_scale, -TOP_OFFSET, TOP_OFFSET));
    offset = o * offset_scale;
    for (int k = 0; k < GROUP; k++) sum += g->weight[k] * (g->x[k] - step * code_of(g->x[k], offset, inverse));
    o = nearest(limited(sum / g->total * inverse_offset_scale, -TOP_OFFSET, TOP_OFFSET));
    offset = o * offset_scale;
    for (int k = 0; k < GROUP; k++) {
        q[k] = code_of(g->x[k], offset, inverse);
        residual = step * q[k] + offset - g->x[k];
        error += g->weight[k] * residual * residual;
    }
    better = error < g->error;
    g->error = choose(better, error, g->error);
    g->m = choose(better, m, g->m);
    g->o = choose(better, o, g->o);
    for (int k = 0; k < GROUP; k++) g->q[k] = choose(better, q[k], g->q[k]);
}

static const double LEAST_SCALE = 1e-30;

/* The scale of least squares for the codes of all groups, sum weight m q (x - offset_scale o) / sum weight (m q)^2; the
 * present one where that is not above LEAST_SCALE, as where all codes are 0. */
static float best_scale(const int4_groups *groups, ptrdiff_t count, float scale, float offset_scale) {
    double numerator = 0, denominator = 0;
    for (ptrdiff_t i = 0; i < count; i++) {
        const int4_groups *g = groups + i;
        lanes above = all(0), below = all(0);
        for (int k = 0; k < GROUP; k++) {
            lanes code = g->m * g->q[k], weighted = g->weight[k] * code;
            above += weighted * (g->x[k] - g->o * offset_scale);
            below += weighted * code;
        }
        for (int j = 0; j < LANES; j++) numerator += above[j], denominator += below[j];
    }
    if (denominator > 0 && numerator / denominator > LEAST_SCALE) return (float)(numerator / denominator);
    return scale;
}

/* Put weight k of group i of a row; a group that the row does not have gets zeros, which count nothing. */
INLINE void put_weight(int4_groups *groups, ptrdiff_t i, int k, float x, float importance) {
    groups[i / LANES].x[k][i % LANES] = x;
    groups[i / LANES].weight[k][i % LANES] = importance;
}

/* Prepare the groups of a row; the last block of a head is filled with copies of the head's last weight. Return the
 * largest magnitude, or NAN if a weight is not finite. */
static float load_groups(const float *w, ptrdiff_t heads, ptrdiff_t width, const float *importance, int4_groups *groups,
                         ptrdiff_t count) {
    ptrdiff_t padded = (width + BLOCK - 1) / BLOCK * BLOCK, of_row = heads * padded / GROUP, i;
    float largest = 0, probe = 0, inverse; /* probe: stays 0 unless a weight is NaN or infinite */
    for (i = 0; i < heads * width; i++) {
        largest = fabsf(w[i]) > largest ? fabsf(w[i]) : largest;
        probe += w[i] * 0;
    }
    if (probe != 0) return NAN;
    inverse = largest > 1e-30f ? 1 / largest : 0;
    for (i = 0; i < count * LANES; i++)
        for (int k = 0; k < GROUP; k++) {
            ptrdiff_t in_head = i * GROUP % padded + k, at = i * GROUP / padded * width;
            at += in_head < width ? in_head : width - 1;
            if (i < of_row)
                put_weight(groups, i, k, w[at] * inverse, importance == NULL ? 1 : importance[at]);
            else
                put_weight(groups, i, k, 0, 0);
        }
    for (i = 0; i < count; i++) {
        int4_groups *g = groups + i;
        lanes mean = all(0);
        for (int k = 0; k < GROUP; k++) mean += g->x[k] * g->x[k] * (1.0f / GROUP);
        g->low = g->high = g->x[0];
        g->total = all(1e-30f); /* above 0, because a sum is divided by it */
        for (int k = 0; k < GROUP; k++) {
            g->weight[k] *= g->x[k] * g->x[k] + mean; /* the errors of larger weights count more */
            g->total += g->weight[k];
            g->low = choose(g->x[k] < g->low, g->x[k], g->low);
            g->high = choose(g->x[k] > g->high, g->x[k], g->high);
        }
    }
    return largest;
}

/* Store two groups a block: codes of weights k and k + 1 in a byte, both multipliers in a byte, and the two offsets. */
static void store_blocks(const int4_groups *groups, ptrdiff_t blocks, unsigned char *out) {
    for (ptrdiff_t i = 0; i < blocks; i++, out += BLOCK_BYTES) {
        const int4_groups *g = groups + 2 * i / LANES;
        int first = (int)(2 * i % LANES);
        for (int k = 0; k < BLOCK; k += 2)
            out[k / 2] = (unsigned char)((int)g->q[k % GROUP][first + k / GROUP]
                                         | (int)g->q[k % GROUP + 1][first + k / GROUP] << 4);
        out[16] = (unsigned char)((int)g->m[first] | (int)g->m[first + 1] << 4);
        out[17] = (unsigned char)(signed char)g->o[first];
        out[18] = (unsigned char)(signed char)g->o[first + 1];
    }
}

/* Return how many int4_groups a row takes. */
static ptrdiff_t int4_count(ptrdiff_t heads, ptrdiff_t width) {
    return (heads * ((width + BLOCK - 1) / BLOCK) * (BLOCK / GROUP) + LANES - 1) / LANES;
}

/* Quantize one row of heads * width weights. importance [heads*width] or NULL. widths: what is tried in each of the
 * `rounds`. groups: scratch. out: the row's blocks. scales: two. Return 0 for a row that holds NaN or infinity. */
static int int4_search_row(const float *w, ptrdiff_t heads, ptrdiff_t width, const float *importance,
                           const float *widths, int widths_count, int rounds, int4_groups *groups, unsigned char *out,
                           float *scales) {
    ptrdiff_t count = int4_count(heads, width), i;
    float largest = load_groups(w, heads, width, importance, groups, count), scale, offset_scale;
    float span = 0, far = 0; /* the widest range of a group, and the largest magnitude, of x */
    if (isnan(largest)) return 0;
    for (i = 0; i < count * LANES; i++) {
        float low = groups[i / LANES].low[i % LANES], high = groups[i / LANES].high[i % LANES];
        span = high - low > span ? high - low : span;
        far = fabsf(low) > far ? fabsf(low) : far;
        far = fabsf(high) > far ? fabsf(high) : far;
    }
    scale = span > 1e-25f ? span / (TOP_Q * TOP_M) : 1; /* so that the widest group has the largest multiplier */
    offset_scale = far > 1e-25f ? far / TOP_OFFSET : 1;
    for (int round = 0; round < rounds; round++) {
        for (i = 0; i < count; i++) {
            groups[i].error = all(INFINITY);
            for (int j = 0; j < widths_count; j++) try_width(groups + i, widths[j], scale, offset_scale);
        }
        scale = best_scale(groups, count, scale, offset_scale);
    }
    store_blocks(groups, heads * ((width + BLOCK - 1) / BLOCK), out);
    scales[0] = scale * (largest > 1e-30f ? largest : 1);
    scales[1] = offset_scale * (largest > 1e-30f ? largest : 1);
    return 1;
}
