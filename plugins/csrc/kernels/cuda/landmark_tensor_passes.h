// The passes of both Nystrom forms on tensor cores.
#pragma once

#include "landmark_passes.h"
#include "landmark_tensor.h"

namespace nystra::cuda {
namespace {

// Turns logits of a tile's keys into weights of an online softmax: subtracts the maxima so far, and
// corrects what was summed before.
__device__ __forceinline__ void soften(float (&s)[kFold][4], float (&maxima)[2], float (&totals)[2],
                                       float (&sums)[kChannelParts][4]) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float largest = maxima[r];
#pragma unroll
    for (int t = 0; t < kFold; ++t) largest = fmaxf(largest, fmaxf(s[t][2 * r], s[t][2 * r + 1]));
    largest = row_max(largest);
#pragma unroll
    for (int t = 0; t < kFold; ++t)
#pragma unroll
      for (int i = 2 * r; i < 2 * r + 2; ++i) s[t][i] = power_of_two(s[t][i] - largest);
    const float correction = power_of_two(maxima[r] - largest);
    maxima[r] = largest;
    totals[r] *= correction;
#pragma unroll
    for (int c = 0; c < kChannelParts; ++c)
      sums[c][2 * r] *= correction, sums[c][2 * r + 1] *= correction;
  }
}

// Pass 1 on tensor cores.
template <Form kForm, class T>
__device__ void tensor_pass_keys(const LandmarkJob& job, const Place& place, const Head<T>& head,
                                 const LandmarkBuffers& b, const WarpBuffers& w) {
  const TensorLane at(w.lane);
  // For landmarks `group` and `group + 8`.
  float maxima[2] = {-INFINITY, -INFINITY}, totals[2] = {};
  int regions[2];
#pragma unroll
  for (int r = 0; r < 2; ++r)
    regions[r] = at.group + 8 * r < job.m ? b.regions[at.group + 8 * r] : 0;
  tensor_keys(job, place, head, b, w,
              [&](const TensorTile& tile, float (&s)[kFold][4], float (&sums)[kChannelParts][4]) {
#pragma unroll
                for (int t = 0; t < kFold; ++t)
#pragma unroll
                  for (int i = 0; i < 4; ++i) {
                    const float score = weigh<kForm>(job, s[t][i]);
                    s[t][i] = 8 * t + 2 * at.in + i % 2 < tile.count ? score : kNone<kForm>;
                  }
                if (place.cut) {
#pragma unroll
                  for (int t = 0; t < kFold; ++t)
#pragma unroll
                    for (int i = 0; i < 4; ++i)
                      if (tile.region(8 * t + 2 * at.in + i % 2) != regions[i / 2])
                        s[t][i] = apart<kForm>(s[t][i]);
                }
                if constexpr (kForm == Form::kSoftmax) soften(s, maxima, totals, sums);
#pragma unroll
                for (int t = 0; t < kFold; ++t)
#pragma unroll
                  for (int i = 0; i < 4; ++i) totals[i / 2] += s[t][i];
              });
  const WarpBuffers own(job, b);  // computed again, so that the loop does not keep it in registers
  const TensorLane to(own.lane);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float total = row_sum(totals[r]);
    const int landmark = to.group + 8 * r;
    if (to.in == 0 && landmark < b.m4)
      own.rows[landmark] = total, own.rows[b.m4 + landmark] = maxima[r];
  }
  __syncthreads();
}

// Pass 2 on tensor cores.
template <Form kForm, class T>
__device__ void tensor_pass_queries(const LandmarkJob& job, const Place& place, const Head<T>& in,
                                    int head, const LandmarkBuffers& b, const WarpBuffers& w,
                                    T* out) {
  constexpr bool kSoftmax = kForm == Form::kSoftmax;
  const TensorLane at(w.lane);
  const Fragments fragments(b, w.lane);
  const ColumnRegions regions(job, b, at);
  make_fragments(job, b, w, !kSoftmax && job.guard != 0.0f);
  for_tensor_tiles<Share::kEqual>(job, place, w, [&](const TensorTile& tile) {
    uint32_t queries[kFold][kSteps];
    load_queries(job, in, tile, at, queries);
#pragma unroll
    for (int part = 0; part < 2; ++part) {  // 16 tokens
      const int token = 16 * part + at.group;
      float s[kColumnParts][4] = {};
      score_queries<T>(queries[2 * part], queries[2 * part + 1], fragments, s);
      float maxima[2] = {-INFINITY, -INFINITY};
#pragma unroll
      for (int n = 0; n < kColumnParts; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float score = weigh<kForm>(job, s[n][i] * job.scale);
          s[n][i] = 8 * n + 2 * at.in + i % 2 < job.m ? score : kNone<kForm>;
          if (place.cut && tile.region(token + i / 2 * 8) != regions(n, i % 2))
            s[n][i] = apart<kForm>(s[n][i]);
          if (kSoftmax) maxima[i / 2] = fmaxf(maxima[i / 2], s[n][i]);
        }
#pragma unroll
      for (int r = 0; kSoftmax && r < 2; ++r) maxima[r] = row_max(maxima[r]);
      float denominators[2] = {}, totals[2] = {}, magnitudes[2] = {};
      Split<4> weights[kColumnParts];
#pragma unroll
      for (int n = 0; n < kColumnParts; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if (kSoftmax) s[n][i] = power_of_two(s[n][i] - maxima[i / 2]);
          const int landmark = 8 * n + 2 * at.in + i % 2;
          const float combined = !kSoftmax && landmark < job.m ? b.combined[landmark] : 0.0f;
          denominators[i / 2] = fmaf(s[n][i], combined, denominators[i / 2]);
          totals[i / 2] += s[n][i];
        }
        weights[n] = as_left(s[n]);
      }
      if (!kSoftmax && job.guard != 0.0f) {
#pragma unroll
        for (int o = 0; o < kColumnParts; ++o) {
          float p[4] = {};
#pragma unroll
          for (int n = 0; n < kColumnParts; ++n)
            multiply_add(p, weights[n], fragments.get(kOfInverse + n * kColumnParts + o));
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            const int landmark = 8 * o + 2 * at.in + i;
            const float sum = landmark < job.m ? b.rows[landmark] : 0.0f;
            magnitudes[0] = fmaf(fabsf(p[i]), sum, magnitudes[0]);
            magnitudes[1] = fmaf(fabsf(p[2 + i]), sum, magnitudes[1]);
          }
        }
      }
      float full[kChannelParts][4] = {};
#pragma unroll
      for (int n = 0; n < kColumnParts; ++n)
#pragma unroll
        for (int c = 0; c < kChannelParts; ++c)
          multiply_add(full[c], weights[n], fragments.get(kOfProduct + n * kChannelParts + c));
      Guarded guards[2];
      bool touched = false;
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float total = row_sum(totals[r]);
        guards[r] = kSoftmax
                        ? Guarded{1.0f / total, 1.0f, 1.0f}
                        : guarded(job, row_sum(magnitudes[r]), row_sum(denominators[r]), total);
        touched = touched || (token + 8 * r < tile.count && guards[r].share < 1.0f);
#pragma unroll
        for (int c = 0; c < kChannelParts; ++c)
          full[c][2 * r] *= guards[r].factor, full[c][2 * r + 1] *= guards[r].factor;
      }
      if (!kSoftmax && __any_sync(kAllLanes, touched)) {
#pragma unroll
        for (int c = 0; c < kChannelParts; ++c) {
          float soft[4] = {};
#pragma unroll
          for (int n = 0; n < kColumnParts; ++n)
            multiply_add(soft, weights[n], right_output(job, b.values, b, at, n, c));
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const float share = guards[i / 2].share, safe = soft[i] / guards[i / 2].divisor;
            full[c][i] = share > 0.0f ? safe + share * (full[c][i] - safe) : safe;
          }
        }
      }
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        write_channels(job, tile, token + 8 * r, head, at, r, full, out);
      }
    }
  });
}

}  // namespace
}  // namespace nystra::cuda
