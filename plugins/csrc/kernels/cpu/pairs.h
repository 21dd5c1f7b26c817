// Packs and splits pairs of bfloat16, the operands of products of that type (dots.h, tiles.h).
//
// Elements go in pairs of the depth, two in 32 bits: A is rows of them; row k of B holds rows 2 k
// and 2 k + 1 side by side. Numbers that do not fit into a bfloat16 are split into parts, high and
// low, whose products add up.
#pragma once

#include "window.h"

namespace nystra::NYSTRA_ISA {
namespace {

#if defined(__AVX512BF16__)

constexpr int64_t kSide = 16;  // what sizes are rounded up to: rows, columns, and pairs of a tile

typedef uint32_t Pair;

// A or B of a product: rows of `step` pairs, and how far on the next part lies (0: the same).
struct Factor {
  const Pair* data;
  int64_t step, part;
};

inline int64_t pairs_of(int64_t channels) { return round_up(channels, 2 * kSide) / 2; }

inline __m512i load_pairs(const BFloat16* p, int64_t n) {
  return n >= 32 ? _mm512_loadu_si512(p)
                 : _mm512_maskz_loadu_epi16(__mmask32((uint64_t(1) << n) - 1), p);
}

// Rows of A: out[i * step + c] = channels 2 c and 2 c + 1 of token i, c < pairs_of(channels).
inline void pack_pair_rows(const BFloat16* map, int64_t stride, const int64_t* pixels,
                           int64_t count, int64_t channels, Pair* out, int64_t step) {
  for (int64_t i = 0; i < count; ++i)
    for (int64_t c = 0; c < channels; c += 2 * kSide)
      _mm512_storeu_si512(out + i * step + c / 2,
                          load_pairs(map + pixels[i] * stride + c, channels - c));
}

// Columns of B: out[c * step + i] = the same; tokens from `count` to the next multiple of kSide are
// zeros.
inline void pack_pair_columns(const BFloat16* map, int64_t stride, const int64_t* pixels,
                              int64_t count, int64_t channels, Pair* out, int64_t step) {
  for (int64_t i = 0; i < count; i += kSide) {
    const int lanes = lanes_left(count, i);
    for (int64_t c = 0; c < channels; c += 2 * kSide) {
      Vec block[kSide];
#pragma GCC unroll 16
      for (int j = 0; j < kSide; ++j)
        block[j] =
            j < lanes ? (Vec)load_pairs(map + pixels[i + j] * stride + c, channels - c) : Vec{};
      transpose(block);
#pragma GCC unroll 16
      for (int j = 0; j < kSide; ++j)
        std::memcpy(out + (c / 2 + j) * step + i, &block[j], sizeof block[j]);
    }
  }
}

// Rows of B: out[i / 2 * step + c] = channel c of tokens i and i + 1, c < step. Tokens from `count`
// to the next multiple of 2 kSide, and channels from `channels` on, are zeros; but where kOnes says
// so, channel `channels` of a token is one.
template <bool kOnes>
inline void pack_token_pairs(const BFloat16* map, int64_t stride, const int64_t* pixels,
                             int64_t count, int64_t channels, Pair* out, int64_t step) {
  alignas(64) static constexpr uint16_t kOrder[2][32] = {
      {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
       8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47},
      {16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23, 55,
       24, 56, 25, 57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63}};
  const __m512i order[2] = {_mm512_load_si512(kOrder[0]), _mm512_load_si512(kOrder[1])};
  const auto words = [=](int64_t i, int64_t c) {
    const int64_t n = channels - c;
    if (i >= count) return _mm512_setzero_si512();
    __m512i v = n > 0 ? load_pairs(map + pixels[i] * stride + c, n) : _mm512_setzero_si512();
    if (kOnes && n >= 0 && n < 32)
      v = _mm512_mask_mov_epi16(v, __mmask32(1u << n), _mm512_set1_epi16(0x3f80));
    return v;
  };
  for (int64_t i = 0; i < round_up(count, 2 * kSide); i += 2) {
    Pair* const row = out + i / 2 * step;
    for (int64_t c = 0; c < step; c += 2 * kSide) {
      const __m512i first = words(i, c), second = words(i + 1, c);
      _mm512_storeu_si512(row + c, _mm512_permutex2var_epi16(first, order[0], second));
      if (c + kSide < step)
        _mm512_storeu_si512(row + c + kSide, _mm512_permutex2var_epi16(first, order[1], second));
    }
  }
}

// Writes the channels of a token: floats times a factor. Denormal results become zeros.
inline void write_token(const float* from, Vec factor, int64_t channels, BFloat16* token) {
  for (int64_t c = 0; c < channels; c += kLanes)
    _mm256_mask_storeu_epi16(token + c, __mmask16((1u << lanes_left(channels, c)) - 1),
                             (__m256i)_mm512_cvtneps_pbh((__m512)(load(from + c) * factor)));
}

// Two rows of floats as pairs, and as pairs what rounding left of them: row = high + low.
inline void split_rows(Vec first, Vec second, Vec* high, Vec* low) {
  const auto pair = [](IntVec a, IntVec b) { return (Vec)((a & 0xffff) | (b << 16)); };
  const IntVec a = bfloat16_bits(first), b = bfloat16_bits(second);
  *high = pair(a, b);
  *low = pair(bfloat16_bits(first - (Vec)(a << 16)), bfloat16_bits(second - (Vec)(b << 16)));
}

// The upper halves of 32 floats: bfloat16, cut off instead of rounded.
inline __m512i upper_halves(Vec first, Vec second) {
  alignas(64) static constexpr uint16_t kOrder[32] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21,
                                                      23, 25, 27, 29, 31, 33, 35, 37, 39, 41, 43,
                                                      45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
  return _mm512_permutex2var_epi16((__m512i)first, _mm512_load_si512(kOrder), (__m512i)second);
}

// What is cut off.
inline Vec lower_half(Vec v) { return v - (Vec)((IntVec)v & int32_t(0xffff0000)); }

#endif

}  // namespace
}  // namespace nystra::NYSTRA_ISA
