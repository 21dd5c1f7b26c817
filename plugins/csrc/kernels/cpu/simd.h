// Vectors of float by GCC's vector extension, with intrinsics for other operations.
//
// Everything is in an anonymous namespace, so that no instruction set's copy can be linked into
// another's kernels.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "kernels.h"

namespace nystra::NYSTRA_ISA {
namespace {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
constexpr int kTileRows = 12;  // 24 accumulators of 32 registers
#elif defined(__AVX2__)
constexpr int kLanes = 8;
constexpr int kTileRows = 6;  // 12 accumulators of 16 registers
#elif defined(__aarch64__)
constexpr int kLanes = 4;
constexpr int kTileRows = 12;
#else
constexpr int kLanes = 4;
constexpr int kTileRows = 6;
#endif

typedef float Vec __attribute__((vector_size(kLanes * 4)));
typedef int32_t IntVec __attribute__((vector_size(kLanes * 4)));

constexpr float kLog2E = 1.44269504088896341f;
constexpr float kLn2 = 0.693147180559945309f;

inline int64_t round_up(int64_t n, int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

inline Vec splat(float x) { return x - Vec{}; }

inline Vec load(const float* p) {
  Vec v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

inline void store(float* p, Vec v) { std::memcpy(p, &v, sizeof v); }

// max and min return their second argument where either is NaN: put the data there.
#if defined(__AVX512F__)
inline Vec fma(Vec a, Vec b, Vec c) {
  return (Vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
}
inline Vec max(Vec a, Vec b) { return (Vec)_mm512_max_ps((__m512)a, (__m512)b); }
inline Vec square_root(Vec v) { return (Vec)_mm512_sqrt_ps((__m512)v); }
inline Vec min(Vec a, Vec b) { return (Vec)_mm512_min_ps((__m512)a, (__m512)b); }
#elif defined(__AVX2__)
inline Vec fma(Vec a, Vec b, Vec c) {
  return (Vec)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
}
inline Vec max(Vec a, Vec b) { return (Vec)_mm256_max_ps((__m256)a, (__m256)b); }
inline Vec square_root(Vec v) { return (Vec)_mm256_sqrt_ps((__m256)v); }
inline Vec min(Vec a, Vec b) { return (Vec)_mm256_min_ps((__m256)a, (__m256)b); }
#else
inline Vec fma(Vec a, Vec b, Vec c) { return a * b + c; }
inline Vec max(Vec a, Vec b) { return a > b ? a : b; }
inline Vec square_root(Vec v) {
  for (int i = 0; i < kLanes; ++i) v[i] = __builtin_sqrtf(v[i]);
  return v;
}
inline Vec min(Vec a, Vec b) { return a < b ? a : b; }
#endif

inline Vec abs(Vec v) { return (Vec)((IntVec)v & 0x7fffffff); }

// Whether any lane is set, the sum of the lanes, and the largest one (any of them where one is
// NaN).
#if defined(__AVX512F__)
inline bool any(IntVec condition) { return _mm512_movepi32_mask((__m512i)condition) != 0; }
inline float sum(Vec v) { return _mm512_reduce_add_ps((__m512)v); }
inline float largest(Vec v) { return _mm512_reduce_max_ps((__m512)v); }
#elif defined(__AVX2__)
inline bool any(IntVec condition) { return _mm256_movemask_ps((__m256)condition) != 0; }
// f over all lanes, halves onto each other.
template <class F>
inline float reduce(Vec v, const F& f) {
  __m128 half = f(_mm256_castps256_ps128((__m256)v), _mm256_extractf128_ps((__m256)v, 1));
  half = f(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(f(half, _mm_movehdup_ps(half)));
}
inline float sum(Vec v) {
  return reduce(v, [](__m128 a, __m128 b) { return _mm_add_ps(a, b); });
}
inline float largest(Vec v) {
  return reduce(v, [](__m128 a, __m128 b) { return _mm_max_ps(a, b); });
}
#else
inline bool any(IntVec c) { return (c[0] | c[1] | c[2] | c[3]) != 0; }
inline float sum(Vec v) { return (v[0] + v[2]) + (v[1] + v[3]); }
inline float largest(Vec v) {
  const float a = v[0] > v[2] ? v[0] : v[2], b = v[1] > v[3] ? v[1] : v[3];
  return a > b ? a : b;
}
#endif

// 2^t, within 1 ulp where the result is a normal number. Below 2^-126 it stays there (denormal
// numbers are slow and nothing here needs them); NaN stays NaN.
inline Vec exp2(Vec t) {
  t = max(splat(-126.0f), t);
#if defined(__AVX512F__)
  const Vec n = (Vec)_mm512_roundscale_ps((__m512)t, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#else
  t = min(splat(128.0f), t);
  const Vec magic = splat(12582912.0f);  // 1.5 * 2^23: the sum's last bits are round(t)
  const Vec shifted = t + magic;
  const Vec n = shifted - magic;
#endif
  // Minimax polynomial of degree 6 with p(0) = 1 on [-1/2, 1/2], relative error 2.6e-9.
  const Vec r = t - n;
  Vec p = fma(splat(1.55946781613e-4f), r, splat(1.34066439024e-3f));
  p = fma(p, r, splat(9.61769297299e-3f));
  p = fma(p, r, splat(5.55031055101e-2f));
  p = fma(p, r, splat(2.40226527829e-1f));
  p = fma(p, r, splat(6.93147214968e-1f));
  p = fma(p, r, splat(1.0f));
#if defined(__AVX512F__)
  return (Vec)_mm512_scalef_ps((__m512)p, (__m512)n);
#else
  return p * (Vec)(((IntVec)shifted + 127) << 23);
#endif
}

// log2(x) of normal numbers, within 2 ulp: by the series of atanh((m - 1) / (m + 1)) of the
// mantissa m between sqrt(1/2) and sqrt(2).
inline Vec log2(Vec x) {
  const IntVec bits = (IntVec)x, exponent = (bits - 0x3f3504f3) >> 23;
  const Vec m = (Vec)(bits - (exponent << 23));
  const Vec s = (m - 1.0f) / (m + 1.0f), square = s * s;
  Vec p = fma(splat(1.0f / 9), square, splat(1.0f / 7));
  p = fma(p, square, splat(1.0f / 5));
  p = fma(p, square, splat(1.0f / 3));
  p = fma(p, square, splat(1.0f));
  return fma(2 * kLog2E * s, p, __builtin_convertvector(exponent, Vec));
}

// Transposes the block of kLanes x kLanes in place.
#if defined(__AVX512F__)
inline void transpose(Vec (&v)[kLanes]) {
  __m512 a[16], b[16];
  for (int i = 0; i < 16; i += 2) {
    a[i] = _mm512_unpacklo_ps((__m512)v[i], (__m512)v[i + 1]);
    a[i + 1] = _mm512_unpackhi_ps((__m512)v[i], (__m512)v[i + 1]);
  }
  const auto pair = [](__m512 x) { return _mm512_castps_pd(x); };
  for (int i = 0; i < 16; i += 4) {
    for (int half = 0; half < 2; ++half) {
      b[i + 2 * half] =
          _mm512_castpd_ps(_mm512_unpacklo_pd(pair(a[i + half]), pair(a[i + half + 2])));
      b[i + 2 * half + 1] =
          _mm512_castpd_ps(_mm512_unpackhi_pd(pair(a[i + half]), pair(a[i + half + 2])));
    }
  }
  for (int j = 0; j < 4; ++j) {
    const __m512 even0 = _mm512_shuffle_f32x4(b[j], b[j + 4], 0x88);
    const __m512 odd0 = _mm512_shuffle_f32x4(b[j], b[j + 4], 0xdd);
    const __m512 even1 = _mm512_shuffle_f32x4(b[j + 8], b[j + 12], 0x88);
    const __m512 odd1 = _mm512_shuffle_f32x4(b[j + 8], b[j + 12], 0xdd);
    v[j] = (Vec)_mm512_shuffle_f32x4(even0, even1, 0x88);
    v[j + 8] = (Vec)_mm512_shuffle_f32x4(even0, even1, 0xdd);
    v[j + 4] = (Vec)_mm512_shuffle_f32x4(odd0, odd1, 0x88);
    v[j + 12] = (Vec)_mm512_shuffle_f32x4(odd0, odd1, 0xdd);
  }
}
#elif defined(__AVX2__)
inline void transpose(Vec (&v)[kLanes]) {
  __m256 a[8], b[8];
  for (int i = 0; i < 8; i += 2) {
    a[i] = _mm256_unpacklo_ps((__m256)v[i], (__m256)v[i + 1]);
    a[i + 1] = _mm256_unpackhi_ps((__m256)v[i], (__m256)v[i + 1]);
  }
  const auto pair = [](__m256 x) { return _mm256_castps_pd(x); };
  for (int i = 0; i < 8; i += 4) {
    for (int half = 0; half < 2; ++half) {
      b[i + 2 * half] =
          _mm256_castpd_ps(_mm256_unpacklo_pd(pair(a[i + half]), pair(a[i + half + 2])));
      b[i + 2 * half + 1] =
          _mm256_castpd_ps(_mm256_unpackhi_pd(pair(a[i + half]), pair(a[i + half + 2])));
    }
  }
  for (int j = 0; j < 4; ++j) {
    v[j] = (Vec)_mm256_permute2f128_ps(b[j], b[j + 4], 0x20);
    v[j + 4] = (Vec)_mm256_permute2f128_ps(b[j], b[j + 4], 0x31);
  }
}
#else
inline void transpose(Vec (&v)[kLanes]) {
#if defined(__clang__)
#define NYSTRA_SHUFFLE(a, b, i, j, k, l) __builtin_shufflevector(a, b, i, j, k, l)
#else
#define NYSTRA_SHUFFLE(a, b, i, j, k, l) __builtin_shuffle(a, b, IntVec{i, j, k, l})
#endif
  const Vec a = NYSTRA_SHUFFLE(v[0], v[1], 0, 4, 1, 5), b = NYSTRA_SHUFFLE(v[0], v[1], 2, 6, 3, 7);
  const Vec c = NYSTRA_SHUFFLE(v[2], v[3], 0, 4, 1, 5), d = NYSTRA_SHUFFLE(v[2], v[3], 2, 6, 3, 7);
  v[0] = NYSTRA_SHUFFLE(a, c, 0, 1, 4, 5);
  v[1] = NYSTRA_SHUFFLE(a, c, 2, 3, 6, 7);
  v[2] = NYSTRA_SHUFFLE(b, d, 0, 1, 4, 5);
  v[3] = NYSTRA_SHUFFLE(b, d, 2, 3, 6, 7);
#undef NYSTRA_SHUFFLE
}
#endif

}  // namespace
}  // namespace nystra::NYSTRA_ISA
