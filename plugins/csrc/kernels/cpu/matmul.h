// Products of small packed matrices: C = A B, with tiles of C in registers.
//
// A is read by element (and broadcast), B and C by vectors of kLanes columns. The initial values
// and the stores of a tile are functions, which may include exp, masks and stores to the map.
#pragma once

#include "simd.h"

namespace nystra::NYSTRA_ISA {
namespace {

// A stride known when compiling, so that the rows of A need no registers of their own.
template <int64_t N>
struct Fixed {
  constexpr operator int64_t() const { return N; }
};

constexpr int64_t kRowUnit = kTileRows == 12 ? 4 : 2;  // rows of a product are a multiple of it

template <int Rows, int Vecs, class RowStep, class DepthStep, class Start, class Finish>
inline void tile(int64_t row, int64_t col, int64_t depth, const float* a, RowStep row_step,
                 DepthStep depth_step, const float* b, int64_t b_step, const Start start,
                 const Finish finish) {  // copies: what the stores cannot change stays in registers
  Vec acc[Rows][Vecs];
#pragma GCC unroll 12
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < Vecs; ++v) acc[r][v] = start(row + r, col + v * kLanes);
  a += row * row_step;
  b += col;
  do {
    Vec bs[Vecs];
#pragma GCC unroll 2
    for (int v = 0; v < Vecs; ++v) bs[v] = load(b + v * kLanes);
#pragma GCC unroll 12
    for (int r = 0; r < Rows; ++r) {
      const Vec as = splat(a[r * row_step]);
#pragma GCC unroll 2
      for (int v = 0; v < Vecs; ++v) acc[r][v] = fma(as, bs[v], acc[r][v]);
    }
    a += depth_step;
    b += b_step;
  } while (--depth > 0);
  finish(row, col, acc);
}

template <int Vecs, class RowStep, class DepthStep, class Start, class Finish, class Between>
inline void panel(int64_t rows, int64_t col, int64_t depth, const float* a, RowStep row_step,
                  DepthStep depth_step, const float* b, int64_t b_step, const Start& start,
                  const Finish& finish, Between& between) {
  constexpr int kBig = kTileRows, kMiddle = kTileRows == 12 ? 8 : 4, kSmall = int(kRowUnit);
  for (int64_t row = 0; row < rows; between()) {
    const int64_t left = rows - row;
    if (left >= kBig && left != 2 * kMiddle) {
      tile<kBig, Vecs>(row, col, depth, a, row_step, depth_step, b, b_step, start, finish);
      row += kBig;
    } else if (left >= kMiddle) {
      tile<kMiddle, Vecs>(row, col, depth, a, row_step, depth_step, b, b_step, start, finish);
      row += kMiddle;
    } else {
      tile<kSmall, Vecs>(row, col, depth, a, row_step, depth_step, b, b_step, start, finish);
      row += kSmall;
    }
  }
}

// C (rows, cols) = start + A (rows, depth) B (depth, cols). Element (r, k) of A is
// a[r * row_step + k * depth_step]; rows are a multiple of kRowUnit, cols one of kLanes, depth
// >= 1. Functions should capture by value: references are read again after every store.
// `start(row, col)` gives a vector, `finish(row, col, acc)` takes a tile of Rows x Vecs vectors.
// `between()` is called after each tile.
template <class RowStep, class DepthStep, class Start, class Finish, class Between>
inline void multiply(int64_t rows, int64_t cols, int64_t depth, const float* a, RowStep row_step,
                     DepthStep depth_step, const float* b, int64_t b_step, const Start& start,
                     const Finish& finish, Between& between) {
  int64_t col = 0;
  for (; col + 2 * kLanes <= cols; col += 2 * kLanes)
    panel<2>(rows, col, depth, a, row_step, depth_step, b, b_step, start, finish, between);
  if (col < cols)
    panel<1>(rows, col, depth, a, row_step, depth_step, b, b_step, start, finish, between);
}

template <class RowStep, class DepthStep, class Start, class Finish>
inline void multiply(int64_t rows, int64_t cols, int64_t depth, const float* a, RowStep row_step,
                     DepthStep depth_step, const float* b, int64_t b_step, const Start& start,
                     const Finish& finish) {
  const auto nothing = [] {};
  multiply(rows, cols, depth, a, row_step, depth_step, b, b_step, start, finish, nothing);
}

struct Zero {
  Vec operator()(int64_t, int64_t) const { return Vec{}; }
};

// Calls f(row, col, vector) for each vector of a tile; f may change it.
template <int Rows, int Vecs, class F>
inline void each(int64_t row, int64_t col, Vec (&acc)[Rows][Vecs], const F& f) {
#pragma GCC unroll 12
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < Vecs; ++v) f(row + r, col + v * kLanes, acc[r][v]);
}

// A `finish` that stores f(vector) into a matrix.
template <class Step, class F>
inline auto store_to(float* c, Step step, const F& f) {
  return [c, step, f](int64_t row, int64_t col, auto& acc) {
    each(row, col, acc, [=](int64_t r, int64_t i, Vec v) { store(c + r * step + i, f(v)); });
  };
}

struct Same {
  Vec operator()(Vec v) const { return v; }
};

}  // namespace
}  // namespace nystra::NYSTRA_ISA
