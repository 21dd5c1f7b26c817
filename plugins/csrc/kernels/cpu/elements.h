// Loads and stores of float, half and bfloat16 elements as vectors of float, whole and in part.
#pragma once

#include "simd.h"

namespace nystra::NYSTRA_ISA {
namespace {

inline float to_float(float x) { return x; }

inline float to_float(Half h) {
  const uint32_t sign = uint32_t(h.bits & 0x8000u) << 16, magnitude = h.bits & 0x7fffu;
  uint32_t bits;
  if (magnitude >= 0x7c00u) {
    bits = 0x7f800000u | (magnitude & 0x3ffu) << 13;
  } else if (magnitude >= 0x400u) {
    bits = (magnitude + 0x1c000u) << 13;  // exponent bias 15 to 127
  } else {
    const float value = float(magnitude) * 0x1p-24f;
    std::memcpy(&bits, &value, sizeof bits);
  }
  bits |= sign;
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

inline Half to_half(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  const uint32_t sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
  uint32_t result;
  if (magnitude > 0x7f800000u) {
    result = 0x7e00u;
  } else if (magnitude >= 0x477ff000u) {  // rounds to 2^16 or more
    result = 0x7c00u;
  } else if (magnitude >= 0x38800000u) {  // normal: ties to even, a carry moves into the exponent
    result = (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
  } else {  // denormal: adding 1/2 lines the last bit up with 2^-24 and rounds to even
    float value;
    std::memcpy(&value, &magnitude, sizeof value);
    value += 0.5f;
    std::memcpy(&result, &value, sizeof result);
    result -= 0x3f000000u;
  }
  return Half{uint16_t(result | sign)};
}

inline float to_float(BFloat16 b) {
  const uint32_t bits = uint32_t(b.bits) << 16;
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

// The upper halves of floats rounded to bfloat16, ties to even; NaN stays NaN.
inline IntVec bfloat16_bits(Vec v) {
  const IntVec bits = (IntVec)v, rounded = bits + 0x7fff + ((bits >> 16) & 1);
  return (v != v ? bits | 0x400000 : rounded) >> 16;
}

#if defined(__AVX512F__)
inline Vec load_part(const float* p, int n) {
  return (Vec)_mm512_maskz_loadu_ps(__mmask16((1u << n) - 1), p);
}
inline void store_part(float* p, Vec v, int n) {
  _mm512_mask_storeu_ps(p, __mmask16((1u << n) - 1), (__m512)v);
}
inline Vec load_part(const Half* p, int n) {
  return (Vec)_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(__mmask16((1u << n) - 1), p));
}
inline void store_part(Half* p, Vec v, int n) {
  _mm256_mask_storeu_epi16(p, __mmask16((1u << n) - 1),
                           _mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT));
}
inline Vec load_part(const BFloat16* p, int n) {
  const __m256i bits = _mm256_maskz_loadu_epi16(__mmask16((1u << n) - 1), p);
  return (Vec)_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16);
}
inline void store_part(BFloat16* p, Vec v, int n) {
  _mm256_mask_storeu_epi16(p, __mmask16((1u << n) - 1),
                           _mm512_cvtepi32_epi16((__m512i)bfloat16_bits(v)));
}
#elif defined(__AVX2__)
inline __m256i first_lanes(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
inline Vec load_part(const float* p, int n) { return (Vec)_mm256_maskload_ps(p, first_lanes(n)); }
inline void store_part(float* p, Vec v, int n) {
  _mm256_maskstore_ps(p, first_lanes(n), (__m256)v);
}
// The bits of n elements of two bytes.
template <class T>
inline __m128i load_bits(const T* p, int n) {
  if (n == kLanes) return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  __m128i bits = _mm_setzero_si128();
  std::memcpy(&bits, p, size_t(n) * sizeof *p);
  return bits;
}
inline Vec load_part(const Half* p, int n) { return (Vec)_mm256_cvtph_ps(load_bits(p, n)); }
inline void store_part(Half* p, Vec v, int n) {
  const __m128i bits = _mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT);
  std::memcpy(p, &bits, size_t(n) * sizeof *p);
}
inline Vec load_part(const BFloat16* p, int n) {
  return (Vec)_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_bits(p, n)), 16);
}
inline void store_part(BFloat16* p, Vec v, int n) {
  const __m256i words = (__m256i)(bfloat16_bits(v) & 0xffff);
  const __m128i bits =
      _mm_packus_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  std::memcpy(p, &bits, size_t(n) * sizeof *p);
}
#else
inline Vec load_part(const float* p, int n) {
  Vec v = {};
  if (n == kLanes) return load(p);
  for (int i = 0; i < n; ++i) v[i] = p[i];
  return v;
}
inline void store_part(float* p, Vec v, int n) {
  if (n == kLanes) return store(p, v);
  for (int i = 0; i < n; ++i) p[i] = v[i];
}
inline Vec load_part(const Half* p, int n) {
  Vec v = {};
  for (int i = 0; i < n; ++i) v[i] = to_float(p[i]);
  return v;
}
inline void store_part(Half* p, Vec v, int n) {
  for (int i = 0; i < n; ++i) p[i] = to_half(v[i]);
}
inline Vec load_part(const BFloat16* p, int n) {
  Vec v = {};
  for (int i = 0; i < n; ++i) v[i] = to_float(p[i]);
  return v;
}
inline void store_part(BFloat16* p, Vec v, int n) {
  const IntVec bits = bfloat16_bits(v);
  for (int i = 0; i < n; ++i) p[i].bits = uint16_t(bits[i]);
}
#endif

// Elements of a type, as pointers of it.
template <class T>
struct Elements {
  typedef T Element;
  static const T* of(const void* p) { return static_cast<const T*>(p); }
  static T* of(void* p) { return static_cast<T*>(p); }
};

// Calls f(Elements of the type).
template <class F>
inline void with_elements(Type type, const F& f) {
  switch (type) {
    case Type::kFloat: return f(Elements<float>());
    case Type::kHalf: return f(Elements<Half>());
    case Type::kBfloat16: return f(Elements<BFloat16>());
  }
}

// The lanes that hold data of a row of n elements from element i on.
inline int lanes_left(int64_t n, int64_t i) { return n - i < kLanes ? int(n - i) : kLanes; }

}  // namespace
}  // namespace nystra::NYSTRA_ISA
