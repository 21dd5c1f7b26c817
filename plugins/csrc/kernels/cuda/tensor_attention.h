// The parts of attention on tensor cores, for half and bfloat16, with 16 queries per warp: scores,
// weights by an online softmax, sums of values. Tiles have rows of tensor_step(kSteps) elements.
//
// Queries, scores, weights and sums stay in registers, in the layout of the instruction
// (group = lane / 4, in = lane % 4): a lane holds rows group and group + 8 of its warp's
// queries, and keys or channels 2 in and 2 in + 1 of each 8. The scores of two times 8 keys,
// rounded to T, are the left factor of 16 rows of values.
#pragma once

#include "tensor_core.h"
#include "windows.h"

namespace nystra::cuda {
namespace {

// The two queries of a lane as left factors: step n has channels 16 n ... 16 n + 15.
template <int kSteps, class T>
__device__ __forceinline__ void load_queries(const T* map, int64_t stride, int channels,
                                             int64_t low, int64_t high, int in,
                                             uint32_t (&q)[kSteps][4]) {
#pragma unroll
  for (int n = 0; n < kSteps; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int c = 16 * n + 2 * in + i / 2 * 8;
      q[n][i] = c < channels ? word_at(map + (i % 2 ? high : low) * stride + c) : 0u;
    }
}

// Computes scores[n] of the queries with keys 8 n ... 8 n + 7.
template <int kSteps, int kEights, class T>
__device__ __forceinline__ void score_keys(const uint32_t (&q)[kSteps][4], const T* keys, int lane,
                                           float (&scores)[kEights][4]) {
  const T* const row = keys + (lane / 16 * 8 + lane % 8) * tensor_step(kSteps) + lane / 8 % 2 * 8;
#pragma unroll
  for (int n = 0; n < kEights / 2; ++n)
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      uint32_t k[4];
      load_matrices<false>(k, row + 16 * n * tensor_step(kSteps) + 16 * step);
      multiply_add_16<T>(scores[2 * n], q[step], k[0], k[1]);
      multiply_add_16<T>(scores[2 * n + 1], q[step], k[2], k[3]);
    }
}

// sums[c] += `left` times 16 rows in channels 8 c ... 8 c + 7.
template <int kSteps, class T>
__device__ __forceinline__ void add_rows(const uint32_t (&left)[4], const T* rows, int lane,
                                         float (&sums)[2 * kSteps][4]) {
  rows += lane % 16 * tensor_step(kSteps) + lane / 16 * 8;
#pragma unroll
  for (int c = 0; c < kSteps; ++c) {
    uint32_t v[4];
    load_matrices<true>(v, rows + 16 * c);
    multiply_add_16<T>(sums[2 * c], left, v[0], v[1]);
    multiply_add_16<T>(sums[2 * c + 1], left, v[2], v[3]);
  }
}

// Two times 8 columns of weights, rounded to T, as a left factor.
template <class T>
__device__ __forceinline__ void round_weights(const float (&low)[4], const float (&high)[4],
                                              uint32_t (&left)[4]) {
  left[0] = word_of<T>(low[0], low[1]);
  left[1] = word_of<T>(low[2], low[3]);
  left[2] = word_of<T>(high[0], high[1]);
  left[3] = word_of<T>(high[2], high[3]);
}

// sums[c] += weights V in channels 8 c ... 8 c + 7; totals += the sums of the weights, which are
// rounded to T.
template <int kSteps, int kEights, class T>
__device__ __forceinline__ void add_values(const float (&weights)[kEights][4], const T* values,
                                           int lane, float (&sums)[2 * kSteps][4],
                                           float (&totals)[4]) {
  const uint32_t ones = word_of<T>(1.0f, 1.0f);
#pragma unroll
  for (int n = 0; n < kEights / 2; ++n) {
    uint32_t left[4];
    round_weights<T>(weights[2 * n], weights[2 * n + 1], left);
    multiply_add_16<T>(totals, left, ones, ones);
    add_rows<kSteps>(left, values + 16 * n * tensor_step(kSteps), lane, sums);
  }
}

// Calls f(row 0 or 1 of the lane, key of the tile, score) for all scores.
template <int kEights, class F>
__device__ __forceinline__ void for_scores(int in, float (&scores)[kEights][4], const F& f) {
#pragma unroll
  for (int n = 0; n < kEights; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) f(i / 2, 8 * n + 2 * in + i % 2, scores[n][i]);
}

// Turns logits into weights relative to the largest logit so far, and rescales sums and totals to
// it. kHidden: all logits of a row may be -inf.
template <bool kHidden = false, int kEights, int kParts>
__device__ __forceinline__ void make_weights(float (&scores)[kEights][4], float (&maxima)[2],
                                             float (&sums)[kParts][4], float (&totals)[4]) {
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    float largest = maxima[row];
#pragma unroll
    for (int n = 0; n < kEights; ++n)
      largest = fmaxf(largest, fmaxf(scores[n][2 * row], scores[n][2 * row + 1]));
    largest = row_max(largest);
    const float base = kHidden && largest == -INFINITY ? 0.0f : largest;
    const float correction = power_of_two(maxima[row] - base);
    maxima[row] = largest;
#pragma unroll
    for (int i = 2 * row; i < 2 * row + 2; ++i) {
#pragma unroll
      for (int n = 0; n < kEights; ++n) scores[n][i] = power_of_two(scores[n][i] - base);
#pragma unroll
      for (int c = 0; c < kParts; ++c) sums[c][i] *= correction;
      totals[i] *= correction;
    }
  }
}

}  // namespace
}  // namespace nystra::cuda
