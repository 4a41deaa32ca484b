/* The arithmetic of 1D-ConvCapsNet for one processor core at a time; see docs/speed.md for why it is laid out so.

   Every pixel goes through the same sums in the same order whatever else is computed beside it: results do not depend
   on the batch, on the window of a map or on the number of threads, to the last bit.

   Letters as in the Python code: C bands, K filters, a capsule arrays, e and d numbers in a capsule, c positions along
   the spectrum, n classes, I = c * a capsules. Channels come last everywhere, padded to whole vectors with zeros.

   A kernel works through tasks whose next number it takes from a counter that all threads share. Compiled for any
   processor, on x86 also for AVX2 and for AVX-512; vectors are those of gcc and clang. Jobs are structs of 8-byte fields,
   which Python fills as a list of numbers and addresses. */

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif
#if defined(_WIN32)
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif
#define INLINE static inline __attribute__((always_inline))
#define NOINLINE __attribute__((noinline))
#if defined(__clang__)
#define UNROLL(n) _Pragma("unroll")
#else
#define PRAGMA(text) _Pragma(#text)
#define UNROLL(n) PRAGMA(GCC unroll n)
#endif

/* What fits the registers of a processor. A product sums ROWS x COLUMNS vectors at once: with a vector for each column and
   one for the row they fill the registers, and the more there are, the fewer numbers are loaded for each sum. */
#if defined(__AVX512F__)
enum { LANES = 16, ROWS = 12, COLUMNS = 2, TOGETHER = 4 };
#elif defined(__AVX2__)
enum { LANES = 8, ROWS = 6, COLUMNS = 2, TOGETHER = 1 };
#elif defined(__aarch64__)
enum { LANES = 4, ROWS = 6, COLUMNS = 4, TOGETHER = 1 };
#else
enum { LANES = 4, ROWS = 6, COLUMNS = 2, TOGETHER = 1 };
#endif
/* LANES: floats in a vector; TOGETHER: classes whose predictions are summed at once */

enum {
    PADDED = 16,      /* numbers of channels, and sizes of class capsules, are multiples of it: a vector, or several */
    BLOCK = 4,        /* pixels that are routed side by side */
    GROUP = LANES / BLOCK, /* classes whose couplings for a block of pixels fill a vector */
    PARTS = COLUMNS * LANES < PADDED ? COLUMNS : PADDED / LANES, /* vectors of a class capsule that are summed at once */
    TILE = 24,        /* pixels that are routed together, at most: their capsules and sums stay in the second cache */
    CAPSULES = 16,    /* whose viewpoint matrices serve all pixels of a tile before the next are fetched */
    TRAIN_CHUNK = 8   /* pixels whose share of the weights' gradient is summed on its own: fixed, as sums must be */
};

typedef float vec __attribute__((vector_size(4 * LANES)));
typedef float loose __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t ivec __attribute__((vector_size(4 * LANES)));
typedef double dvec __attribute__((vector_size(4 * LANES)));
typedef double dloose __attribute__((vector_size(4 * LANES), aligned(8), may_alias));

/* The compiler must not know where an address comes from: it would keep what is there, or the distances from there, in far
   more registers than there are. */
#define FORGET(address) __asm__("" : "+r"(address))

/* A product that is rounded before it is added to something, as numpy and scipy do. */
#if defined(__x86_64__)
#define ROUND(x) __asm__("" : "+x"(x))
#elif defined(__aarch64__)
#define ROUND(x) __asm__("" : "+w"(x))
#else
#define ROUND(x)
#endif

INLINE vec load(const float *p) { return *(const loose *)p; }
INLINE void store(float *p, vec x) { *(loose *)p = x; }
INLINE dvec load_doubles(const double *p) { return *(const dloose *)p; }
INLINE void store_doubles(double *p, dvec x) { *(dloose *)p = x; }

#if defined(__AVX512F__)
INLINE vec all(float x) { return _mm512_set1_ps(x); }
INLINE dvec all_doubles(double x) { return _mm512_set1_pd(x); }
INLINE vec larger(vec a, vec b) { return _mm512_max_ps(a, b); } /* b where either is not a number */
#elif defined(__AVX2__)
INLINE vec all(float x) { return _mm256_set1_ps(x); }
INLINE dvec all_doubles(double x) { return _mm256_set1_pd(x); }
INLINE vec larger(vec a, vec b) { return _mm256_max_ps(a, b); }
#else
INLINE vec all(float x) { return (vec){x, x, x, x}; }
INLINE dvec all_doubles(double x) { return (dvec){x, x}; }
INLINE vec larger(vec a, vec b) {
    ivec is = a > b;
    return (vec)(((ivec)a & is) | ((ivec)b & ~is));
}
#endif
INLINE vec where(ivec is, vec x, vec otherwise) { return (vec)(((ivec)x & is) | ((ivec)otherwise & ~is)); }
INLINE vec where_positive(vec x, vec of) { return (vec)((ivec)x & (of > all(0.0f))); }

/* Sums of LANES vectors, each over its lanes, as one vector: neighbours, then pairs of neighbours, and so on. */
#if defined(__AVX512F__)
INLINE vec lane_sums(const vec *x) {
    vec pairs[8], fours[4], eights[2];
    UNROLL(8) for (int i = 0; i < 8; i++) {
        vec a = x[2 * i], b = x[2 * i + 1];
        pairs[i] = __builtin_shufflevector(a, b, 0, 2, 16, 18, 4, 6, 20, 22, 8, 10, 24, 26, 12, 14, 28, 30) +
                   __builtin_shufflevector(a, b, 1, 3, 17, 19, 5, 7, 21, 23, 9, 11, 25, 27, 13, 15, 29, 31);
    }
    UNROLL(4) for (int i = 0; i < 4; i++) {
        vec a = pairs[2 * i], b = pairs[2 * i + 1];
        fours[i] = __builtin_shufflevector(a, b, 0, 2, 16, 18, 4, 6, 20, 22, 8, 10, 24, 26, 12, 14, 28, 30) +
                   __builtin_shufflevector(a, b, 1, 3, 17, 19, 5, 7, 21, 23, 9, 11, 25, 27, 13, 15, 29, 31);
    }
    UNROLL(2) for (int i = 0; i < 2; i++) {
        vec a = fours[2 * i], b = fours[2 * i + 1];
        eights[i] = __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
                    __builtin_shufflevector(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
    }
    vec a = eights[0], b = eights[1];
    return __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27) +
           __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
}
INLINE float lane_sum(vec x) {
    __m256 half = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    return ((half[0] + half[4]) + (half[2] + half[6])) + ((half[1] + half[5]) + (half[3] + half[7]));
}
/* In every lane the largest, or the sum, of the classes in a vector, each pixel on its own. */
INLINE vec swap_halves(vec x) {
    return __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7);
}
INLINE vec swap_quarters(vec x) {
    return __builtin_shufflevector(x, x, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11);
}
INLINE vec largest_class(vec x) {
    x = larger(x, swap_halves(x));
    return larger(x, swap_quarters(x));
}
INLINE vec sum_of_classes(vec x) {
    x += swap_halves(x);
    return x + swap_quarters(x);
}
#elif defined(__AVX2__)
INLINE vec lane_sums(const vec *x) {
    vec pairs[4], fours[2];
    UNROLL(4) for (int i = 0; i < 4; i++) {
        vec a = x[2 * i], b = x[2 * i + 1];
        pairs[i] = __builtin_shufflevector(a, b, 0, 2, 8, 10, 4, 6, 12, 14) +
                   __builtin_shufflevector(a, b, 1, 3, 9, 11, 5, 7, 13, 15);
    }
    UNROLL(2) for (int i = 0; i < 2; i++) {
        vec a = pairs[2 * i], b = pairs[2 * i + 1];
        fours[i] = __builtin_shufflevector(a, b, 0, 2, 8, 10, 4, 6, 12, 14) +
                   __builtin_shufflevector(a, b, 1, 3, 9, 11, 5, 7, 13, 15);
    }
    return __builtin_shufflevector(fours[0], fours[1], 0, 1, 2, 3, 8, 9, 10, 11) +
           __builtin_shufflevector(fours[0], fours[1], 4, 5, 6, 7, 12, 13, 14, 15);
}
INLINE float lane_sum(vec x) {
    return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7]));
}
/* In every lane the largest, or the sum, of the classes in a vector, each pixel on its own. */
INLINE vec swap_halves(vec x) { return __builtin_shufflevector(x, x, 4, 5, 6, 7, 0, 1, 2, 3); }
INLINE vec largest_class(vec x) { return larger(x, swap_halves(x)); }
INLINE vec sum_of_classes(vec x) { return x + swap_halves(x); }
#else
INLINE vec lane_sums(const vec *x) {
    vec pairs[2];
    UNROLL(2) for (int i = 0; i < 2; i++) {
        vec a = x[2 * i], b = x[2 * i + 1];
        pairs[i] = __builtin_shufflevector(a, b, 0, 2, 4, 6) + __builtin_shufflevector(a, b, 1, 3, 5, 7);
    }
    return __builtin_shufflevector(pairs[0], pairs[1], 0, 2, 4, 6) +
           __builtin_shufflevector(pairs[0], pairs[1], 1, 3, 5, 7);
}
INLINE float lane_sum(vec x) { return (x[0] + x[2]) + (x[1] + x[3]); }
INLINE vec largest_class(vec x) { return x; } /* a vector has one class */
INLINE vec sum_of_classes(vec x) { return x; }
#endif

/* Which lanes belong to the first ``classes`` classes of a vector. */
INLINE ivec first_lanes(int64_t classes) {
    static const int32_t number[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    ivec lane, end = (ivec)all(0.0f) + (int32_t)(classes * BLOCK);
    memcpy(&lane, number, sizeof(lane));
    return lane < end;
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
    vec sums[ROWS][COLUMNS];
    UNROLL(12) for (int m = 0; m < count; m++)
        UNROLL(4) for (int v = 0; v < vectors; v++)
            sums[m][v] = load(start + v * LANES);
    for (int k = 0; k < k_count; k++) {
        const float *x = rows ? rows[k] + first : a + k;
        FORGET(x);
        vec by[COLUMNS];
        UNROLL(4) for (int v = 0; v < vectors; v++) by[v] = load(w + (ptrdiff_t)k * n + v * LANES);
        UNROLL(12) for (int m = 0; m < count; m++) {
            vec one = all(x[m * step]);
            UNROLL(4) for (int v = 0; v < vectors; v++) sums[m][v] += one * by[v];
        }
    }
    UNROLL(12) for (int m = 0; m < count; m++)
        UNROLL(4) for (int v = 0; v < vectors; v++)
            store(out + m * out_step + v * LANES, how == RELU ? larger(all(0.0f), sums[m][v]) : sums[m][v]);
}

/* A block's number of rows must be known when it is compiled. */
#define UP_TO_6(count, WITH) \
    case 1: WITH(1); break; \
    case 2: WITH(2); break; \
    case 3: WITH(3); break; \
    case 4: WITH(4); break; \
    case 5: WITH(5); break; \
    case 6: WITH(6); break;
#if defined(__AVX512F__)
#define FOR_COUNT(count, WITH) \
    switch (count) { \
        UP_TO_6(count, WITH) \
    case 7: WITH(7); break; \
    case 8: WITH(8); break; \
    case 9: WITH(9); break; \
    case 10: WITH(10); break; \
    case 11: WITH(11); break; \
    case 12: WITH(12); break; \
    }
#else
#define FOR_COUNT(count, WITH) \
    switch (count) { UP_TO_6(count, WITH) }
#endif

/* The rows of the next block. As few blocks as can be, of 5 and 6 rows rather than of 6 and a few: short ones wait for
   their sums. */
INLINE int rows_of_next(int left) {
    int blocks = (left + ROWS - 1) / ROWS;
    return (left + blocks - 1) / blocks;
}

INLINE void product_steps(int vectors, const float *a, const float *const *rows, ptrdiff_t step, const float *w,
                         const float *start, int n, int k_count, int m_count, float *out, ptrdiff_t out_step, int how) {
    for (int m = 0, count; m < m_count; m += count) {
        const float *from = rows ? NULL : a + m * step;
        float *to = out + m * out_step;
        count = rows_of_next(m_count - m);
#define WITH(rows_at_once) \
    product_block(rows_at_once, vectors, from, rows, m, step, w, start, n, k_count, to, out_step, how)
        FOR_COUNT(count, WITH)
#undef WITH
    }
}

/* The paper's steps are known when this is compiled: a step that is not needs a register for each row. */
INLINE void product_rows(int vectors, const float *a, const float *const *rows, ptrdiff_t step, const float *w,
                         const float *start, int n, int k_count, int m_count, float *out, ptrdiff_t out_step, int how) {
    if (rows)
        product_steps(vectors, a, rows, 1, w, start, n, k_count, m_count, out, out_step, how);
    else if (step == PADDED)
        product_steps(vectors, a, NULL, PADDED, w, start, n, k_count, m_count, out, out_step, how);
    else if (step == 2 * PADDED)
        product_steps(vectors, a, NULL, 2 * PADDED, w, start, n, k_count, m_count, out, out_step, how);
    else
        product_steps(vectors, a, NULL, step, w, start, n, k_count, m_count, out, out_step, how);
}

/* All n columns, COLUMNS vectors at a time. */
INLINE void product(const float *a, const float *const *rows, ptrdiff_t step, const float *w, const float *start, int n,
                    int k_count, int m_count, float *out, ptrdiff_t out_step, int how) {
    int at = 0;
    for (; at + COLUMNS * LANES <= n; at += COLUMNS * LANES)
        product_rows(COLUMNS, a, rows, step, w + at, start + at, n, k_count, m_count, out + at, out_step, how);
    if (COLUMNS * LANES > PADDED && at < n)
        product_rows(1, a, rows, step, w + at, start + at, n, k_count, m_count, out + at, out_step, how);
}

/* to[k][n] += sum over m of x(m, k) * g[m][n]: what a product's weights get back. */
INLINE void weight_block(int count, int vectors, const float *a, const float *const *rows, ptrdiff_t step,
                         const float *g, int n, int m_count, float *to) {
    enum { STEP = ROWS > 6 ? 4 : 1 }; /* more lines than registers for their addresses: four numbers of each */
    vec sums[ROWS][COLUMNS];
    UNROLL(12) for (int k = 0; k < count; k++)
        UNROLL(4) for (int v = 0; v < vectors; v++) sums[k][v] = load(to + k * n + v * LANES);
    int m = 0;
    if (rows && STEP > 1)
        for (; m + STEP <= m_count; m += STEP)
            UNROLL(12) for (int k = 0; k < count; k++) {
                const float *x = rows[k] + m;
                UNROLL(4) for (int j = 0; j < STEP; j++)
                    UNROLL(4) for (int v = 0; v < vectors; v++)
                        sums[k][v] += all(x[j]) * load(g + (ptrdiff_t)(m + j) * n + v * LANES);
            }
    for (; m < m_count; m++) {
        vec by[COLUMNS];
        UNROLL(4) for (int v = 0; v < vectors; v++) by[v] = load(g + (ptrdiff_t)m * n + v * LANES);
        UNROLL(12) for (int k = 0; k < count; k++) {
            vec one = all(rows ? rows[k][m] : a[m * step + k]);
            UNROLL(4) for (int v = 0; v < vectors; v++) sums[k][v] += one * by[v];
        }
    }
    UNROLL(12) for (int k = 0; k < count; k++)
        UNROLL(4) for (int v = 0; v < vectors; v++) store(to + k * n + v * LANES, sums[k][v]);
}

INLINE void weight_columns(int vectors, const float *a, const float *const *rows, ptrdiff_t step, const float *g, int n,
                           int k_count, int m_count, float *to) {
    for (int k = 0, count; k < k_count; k += count) {
        const float *from = rows ? NULL : a + k, *const *lines = rows ? rows + k : NULL;
        float *sums = to + (ptrdiff_t)k * n;
        count = rows_of_next(k_count - k);
#define WITH(rows_at_once) weight_block(rows_at_once, vectors, from, lines, step, g, n, m_count, sums)
        FOR_COUNT(count, WITH)
#undef WITH
    }
}

INLINE void weight_gradient(const float *a, const float *const *rows, ptrdiff_t step, const float *g, int n,
                            int k_count, int m_count, float *to) {
    int at = 0;
    for (; at + COLUMNS * LANES <= n; at += COLUMNS * LANES)
        weight_columns(COLUMNS, a, rows, step, g + at, n, k_count, m_count, to + at);
    if (COLUMNS * LANES > PADDED && at < n) weight_columns(1, a, rows, step, g + at, n, k_count, m_count, to + at);
}

static void column_sums(const float *g, int n, int m_count, float *to) {
    for (int at = 0; at < n; at += LANES) {
        vec sum = load(to + at);
        for (int m = 0; m < m_count; m++) sum += load(g + (ptrdiff_t)m * n + at);
        store(to + at, sum);
    }
}

/* ---- squash ----------------------------------------------------------------------------------------------------- */

/* Eq. 8: v = s |s| / (1 + |s|^2), one capsule. */
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
    static const float zeros[COLUMNS * LANES];
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
        for (; at + COLUMNS * LANES <= in; at += COLUMNS * LANES)
            product_rows(COLUMNS, from, NULL, out, turned + at, zeros, (int)in, (int)(taps * out), (int)count,
                         to + rest * in + at, stride * in, PLAIN);
        if (COLUMNS * LANES > PADDED && at < in)
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

/* The first routing iteration, where all couplings are 1/n: adds the predictions of some capsules to the sums of some
   classes and pixels (Eq. 6).
   children (pixels, I*e); sums in blocks of pixels. */
INLINE void first_turn_block(int count, int classes, int size, int d, int64_t n, const float *u, int64_t inputs,
                             const float *w, int64_t capsules, float *const *sums) {
    for (int v = 0; v < d; v += PARTS * LANES) {
        vec said[ROWS][COLUMNS]; /* vectors of the first class, then of the next */
        UNROLL(12) for (int q = 0; q < count; q++)
            UNROLL(4) for (int j = 0; j < classes * PARTS; j++)
                said[q][j] = load(sums[q] + j / PARTS * BLOCK * d + v + j % PARTS * LANES);
        for (int64_t i = 0; i < capsules; i++) {
            const float *by = w + i * n * size * d + v, *from = u + i * size;
            UNROLL(8) for (int e = 0; e < size; e++) {
                vec column[COLUMNS];
                UNROLL(4) for (int j = 0; j < classes * PARTS; j++)
                    column[j] = load(by + (j / PARTS * size + e) * d + j % PARTS * LANES);
                UNROLL(12) for (int q = 0; q < count; q++) {
                    vec one = all(from[q * inputs + e]);
                    UNROLL(4) for (int j = 0; j < classes * PARTS; j++) said[q][j] += one * column[j];
                }
            }
        }
        UNROLL(12) for (int q = 0; q < count; q++)
            UNROLL(4) for (int j = 0; j < classes * PARTS; j++)
                store(sums[q] + j / PARTS * BLOCK * d + v + j % PARTS * LANES, said[q][j]);
    }
}

/* Each on its own, or gcc keeps the sums of one in memory for the sake of the other. */
#define FIRST_TURN(count, classes) \
    static NOINLINE void first_##count##_##classes(int size, int d, int64_t n, const float *u, int64_t inputs, \
                                                   const float *w, int64_t capsules, float *const *sums) { \
        first_turn_block(count, classes, size, d, n, u, inputs, w, capsules, sums); \
    } \
    static NOINLINE void usual_##count##_##classes(int size, int d, int64_t n, const float *u, int64_t inputs, \
                                                   const float *w, int64_t capsules, float *const *sums) { \
        (void)size, (void)d; \
        first_turn_block(count, classes, 8, 16, n, u, inputs, w, capsules, sums); \
    }
typedef void (*FirstTurn)(int, int, int64_t, const float *, int64_t, const float *, int64_t, float *const *);
FIRST_TURN(4, 1)
#if defined(__AVX512F__)
FIRST_TURN(8, 1) FIRST_TURN(12, 1) FIRST_TURN(4, 2) FIRST_TURN(8, 2) FIRST_TURN(12, 2)
static FirstTurn first_turn_of(int count, int classes, int usual) {
    if (classes == 2)
        return usual ? (count == 12 ? usual_12_2 : count == 8 ? usual_8_2 : usual_4_2)
                     : (count == 12 ? first_12_2 : count == 8 ? first_8_2 : first_4_2);
    return usual ? (count == 12 ? usual_12_1 : count == 8 ? usual_8_1 : usual_4_1)
                 : (count == 12 ? first_12_1 : count == 8 ? first_8_1 : first_4_1);
}
/* Pixels are a multiple of four. */
static int first_turn_count(int64_t left) { return left > 12 ? 12 : (int)left; }
#else
FIRST_TURN(6, 1)
static FirstTurn first_turn_of(int count, int classes, int usual) {
    (void)classes;
    return usual ? (count == 6 ? usual_6_1 : usual_4_1) : (count == 6 ? first_6_1 : first_4_1);
}
/* A multiple of four pixels, in sixes and, at the end, up to two fours. */
static int first_turn_count(int64_t left) { return left > 8 || left == 6 ? 6 : 4; }
#endif

static void first_turn(int size, int d, const Routing *r, const float *children, const float *w, int64_t rounded,
                       float *sums) {
    const int64_t n = r->classes, inputs = r->capsules * size;
    const int usual = size == 8 && d == 16; /* the paper's sizes, known when this is compiled */
    for (int64_t i = 0; i < r->capsules; i += CAPSULES) {
        int64_t some = r->capsules - i < CAPSULES ? r->capsules - i : CAPSULES;
        for (int64_t k = 0, classes; k < n; k += classes) {
            classes = n - k < COLUMNS / PARTS ? 1 : COLUMNS / PARTS;
            for (int64_t p = 0, count; p < rounded; p += count) {
                count = first_turn_count(rounded - p);
                float *to[ROWS];
                for (int64_t q = 0; q < count; q++)
                    to[q] = sums + (((p + q) / BLOCK * n + k) * BLOCK + (p + q) % BLOCK) * d;
                first_turn_of((int)count, (int)classes, usual)(size, d, n, children + p * inputs + i * size, inputs,
                                                               w + (i * n + k) * size * d, some, to);
            }
        }
    }
}

/* One term of Eq. 6: adds a capsule's predictions (classes, 4, d), weighted by its couplings (classes, 4); one vector. */
INLINE void add_weighted(int d, const float *couplings, const float *predictions, float *sums, int pixel, int v) {
    int at = pixel * d + v;
    store(sums + at, load(sums + at) + all(couplings[pixel]) * load(predictions + at));
}

/* One capsule, a block of pixels and some classes: prediction vectors (classes, 4, d), and their products with the
   parents so far, to be summed over the lanes. The predictions replace those of the capsule before; if that has
   couplings, its share is added to the sums on the way: predicting is all arithmetic, adding all memory. */
INLINE void predict(int classes, int size, int d, const float *u, const float *w, const float *parents,
                    float *predictions, vec *matches, const float *couplings, float *sums) {
    const int pixels = classes * BLOCK, adds = pixels * PARTS;
    UNROLL(16) for (int j = 0; j < pixels; j++) matches[j] = all(0.0f);
    for (int v = 0; v < d; v += PARTS * LANES) {
        vec said[TOGETHER * BLOCK][PARTS];
        UNROLL(16) for (int j = 0; j < pixels; j++)
            UNROLL(4) for (int part = 0; part < PARTS; part++) said[j][part] = all(0.0f);
        UNROLL(8) for (int e = 0; e < size; e++) {
            vec by[TOGETHER][PARTS];
            UNROLL(4) for (int c = 0; c < classes; c++)
                UNROLL(4) for (int part = 0; part < PARTS; part++)
                    by[c][part] = load(w + (c * size + e) * d + v + part * LANES);
            UNROLL(4) for (int q = 0; q < BLOCK; q++) {
                vec one = all(u[q * size + e]);
                UNROLL(4) for (int c = 0; c < classes; c++)
                    UNROLL(4) for (int part = 0; part < PARTS; part++)
                        said[c * BLOCK + q][part] += one * by[c][part];
            }
            if (couplings)
                UNROLL(4) for (int j = e * adds / size; j < (e + 1) * adds / size; j++)
                    add_weighted(d, couplings, predictions, sums, j / PARTS, v + j % PARTS * LANES);
        }
        UNROLL(16) for (int j = 0; j < pixels; j++)
            UNROLL(4) for (int part = 0; part < PARTS; part++) {
                int at = j * d + v + part * LANES;
                store(predictions + at, said[j][part]);
                matches[j] += said[j][part] * load(parents + at);
            }
    }
}

/* One capsule of a block of pixels: its prediction vectors (n, 4, d), their products with the parents so far (log
   priors), and the couplings, the softmax of these (n, 4; Eq. 7). In the softmax a vector holds GROUP classes of four pixels. Predictions and
   couplings ``before`` are those of the capsule before, or none. */
INLINE void route_capsule(int first, int size, int d, int64_t n, const float *children, int64_t step, const float *w,
                          const float *agreed, float *sums, float *u, float *predictions, vec *t, const vec *before) {
    const int64_t groups = (n + GROUP - 1) / GROUP, class_size = BLOCK * d;
    UNROLL(4) for (int q = 0; q < BLOCK; q++) /* side by side, at distances known beforehand */
        UNROLL(8) for (int e = 0; e < size; e++) u[q * size + e] = children[q * step + e];
    for (int64_t k = 0; k < n; k += GROUP) {
        vec matches[LANES];
        FORGET(u);
        UNROLL(4) for (int64_t c = 0; c < GROUP; c++) {
            const int64_t at = (k + c) * class_size;
            const float *by = w + (k + c) * size * d, *couplings = first ? NULL : (const float *)before + (k + c) * BLOCK;
            vec *to = matches + c * BLOCK;
            if (TOGETHER > 1 && c == 0 && k + TOGETHER <= n) {
                predict(TOGETHER, size, d, u, by, agreed + at, predictions + at, to, couplings, sums + at);
                break;
            }
            if (k + c < n)
                predict(1, size, d, u, by, agreed + at, predictions + at, to, couplings, sums + at);
            else
                UNROLL(4) for (int q = 0; q < BLOCK; q++) to[q] = all(0.0f);
        }
        t[k / GROUP] = lane_sums(matches);
    }
    /* Where there is no class any more: nothing, before and after the exponential, which stops at e^-87. */
    const ivec is_class = first_lanes(n - (groups - 1) * GROUP);
    t[groups - 1] = where(is_class, t[groups - 1], all(-INFINITY));
    vec most = t[0], total = all(0.0f);
    for (int64_t k = 1; k < groups; k++) most = larger(most, t[k]);
    most = largest_class(most);
    for (int64_t k = 0; k < groups; k++) {
        t[k] = exponential(t[k] - most);
        total += k < groups - 1 ? t[k] : where(is_class, t[k], all(0.0f));
    }
    total = all(1.0f) / sum_of_classes(total);
    for (int64_t k = 0; k < groups; k++) t[k] *= total;
}

/* Some capsules of a block of pixels, one after the other. */
INLINE void route_capsules(int size, int d, int64_t n, int64_t count, const float *children, int64_t step,
                           const float *w, const float *agreed, float *sums, float *u, float *predictions, vec *t,
                           float *couplings) {
    const int64_t groups = (n + GROUP - 1) / GROUP;
    for (int64_t i = 0; i < count; i++) {
        vec *now = t + i % 2 * groups, *before = t + (i + 1) % 2 * groups;
        const float *from = children + i * size, *by = w + i * n * size * d;
        if (i == 0)
            route_capsule(1, size, d, n, from, step, by, agreed, sums, u, predictions, now, before);
        else
            route_capsule(0, size, d, n, from, step, by, agreed, sums, u, predictions, now, before);
        if (couplings) memcpy(couplings + i * n * BLOCK, now, sizeof(float) * (size_t)(n * BLOCK));
    }
    const float *last = (const float *)(t + (count - 1) % 2 * groups);
    for (int64_t pixel = 0; pixel < n * BLOCK; pixel++)
        for (int v = 0; v < d; v += LANES) add_weighted(d, last, predictions, sums, (int)pixel, v);
}

/* Eq. 8 for ``count`` class capsules, each d numbers: replaces or adds. */
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

/* What is used at once must not lie a multiple of 4,096 bytes apart: processors compare that part of an address only, and
   take it for the same place. */
enum { SKEW = 336 };

typedef struct {
    void *block;
    float *sums, *agreed; /* (TILE / 4, n, 4, d) */
    float *predictions;   /* (n, 4, d) */
    float *u;             /* (4, e) */
    vec *t;               /* (2, groups of classes) */
    float *children;      /* (TILE, I*e) */
} RoutingRoom;

static int routing_room(const Routing *r, RoutingRoom *at) {
    int64_t nd = r->classes * r->class_size;
    int64_t groups = (r->classes + GROUP - 1) / GROUP;
    int64_t most = 2 * SKEW + (2 * TILE + BLOCK) * nd + 2 * LANES * groups + (TILE * r->capsules + BLOCK) * r->size;
    at->sums = room((size_t)most, &at->block);
    at->agreed = at->sums + TILE * nd + SKEW;
    at->predictions = at->agreed + TILE * nd + SKEW;
    at->t = (vec *)(at->predictions + BLOCK * nd);
    at->children = (float *)(at->t + 2 * groups);
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

enum { BACK_ROWS = LANES == 16 ? 8 : 4 }; /* of a matrix, summed at once */

/* Sums over the lanes, each of a vector. */
INLINE void sum_rows(int size, const vec *sums, float *to) {
    int e = 0;
    for (; e + LANES <= size; e += LANES) store(to + e, lane_sums(sums + e));
    for (; e < size; e++) to[e] = lane_sum(sums[e]);
}

/* Some rows of one capsule's matrices times two pixels' weighted gradients, not yet summed over the lanes. */
INLINE void child_rows(int rows, int two, int size, int d, const float *w, int64_t n, const float *g0, const float *g1,
                       const float *couplings, int64_t step, vec *sums0, vec *sums1) {
    vec s0[BACK_ROWS], s1[BACK_ROWS];
    UNROLL(8) for (int e = 0; e < rows; e++) s0[e] = s1[e] = all(0.0f);
    for (int64_t k = 0; k < n; k++) {
        vec l0 = all(couplings[k * step]), l1 = two ? all(couplings[k * step + 1]) : l0;
        UNROLL(4) for (int v = 0; v < d; v += LANES) {
            vec x0 = l0 * load(g0 + k * d + v), x1 = two ? l1 * load(g1 + k * d + v) : x0;
            UNROLL(8) for (int e = 0; e < rows; e++) {
                vec by = load(w + (k * size + e) * d + v);
                s0[e] += x0 * by;
                if (two) s1[e] += x1 * by;
            }
        }
    }
    UNROLL(8) for (int e = 0; e < rows; e++) {
        sums0[e] = s0[e];
        if (two) sums1[e] = s1[e];
    }
}

/* Some rows of the gradient of one capsule's matrix for one class: sum over pixels of u(p) l(p, k) g(p, k). */
INLINE void matrix_rows(int rows, int size, int d, const float *weighted, const float *g, int64_t pixels, float *to) {
    for (int v = 0; v < d; v += PARTS * LANES) {
        vec sums[BACK_ROWS][PARTS];
        UNROLL(8) for (int e = 0; e < rows; e++)
            UNROLL(4) for (int part = 0; part < PARTS; part++) sums[e][part] = all(0.0f);
        for (int64_t p = 0; p < pixels; p++) {
            vec by[PARTS];
            UNROLL(4) for (int part = 0; part < PARTS; part++) by[part] = load(g + p * d + v + part * LANES);
            UNROLL(8) for (int e = 0; e < rows; e++) {
                vec one = all(weighted[p * size + e]);
                UNROLL(4) for (int part = 0; part < PARTS; part++) sums[e][part] += one * by[part];
            }
        }
        UNROLL(8) for (int e = 0; e < rows; e++)
            UNROLL(4) for (int part = 0; part < PARTS; part++) store(to + e * d + v + part * LANES, sums[e][part]);
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

/* One capsule's room: its children (pixels, e) and couplings (n, pixels rounded up to blocks), which lie far apart in the
   job's arrays, u(p) l(p, k) of one class (pixels, e), and sums. */
typedef struct {
    void *block;
    float *u, *couplings, *weighted;
    vec *sums; /* (2, e) */
} CapsuleRoom;

static int capsule_room(const RouteBackJob *job, CapsuleRoom *at) {
    const int64_t rounded = (job->pixels + BLOCK - 1) / BLOCK * BLOCK, size = job->routing->size;
    at->sums = (vec *)room((size_t)((2 * LANES + 2 * job->pixels) * size + rounded * job->routing->classes), &at->block);
    at->couplings = (float *)(at->sums + 2 * size);
    at->u = at->couplings + rounded * job->routing->classes;
    at->weighted = at->u + job->pixels * size;
    return at->block != NULL;
}

INLINE void capsule_back(int size, int d, const RouteBackJob *job, int64_t i, const CapsuleRoom *at) {
    const int64_t n = job->routing->classes, capsules = job->routing->capsules, pixels = job->pixels;
    const int64_t inputs = capsules * size, blocks = (pixels + BLOCK - 1) / BLOCK, rounded = blocks * BLOCK;
    const float *w = job->viewpoints + i * n * size * d;
    float *u = at->u, *couplings = at->couplings, *weighted = at->weighted;
    for (int64_t p = 0; p < pixels; p++)
        UNROLL(8) for (int e = 0; e < size; e++) u[p * size + e] = job->children[p * inputs + i * size + e];
    for (int64_t b = 0; b < blocks; b++)
        for (int64_t k = 0; k < n; k++)
            memcpy(couplings + k * rounded + b * BLOCK, job->couplings + ((b * capsules + i) * n + k) * BLOCK,
                   sizeof(float) * BLOCK);
    for (int64_t k = 0; k < n; k++) {
        for (int64_t p = 0; p < pixels; p++)
            UNROLL(8) for (int e = 0; e < size; e++) weighted[p * size + e] = u[p * size + e] * couplings[k * rounded + p];
        const float *g = job->by_class + k * pixels * d;
        float *to = job->viewpoints_back + (i * n + k) * size * d;
        int e = 0;
        for (; e + BACK_ROWS <= size; e += BACK_ROWS)
            matrix_rows(BACK_ROWS, size, d, weighted + e, g, pixels, to + e * d);
        for (; e < size; e++) matrix_rows(1, size, d, weighted + e, g, pixels, to + e * d);
    }
    for (int64_t p = 0; p < pixels; p += 2) {
        const float *c = couplings + p, *g0 = job->gradient + p * n * d, *g1 = g0 + n * d;
        vec *sums0 = at->sums, *sums1 = sums0 + size;
        int two = p + 1 < pixels, e = 0;
        for (; e + BACK_ROWS <= size; e += BACK_ROWS)
            if (two)
                child_rows(BACK_ROWS, 1, size, d, w + e * d, n, g0, g1, c, rounded, sums0 + e, sums1 + e);
            else
                child_rows(BACK_ROWS, 0, size, d, w + e * d, n, g0, g0, c, rounded, sums0 + e, sums1 + e);
        for (; e < size; e++)
            if (two)
                child_rows(1, 1, size, d, w + e * d, n, g0, g1, c, rounded, sums0 + e, sums1 + e);
            else
                child_rows(1, 0, size, d, w + e * d, n, g0, g0, c, rounded, sums0 + e, sums1 + e);
        float *to = job->children_back + p * inputs + i * size;
        for (int which = 0; which <= two; which++)
            sum_rows(size, at->sums + which * size, to + which * inputs);
    }
}

static int route_back(const void *given, int64_t *next) {
    const RouteBackJob *job = given;
    const Routing *r = job->routing;
    CapsuleRoom at;
    if (!capsule_room(job, &at)) return 1;
    for (int64_t i; (i = take(next, 1)) < r->capsules;)
        if (r->size == 8 && r->class_size == 16)
            capsule_back(8, 16, job, i, &at);
        else
            capsule_back((int)r->size, (int)r->class_size, job, i, &at);
    free(at.block);
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

/* (values - mean) @ matrix in float64: values (pixels, bands), matrix (bands, columns), columns a multiple of 16; white
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
    enum { DOUBLES = LANES / 2 };
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
        for (int64_t at = 0; at < columns; at += 2 * DOUBLES)
            for (int64_t q = 0; q < count; q += ROWS) {
                dvec sums[ROWS][2];
                UNROLL(12) for (int m = 0; m < ROWS; m++) sums[m][0] = sums[m][1] = all_doubles(0.0);
                for (int64_t b = 0; b < bands; b++) {
                    dvec m0 = load_doubles(job->matrix + b * columns + at);
                    dvec m1 = load_doubles(job->matrix + b * columns + at + DOUBLES);
                    UNROLL(12) for (int m = 0; m < ROWS; m++) {
                        dvec one = all_doubles(x[(q + m) * bands + b]);
                        sums[m][0] += one * m0;
                        sums[m][1] += one * m1;
                    }
                }
                for (int64_t m = 0; m < ROWS && q + m < count; m++)
                    for (int64_t i = 0; i < 2 * DOUBLES && at + i < outputs; i++)
                        job->white[(p + q + m) * outputs + at + i] = (float)sums[m][i / DOUBLES][i % DOUBLES];
            }
    }
    free(x);
    return 0;
}

/* ---- label propagation ------------------------------------------------------------------------------------------ */

/* A step of conjugate gradients for the system of training/label_propagation.py, with the bits of numpy and scipy. Its
   columns are in blocks of SOLVED, a task each: (blocks, pixels, SOLVED). */
enum { SOLVED = 8, DOUBLES = LANES / 2, SOLVED_VECTORS = SOLVED / DOUBLES };

typedef struct {
    int64_t pixels, blocks;
    const int64_t *starts, *neighbours; /* the Laplacian: where each row begins, and the columns of its entries */
    const double *entries, *strength, *diagonal; /* diagonal: of the system */
    double *solution, *residual, *direction, *image;
    double *size; /* (blocks, SOLVED): of the residual */
} SolverJob;

/* The system times the direction, into the image; adds up the curvature of each column. */
INLINE void solver_image(const SolverJob *job, const double *direction, double *image, dvec *curvature) {
    for (int64_t p = 0; p < job->pixels; p++) {
        dvec sums[SOLVED_VECTORS];
        UNROLL(4) for (int v = 0; v < SOLVED_VECTORS; v++) sums[v] = all_doubles(0.0);
        for (int64_t j = job->starts[p]; j < job->starts[p + 1]; j++) {
            const double *from = direction + job->neighbours[j] * SOLVED;
            dvec entry = all_doubles(job->entries[j]);
            UNROLL(4) for (int v = 0; v < SOLVED_VECTORS; v++) {
                dvec part = entry * load_doubles(from + v * DOUBLES);
                ROUND(part);
                sums[v] += part;
            }
        }
        dvec strength = all_doubles(job->strength[p]);
        UNROLL(4) for (int v = 0; v < SOLVED_VECTORS; v++) {
            int64_t at = p * SOLVED + v * DOUBLES;
            dvec own = load_doubles(direction + at), part = strength * own;
            ROUND(part);
            sums[v] += part;
            store_doubles(image + at, sums[v]);
            dvec product = own * sums[v];
            ROUND(product);
            curvature[v] += product;
        }
    }
}

/* Moves along the direction; adds up the size of the residual, which goes into the image by its preconditioner. */
INLINE void solver_move(const SolverJob *job, const double *length, int64_t block, dvec *size) {
    const int64_t begin = block * job->pixels * SOLVED;
    double *solution = job->solution + begin, *residual = job->residual + begin, *image = job->image + begin;
    const double *direction = job->direction + begin;
    for (int64_t p = 0; p < job->pixels; p++)
        UNROLL(4) for (int v = 0; v < SOLVED_VECTORS; v++) {
            int64_t at = p * SOLVED + v * DOUBLES;
            dvec by = load_doubles(length + v * DOUBLES);
            dvec moved = by * load_doubles(direction + at), less = by * load_doubles(image + at);
            ROUND(moved);
            ROUND(less);
            store_doubles(solution + at, load_doubles(solution + at) + moved);
            dvec left = load_doubles(residual + at) - less, scaled = left / all_doubles(job->diagonal[p]);
            store_doubles(residual + at, left);
            store_doubles(image + at, scaled);
            dvec product = left * scaled;
            ROUND(product);
            size[v] += product;
        }
}

/* Turns the direction: its share of the one before, and the residual by its preconditioner. */
INLINE void solver_turn(int64_t pixels, const double *share, const double *image, double *direction) {
    for (int64_t p = 0; p < pixels; p++)
        UNROLL(4) for (int v = 0; v < SOLVED_VECTORS; v++) {
            int64_t at = p * SOLVED + v * DOUBLES;
            dvec before = load_doubles(direction + at) * load_doubles(share + v * DOUBLES);
            ROUND(before);
            store_doubles(direction + at, before + load_doubles(image + at));
        }
}

/* (SOLVED,) quotients, 0 where the divisor is not positive. */
INLINE void quotients(const double *of, const double *by, double *to) {
    for (int k = 0; k < SOLVED; k++) to[k] = by[k] > 0.0 ? of[k] / by[k] : 0.0;
}

static int solver_step(const void *given, int64_t *next) {
    const SolverJob *job = given;
    for (int64_t block; (block = take(next, 1)) < job->blocks;) {
        const int64_t begin = block * job->pixels * SOLVED;
        double *size = job->size + block * SOLVED, sums[SOLVED], by[SOLVED];
        dvec found[SOLVED_VECTORS];
        UNROLL(4) for (int v = 0; v < SOLVED_VECTORS; v++) found[v] = all_doubles(0.0);
        solver_image(job, job->direction + begin, job->image + begin, found);
        UNROLL(4) for (int v = 0; v < SOLVED_VECTORS; v++) store_doubles(sums + v * DOUBLES, found[v]);
        quotients(size, sums, by);
        UNROLL(4) for (int v = 0; v < SOLVED_VECTORS; v++) found[v] = all_doubles(0.0);
        solver_move(job, by, block, found);
        UNROLL(4) for (int v = 0; v < SOLVED_VECTORS; v++) store_doubles(sums + v * DOUBLES, found[v]);
        quotients(sums, size, by);
        solver_turn(job->pixels, by, job->image + begin, job->direction + begin);
        memcpy(size, sums, sizeof sums);
    }
    return 0;
}

/* ---- noise -------------------------------------------------------------------------------------------------------

   Normal numbers from a generator of numpy, with the bits of numpy's own (the ziggurat of Marsaglia and Tsang, 2000), three
   times as fast: numpy decides with a branch whether a number is negative, and processors can't guess that. */

typedef uint32_t (*NextWord)(void *state);

INLINE float uniform(NextWord next, void *state) { return (float)(next(state) >> 8) * (1.0f / 16777216.0f); }

/* A number beyond ``last``, where the lowest layer ends. What is added is rounded first, as on any processor. */
NOINLINE static float tail_number(NextWord next, void *state, float last, float inverse, int negative) {
    for (;;) {
        volatile float beyond = -inverse * log1pf(-uniform(next, state));
        float room = -log1pf(-uniform(next, state));
        if (room + room > beyond * beyond) return negative ? -(last + beyond) : last + beyond;
    }
}

/* Whether x, at the edge of a layer, lies below the curve. */
NOINLINE static int is_below_curve(NextWord next, void *state, const float *heights, uint32_t layer, float x) {
    volatile float above = (heights[layer - 1] - heights[layer]) * uniform(next, state);
    return above + heights[layer] < exp(-0.5 * x * x);
}

/* Tables of 256 layers: sizes up to which a number lies below the curve for certain, the widths of a step, the heights. */
EXPORT void hypercaps_normals(NextWord next, void *state, const uint32_t *inside, const float *widths,
                              const float *heights, float last, float inverse, float *to, int64_t count) {
    for (int64_t i = 0; i < count;) {
        uint32_t word = next(state), layer = word & 0xff, size = word >> 9, sign = (word & 0x100) << 23, bits;
        float x = (float)(int32_t)size * widths[layer];
        memcpy(&bits, &x, 4);
        bits |= sign;
        memcpy(&x, &bits, 4);
        if (size >= inside[layer]) {
            if (layer == 0) {
                x = tail_number(next, state, last, inverse, size >> 8 & 1);
            } else if (!is_below_curve(next, state, heights, layer, x)) {
                continue;
            }
        }
        to[i++] = x;
    }
}

/* ---- threads -----------------------------------------------------------------------------------------------------

   Python makes the threads and lets them sleep. A helper that is awake waits for jobs here, looking at the pool without
   pause: a training step is a handful of jobs of a millisecond, and to wake a sleeping thread takes longer than that. */

typedef int (*Kernel)(const void *, int64_t *);
static const Kernel KERNELS[] = {layers_forth, layers_back,       route_forth, squash_back_all, lengths_back,
                                 route_back,   lengths_of_pixels, whiten,      solver_step};

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

/* The widest vectors that this processor, and the system on it, can compute with: 512 bits (AVX-512 F, BW, DQ and VL), 256
   (AVX2 and FMA), or 0 for those that any processor of its kind has. */
EXPORT int hypercaps_widest(void) {
#if defined(__x86_64__)
    const unsigned wide = 6, widest = 0xe6; /* registers that the system must keep */
    const unsigned avx512 = bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL;
    unsigned a, b, c, d, low, high;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return 0;
    if (!(c & bit_FMA) || !(c & bit_OSXSAVE)) return 0;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    if ((low & wide) != wide) return 0;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & bit_AVX2)) return 0;
    return (low & widest) == widest && (b & avx512) == avx512 ? 512 : 256;
#else
    return 0;
#endif
}
