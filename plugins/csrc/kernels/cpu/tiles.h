// Products of bfloat16 on the tiles of AMX, summed in float.
//
// A tile is 16 rows of 64 bytes. Elements go in pairs of the depth, two in 32 bits: A is rows of
// them, (16, 16 pairs); row k of B holds rows 2 k and 2 k + 1 side by side, (16 pairs, 16). What a
// bfloat16 cannot hold is split into parts, high and low, whose products add up.
#pragma once

#include "window.h"

namespace nystra::NYSTRA_ISA {
namespace {

// What a kernel holds while it works on elements of T: nothing.
template <class T>
struct TilesOf {};

#if defined(__AMX_BF16__)

constexpr int64_t kSide = 16;  // rows, columns, and pairs of a tile

typedef uint32_t Pair;

// A thread's tiles while this lives; then as its caller had them.
class Tiles {
 public:
  Tiles() {
    asm volatile("sttilecfg %0" : "=m"(before_));
    Configuration all = {};
    all.palette = 1;
    for (int i = 0; i < 8; ++i) all.rows[i] = kSide, all.row_bytes[i] = kSide * sizeof(Pair);
    asm volatile("ldtilecfg %0" : : "m"(all));
  }
  ~Tiles() { asm volatile("ldtilecfg %0" : : "m"(before_)); }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;

 private:
  struct Configuration {
    uint8_t palette, start;
    uint8_t reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
  };
  static_assert(sizeof(Configuration) == 64);
  Configuration before_;
};

template <>
struct TilesOf<BFloat16> : Tiles {};

// GCC's intrinsics do not say that a load reads memory.
template <int kTile>
inline void load_tile(const void* p, int64_t step) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2"
               :
               : "r"(p), "r"(step * int64_t(sizeof(Pair))), "i"(kTile)
               : "memory");
}
template <int kTile>
inline void store_tile(float* p, int64_t step) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)"
               :
               : "r"(p), "r"(step * int64_t(sizeof(float))), "i"(kTile)
               : "memory");
}
template <int kTile>
inline void zero_tile() {
  asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
}
template <int kC, int kA, int kB>
inline void dot_tiles() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kC), "i"(kA), "i"(kB));
}

// A or B of a product: rows of `step` pairs, and how far on the next part lies (0: the same).
struct Factor {
  const Pair* data;
  int64_t step, part;
};

template <bool kAdd, int kTile>
inline void start_tile(const float* c, int64_t step) {
  if constexpr (kAdd)
    load_tile<kTile>(c, step);
  else
    zero_tile<kTile>();
}

// Up to 2 x 2 tiles of C: tiles 0 to 3; A in 4 and 5, B in 6 and 7.
template <bool kAdd, int kRows, int kCols>
inline void multiply_block(int64_t depth, int parts, const Factor& a, const Factor& b, float* c,
                           int64_t c_step) {
  float *const beside = c + kSide, *const below = c + kSide * c_step;
  start_tile<kAdd, 0>(c, c_step);
  if constexpr (kCols == 2) start_tile<kAdd, 1>(beside, c_step);
  if constexpr (kRows == 2) start_tile<kAdd, 2>(below, c_step);
  if constexpr (kRows == 2 && kCols == 2) start_tile<kAdd, 3>(below + kSide, c_step);
  for (int part = 0; part < parts; ++part) {
    const Pair* left = a.data + part * a.part;
    const Pair* right = b.data + part * b.part;
    for (int64_t k = 0; k < depth; k += kSide, left += kSide, right += kSide * b.step) {
      load_tile<4>(left, a.step);
      load_tile<6>(right, b.step);
      dot_tiles<0, 4, 6>();
      if constexpr (kCols == 2) {
        load_tile<7>(right + kSide, b.step);
        dot_tiles<1, 4, 7>();
      }
      if constexpr (kRows == 2) {
        load_tile<5>(left + kSide * a.step, a.step);
        dot_tiles<2, 5, 6>();
        if constexpr (kCols == 2) dot_tiles<3, 5, 7>();
      }
    }
  }
  store_tile<0>(c, c_step);
  if constexpr (kCols == 2) store_tile<1>(beside, c_step);
  if constexpr (kRows == 2) store_tile<2>(below, c_step);
  if constexpr (kRows == 2 && kCols == 2) store_tile<3>(below + kSide, c_step);
}

// C (rows, cols) = or += the sum over the parts of A (rows, depth pairs) B (depth pairs, cols).
// Sizes are rounded up to kSide: so far is read and written.
template <bool kAdd>
inline void multiply_pairs(int64_t rows, int64_t cols, int64_t depth, int parts, const Factor& a,
                           const Factor& b, float* c, int64_t c_step) {
  for (int64_t row = 0; row < rows; row += 2 * kSide) {
    const Factor left = {a.data + row * a.step, a.step, a.part};
    for (int64_t col = 0; col < cols; col += 2 * kSide) {
      const Factor right = {b.data + col, b.step, b.part};
      float* const into = c + row * c_step + col;
      const bool wide = cols - col > kSide;
      if (rows - row > kSide)
        wide ? multiply_block<kAdd, 2, 2>(depth, parts, left, right, into, c_step)
             : multiply_block<kAdd, 2, 1>(depth, parts, left, right, into, c_step);
      else
        wide ? multiply_block<kAdd, 1, 2>(depth, parts, left, right, into, c_step)
             : multiply_block<kAdd, 1, 1>(depth, parts, left, right, into, c_step);
    }
  }
}

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
