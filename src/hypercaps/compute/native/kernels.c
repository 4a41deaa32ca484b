/* The arithmetic of 1D-ConvCapsNet for one processor core at a time; see docs/speed.md for why it is laid out so.

   Every pixel goes through the same sums in the same order whatever else is computed beside it: results do not depend
   on the batch, on the window of a map or on the number of threads, to the last bit.

   Letters as in the Python code: C bands, K filters, a capsule arrays, e and d numbers in a capsule, c positions along
   the spectrum, n classes, I = c * a capsules. Channels come last everywhere, padded to whole vectors with zeros.

   A kernel works through tasks whose next number it takes from a counter that all threads share. Compiled once for any
   processor and once for AVX2; vectors are those of gcc and clang. Jobs are structs of 8-byte fields, which Python fills
   as a list of numbers and addresses. */

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(_WIN32)
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif
#define INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define UNROLL(n) _Pragma("unroll")
#else
#define PRAGMA(text) _Pragma(#text)
#define UNROLL(n) PRAGMA(GCC unroll n)
#endif

enum {
    LANES = 8,        /* floats in a vector */
    BLOCK = 4,        /* pixels that are routed side by side */
    ROWS = 6,         /* rows of a product that are summed at once: 6 x 2 vectors leave registers for the rest */
    TILE = 24,        /* pixels that are routed together, at most: their capsules and sums stay in the second cache */
    CAPSULES = 16,    /* whose viewpoint matrices serve all pixels of a tile before the next are fetched */
    TRAIN_CHUNK = 8   /* pixels whose share of the weights' gradient is summed on its own: fixed, as sums must be */
};

typedef float vec __attribute__((vector_size(32)));
typedef float loose __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t ivec __attribute__((vector_size(32)));
typedef double dvec __attribute__((vector_size(32)));
typedef double dloose __attribute__((vector_size(32), aligned(8), may_alias));

INLINE vec load(const float *p) { return *(const loose *)p; }
INLINE void store(float *p, vec x) { *(loose *)p = x; }
INLINE vec all(float x) { return (vec){x, x, x, x, x, x, x, x}; }
INLINE vec larger(vec a, vec b) { /* b where either is not a number */
    ivec is = a > b;
    return (vec)(((ivec)a & is) | ((ivec)b & ~is));
}
INLINE vec where_positive(vec x, vec of) { return (vec)((ivec)x & (of > all(0.0f))); }

/* Sums of eight vectors, each over its lanes, as one vector. */
INLINE vec lane_sums(const vec *x) {
    vec pairs[4], fours[2];
    UNROLL(4) for (int i = 0; i < 4; i++) {
        vec a = x[2 * i], b = x[2 * i + 1];
        pairs[i] = __builtin_shufflevector(a, b, 0, 8, 2, 10, 4, 12, 6, 14) +
                   __builtin_shufflevector(a, b, 1, 9, 3, 11, 5, 13, 7, 15);
    }
    UNROLL(2) for (int i = 0; i < 2; i++) {
        vec a = pairs[2 * i], b = pairs[2 * i + 1];
        fours[i] = __builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13) +
                   __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15);
    }
    return __builtin_shufflevector(fours[0], fours[1], 0, 1, 2, 3, 8, 9, 10, 11) +
           __builtin_shufflevector(fours[0], fours[1], 4, 5, 6, 7, 12, 13, 14, 15);
}
INLINE float lane_sum(vec x) {
    return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7]));
}

/* exp(x) for x <= 0 to one or two units in the last place: 2^n times a polynomial (Cephes' coefficients). */
INLINE vec exponential(vec x) {
    x = larger(x, all(-87.0f));
    vec shifted = x * all(1.44269504f) + all(12582912.0f); /* the whole number lands in the lowest bits */
    vec whole = shifted - all(12582912.0f);
    x = x - whole * all(0.693359375f);
    x = x + whole * all(2.12194440e-4f);
    vec p = all(1.9875691500e-4f);
    p = p * x + all(1.3981999507e-3f);
    p = p * x + all(8.3334519073e-3f);
    p = p * x + all(4.1665795894e-2f);
    p = p * x + all(1.6666665459e-1f);
    p = p * x + all(5.0000001201e-1f);
    vec y = p * (x * x) + x + all(1.0f);
    return (vec)((ivec)y + (((ivec)shifted) << 23));
}

static int64_t take(int64_t *next, int64_t step) { return __atomic_fetch_add(next, step, __ATOMIC_RELAXED); }

/* Room for one thread, on a cache line. */
static float *room(size_t floats, void **block) {
    *block = malloc(floats * sizeof(float) + 64);
    return (float *)(((uintptr_t)*block + 63) & ~(uintptr_t)63);
}

/* ---- products ---------------------------------------------------------------------------------------------------

   out[m][n] = start[n] + sum over k of x(m, k) * w[k][n], where x(m, k) is a[m * step + k], or, with rows of a patch,
   rows[k][m]. Overlapping windows of a convolution are rows whose step is shorter than they are. */

enum { PLAIN, RELU };

INLINE void product_block(int count, int vectors, const float *a, const float *const *rows, int first, ptrdiff_t step,
                          const float *w, const float *start, int n, int k_count, float *out, ptrdiff_t out_step,
                          int how) {
    vec sums[ROWS][2];
    UNROLL(6) for (int m = 0; m < count; m++)
        UNROLL(2) for (int v = 0; v < vectors; v++)
            sums[m][v] = load(start + v * LANES);
    for (int k = 0; k < k_count; k++) {
        const float *x = rows ? rows[k] + first : a + k;
        vec by[2];
        UNROLL(2) for (int v = 0; v < vectors; v++) by[v] = load(w + (ptrdiff_t)k * n + v * LANES);
        UNROLL(6) for (int m = 0; m < count; m++) {
            vec one = all(x[m * step]);
            UNROLL(2) for (int v = 0; v < vectors; v++) sums[m][v] += one * by[v];
        }
    }
    UNROLL(6) for (int m = 0; m < count; m++)
        UNROLL(2) for (int v = 0; v < vectors; v++)
            store(out + m * out_step + v * LANES, how == RELU ? larger(all(0.0f), sums[m][v]) : sums[m][v]);
}

INLINE void product_rows(int vectors, const float *a, const float *const *rows, ptrdiff_t step, const float *w,
                         const float *start, int n, int k_count, int m_count, float *out, ptrdiff_t out_step, int how) {
    /* As few blocks as can be, of 5 and 6 rows rather than of 6 and a few: short ones wait for their sums. */
    for (int m = 0, blocks = (m_count + ROWS - 1) / ROWS; blocks; blocks--) {
        const float *from = rows ? NULL : a + m * step;
        float *to = out + m * out_step;
        int count = (m_count - m + blocks - 1) / blocks;
        switch (count) {
        case 1: product_block(1, vectors, from, rows, m, step, w, start, n, k_count, to, out_step, how); break;
        case 2: product_block(2, vectors, from, rows, m, step, w, start, n, k_count, to, out_step, how); break;
        case 3: product_block(3, vectors, from, rows, m, step, w, start, n, k_count, to, out_step, how); break;
        case 4: product_block(4, vectors, from, rows, m, step, w, start, n, k_count, to, out_step, how); break;
        case 5: product_block(5, vectors, from, rows, m, step, w, start, n, k_count, to, out_step, how); break;
        default: product_block(ROWS, vectors, from, rows, m, step, w, start, n, k_count, to, out_step, how);
        }
        m += count;
    }
}

/* All n columns (a multiple of LANES), two vectors at a time. */
INLINE void product(const float *a, const float *const *rows, ptrdiff_t step, const float *w, const float *start, int n,
                    int k_count, int m_count, float *out, ptrdiff_t out_step, int how) {
    int at = 0;
    for (; at + 2 * LANES <= n; at += 2 * LANES)
        product_rows(2, a, rows, step, w + at, start + at, n, k_count, m_count, out + at, out_step, how);
    if (at < n) product_rows(1, a, rows, step, w + at, start + at, n, k_count, m_count, out + at, out_step, how);
}

/* to[k][n] += sum over m of x(m, k) * g[m][n]: what a product's weights get back. */
INLINE void weight_block(int count, int vectors, const float *a, const float *const *rows, ptrdiff_t step,
                         const float *g, int n, int m_count, float *to) {
    vec sums[ROWS][2];
    UNROLL(6) for (int k = 0; k < count; k++)
        UNROLL(2) for (int v = 0; v < vectors; v++) sums[k][v] = load(to + k * n + v * LANES);
    for (int m = 0; m < m_count; m++) {
        vec by[2];
        UNROLL(2) for (int v = 0; v < vectors; v++) by[v] = load(g + (ptrdiff_t)m * n + v * LANES);
        UNROLL(6) for (int k = 0; k < count; k++) {
            vec one = all(rows ? rows[k][m] : a[m * step + k]);
            UNROLL(2) for (int v = 0; v < vectors; v++) sums[k][v] += one * by[v];
        }
    }
    UNROLL(6) for (int k = 0; k < count; k++)
        UNROLL(2) for (int v = 0; v < vectors; v++) store(to + k * n + v * LANES, sums[k][v]);
}

INLINE void weight_columns(int vectors, const float *a, const float *const *rows, ptrdiff_t step, const float *g, int n,
                           int k_count, int m_count, float *to) {
    int k = 0;
    for (; k + ROWS <= k_count; k += ROWS)
        weight_block(ROWS, vectors, rows ? NULL : a + k, rows ? rows + k : NULL, step, g, n, m_count,
                     to + (ptrdiff_t)k * n);
    for (; k < k_count; k++)
        weight_block(1, vectors, rows ? NULL : a + k, rows ? rows + k : NULL, step, g, n, m_count,
                     to + (ptrdiff_t)k * n);
}

INLINE void weight_gradient(const float *a, const float *const *rows, ptrdiff_t step, const float *g, int n,
                            int k_count, int m_count, float *to) {
    int at = 0;
    for (; at + 2 * LANES <= n; at += 2 * LANES)
        weight_columns(2, a, rows, step, g + at, n, k_count, m_count, to + at);
    if (at < n) weight_columns(1, a, rows, step, g + at, n, k_count, m_count, to + at);
}

static void column_sums(const float *g, int n, int m_count, float *to) {
    for (int at = 0; at < n; at += LANES) {
        vec sum = load(to + at);
        for (int m = 0; m < m_count; m++) sum += load(g + (ptrdiff_t)m * n + at);
        store(to + at, sum);
    }
}

/* ---- squash ----------------------------------------------------------------------------------------------------- */

/* v = s |s| / (1 + |s|^2), one capsule. */
INLINE void squash(const float *s, float *v, int size) {
    float squared = 0.0f;
    for (int i = 0; i < size; i++) squared += s[i] * s[i];
    float by = sqrtf(squared) / (1.0f + squared);
    for (int i = 0; i < size; i++) v[i] = s[i] * by;
}

/* to = gradient of s from the gradient of v. */
INLINE void squash_back(const float *s, const float *gradient, float *to, int size) {
    float squared = 0.0f, along = 0.0f;
    for (int i = 0; i < size; i++) {
        squared += s[i] * s[i];
        along += s[i] * gradient[i];
    }
    float length = sqrtf(squared), more = 1.0f + squared;
    float by = length / more;
    float turn = length > 0.0f ? along * (1.0f - squared) / (more * more * length) : 0.0f;
    for (int i = 0; i < size; i++) to[i] = gradient[i] * by + s[i] * turn;
}

/* ---- the three layers before the routing ------------------------------------------------------------------------ */

typedef struct {
    int64_t bands, area;                                      /* C, D * D */
    int64_t filters;                                          /* K, padded */
    int64_t channels1, window1, stride1, positions1;          /* PrimaryCaps: channels padded */
    int64_t channels2, padded2, window2, stride2, positions2; /* 1D-ConvCaps */
    int64_t capsule;                                          /* its capsules' size e; 0: ReLU neurons */
} Layers;

typedef struct { /* w[k][n]; k runs over the window's positions and, faster, over the channels */
    const float *spatial, *spatial_bias; /* (D*D, K), (K,) */
    const float *primary, *primary_bias; /* (window1 * K, channels1) */
    const float *conv, *conv_bias;       /* (window2 * channels1, padded2) */
} LayerWeights;

/* One pixel: features (C, K), primary (c2, channels1), parents before their squash (c3, padded2), children after. */
static void layers_of_pixel(const Layers *l, const LayerWeights *w, const float *spectra, const int32_t *places,
                            const float **lines, float *features, float *primary, float *parents, float *children) {
    for (int64_t j = 0; j < l->area; j++) lines[j] = spectra + (int64_t)places[j] * l->bands;
    product(NULL, lines, 1, w->spatial, w->spatial_bias, (int)l->filters, (int)l->area, (int)l->bands, features,
            l->filters, RELU);
    product(features, NULL, l->stride1 * l->filters, w->primary, w->primary_bias, (int)l->channels1,
            (int)(l->window1 * l->filters), (int)l->positions1, primary, l->channels1, RELU);
    product(primary, NULL, l->stride2 * l->channels1, w->conv, w->conv_bias, (int)l->padded2,
            (int)(l->window2 * l->channels1), (int)l->positions2, parents, l->padded2, PLAIN);
    for (int64_t c = 0; c < l->positions2; c++) {
        const float *from = parents + c * l->padded2;
        float *to = children + c * l->channels2;
        if (l->capsule == 8)
            for (int64_t i = 0; i < l->channels2; i += 8) squash(from + i, to + i, 8);
        else if (l->capsule)
            for (int64_t i = 0; i < l->channels2; i += l->capsule) squash(from + i, to + i, (int)l->capsule);
        else
            for (int64_t i = 0; i < l->channels2; i++) to[i] = from[i] < 0.0f ? 0.0f : from[i];
    }
}

/* Pixels' layers, all kept for the way back. */
typedef struct {
    const Layers *layers;
    const LayerWeights *weights;
    const float *spectra;
    const int32_t *places;
    int64_t pixels;
    float *features, *primary, *parents, *children;
} LayersJob;

static int layers_forth(const void *given, int64_t *next) {
    const LayersJob *job = given;
    const Layers *l = job->layers;
    const float **lines = malloc(sizeof(float *) * (size_t)l->area);
    if (!lines) return 1;
    for (int64_t p0; (p0 = take(next, TRAIN_CHUNK)) < job->pixels;)
        for (int64_t p = p0; p < p0 + TRAIN_CHUNK && p < job->pixels; p++)
            layers_of_pixel(l, job->weights, job->spectra, job->places + p * l->area, lines,
                            job->features + p * l->bands * l->filters,
                            job->primary + p * l->positions1 * l->channels1,
                            job->parents + p * l->positions2 * l->padded2,
                            job->children + p * l->positions2 * l->channels2);
    free(lines);
    return 0;
}

/* Weights (window, in, out) as the way back reads them: for each rest by the stride its taps backwards, (taps, out, in). */
static void turn(const float *w, int64_t window, int64_t stride, int64_t in, int64_t out, float *turned) {
    for (int64_t rest = 0; rest < stride && rest < window; rest++)
        for (int64_t tap = rest + (window - 1 - rest) / stride * stride; tap >= rest; tap -= stride)
            for (int64_t o = 0; o < out; o++)
                for (int64_t i = 0; i < in; i++) *turned++ = w[(tap * in + i) * out + o];
}

/* What goes back through a convolution: to[x][in] = sum over the windows that hold x of g[position][out] * w. Positions
   x that leave the same rest when divided by the stride are one product: their windows lie at equal steps, the taps in
   descending order, as ``turn`` has laid them. ``g`` has ``taps`` empty positions before and after. */
static void back_through(const float *g, int64_t out, const float *turned, int64_t in, int64_t window, int64_t stride,
                         int64_t length, float *to) {
    static const float zeros[2 * LANES];
    for (int64_t rest = 0; rest < stride && rest < length; rest++) {
        int64_t taps = rest < window ? (window - rest + stride - 1) / stride : 0;
        int64_t count = (length - rest + stride - 1) / stride;
        if (taps == 0) {
            for (int64_t i = 0; i < count; i++) memset(to + (rest + i * stride) * in, 0, sizeof(float) * (size_t)in);
            continue;
        }
        /* Position i of this rest sees the windows i - taps + 1 ... i. */
        const float *from = g - (taps - 1) * out;
        int64_t at = 0;
        for (; at + 2 * LANES <= in; at += 2 * LANES)
            product_rows(2, from, NULL, out, turned + at, zeros, (int)in, (int)(taps * out), (int)count,
                         to + rest * in + at, stride * in, PLAIN);
        if (at < in)
            product_rows(1, from, NULL, out, turned + at, zeros, (int)in, (int)(taps * out), (int)count,
                         to + rest * in + at, stride * in, PLAIN);
        turned += taps * out * in;
    }
}

static int64_t gradient_size(const Layers *l) {
    return l->area * l->filters + l->filters + l->window1 * l->filters * l->channels1 + l->channels1 +
           l->window2 * l->channels1 * l->padded2 + l->padded2;
}

/* Gradients of all weights and biases, for every TRAIN_CHUNK pixels on their own: sums (chunks, gradient_size). */
typedef struct {
    const Layers *layers;
    const LayerWeights *weights;
    const float *spectra;
    const int32_t *places;
    int64_t pixels;
    const float *features, *primary, *parents, *gradient;
    float *sums;
} LayersBackJob;

static int layers_back(const void *given, int64_t *next) {
    const LayersBackJob *job = given;
    const Layers *l = job->layers;
    int64_t taps1 = (l->window1 + l->stride1 - 1) / l->stride1, taps2 = (l->window2 + l->stride2 - 1) / l->stride2;
    /* Positions beyond the last window are read too, as zeros. */
    int64_t size1 = (l->bands / l->stride1 + 2 * taps1 + 1) * l->channels1;
    int64_t size2 = (l->positions1 / l->stride2 + 2 * taps2 + 1) * l->padded2;
    int64_t size0 = l->bands * l->filters;
    const float **lines = malloc(sizeof(float *) * (size_t)l->area);
    void *block = NULL;
    int64_t turned1 = l->window1 * l->filters * l->channels1, turned2 = l->window2 * l->channels1 * l->padded2;
    float *g2 = room((size_t)(size0 + size1 + size2 + turned1 + turned2), &block);
    if (!lines || !block) {
        free(lines);
        free(block);
        return 1;
    }
    float *g1 = g2 + size2, *g0 = g1 + size1;
    memset(g2, 0, sizeof(float) * (size_t)(size0 + size1 + size2));
    float *primary_turned = g0 + size0, *conv_turned = primary_turned + turned1;
    turn(job->weights->primary, l->window1, l->stride1, l->filters, l->channels1, primary_turned);
    turn(job->weights->conv, l->window2, l->stride2, l->channels1, l->padded2, conv_turned);
    float *inner2 = g2 + (taps2 - 1) * l->padded2, *inner1 = g1 + (taps1 - 1) * l->channels1;
    for (int64_t p0; (p0 = take(next, TRAIN_CHUNK)) < job->pixels;) {
        float *to = job->sums + p0 / TRAIN_CHUNK * gradient_size(l);
        memset(to, 0, sizeof(float) * (size_t)gradient_size(l));
        float *spatial = to, *spatial_bias = spatial + l->area * l->filters;
        float *primary_w = spatial_bias + l->filters;
        float *primary_bias = primary_w + l->window1 * l->filters * l->channels1;
        float *conv_w = primary_bias + l->channels1, *conv_bias = conv_w + l->window2 * l->channels1 * l->padded2;
        for (int64_t p = p0; p < p0 + TRAIN_CHUNK && p < job->pixels; p++) {
            const float *f = job->features + p * size0, *u = job->primary + p * l->positions1 * l->channels1;
            const float *s = job->parents + p * l->positions2 * l->padded2;
            const float *back = job->gradient + p * l->positions2 * l->channels2;
            for (int64_t c = 0; c < l->positions2; c++) {
                const float *from = s + c * l->padded2, *by = back + c * l->channels2;
                float *out = inner2 + c * l->padded2;
                if (l->capsule == 8)
                    for (int64_t i = 0; i < l->channels2; i += 8) squash_back(from + i, by + i, out + i, 8);
                else if (l->capsule)
                    for (int64_t i = 0; i < l->channels2; i += l->capsule)
                        squash_back(from + i, by + i, out + i, (int)l->capsule);
                else
                    for (int64_t i = 0; i < l->channels2; i++) out[i] = from[i] > 0.0f ? by[i] : 0.0f;
            }
            column_sums(inner2, (int)l->padded2, (int)l->positions2, conv_bias);
            weight_gradient(u, NULL, l->stride2 * l->channels1, inner2, (int)l->padded2,
                            (int)(l->window2 * l->channels1), (int)l->positions2, conv_w);
            back_through(inner2, l->padded2, conv_turned, l->channels1, l->window2, l->stride2, l->positions1,
                         inner1);
            for (int64_t i = 0; i < l->positions1 * l->channels1; i += LANES)
                store(inner1 + i, where_positive(load(inner1 + i), load(u + i)));
            column_sums(inner1, (int)l->channels1, (int)l->positions1, primary_bias);
            weight_gradient(f, NULL, l->stride1 * l->filters, inner1, (int)l->channels1,
                            (int)(l->window1 * l->filters), (int)l->positions1, primary_w);
            back_through(inner1, l->channels1, primary_turned, l->filters, l->window1, l->stride1, l->bands, g0);
            for (int64_t i = 0; i < size0; i += LANES) store(g0 + i, where_positive(load(g0 + i), load(f + i)));
            column_sums(g0, (int)l->filters, (int)l->bands, spatial_bias);
            for (int64_t j = 0; j < l->area; j++)
                lines[j] = job->spectra + (int64_t)job->places[p * l->area + j] * l->bands;
            weight_gradient(NULL, lines, 1, g0, (int)l->filters, (int)l->area, (int)l->bands, spatial);
        }
    }
    free(lines);
    free(block);
    return 0;
}

/* ---- dynamic routing --------------------------------------------------------------------------------------------

   Viewpoint matrices are (I, n, e, d): that of one capsule and one class lies in one piece. Four pixels at a time are
   routed: their predictions by one capsule, sums and parents, laid out (n, 4, d), then stay in the first cache beside
   the capsule's matrices, and all distances but the children's are known beforehand. */

typedef struct {
    int64_t capsules, size;      /* I, e */
    int64_t classes, class_size; /* n, d: a multiple of 16 */
    int64_t iterations;
    int64_t tile;                /* pixels of a task: a multiple of BLOCK up to TILE */
} Routing;

/* The first turn, where all couplings are 1/n: one class of some pixels gets what some capsules say.
   children (pixels, I*e); sums in blocks of pixels. */
INLINE void first_turn_block(int count, int size, int d, int64_t n, const float *u, int64_t inputs, const float *w,
                             int64_t capsules, float *const *sums) {
    for (int v = 0; v < d; v += 2 * LANES) {
        vec said[ROWS][2];
        UNROLL(6) for (int q = 0; q < count; q++) {
            said[q][0] = load(sums[q] + v);
            said[q][1] = load(sums[q] + v + LANES);
        }
        for (int64_t i = 0; i < capsules; i++) {
            const float *by = w + i * n * size * d + v, *from = u + i * size;
            UNROLL(8) for (int e = 0; e < size; e++) {
                vec w0 = load(by + e * d), w1 = load(by + e * d + LANES);
                UNROLL(6) for (int q = 0; q < count; q++) {
                    vec one = all(from[q * inputs + e]);
                    said[q][0] += one * w0;
                    said[q][1] += one * w1;
                }
            }
        }
        UNROLL(6) for (int q = 0; q < count; q++) {
            store(sums[q] + v, said[q][0]);
            store(sums[q] + v + LANES, said[q][1]);
        }
    }
}

/* Each on its own, or gcc keeps the sums of one in memory for the sake of the other. */
static __attribute__((noinline)) void six_usual(int64_t n, const float *u, int64_t inputs, const float *w,
                                                int64_t capsules, float *const *sums) {
    first_turn_block(6, 8, 16, n, u, inputs, w, capsules, sums);
}
static __attribute__((noinline)) void four_usual(int64_t n, const float *u, int64_t inputs, const float *w,
                                                 int64_t capsules, float *const *sums) {
    first_turn_block(4, 8, 16, n, u, inputs, w, capsules, sums);
}
static __attribute__((noinline)) void six(int size, int d, int64_t n, const float *u, int64_t inputs, const float *w,
                                          int64_t capsules, float *const *sums) {
    first_turn_block(6, size, d, n, u, inputs, w, capsules, sums);
}
static __attribute__((noinline)) void four(int size, int d, int64_t n, const float *u, int64_t inputs, const float *w,
                                           int64_t capsules, float *const *sums) {
    first_turn_block(4, size, d, n, u, inputs, w, capsules, sums);
}

static void first_turn(int size, int d, const Routing *r, const float *children, const float *w, int64_t rounded,
                       float *sums) {
    const int64_t n = r->classes, inputs = r->capsules * size;
    /* A multiple of four pixels, in sixes and, at the end, up to two fours. */
    const int64_t sixes = rounded - (rounded % 6 == 0 ? 0 : rounded % 6 == 4 ? 4 : 8);
    for (int64_t i = 0; i < r->capsules; i += CAPSULES) {
        int64_t some = r->capsules - i < CAPSULES ? r->capsules - i : CAPSULES;
        for (int64_t k = 0; k < n; k++)
            for (int64_t p = 0, count; p < rounded; p += count) {
                count = p < sixes ? 6 : 4;
                float *to[ROWS];
                for (int64_t q = 0; q < count; q++)
                    to[q] = sums + (((p + q) / BLOCK * n + k) * BLOCK + (p + q) % BLOCK) * d;
                const float *u = children + p * inputs + i * size, *by = w + (i * n + k) * size * d;
                if (size == 8 && d == 16)
                    (count == 6 ? six_usual : four_usual)(n, u, inputs, by, some, to);
                else
                    (count == 6 ? six : four)(size, d, n, u, inputs, by, some, to);
            }
    }
}

/* One class, one capsule, a block of pixels: prediction vectors (4, d), and their products with the parents so far, to be
   summed over the lanes. */
INLINE void predict(int size, int d, const float *u, const float *w, const float *parents, float *predictions,
                    vec *matches) {
    UNROLL(4) for (int q = 0; q < BLOCK; q++) matches[q] = all(0.0f);
    for (int v = 0; v < d; v += 2 * LANES) {
        vec said[BLOCK][2];
        UNROLL(4) for (int q = 0; q < BLOCK; q++) said[q][0] = said[q][1] = all(0.0f);
        UNROLL(8) for (int e = 0; e < size; e++) {
            vec w0 = load(w + e * d + v), w1 = load(w + e * d + v + LANES);
            UNROLL(4) for (int q = 0; q < BLOCK; q++) {
                vec one = all(u[q * size + e]);
                said[q][0] += one * w0;
                said[q][1] += one * w1;
            }
        }
        UNROLL(4) for (int q = 0; q < BLOCK; q++) {
            store(predictions + q * d + v, said[q][0]);
            store(predictions + q * d + v + LANES, said[q][1]);
            matches[q] += said[q][0] * load(parents + q * d + v) + said[q][1] * load(parents + q * d + v + LANES);
        }
    }
}

/* What a capsule adds to one class, by its couplings (4,) and predictions (4, d). */
INLINE void add_weighted(int d, const float *couplings, const float *predictions, float *sums) {
    UNROLL(4) for (int q = 0; q < BLOCK; q++) {
        vec one = all(couplings[q]);
        UNROLL(2) for (int v = 0; v < d; v += LANES)
            store(sums + q * d + v, load(sums + q * d + v) + one * load(predictions + q * d + v));
    }
}

/* One capsule of a block of pixels: its prediction vectors (n, 4, d), how well they agree with the parents so far, and
   the couplings that follow (n, 4). In the softmax a vector holds two classes of four pixels. What the capsule
   ``before`` adds to the sums is added on the way: the one is all arithmetic and the other all memory. */
INLINE void route_capsule(int size, int d, int64_t n, const float *children, int64_t step, const float *w,
                          const float *agreed, float *sums, float *u, float *predictions, vec *t, const float *before,
                          const vec *t_before) {
    const int64_t pairs = (n + 1) / 2;
    UNROLL(4) for (int q = 0; q < BLOCK; q++) /* side by side, at distances known beforehand */
        UNROLL(8) for (int e = 0; e < size; e++) u[q * size + e] = children[q * step + e];
    for (int64_t k = 0; k < n; k += 2) {
        vec matches[2 * BLOCK];
        const int64_t at = k * BLOCK * d, further = at + BLOCK * d;
        const float *couplings = (const float *)t_before + k * BLOCK;
        predict(size, d, u, w + k * size * d, agreed + at, predictions + at, matches);
        if (before) add_weighted(d, couplings, before + at, sums + at);
        if (k + 1 < n) {
            predict(size, d, u, w + (k + 1) * size * d, agreed + further, predictions + further, matches + BLOCK);
            if (before) add_weighted(d, couplings + BLOCK, before + further, sums + further);
        } else
            UNROLL(4) for (int q = 0; q < BLOCK; q++) matches[BLOCK + q] = all(0.0f);
        t[k / 2] = lane_sums(matches);
    }
    if (n % 2) UNROLL(4) for (int q = 0; q < BLOCK; q++) t[pairs - 1][BLOCK + q] = -INFINITY;
    vec most = t[0], total = all(0.0f);
    for (int64_t k = 1; k < pairs; k++) most = larger(most, t[k]);
    most = larger(most, __builtin_shufflevector(most, most, 4, 5, 6, 7, 0, 1, 2, 3));
    for (int64_t k = 0; k < pairs; k++) {
        t[k] = exponential(t[k] - most);
        total += t[k];
    }
    if (n % 2) { /* exponential stops at e^-87: the empty half must not count */
        vec last = t[pairs - 1];
        total -= __builtin_shufflevector(all(0.0f), last, 0, 1, 2, 3, 12, 13, 14, 15);
    }
    total += __builtin_shufflevector(total, total, 4, 5, 6, 7, 0, 1, 2, 3);
    total = all(1.0f) / total;
    for (int64_t k = 0; k < pairs; k++) t[k] *= total;
}

/* Some capsules of a block of pixels, one after the other. */
INLINE void route_capsules(int size, int d, int64_t n, int64_t count, const float *children, int64_t step,
                           const float *w, const float *agreed, float *sums, float *u, float *predictions, vec *t,
                           float *couplings) {
    const int64_t pairs = (n + 1) / 2, block = n * BLOCK * d;
    for (int64_t i = 0; i < count; i++) {
        const int64_t now = i % 2, then = 1 - now;
        route_capsule(size, d, n, children + i * size, step, w + i * n * size * d, agreed, sums, u,
                      predictions + now * block, t + now * pairs, i ? predictions + then * block : NULL,
                      t + then * pairs);
        if (couplings)
            memcpy(couplings + i * n * BLOCK, t + now * pairs, sizeof(float) * (size_t)(n * BLOCK));
    }
    const int64_t last = (count - 1) % 2;
    for (int64_t k = 0; k < n; k++)
        add_weighted(d, (const float *)(t + last * pairs) + k * BLOCK, predictions + last * block + k * BLOCK * d,
                     sums + k * BLOCK * d);
}

/* Squash of ``count`` class capsules, each d numbers: replaces or adds. */
static void squash_classes(const float *s, float *v, int64_t count, int64_t d, float scale, int add) {
    for (int64_t k = 0; k < count; k++, s += d, v += d) {
        vec parts = all(0.0f);
        for (int64_t i = 0; i < d; i += LANES) {
            vec x = load(s + i) * all(scale);
            parts += x * x;
        }
        float squared = lane_sum(parts);
        float by = sqrtf(squared) / (1.0f + squared) * scale;
        for (int64_t i = 0; i < d; i += LANES)
            store(v + i, add ? load(v + i) + load(s + i) * all(by) : load(s + i) * all(by));
    }
}

typedef struct {
    void *block;
    float *sums, *agreed; /* (TILE / 4, n, 4, d) */
    float *predictions;   /* (2, n, 4, d) */
    float *u;             /* (4, e) */
    vec *t;               /* (2, pairs of classes) */
    float *children;      /* (TILE, I*e) */
} RoutingRoom;

static int routing_room(const Routing *r, RoutingRoom *at) {
    int64_t nd = r->classes * r->class_size;
    int64_t pairs = (r->classes + 1) / 2;
    int64_t most = (2 * TILE + 2 * BLOCK) * nd + 2 * LANES * pairs + (TILE * r->capsules + BLOCK) * r->size;
    at->sums = room((size_t)most, &at->block);
    at->agreed = at->sums + TILE * nd;
    at->predictions = at->agreed + TILE * nd;
    at->t = (vec *)(at->predictions + 2 * BLOCK * nd);
    at->children = (float *)(at->t + 2 * pairs);
    at->u = at->children + TILE * r->capsules * r->size;
    return at->block != NULL;
}

/* Up to TILE pixels, whose children are followed by zeros up to a whole block: the sums that their class capsules are
   squashed from, and the last couplings (blocks, I, n, 4) if there is a place for them. */
static void route_tile(const Routing *r, const float *children, const float *w, int64_t pixels, RoutingRoom *at,
                       float *couplings) {
    const int64_t n = r->classes, d = r->class_size, inputs = r->capsules * r->size;
    const int64_t blocks = (pixels + BLOCK - 1) / BLOCK, block = n * BLOCK * d;
    const int usual = r->size == 8 && d == 16; /* the paper's sizes, known when this is compiled */
    memset(at->sums, 0, sizeof(float) * (size_t)(blocks * block));
    first_turn((int)r->size, (int)d, r, children, w, blocks * BLOCK, at->sums);
    if (r->iterations == 1) {
        for (int64_t i = 0; i < blocks * block; i++) at->sums[i] /= (float)n;
        if (couplings)
            for (int64_t i = 0; i < blocks * r->capsules * n * BLOCK; i++) couplings[i] = 1.0f / (float)n;
        return;
    }
    squash_classes(at->sums, at->agreed, blocks * n * BLOCK, d, 1.0f / (float)n, 0);
    for (int64_t turn = 1;; turn++) {
        float *keep = turn == r->iterations - 1 ? couplings : NULL;
        memset(at->sums, 0, sizeof(float) * (size_t)(blocks * block));
        for (int64_t i0 = 0; i0 < r->capsules; i0 += CAPSULES)
            for (int64_t b = 0; b < blocks; b++) {
                int64_t count = r->capsules - i0 < CAPSULES ? r->capsules - i0 : CAPSULES;
                const float *from = children + b * BLOCK * inputs + i0 * r->size, *by = w + i0 * n * r->size * d;
                const float *agreed = at->agreed + b * block;
                float *sums = at->sums + b * block, *to = keep ? keep + (b * r->capsules + i0) * n * BLOCK : NULL;
                if (usual)
                    route_capsules(8, 16, n, count, from, inputs, by, agreed, sums, at->u, at->predictions, at->t, to);
                else
                    route_capsules((int)r->size, (int)d, n, count, from, inputs, by, agreed, sums, at->u,
                                   at->predictions, at->t, to);
            }
        if (turn == r->iterations - 1) return;
        /* Log priors are linear in the parents: their sum so far is all that is kept of the turns before. */
        squash_classes(at->sums, at->agreed, blocks * n * BLOCK, d, 1.0f, 1);
    }
}

/* Pixels' children (pixels, I, e) -> sums before the squash and class capsules after it (pixels, n, d), couplings. */
typedef struct {
    const Routing *routing;
    const float *children, *viewpoints;
    int64_t pixels;
    float *sums, *capsules, *couplings;
} RouteJob;

static int route_forth(const void *given, int64_t *next) {
    const RouteJob *job = given;
    const Routing *r = job->routing;
    const int64_t n = r->classes, d = r->class_size, inputs = r->capsules * r->size;
    RoutingRoom at;
    if (!routing_room(r, &at)) return 1;
    for (int64_t p; (p = take(next, r->tile)) < job->pixels;) {
        int64_t count = job->pixels - p < r->tile ? job->pixels - p : r->tile;
        const float *from = job->children + p * inputs;
        if (count % BLOCK) {
            memset(at.children, 0, sizeof(float) * (size_t)(TILE * inputs));
            from = memcpy(at.children, from, sizeof(float) * (size_t)(count * inputs));
        }
        route_tile(r, from, job->viewpoints, count, &at,
                   job->couplings ? job->couplings + p / BLOCK * r->capsules * n * BLOCK : NULL);
        for (int64_t q = 0; q < count; q++)
            for (int64_t k = 0; k < n; k++) {
                const float *sum = at.sums + ((q / BLOCK * n + k) * BLOCK + q % BLOCK) * d;
                memcpy(job->sums + ((p + q) * n + k) * d, sum, sizeof(float) * (size_t)d);
                squash_classes(sum, job->capsules + ((p + q) * n + k) * d, 1, d, 1.0f, 0);
            }
    }
    free(at.block);
    return 0;
}

/* Gradient of the sums (pixels, n, d) from that of the class capsules; and once more class by class (n, pixels, d). A
   task is a class. */
typedef struct {
    const Routing *routing;
    int64_t pixels;
    const float *sums, *gradient;
    float *sums_back, *by_class;
} SquashBackJob;

static int squash_back_all(const void *given, int64_t *next) {
    const SquashBackJob *job = given;
    const int64_t n = job->routing->classes, d = job->routing->class_size;
    for (int64_t k; (k = take(next, 1)) < n;)
        for (int64_t p = 0; p < job->pixels; p++) {
            int64_t at = (p * n + k) * d;
            squash_back(job->sums + at, job->gradient + at, job->sums_back + at, (int)d);
            memcpy(job->by_class + (k * job->pixels + p) * d, job->sums_back + at, sizeof(float) * (size_t)d);
        }
    return 0;
}

/* The same from the gradient of the class capsules' lengths (pixels, n): |squash(s)| = |s|^2 / (1 + |s|^2). */
static int lengths_back(const void *given, int64_t *next) {
    const SquashBackJob *job = given;
    const int64_t n = job->routing->classes, d = job->routing->class_size;
    for (int64_t k; (k = take(next, 1)) < n;)
        for (int64_t p = 0; p < job->pixels; p++) {
            const float *s = job->sums + (p * n + k) * d;
            float *to = job->sums_back + (p * n + k) * d;
            vec parts = all(0.0f);
            for (int64_t i = 0; i < d; i += LANES) parts += load(s + i) * load(s + i);
            float more = 1.0f + lane_sum(parts);
            vec by = all(2.0f * job->gradient[p * n + k] / (more * more));
            for (int64_t i = 0; i < d; i += LANES) store(to + i, load(s + i) * by);
            memcpy(job->by_class + (k * job->pixels + p) * d, to, sizeof(float) * (size_t)d);
        }
    return 0;
}

/* Some rows of one capsule's matrices times two pixels' weighted gradients, not yet summed over the lanes. */
INLINE void child_rows(int rows, int two, int size, int d, const float *w, int64_t n, const float *g0, const float *g1,
                       const float *c0, vec *sums0, vec *sums1) {
    vec s0[4], s1[4];
    UNROLL(4) for (int e = 0; e < rows; e++) s0[e] = s1[e] = all(0.0f);
    for (int64_t k = 0; k < n; k++) {
        vec l0 = all(c0[k * BLOCK]), l1 = two ? all(c0[k * BLOCK + 1]) : l0;
        UNROLL(2) for (int v = 0; v < d; v += LANES) {
            vec x0 = l0 * load(g0 + k * d + v), x1 = two ? l1 * load(g1 + k * d + v) : x0;
            UNROLL(4) for (int e = 0; e < rows; e++) {
                vec by = load(w + (k * size + e) * d + v);
                s0[e] += x0 * by;
                if (two) s1[e] += x1 * by;
            }
        }
    }
    UNROLL(4) for (int e = 0; e < rows; e++) {
        sums0[e] = s0[e];
        if (two) sums1[e] = s1[e];
    }
}

/* Some rows of the gradient of one capsule's matrix for one class: sum over pixels of u(p) l(p, k) g(p, k). */
INLINE void matrix_rows(int rows, int size, int d, const float *weighted, const float *g, int64_t pixels, float *to) {
    for (int v = 0; v < d; v += 2 * LANES) {
        vec sums[4][2];
        UNROLL(4) for (int e = 0; e < rows; e++) sums[e][0] = sums[e][1] = all(0.0f);
        for (int64_t p = 0; p < pixels; p++) {
            vec g0 = load(g + p * d + v), g1 = load(g + p * d + v + LANES);
            UNROLL(4) for (int e = 0; e < rows; e++) {
                vec one = all(weighted[p * size + e]);
                sums[e][0] += one * g0;
                sums[e][1] += one * g1;
            }
        }
        UNROLL(4) for (int e = 0; e < rows; e++) {
            store(to + e * d + v, sums[e][0]);
            store(to + e * d + v + LANES, sums[e][1]);
        }
    }
}

/* Gradients of children (pixels, I, e) and of viewpoint matrices (I, n, e, d). A task is one capsule. Couplings are
   constants. */
typedef struct {
    const Routing *routing;
    const float *children, *viewpoints, *couplings;
    int64_t pixels;
    const float *gradient, *by_class;
    float *children_back, *viewpoints_back;
} RouteBackJob;

INLINE void capsule_back(int size, int d, const RouteBackJob *job, int64_t i, float *weighted, vec *sums0, vec *sums1) {
    const int64_t n = job->routing->classes, capsules = job->routing->capsules, pixels = job->pixels;
    const int64_t inputs = capsules * size;
    const float *w = job->viewpoints + i * n * size * d, *u = job->children + i * size;
    for (int64_t k = 0; k < n; k++) {
        for (int64_t p = 0; p < pixels; p++) {
            float l = job->couplings[((p / BLOCK * capsules + i) * n + k) * BLOCK + p % BLOCK];
            UNROLL(8) for (int e = 0; e < size; e++) weighted[p * size + e] = u[p * inputs + e] * l;
        }
        const float *g = job->by_class + k * pixels * d;
        float *to = job->viewpoints_back + (i * n + k) * size * d;
        int e = 0;
        for (; e + 4 <= size; e += 4) matrix_rows(4, size, d, weighted + e, g, pixels, to + e * d);
        for (; e < size; e++) matrix_rows(1, size, d, weighted + e, g, pixels, to + e * d);
    }
    for (int64_t p = 0; p < pixels; p += 2) {
        const float *c0 = job->couplings + (p / BLOCK * capsules + i) * n * BLOCK + p % BLOCK;
        const float *g0 = job->gradient + p * n * d, *g1 = g0 + n * d;
        int two = p + 1 < pixels, e = 0;
        for (; e + 4 <= size; e += 4)
            if (two)
                child_rows(4, 1, size, d, w + e * d, n, g0, g1, c0, sums0 + e, sums1 + e);
            else
                child_rows(4, 0, size, d, w + e * d, n, g0, g0, c0, sums0 + e, sums1 + e);
        for (; e < size; e++)
            if (two)
                child_rows(1, 1, size, d, w + e * d, n, g0, g1, c0, sums0 + e, sums1 + e);
            else
                child_rows(1, 0, size, d, w + e * d, n, g0, g0, c0, sums0 + e, sums1 + e);
        for (int which = 0; which <= two; which++) {
            float *to = job->children_back + (p + which) * inputs + i * size;
            const vec *sums = which ? sums1 : sums0;
            if (size == LANES)
                store(to, lane_sums(sums));
            else
                for (e = 0; e < size; e++) to[e] = lane_sum(sums[e]);
        }
    }
}

static int route_back(const void *given, int64_t *next) {
    const RouteBackJob *job = given;
    const Routing *r = job->routing;
    void *block;
    float *sums = room((size_t)(job->pixels * r->size + 2 * LANES * r->size), &block);
    if (!block) return 1;
    vec *sums0 = (vec *)sums, *sums1 = sums0 + r->size;
    float *weighted = sums + 2 * LANES * r->size; /* u(p) l(p, k): (pixels, e) */
    for (int64_t i; (i = take(next, 1)) < r->capsules;)
        if (r->size == 8 && r->class_size == 16)
            capsule_back(8, 16, job, i, weighted, sums0, sums1);
        else
            capsule_back((int)r->size, (int)r->class_size, job, i, weighted, sums0, sums1);
    free(block);
    return 0;
}

/* ---- everything in one pass ------------------------------------------------------------------------------------- */

/* Whitened spectra and the places of pixels' patches among them -> lengths of the class capsules (pixels, n). */
typedef struct {
    const Layers *layers;
    const LayerWeights *weights;
    const Routing *routing;
    const float *viewpoints, *spectra;
    const int32_t *places;
    int64_t pixels;
    float *lengths;
} LengthsJob;

static int lengths_of_pixels(const void *given, int64_t *next) {
    const LengthsJob *job = given;
    const Layers *l = job->layers;
    const Routing *r = job->routing;
    const int64_t n = r->classes, d = r->class_size, inputs = r->capsules * r->size;
    RoutingRoom at;
    if (!routing_room(r, &at)) return 1;
    void *block = NULL;
    const float **lines = malloc(sizeof(float *) * (size_t)l->area);
    float *features = room((size_t)(l->bands * l->filters + l->positions1 * l->channels1 + l->positions2 * l->padded2),
                           &block);
    if (!lines || !block) {
        free(lines);
        free(block);
        free(at.block);
        return 1;
    }
    float *primary = features + l->bands * l->filters, *parents = primary + l->positions1 * l->channels1;
    for (int64_t p; (p = take(next, r->tile)) < job->pixels;) {
        int64_t count = job->pixels - p < r->tile ? job->pixels - p : r->tile;
        if (count % BLOCK) memset(at.children, 0, sizeof(float) * (size_t)(TILE * inputs));
        for (int64_t q = 0; q < count; q++)
            layers_of_pixel(l, job->weights, job->spectra, job->places + (p + q) * l->area, lines, features, primary,
                            parents, at.children + q * inputs);
        route_tile(r, at.children, job->viewpoints, count, &at, NULL);
        for (int64_t q = 0; q < count; q++)
            for (int64_t k = 0; k < n; k++) {
                const float *sum = at.sums + ((q / BLOCK * n + k) * BLOCK + q % BLOCK) * d;
                vec parts = all(0.0f);
                for (int64_t i = 0; i < d; i += LANES) parts += load(sum + i) * load(sum + i);
                float squared = lane_sum(parts); /* |squash(s)| = |s|^2 / (1 + |s|^2) */
                job->lengths[(p + q) * n + k] = squared / (1.0f + squared);
            }
    }
    free(lines);
    free(block);
    free(at.block);
    return 0;
}

/* ---- whitening --------------------------------------------------------------------------------------------------- */

/* (values - mean) @ matrix in float64: values (pixels, bands), matrix (bands, columns), columns a multiple of 8; white
   (pixels, outputs) gets the first ``outputs`` columns, zeros where not valid. */
typedef struct {
    const float *values;
    const uint8_t *valid;
    int64_t pixels, bands, columns, outputs;
    const double *mean, *matrix;
    float *white;
} WhitenJob;

static int whiten(const void *given, int64_t *next) {
    const WhitenJob *job = given;
    const int64_t bands = job->bands, columns = job->columns, outputs = job->outputs;
    double *x = malloc(sizeof(double) * (size_t)(TILE * bands));
    if (!x) return 1;
    for (int64_t p; (p = take(next, TILE)) < job->pixels;) {
        int64_t count = job->pixels - p < TILE ? job->pixels - p : TILE;
        for (int64_t q = 0; q < TILE; q++) {
            int good = q < count && job->valid[p + q];
            const float *from = job->values + (p + q) * bands;
            for (int64_t b = 0; b < bands; b++) x[q * bands + b] = good ? (double)from[b] - job->mean[b] : 0.0;
        }
        for (int64_t at = 0; at < columns; at += 8)
            for (int64_t q = 0; q < count; q += ROWS) {
                dvec sums[ROWS][2];
                UNROLL(6) for (int m = 0; m < ROWS; m++) sums[m][0] = sums[m][1] = (dvec){0.0, 0.0, 0.0, 0.0};
                for (int64_t b = 0; b < bands; b++) {
                    dvec m0 = *(const dloose *)(job->matrix + b * columns + at);
                    dvec m1 = *(const dloose *)(job->matrix + b * columns + at + 4);
                    UNROLL(6) for (int m = 0; m < ROWS; m++) {
                        double value = x[(q + m) * bands + b];
                        dvec one = {value, value, value, value};
                        sums[m][0] += one * m0;
                        sums[m][1] += one * m1;
                    }
                }
                for (int64_t m = 0; m < ROWS && q + m < count; m++)
                    for (int64_t i = 0; i < 8 && at + i < outputs; i++)
                        job->white[(p + q + m) * outputs + at + i] = (float)sums[m][i / 4][i % 4];
            }
    }
    free(x);
    return 0;
}

/* ---- threads -----------------------------------------------------------------------------------------------------

   Python makes the threads and lets them sleep. A helper that is awake waits for jobs here, looking at the pool without
   pause: a training step is a handful of jobs of a millisecond, and to wake a sleeping thread takes longer than that. */

typedef int (*Kernel)(const void *, int64_t *);
static const Kernel KERNELS[] = {layers_forth, layers_back,       route_forth, squash_back_all, lengths_back,
                                 route_back,   lengths_of_pixels, whiten};

typedef struct {
    int64_t next;       /* task of the job under way */
    int64_t failed;     /* helpers that found no memory */
    int64_t state;      /* OPEN while there is a job to join, plus how many helpers are inside */
    int64_t generation; /* number of the job */
    int64_t most;       /* helpers that may join it */
    int64_t awake;      /* helpers that look for jobs */
    int64_t kernel;
    const void *job;
} Pool;

#define OPEN ((int64_t)1 << 32)

INLINE void breathe(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* A job, by the calling thread and by the helpers that are awake; done when it returns. */
EXPORT int hypercaps_run(Pool *pool, int64_t kernel, const void *job, int64_t most) {
    pool->next = pool->failed = 0;
    pool->kernel = kernel;
    pool->job = job;
    pool->most = most;
    __atomic_fetch_add(&pool->generation, 1, __ATOMIC_RELAXED);
    __atomic_store_n(&pool->state, OPEN, __ATOMIC_RELEASE);
    int failed = KERNELS[kernel](job, &pool->next);
    __atomic_fetch_and(&pool->state, ~OPEN, __ATOMIC_ACQ_REL);
    while (__atomic_load_n(&pool->state, __ATOMIC_ACQUIRE) != 0) breathe();
    return failed || pool->failed;
}

/* Help with jobs until none came for ``patience`` looks. */
EXPORT void hypercaps_help(Pool *pool, int64_t patience) {
    __atomic_fetch_add(&pool->awake, 1, __ATOMIC_RELAXED);
    int64_t last = -1;
    for (int64_t idle = 0; idle < patience; idle++, breathe()) {
        int64_t state = __atomic_load_n(&pool->state, __ATOMIC_ACQUIRE);
        if (!(state & OPEN) || __atomic_load_n(&pool->generation, __ATOMIC_RELAXED) == last) continue;
        if ((state & ~OPEN) >= pool->most) continue;
        if (!__atomic_compare_exchange_n(&pool->state, &state, state + 1, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
            continue;
        last = __atomic_load_n(&pool->generation, __ATOMIC_RELAXED); /* it can't change while a helper is inside */
        if (KERNELS[pool->kernel](pool->job, &pool->next)) __atomic_fetch_add(&pool->failed, 1, __ATOMIC_RELAXED);
        __atomic_fetch_sub(&pool->state, 1, __ATOMIC_RELEASE);
        idle = 0;
    }
    __atomic_fetch_sub(&pool->awake, 1, __ATOMIC_RELAXED);
}

/* Whether this processor, and the system on it, can run what was compiled for AVX2 and FMA. */
EXPORT int hypercaps_has_avx2(void) {
#if defined(__x86_64__)
    unsigned a, b, c, d, low, high;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return 0;
    if (!(c & bit_FMA) || !(c & bit_OSXSAVE)) return 0;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    if ((low & 6) != 6) return 0; /* the system does not keep the wide registers */
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return 0;
    return (b & bit_AVX2) != 0;
#else
    return 0;
#endif
}
