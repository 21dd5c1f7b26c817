// Attention with clustered keys: the cluster sums for the queries of a group, and the attention of
// an exact block on CUDA cores.
#pragma once

#include "cluster_window.h"

namespace nystra::cuda {
namespace {

// The cluster sums for the queries of a group, from which each block subtracts its own tokens.
struct Seen {
  const float *values, *counts;  // (m4, e_step) U_P; counts n_P at distance e_step
  float own;                     // E_PP
};

// Returns them. With a bias it computes U_P in w.sums, and w.others[j], the sum of E n over the
// other groups.
__device__ __forceinline__ Seen see(const ClusterJob& job, const Place& place, int head, int group,
                                    const ClusterBuffers& b, const ClusterWarp& w) {
  const int region = group_region(job, place, group);
  const float* const counts =
      b.groups + (job.biased ? group : region) * b.group_size + job.shape.value_dim;
  if (!job.biased) {
    for (int j = w.lane; j < b.m4; j += kWarp) w.others[j] = 0.0f;
    return {counts - job.shape.value_dim, counts, 1.0f};
  }
  const float* const weights = job.weights + (int64_t(head) * job.groups + group) * job.groups;
  const auto weight = [&](int other) {
    return !place.cut || group_region(job, place, other) == region ? weights[other] : 0.0f;
  };
  __syncwarp();                                 // the warp's buffers are no longer read
  constexpr int kParts = 5, kPart = 4 * kWarp;  // sums per lane at a time; floats per warp
  for (int e = 4 * w.lane; e < b.group_size; e += kParts * kPart) {
    float sums[kParts][4] = {};
#pragma unroll 1
    for (int other = 0; other < job.groups; ++other) {
      const float share = weight(other);
      const float* const from = b.groups + other * b.group_size;
#pragma unroll
      for (int i = 0; i < kParts; ++i) {
        const float4 v = load4(from + min(e + i * kPart, b.group_size - 4));
        sums[i][0] = fmaf(share, v.x, sums[i][0]), sums[i][1] = fmaf(share, v.y, sums[i][1]);
        sums[i][2] = fmaf(share, v.z, sums[i][2]), sums[i][3] = fmaf(share, v.w, sums[i][3]);
      }
    }
#pragma unroll
    for (int i = 0; i < kParts; ++i)
      if (e + i * kPart < b.group_size) store4(w.sums + e + i * kPart, sums[i]);
  }
  for (int j = w.lane; j < b.m4; j += kWarp) {
    float sum = 0.0f;
    for (int other = 0; other < job.groups; ++other)
      if (other != group)
        sum = fmaf(weight(other),
                   b.groups[other * b.group_size + j * b.e_step + job.shape.value_dim], sum);
    w.others[j] = sum;
  }
  return {w.sums, counts, weights[group]};
}

// Computes the logits (times log2(e)) of 16 queries with clusters and own tokens; -infinity for
// those that do not exist.
template <class T>
__device__ __forceinline__ void score(const ClusterJob& job, const Head<T>& in, const OwnBlock& own,
                                      int first, int count, const ClusterBuffers& b,
                                      const ClusterWarp& w) {
  const int channels = job.shape.head_dim, own4 = round_up(own.tokens, 4);
  for (int c = 0; c < channels; c += kSpan) {
    const int n = min(kSpan, channels - c);
    __syncwarp();  // the tiles are no longer read
    stage_rows(job, in.q + c, w.pixels + first, kQueries, count, n, w.queries, w);
    stage_rows(job, in.k + c, w.pixels, own4, own.tokens, n, w.tile, w);
    shift_rows(w.tile, own4, n, b.origin + c, w);
    for (int unit = w.lane; unit < b.m4 + own4; unit += kWarp) {
      const int t = unit % 4, j0 = unit / 4 * 4, key0 = j0 - b.m4;  // queries t, t + 4, ...
      float* const out = w.logits + t * b.l_step + j0;
      Result<4> r = zero_result<4>();
      if (c > 0) load_rows(r, out, 4 * b.l_step);
      add_rows_by_rows(r, w.queries + t * kTileStep, 4 * kTileStep,
                       key0 < 0 ? b.centers + j0 * b.d_step + c : w.tile + key0 * kTileStep,
                       key0 < 0 ? b.d_step : kTileStep, round_up(n, 4));
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (c + kSpan >= channels) {
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            const bool valid = key0 < 0 ? w.seen[j0 + j] > 0.0f : key0 + j < own.tokens;
            const float bias =
                key0 >= 0 && valid && job.biased
                    ? b.own_bias[own.offset(min(first + t + 4 * i, own.tokens - 1), key0 + j)]
                    : 0.0f;
            r.v[i][j] = valid ? fmaf(r.v[i][j], job.scale, bias) : -INFINITY;
          }
        }
        store4(out + 4 * i * b.l_step, r.v[i]);
      }
    }
  }
  __syncwarp();
}

// Turns logits into weights of the cluster sums U and of the own values; `factors` are the inverse
// sums of the weights.
__device__ __forceinline__ void weigh(const OwnBlock& own, float share, const ClusterBuffers& b,
                                      const ClusterWarp& w) {
  const int row = w.lane / 2, half = w.lane % 2, columns = b.m4 + round_up(own.tokens, 4);
  float* const logits = w.logits + row * b.l_step;
  float largest = -INFINITY, total = 0.0f;
  for (int j = half; j < columns; j += 2) largest = fmaxf(largest, logits[j]);
  largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, 1));
  for (int j = half; j < columns; j += 2) {
    logits[j] = power_of_two(logits[j] - largest);
    total = fmaf(logits[j], j < b.m4 ? w.seen[j] : 1.0f, total);
  }
  total += __shfl_xor_sync(kAllLanes, total, 1);
  if (half == 0) w.factors[row] = 1.0f / total;
  __syncwarp();
  for (int j = half; j < own.tokens; j += 2)
    logits[b.m4 + j] = fmaf(-share, logits[w.members[j]], logits[b.m4 + j]);
  __syncwarp();
}

// Computes the attention of the queries of one exact block of a group.
template <class T>
__device__ void attend(const ClusterJob& job, const Place& place, const Head<T>& in, int head,
                       const OwnBlock& own, const Seen& seen, const ClusterBuffers& b,
                       const ClusterWarp& w, T* out) {
  const int channels = job.shape.value_dim, own4 = round_up(own.tokens, 4);
  __syncwarp();  // the previous block is finished
  for (int i = w.lane; i < own.tokens; i += kWarp) {
    const int y = own.top + i / own.wide, x = own.left + i % own.wide;
    w.pixels[i] = place.pixel(y, x);
    w.members[i] = b.members[y * job.shape.window_w + x];
  }
  __syncwarp();
  for (int j = w.lane; j < b.m4; j += kWarp) {
    const float others = seen.counts[j * b.e_step] - float(w.count_of(j, 0, own.tokens));
    w.seen[j] = j < job.m ? fmaf(seen.own, others, w.others[j]) : 0.0f;
  }
  for (int first = 0; first < own.tokens; first += kQueries) {
    const int count = min(kQueries, own.tokens - first);
    score(job, in, own, first, count, b, w);
    weigh(own, seen.own, b, w);
    for (int c = 0; c < channels; c += kSpan) {
      const int n = min(kSpan, channels - c), across = round_up(n, 4) / 4;
      if (c > 0) __syncwarp();  // the tile is no longer read
      stage_rows(job, in.v + c, w.pixels, own4, own.tokens, n, w.tile, w);
      __syncwarp();
      for (int unit = w.lane; unit < 4 * across; unit += kWarp) {
        const int t = unit / across, c0 = unit % across * 4;
        Result<4> r = zero_result<4>();
        const float* const weights = w.logits + t * b.l_step;
        add_rows_by_columns(r, weights, 4 * b.l_step, seen.values + c + c0, b.e_step, b.m4);
        add_rows_by_columns(r, weights + b.m4, 4 * b.l_step, w.tile + c0, kTileStep, own4);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int row = t + 4 * i;
          if (row >= count) continue;
#pragma unroll
          for (int j = 0; j < 4; ++j) r.v[i][j] *= w.factors[row];
          write4(out + w.pixels[first + row] * job.shape.out_channels + head * channels + c, c0, n,
                 job.width, r.v[i]);
        }
      }
    }
  }
}

}  // namespace
}  // namespace nystra::cuda
