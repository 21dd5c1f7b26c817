// Attention with clustered keys on tensor cores, for half and bfloat16 with even head sizes to 64:
// the clusters of a window's keys, and the sums of its values.
//
// A warp copies 32 tokens at a time into shared memory, unconverted, and one tile ahead. Scores of
// 16 tokens (rows) with 16 clusters (columns) are products of the keys with centers that are split
// into two (half) or three (bfloat16) numbers of the type, exact to 2^-22 of the largest channel of
// a center. The sums of clusters are the product of a matrix (clusters, tokens), 1 where a token is
// a member, with the tokens; the counts are its product with ones. They stay in registers for all
// tokens of a warp and are added in a fixed order. group = lane / 4, in = lane % 4.
#pragma once

#include "async_copy.h"
#include "cluster_keys.h"
#include "tensor_attention.h"

namespace nystra::cuda {
namespace {

// Numbers of T into which a float is split.
template <class T>
constexpr int kPiecesOf = std::is_same_v<T, __half> ? 2 : 3;

// A tile: tokens of one rectangle of the window; each lane holds one of them.
struct TokenTile {
  int count, group;
  bool ends;  // it is the last tile of its rectangle
  int pixel, token;
};

// Iterates over the tiles of a warp: its part of the window row by row, or those of its groups that
// are in a region (-1: in any).
class TokenWalk {
 public:
  __device__ TokenWalk(const ClusterJob& job, const Place& place, const ClusterWarp& w)
      : job_(job),
        place_(place),
        lane_(w.lane),
        first_(w.share(job, w.warp)),
        last_(w.share(job, w.warp + 1)),
        rectangle_{0, 0, job.shape.window_h, job.shape.window_w} {}
  __device__ TokenWalk(const ClusterJob& job, const Place& place, const ClusterWarp& w, int region)
      : job_(job),
        place_(place),
        lane_(w.lane),
        region_(region),
        group_(job.groups * w.warp / w.warps - 1),
        groups_(job.groups * (w.warp + 1) / w.warps) {}

  // Fills in the next tile, or returns false.
  __device__ __forceinline__ bool next(TokenTile& tile) {
    while (first_ >= last_) {
      if (++group_ >= groups_) return false;
      if (region_ >= 0 && group_region(job_, place_, group_) != region_) continue;
      rectangle_ = group_at(job_, group_);
      first_ = 0;
      last_ = rectangle_.tokens();
    }
    const int i = min(first_ + lane_, last_ - 1), wide = rectangle_.right - rectangle_.left;
    const int y = rectangle_.top + i / wide, x = rectangle_.left + i % wide;
    tile = {min(kTokens, last_ - first_), group_, first_ + kTokens >= last_, place_.pixel(y, x),
            y * job_.shape.window_w + x};
    first_ += kTokens;
    return true;
  }

 private:
  const ClusterJob& job_;
  const Place& place_;
  int lane_, region_ = -1, group_ = 0, groups_ = 0, first_ = 0, last_ = 0;
  Rectangle rectangle_{};
};

// Starts to copy a tile. Channels that do not exist, and tokens up to a multiple of 16, become
// zeros.
template <int kSteps, int kBytes, class T>
__device__ __forceinline__ void copy_rows(const ClusterJob& job, const T* map, int channels,
                                          const TokenTile& tile, T* rows, int lane) {
  constexpr int kElements = kBytes / int(sizeof(T)), kLanes = 16 * kSteps / kElements;
  constexpr int kTogether = kWarp / kLanes;
  const int c = lane % kLanes * kElements;
  const bool valid = c < channels;
  const T* const from = map + (valid ? c : 0);
#pragma unroll 1
  for (int first = 0; first < tile.count; first += 16)
#pragma unroll
    for (int u = 0; u < 16; u += kTogether) {
      const int i = first + u + lane / kLanes;
      const int64_t pixel = __shfl_sync(kAllLanes, tile.pixel, i);
      copy_async<kBytes>(rows + i * tensor_step(kSteps) + c, from + pixel * job.shape.channels,
                         valid && i < tile.count);
    }
}

// Calls use(tile, rows) for each tile of a walk.
template <int kSteps, class T, class F>
__device__ __forceinline__ void for_tiles(const ClusterJob& job, const T* map, int channels,
                                          TokenWalk walk, const ClusterWarp& w, const F& use) {
  T* const stages = reinterpret_cast<T*>(w.tile);
  const auto begin = [&](TokenTile& tile, int stage) {
    const bool valid = walk.next(tile);
    T* const rows = stages + stage * kTokens * tensor_step(kSteps);
    if (valid && job.copy_bytes == 16)
      copy_rows<kSteps, 16>(job, map, channels, tile, rows, w.lane);
    else if (valid)
      copy_rows<kSteps, 4>(job, map, channels, tile, rows, w.lane);
    commit_copies();
    return valid;
  };
  TokenTile tile, ahead;
  __syncwarp();  // the memory is no longer read
  bool valid = begin(tile, 0);
  for (int stage = 0; valid; stage = 1 - stage) {
    valid = begin(ahead, 1 - stage);
    wait_for_copies<1>();
    __syncwarp();  // the copies of all lanes are visible
    use(tile, stages + stage * kTokens * tensor_step(kSteps));
    __syncwarp();  // and may be overwritten
    tile = ahead;
  }
  wait_for_copies<0>();
}

// Splits the centers into pieces, and computes halves[j] = c.o + |c|^2 / 2 for center c relative to
// the origin o, infinity beyond the last one: k.c - halves[j] is largest for the center nearest to
// key k. Ends with a barrier.
template <int kSteps, class T>
__device__ __forceinline__ void make_pieces(const ClusterJob& job, const ClusterBuffers& b) {
  T* const pieces = reinterpret_cast<T*>(b.pieces);
  const int d = job.shape.head_dim;
  for (int e = int(threadIdx.x); e < 4 * b.m16; e += int(blockDim.x)) {  // whole warps
    const int j = e / 4, in = e % 4;
    const float* const center = b.centers + j * b.d_step;
    float largest = 0.0f, half = 0.0f;
    for (int c = in; c < d && j < job.m; c += 4) {
      largest = fmaxf(largest, fabsf(center[c]));
      half = fmaf(center[c], fmaf(0.5f, center[c], b.origin[c]), half);
    }
    largest = row_max(largest);
    half = row_sum(half);
    const uint32_t scale = __float_as_uint(largest) & 0x7f800000u;
    const float inverse = __uint_as_float(0x7f000000u - scale);
    if (in == 0) {
      b.scales[j] = __uint_as_float(scale);
      b.halves[j] = j < job.m ? half : INFINITY;
    }
    for (int c = in; c < 16 * kSteps; c += 4) {
      float rest = c < d && j < job.m ? center[c] * inverse : 0.0f;
#pragma unroll
      for (int p = 0; p < kPiecesOf<T>; ++p) {
        const T piece = from_float<T>(rest);
        pieces[(p * b.m16 + j) * tensor_step(kSteps) + c] = piece;
        rest -= to_float(piece);
      }
    }
  }
  __syncthreads();  // the pieces of all threads are visible
}

// Returns the nearest center of token `lane` of a tile; of equally near ones, the first.
template <int kSteps, class T>
__device__ __forceinline__ int nearest_on_tensor_cores(const T* rows, const ClusterBuffers& b,
                                                       int lane) {
  constexpr int kStep = tensor_step(kSteps);
  const int in = lane % 4;
  uint32_t keys[2][kSteps][4];
#pragma unroll
  for (int half = 0; half < 2; ++half)
#pragma unroll
    for (int n = 0; n < kSteps; ++n)
      load_matrices<false>(keys[half][n],
                           rows + (16 * half + lane % 16) * kStep + lane / 16 * 8 + 16 * n);
  float best[4];  // of tokens group, group + 8, group + 16, group + 24
  int members[4] = {};
#pragma unroll
  for (int i = 0; i < 4; ++i) best[i] = -INFINITY;
  const T* const centers =
      reinterpret_cast<const T*>(b.pieces) + (lane / 16 * 8 + lane % 8) * kStep + lane / 8 % 2 * 8;
#pragma unroll 1
  for (int first = 0; first < b.m16; first += 16) {
    float scores[2][2][4] = {};  // half of the tile, half of the clusters
#pragma unroll
    for (int p = kPiecesOf<T> - 1; p >= 0; --p)
#pragma unroll
      for (int n = 0; n < kSteps; ++n) {
        uint32_t c[4];
        load_matrices<false>(c, centers + (p * b.m16 + first) * kStep + 16 * n);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          multiply_add_16<T>(scores[half][0], keys[half][n], c[0], c[1]);
          multiply_add_16<T>(scores[half][1], keys[half][n], c[2], c[3]);
        }
      }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int j = first + i / 2 * 8 + 2 * in + i % 2;
      const float scale = b.scales[j], half = b.halves[j];
#pragma unroll
      for (int row = 0; row < 4; ++row) {
        const float score = fmaf(scores[row / 2][i / 2][row % 2 * 2 + i % 2], scale, -half);
        if (score > best[row]) best[row] = score, members[row] = j;
      }
    }
  }
  uint32_t all = 0;
#pragma unroll
  for (int row = 0; row < 4; ++row) {
#pragma unroll
    for (int lanes = 1; lanes < 4; lanes *= 2) {
      const float score = __shfl_xor_sync(kAllLanes, best[row], lanes);
      const int member = __shfl_xor_sync(kAllLanes, members[row], lanes);
      if (score > best[row] || (score == best[row] && member < members[row]))
        best[row] = score, members[row] = member;
    }
    all |= uint32_t(members[row]) << (8 * row);
  }
  return int(__shfl_sync(kAllLanes, all, lane % 8 * 4) >> (lane / 8 * 8) & 0xffu);
}

// Sums over a warp's tokens for 16 clusters: of channels 8 c ... 8 c + 7, and the numbers of
// members, the same in every column.
template <int kSteps>
struct ClusterSums {
  float of[2 * kSteps][4], counts[4];
};

// Adds a tile to the sums of clusters first ... first + 15. `member` is the cluster of token
// `lane`, or -1.
template <int kSteps, class T>
__device__ __forceinline__ void add_members(ClusterSums<kSteps>& sums, const T* rows, int count,
                                            int member, int first, int lane) {
  const int group = first + lane / 4, in = lane % 4;
  const uint32_t one = word_of<T>(1.0f, 0.0f), other = word_of<T>(0.0f, 1.0f), ones = one | other;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (16 * half >= count) break;
    uint32_t a[4];
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      const int token = 16 * half + 2 * in + i / 2 * 8;
      const int low = __shfl_sync(kAllLanes, member, token),
                high = __shfl_sync(kAllLanes, member, token + 1);
      a[i] = (low == group ? one : 0u) | (high == group ? other : 0u);
      a[i + 1] = (low == group + 8 ? one : 0u) | (high == group + 8 ? other : 0u);
    }
    multiply_add_16<T>(sums.counts, a, ones, ones);
    add_rows<kSteps>(a, rows + 16 * half * tensor_step(kSteps), lane, sums.of);
  }
}

// Writes sums and counts to the rows from `first` on of a matrix of m4 rows, and zeros up to
// `step`.
template <int kSteps>
__device__ __forceinline__ void store_sums(const ClusterSums<kSteps>& sums, int channels, int first,
                                           int m4, float* matrix, int step, int lane) {
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    const int j = first + lane / 4 + 8 * row, in = lane % 4;
    if (j >= m4) continue;
    float* const to = matrix + j * step;
#pragma unroll
    for (int c = 0; c < 2 * kSteps; ++c)
      if (8 * c + 2 * in < channels) store<2>(to + 8 * c + 2 * in, sums.of[c] + 2 * row);
    for (int c = channels + in; c < step; c += 4)
      to[c] = c == channels ? sums.counts[2 * row] : 0.0f;
  }
}

// One round, like cluster().
template <int kSteps, class T>
__device__ void cluster_on_tensor_cores(const ClusterJob& job, const Place& place, const T* keys,
                                        const ClusterBuffers& b, const ClusterWarp& w) {
  make_pieces<kSteps, T>(job, b);
  const int d = job.shape.head_dim;
#pragma unroll 1
  for (int first = 0; first < job.m; first += 16) {
    ClusterSums<kSteps> sums{};
    for_tiles<kSteps>(job, keys, d, TokenWalk(job, place, w), w,
                      [&](const TokenTile& tile, const T* rows) {
                        int member = -1;
                        if (first == 0) {
                          member = nearest_on_tensor_cores<kSteps>(rows, b, w.lane);
                          if (w.lane < tile.count) b.members[tile.token] = uint16_t(member);
                        } else if (w.lane < tile.count) {
                          member = b.members[tile.token];
                        }
                        if (w.lane >= tile.count) member = -1;
                        add_members(sums, rows, tile.count, member, first, w.lane);
                      });
    store_sums(sums, d, first, b.m4, w.sums, b.d_step, w.lane);
  }
  __syncthreads();  // the sums of all warps are visible
  move_centers(job, b, w, [&](float sum, float members, int c) {
    return fmaf(-members, b.origin[c], sum) / members;
  });
}

// The sums of the values of a walk for clusters first ... first + 15: put(sums, group) for each of
// its groups with a bias, else once for all.
template <int kSteps, class T, class F>
__device__ __forceinline__ void sum_walk(const ClusterJob& job, const T* values,
                                         const TokenWalk& walk, int first, const ClusterBuffers& b,
                                         const ClusterWarp& w, const F& put) {
  ClusterSums<kSteps> sums{};
  for_tiles<kSteps>(job, values, job.shape.value_dim, walk, w,
                    [&](const TokenTile& tile, const T* rows) {
                      const int member = w.lane < tile.count ? b.members[tile.token] : -1;
                      add_members(sums, rows, tile.count, member, first, w.lane);
                      if (job.biased && tile.ends) {
                        put(sums, tile.group);
                        sums = ClusterSums<kSteps>{};
                      }
                    });
  if (!job.biased) put(sums, 0);
}

// Computes the sums of the values of each group, like sum_values().
template <int kSteps, class T>
__device__ void sum_values_on_tensor_cores(const ClusterJob& job, const Place& place,
                                           const T* values, const ClusterBuffers& b,
                                           const ClusterWarp& w) {
  const int regions = place.cut ? job.regions : 1, walks = job.biased ? 1 : regions;
#pragma unroll 1
  for (int first = 0; first < job.m; first += 16)
#pragma unroll 1
    for (int region = 0; region < walks; ++region) {
      const int slot = job.biased ? 0 : w.warp * job.regions + region;
      const TokenWalk walk = job.biased || place.cut
                                 ? TokenWalk(job, place, w, job.biased ? -1 : region)
                                 : TokenWalk(job, place, w);
      sum_walk<kSteps>(job, values, walk, first, b, w,
                       [&](const ClusterSums<kSteps>& sums, int group) {
                         store_sums(sums, job.shape.value_dim, first, b.m4,
                                    b.groups + (slot + group) * b.group_size, b.e_step, w.lane);
                       });
    }
  __syncthreads();
  if (!job.biased) add_warps(job, regions, b, w);
}

}  // namespace
}  // namespace nystra::cuda
