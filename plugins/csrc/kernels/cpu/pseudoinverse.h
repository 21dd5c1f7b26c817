// The iterative pseudoinverse of one m x m matrix in rows of `step` floats, padded with zeros.
#pragma once

#include <utility>

#include "matmul.h"
#include "scratch.h"

namespace nystra::NYSTRA_ISA {
namespace {

// The buffers of a pseudoinverse; A and Z are filled and read by the caller.
struct PinvBuffers {
  int64_t size, rows, step;  // m, m rounded up for products, m rounded up for vectors
  float *a, *z, *x, *t, *u, *row_sums, *col_sums;

  PinvBuffers(int64_t m, Scratch& scratch)
      : size(m), rows(round_up(m, 4)), step(round_up(m, kLanes)) {
    for (float** matrix : {&a, &z, &x, &t, &u}) *matrix = scratch.take(rows * step);
    row_sums = scratch.take(step);
    col_sums = scratch.take(step);
  }
};

inline void absolute_sums(const PinvBuffers& p) {
  for (int64_t j = 0; j < p.step; ++j) p.col_sums[j] = 0;
  for (int64_t i = 0; i < p.size; ++i) {
    Vec row = {};
    for (int64_t j = 0; j < p.step; j += kLanes) {
      const Vec v = abs(load(p.a + i * p.step + j));
      row += v;
      store(p.col_sums + j, load(p.col_sums + j) + v);
    }
    p.row_sums[i] = sum(row);
  }
}

inline BatchMaxima maxima(const PinvBuffers& p) {
  absolute_sums(p);
  BatchMaxima result = kOwnMaxima;
  for (int64_t i = 0; i < p.size; ++i) {
    merge({p.row_sums[i], p.col_sums[i]}, &result);
  }
  return result;
}

// Z0[i, j] = A[j, i] / (R C + 1e-15). R and C are those of the batch or, where they are negative,
// the largest sums among the rows in the region of row i (all rows where regions is null).
inline void start_value(const PinvBuffers& p, const BatchMaxima& batch, const int* regions) {
  if (batch.row < 0) absolute_sums(p);
  for (int64_t i = 0; i < p.size; ++i) {
    BatchMaxima r = batch;
    if (batch.row < 0) {
      for (int64_t j = 0; j < p.size; ++j) {
        if (regions != nullptr && regions[j] != regions[i]) continue;
        merge({p.row_sums[j], p.col_sums[j]}, &r);
      }
    }
    const float divisor = r.row * r.column + 1e-15f;
    for (int64_t j = 0; j < p.step; ++j)
      p.z[i * p.step + j] = j < p.size ? p.a[j * p.step + i] / divisor : 0.0f;
  }
  for (int64_t i = p.size * p.step; i < p.rows * p.step; ++i) p.z[i] = 0;
}

// out = diagonal I - x y; diagonal 0: out = x y / 4.
inline void step_product(const PinvBuffers& p, const float* x, const float* y, float diagonal,
                         float* out) {
  const float sign = diagonal == 0 ? 0.25f : -1.0f;
  multiply(p.rows, p.step, p.size, x, p.step, Fixed<1>(), y, p.step, Zero(),
           store_to(out, p.step, [sign](Vec v) { return v * sign; }));
  for (int64_t i = 0; i < p.size; ++i) out[i * p.step + i] += diagonal;
}

// Z <- Z (13 I - A Z (15 I - A Z (7 I - A Z))) / 4, `iterations` times.
inline void iterate(PinvBuffers& p, int64_t iterations) {
  for (int64_t i = 0; i < iterations; ++i) {
    multiply(p.rows, p.step, p.size, p.a, p.step, Fixed<1>(), p.z, p.step, Zero(),
             store_to(p.x, p.step, Same()));
    for (int64_t j = 0; j < p.rows * p.step; j += kLanes) store(p.t + j, -load(p.x + j));
    for (int64_t j = 0; j < p.size; ++j) p.t[j * p.step + j] += 7.0f;
    step_product(p, p.x, p.t, 15.0f, p.u);
    step_product(p, p.x, p.u, 13.0f, p.t);
    step_product(p, p.z, p.t, 0.0f, p.u);
    std::swap(p.z, p.u);
  }
}

}  // namespace
}  // namespace nystra::NYSTRA_ISA
