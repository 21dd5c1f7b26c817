// Attention with clustered keys: the clusters of a window's keys, and the sums of its values.
#pragma once

#include <cmath>

#include "cluster_window.h"

namespace nystra::cuda {
namespace {

// Adds tokens [first, last) of the warp's tile to the sums of their clusters, one channel per lane.
template <class T>
__device__ __forceinline__ void add_tokens(const ClusterJob& job, const T* map, int channels,
                                           const float* origin, int step, int first, int last,
                                           const ClusterWarp& w) {
  for (int c = w.lane; c < channels; c += kWarp) {
    const float shift = origin == nullptr ? 0.0f : origin[c];
    for (int t0 = first; t0 < last; t0 += kAhead) {
      float values[kAhead];
#pragma unroll
      for (int u = 0; u < kAhead; ++u)
        values[u] = to_float(map[w.pixels[min(t0 + u, last - 1)] * job.shape.channels + c]) - shift;
#pragma unroll
      for (int u = 0; u < kAhead; ++u)
        if (t0 + u < last) w.sums[w.members[t0 + u] * step + c] += values[u];
    }
  }
  for (int j = w.lane; j < job.m; j += kWarp)
    w.sums[j * step + channels] += float(w.count_of(j, first, last));
}

// Initializes the centers with the keys in the middle of the cells of a grid. All keys are taken
// relative to `origin`, which is one of them: only differences matter, and equal keys become zeros.
template <class T>
__device__ void seed(const ClusterJob& job, const Place& place, const T* keys,
                     const ClusterBuffers& b) {
  const Windows& s = job.shape;
  const auto key = [&](int cluster) {
    const int y = (2 * (cluster / job.cols) + 1) * s.window_h / (2 * job.rows),
              x = (2 * (cluster % job.cols) + 1) * s.window_w / (2 * job.cols);
    return keys + place.pixel(y, x) * s.channels;
  };
  for (int e = int(threadIdx.x); e < b.m4 * b.d_step; e += int(blockDim.x)) {
    const int j = e / b.d_step, c = e % b.d_step;
    const bool inside = c < s.head_dim;
    const float origin = inside ? to_float(key(0)[c]) : 0.0f;
    if (j == 0) b.origin[c] = origin;
    b.centers[e] = inside && j < job.m ? to_float(key(j)[c]) - origin : 0.0f;
  }
  __syncthreads();
}

// Computes halves[j] = |c_j|^2 / 2. Ends with a barrier.
__device__ __forceinline__ void measure(const ClusterJob& job, const ClusterBuffers& b) {
  for (int j = int(threadIdx.x); j < job.m; j += int(blockDim.x)) {
    float sum = 0.0f;
    for (int c = 0; c < job.shape.head_dim; ++c)
      sum = fmaf(b.centers[j * b.d_step + c], b.centers[j * b.d_step + c], sum);
    b.halves[j] = 0.5f * sum;
  }
  __syncthreads();
}

// Returns the nearest center of token `lane` of the warp's tile; of equally near ones, the first.
template <class T>
__device__ __forceinline__ int nearest(const ClusterJob& job, const T* keys, int count,
                                       const ClusterBuffers& b, const ClusterWarp& w) {
  const int channels = job.shape.head_dim;
  for (int c = 0; c < channels; c += kSpan) {
    const int n = min(kSpan, channels - c);
    __syncwarp();  // the tile is no longer read
    stage_rows(job, keys + c, w.pixels, kTokens, count, n, w.tile, w);
    shift_rows(w.tile, kTokens, n, b.origin + c, w);
    for (int unit = w.lane; unit < 2 * b.m4; unit += kWarp) {
      const int t = unit % 8, j0 = unit / 8 * 4;  // tokens t, t + 8, t + 16, t + 24
      float* const out = w.scores + t * b.m_step + j0;
      Result<4> r = zero_result<4>();
      if (c > 0) load_rows(r, out, 8 * b.m_step);
      add_rows_by_rows(r, w.tile + t * kTileStep, 8 * kTileStep, b.centers + j0 * b.d_step + c,
                       b.d_step, round_up(n, 4));
#pragma unroll
      for (int i = 0; i < 4; ++i) store4(out + 8 * i * b.m_step, r.v[i]);
    }
  }
  __syncwarp();
  int best = 0;
  float largest = -INFINITY;
  for (int j = 0; j < job.m; ++j) {
    const float score = w.scores[w.lane * b.m_step + j] - b.halves[j];
    if (score > largest) largest = score, best = j;
  }
  return best;
}

// Moves each center to mean(sum, members, channel) of the sums of all warps; a center without
// members stays where it is. Ends with a barrier.
template <class F>
__device__ __forceinline__ void move_centers(const ClusterJob& job, const ClusterBuffers& b,
                                             const ClusterWarp& w, const F& mean) {
  const int d = job.shape.head_dim;
  for (int e = int(threadIdx.x); e < job.m * d; e += int(blockDim.x)) {
    const int at = e / d * b.d_step + e % d;
    float sum = 0.0f, members = 0.0f;
    for (int i = 0; i < w.warps; ++i) {
      sum += b.sums[i * b.sums_size + at];
      members += b.sums[i * b.sums_size + e / d * b.d_step + d];
    }
    if (members > 0.0f) b.centers[at] = mean(sum, members, e % d);
  }
  __syncthreads();
}

// Adds up the sums of each region over all warps, in the slots of the first warp. Ends with a
// barrier.
__device__ __forceinline__ void add_warps(const ClusterJob& job, int regions,
                                          const ClusterBuffers& b, const ClusterWarp& w) {
  for (int e = int(threadIdx.x); e < regions * b.group_size; e += int(blockDim.x))
    for (int i = 1; i < w.warps; ++i) b.groups[e] += b.groups[i * job.regions * b.group_size + e];
  __syncthreads();
}

// One round: assigns each key to its nearest center, then moves each center to the mean of its
// members.
template <class T>
__device__ void cluster(const ClusterJob& job, const Place& place, const T* keys,
                        const ClusterBuffers& b, const ClusterWarp& w) {
  measure(job, b);
  const int d = job.shape.head_dim;
  for (int e = w.lane; e < b.m4 * b.d_step; e += kWarp) w.sums[e] = 0.0f;
  for_positions(w, [&](int first, int count) {
    const Spot spot(job, min(first + w.lane, w.last - 1));
    w.pixels[w.lane] = place.pixel(spot.y, spot.x);
    const int member = nearest(job, keys, count, b, w);
    w.members[w.lane] = member;
    if (w.lane < count) b.members[spot.y * job.shape.window_w + spot.x] = uint16_t(member);
    __syncwarp();
    add_tokens(job, keys, d, b.origin, b.d_step, 0, count, w);
  });
  __syncthreads();
  move_centers(job, b, w, [](float sum, float members, int) { return sum / members; });
}

// Computes the sums of the values of each group; without a bias those of each region, in the slots
// of the first warp.
template <class T>
__device__ void sum_values(const ClusterJob& job, const Place& place, const T* values,
                           const ClusterBuffers& b, const ClusterWarp& w) {
  const int thread = int(threadIdx.x), threads = int(blockDim.x), e_dim = job.shape.value_dim;
  for (int e = thread; e < b.slots * b.group_size; e += threads) b.groups[e] = 0.0f;
  for (int e = w.lane; e < b.group_size; e += kWarp) w.sums[e] = 0.0f;
  __syncthreads();
  const auto flush = [&](int slot) {
    __syncwarp();
    for (int e = w.lane; e < b.group_size; e += kWarp) {
      b.groups[slot * b.group_size + e] += w.sums[e];
      w.sums[e] = 0.0f;
    }
    __syncwarp();
  };
  int open = -1;  // the slot whose sums are in w.sums
  for_positions(w, [&](int first, int count) {
    const Spot spot(job, min(first + w.lane, w.last - 1));
    w.pixels[w.lane] = place.pixel(spot.y, spot.x);
    w.members[w.lane] = b.members[spot.y * job.shape.window_w + spot.x];
    w.slots[w.lane] = job.biased ? spot.group : w.warp * job.regions + place.region(spot.y, spot.x);
    __syncwarp();
    for (int t = 0, end; t < count; t = end) {
      const int slot = w.slots[t];
      for (end = t + 1; end < count && w.slots[end] == slot;) ++end;
      if (open >= 0 && slot != open) flush(open);
      open = slot;
      add_tokens(job, values, e_dim, nullptr, b.e_step, t, end, w);
    }
  });
  if (open >= 0) flush(open);
  __syncthreads();
  if (!job.biased) add_warps(job, job.regions, b, w);
}

}  // namespace
}  // namespace nystra::cuda
