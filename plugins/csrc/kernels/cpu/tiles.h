// Products of pairs on the tiles of AMX, summed in float. A tile is 16 rows of 64 bytes: of A
// (16, 16 pairs), of B (16 pairs, 16).
#pragma once

#include "pairs.h"

namespace nystra::NYSTRA_ISA {
namespace {

// The state of a kernel while it works on elements of T: none.
template <class T>
struct TilesOf {};

#if defined(__AMX_BF16__)

// Configures a thread's tiles, and restores those of its caller at the end.
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

// GCC's intrinsics do not declare that a load reads memory.
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
  float *const right = c + kSide, *const below = c + kSide * c_step;
  start_tile<kAdd, 0>(c, c_step);
  if constexpr (kCols == 2) start_tile<kAdd, 1>(right, c_step);
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
  if constexpr (kCols == 2) store_tile<1>(right, c_step);
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

#endif

}  // namespace
}  // namespace nystra::NYSTRA_ISA
