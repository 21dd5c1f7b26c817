// Online softmax of rows that arrive in blocks (Milakov and Gimelshein, 2018), in powers of two.
#pragma once

#include <cmath>

#include "simd.h"

namespace nystra::NYSTRA_ISA {
namespace {

// 2^t, or 0 below 2^-100: products of smaller ones with values may be denormal numbers, which some
// CPUs multiply a hundred times slower. A key with a score of -inf has no weight, whatever its
// value.
constexpr float kLeastPower = -100.0f;
inline Vec softmax_weight(Vec t) {
  const IntVec none = t < splat(kLeastPower);  // false for NaN
  return (Vec)((IntVec)exp2(max(splat(kLeastPower), t)) & ~none);
}

// What is known of rows so far: their maxima, their sums of 2^(score - maximum), and the factor
// that what was summed before the last block is to be multiplied by.
struct RunningSoftmax {
  float *maxima, *totals, *corrections;

  void reset(int64_t rows) const {
    for (int64_t r = 0; r < rows; ++r) maxima[r] = -INFINITY, totals[r] = 0;
  }
};

// Turns a block of scores into weights 2^(score - maximum) and updates `running`.
inline void softmax_block(float* scores, int64_t step, int64_t rows, int64_t cols,
                          const RunningSoftmax& running) {
  for (int64_t r = 0; r < rows; ++r, scores += step) {
    Vec top = load(scores);
    for (int64_t i = kLanes; i < cols; i += kLanes) top = max(top, load(scores + i));
    const float before = running.maxima[r], current = largest(top);
    const float maximum = current > before ? current : before;
    const float base = maximum == -INFINITY ? 0.0f : maximum;
    Vec total = {};
    for (int64_t i = 0; i < cols; i += kLanes) {
      const Vec w = softmax_weight(load(scores + i) - base);
      total += w;
      store(scores + i, w);
    }
    const float correction = maximum == before     ? 1.0f
                             : before == -INFINITY ? 0.0f
                                                   : softmax_weight(splat(before - base))[0];
    running.corrections[r] = correction;
    running.totals[r] = running.totals[r] * correction + sum(total);
    running.maxima[r] = maximum;
  }
}

}  // namespace
}  // namespace nystra::NYSTRA_ISA
