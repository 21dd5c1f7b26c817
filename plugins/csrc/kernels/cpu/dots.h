// Products of pairs by the dot products of AVX512-BF16, summed in float, for CPUs without tiles.
#pragma once

#include "pairs.h"

namespace nystra::NYSTRA_ISA {
namespace {

#if defined(__AVX512BF16__) && !defined(__AMX_BF16__)

constexpr int kDotRows = 8;  // of a block: with two vectors side by side 16 accumulators

// kDotRows rows of C, kVecs vectors wide. Inlined, Clang runs out of registers for it; GCC does
// not.
template <bool kAdd, int kVecs>
#if defined(__clang__)
__attribute__((noinline))
#else
inline
#endif
void dot_block(int64_t depth, int parts, const Factor& a, const Factor& b, float* c,
               int64_t c_step) {
  __m512 acc[kDotRows][kVecs];
#pragma GCC unroll 8
  for (int r = 0; r < kDotRows; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < kVecs; ++v)
      acc[r][v] = kAdd ? _mm512_loadu_ps(c + r * c_step + v * kSide) : _mm512_setzero_ps();
  for (int part = 0; part < parts; ++part) {
    const Pair* left = a.data + part * a.part;
    const Pair* right = b.data + part * b.part;
    for (int64_t k = 0; k < depth; ++k, ++left, right += b.step) {
      __m512bh bs[kVecs];
#pragma GCC unroll 2
      for (int v = 0; v < kVecs; ++v) bs[v] = (__m512bh)_mm512_loadu_si512(right + v * kSide);
#pragma GCC unroll 8
      for (int r = 0; r < kDotRows; ++r) {
        const __m512bh as = (__m512bh)_mm512_set1_epi32(int(left[r * a.step]));
#pragma GCC unroll 2
        for (int v = 0; v < kVecs; ++v) acc[r][v] = _mm512_dpbf16_ps(acc[r][v], as, bs[v]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kDotRows; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < kVecs; ++v) _mm512_storeu_ps(c + r * c_step + v * kSide, acc[r][v]);
}

// C (rows, cols) = or += the sum over the parts of A (rows, depth pairs) B (depth pairs, cols).
// Rows are rounded up to kDotRows and cols to kSide: so far is read and written.
template <bool kAdd>
inline void multiply_pairs(int64_t rows, int64_t cols, int64_t depth, int parts, const Factor& a,
                           const Factor& b, float* c, int64_t c_step) {
  for (int64_t row = 0; row < rows; row += kDotRows) {
    const Factor left = {a.data + row * a.step, a.step, a.part};
    for (int64_t col = 0; col < cols; col += 2 * kSide) {
      const Factor right = {b.data + col, b.step, b.part};
      float* const into = c + row * c_step + col;
      cols - col > kSide ? dot_block<kAdd, 2>(depth, parts, left, right, into, c_step)
                         : dot_block<kAdd, 1>(depth, parts, left, right, into, c_step);
    }
  }
}

#endif

}  // namespace
}  // namespace nystra::NYSTRA_ISA
