// Attention with clustered keys on tensor cores: the attention of an exact block.
//
// A warp computes 16 queries of a block at a time with an online softmax over 16 keys at a time:
// the block's own tokens, then the clusters. Let n be the number of tokens of a cluster outside the
// block, weighted by the bias. The cluster is a key with log2(n) added to its logit, and its value
// is the mean of their values, split into two numbers of the element type. Since keys are not
// shifted, all logits have q.o added, with the origin o.
#pragma once

#include "cluster_attend.h"
#include "cluster_tensor.h"

namespace nystra::cuda {
namespace {

// The own tokens of a block on tensor cores, 32 at a time in the warp's tiles.
template <int kSteps, class T>
class OwnTiles {
 public:
  __device__ OwnTiles(const ClusterJob& job, const Head<T>& in, const OwnBlock& own,
                      const ClusterWarp& w)
      : job_(job),
        in_(in),
        own_(own),
        w_(w),
        keys_(reinterpret_cast<T*>(w.tile)),
        values_(keys_ + kTokens * tensor_step(kSteps)) {}

  // Calls f(first token, count, keys, values) for each tile. All lanes have to call it together.
  template <class F>
  __device__ __forceinline__ void each(const F& f) {
#pragma unroll 1
    for (int first = 0; first < own_.tokens; first += kTokens) {
      if (first != held_) bring(first);
      f(first, min(kTokens, own_.tokens - first), keys_, values_);
    }
  }

 private:
  __device__ __forceinline__ void bring(int first) {
    const int i = min(first + w_.lane, own_.tokens - 1);
    const TokenTile tile{min(kTokens, own_.tokens - first), 0, true, w_.pixels[i], 0};
    __syncwarp();  // the memory is no longer read
    if (job_.copy_bytes == 16)
      copy<16>(tile);
    else
      copy<4>(tile);
    commit_copies();
    wait_for_copies<0>();
    __syncwarp();  // the copies of all lanes are visible
    held_ = first;
  }

  template <int kBytes>
  __device__ __forceinline__ void copy(const TokenTile& tile) {
    copy_rows<kSteps, kBytes>(job_, in_.k, job_.shape.head_dim, tile, keys_, w_.lane);
    copy_rows<kSteps, kBytes>(job_, in_.v, job_.shape.value_dim, tile, values_, w_.lane);
  }

  const ClusterJob& job_;
  const Head<T>& in_;
  const OwnBlock& own_;
  const ClusterWarp& w_;
  T *keys_, *values_;
  int held_ = -1;  // the first token of the tile in shared memory
};

// Computes, for 16 clusters without the block's own tokens, w.seen[j] = log2 of the number of
// tokens and the pieces of their means. `sums` are those of the block's own tokens.
template <int kSteps, class T>
__device__ __forceinline__ void find_means(const ClusterJob& job, const Seen& seen,
                                           const ClusterSums<kSteps>& sums, int first,
                                           const ClusterBuffers& b, const ClusterWarp& w) {
  constexpr int kStep = tensor_step(kSteps);
  const int in = w.lane % 4;
  T* const means = reinterpret_cast<T*>(w.means);
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    const int j = first + w.lane / 4 + 8 * row;
    const bool cluster = j < job.m;
    const float others = cluster ? seen.counts[j * b.e_step] - sums.counts[2 * row] : 0.0f;
    const float number = cluster ? fmaf(seen.own, others, w.others[j]) : 0.0f;
    const bool valid = number > 0.0f;
    const float inverse = valid ? 1.0f / number : 0.0f;
    if (in == 0) w.seen[j] = valid ? log2f(number) : -INFINITY;
#pragma unroll
    for (int c = 0; c < 2 * kSteps; ++c) {
      const int channel = 8 * c + 2 * in;
      float mean[2] = {};
      if (valid && channel < job.shape.value_dim) {
        float all[2];
        load<2>(seen.values + j * b.e_step + channel, all);
#pragma unroll
        for (int i = 0; i < 2; ++i)
          mean[i] = fmaf(-seen.own, sums.of[c][2 * row + i], all[i]) * inverse;
      }
#pragma unroll
      for (int p = 0; p < kMeanPieces; ++p) {
        const Pack<T, 2> piece = {{from_float<T>(mean[0]), from_float<T>(mean[1])}};
        *reinterpret_cast<Pack<T, 2>*>(means + (p * b.m16 + j) * kStep + channel) = piece;
#pragma unroll
        for (int i = 0; i < 2; ++i) mean[i] -= to_float(piece.values[i]);
      }
    }
  }
}

// Computes the attention of the queries of one exact block of a group.
template <int kSteps, class T>
__device__ void attend_on_tensor_cores(const ClusterJob& job, const Place& place, const Head<T>& in,
                                       int head, const OwnBlock& own, const Seen& seen,
                                       const ClusterBuffers& b, const ClusterWarp& w, T* out) {
  constexpr int kStep = tensor_step(kSteps);
  const int across = 2 * job.block - 1, channels = job.shape.value_dim;
  const int group = w.lane / 4, column = 2 * (w.lane % 4);
  __syncwarp();  // the previous block is finished
  for (int i = w.lane; i < own.tokens; i += kWarp) {
    const int y = i / own.wide, x = i % own.wide;
    w.pixels[i] = place.pixel(own.top + y, own.left + x);
    w.members[i] = b.members[(own.top + y) * job.shape.window_w + own.left + x];
    w.slots[i] = y * across + x;  // index into own_bias
  }
  __syncwarp();
  OwnTiles<kSteps, T> tiles(job, in, own, w);
#pragma unroll 1
  for (int first = 0; first < job.m; first += 16) {
    ClusterSums<kSteps> sums{};
    tiles.each([&](int token, int count, const T*, const T* values) {
      add_members(sums, values, count, w.lane < count ? w.members[token + w.lane] : -1, first,
                  w.lane);
    });
    find_means<kSteps, T>(job, seen, sums, first, b, w);
  }
  __syncwarp();  // the means of all lanes are visible

#pragma unroll 1
  for (int query = 0; query < own.tokens; query += kQueries) {
    const int low = min(query + group, own.tokens - 1),
              high = min(query + group + 8, own.tokens - 1);
    const int places[2] = {w.slots[low] + job.block * across - job.block,
                           w.slots[high] + job.block * across - job.block};
    uint32_t q[kSteps][4];
    load_queries(in.q, job.shape.channels, job.shape.head_dim, w.pixels[low], w.pixels[high],
                 column / 2, q);
    float base[4] = {};  // q.o, in all columns
#pragma unroll
    for (int n = 0; n < kSteps; ++n) {
      uint32_t origin[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int c = 16 * n + 8 * i + column;
        origin[i] = c < job.shape.head_dim ? word_of<T>(b.origin[c], b.origin[c + 1]) : 0u;
      }
      multiply_add_16<T>(base, q[n], origin[0], origin[1]);
    }
    float sums[2 * kSteps][4] = {}, totals[4] = {}, maxima[2] = {-INFINITY, -INFINITY};
    tiles.each([&](int first, int count, const T* keys, const T* values) {
#pragma unroll 1
      for (int k = 0; k < count; k += 16) {
        float scores[2][4] = {};
        score_keys(q, keys + k * kStep, w.lane, scores);
        for_scores(column / 2, scores, [&](int row, int key, float& score) {
          const bool valid = k + key < count;
          const float bias =
              job.biased && valid ? b.own_bias[places[row] - w.slots[first + k + key]] : 0.0f;
          score = valid ? fmaf(score, job.scale, bias) : -INFINITY;
        });
        make_weights(scores, maxima, sums, totals);
        add_values<kSteps>(scores, values + k * kStep, w.lane, sums, totals);
      }
    });
#pragma unroll 1
    for (int first = 0; first < job.m; first += 16) {
      float scores[2][4] = {};
#pragma unroll
      for (int p = kPiecesOf<T> - 1; p >= 0; --p)
        score_keys(q, reinterpret_cast<const T*>(b.pieces) + (p * b.m16 + first) * kStep, w.lane,
                   scores);
      for_scores(column / 2, scores, [&](int row, int key, float& score) {
        score = fmaf(score, b.scales[first + key] * job.scale,
                     fmaf(base[2 * row], job.scale, w.seen[first + key]));
      });
      make_weights(scores, maxima, sums, totals);
      const T* const means = reinterpret_cast<const T*>(w.means) + first * kStep;
      add_values<kSteps>(scores, means, w.lane, sums, totals);
      uint32_t left[4];
      round_weights<T>(scores[0], scores[1], left);
      add_rows<kSteps>(left, means + b.m16 * kStep, w.lane, sums);
    }
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const int token = query + group + 8 * row;
      if (token >= own.tokens) continue;
      T* const to = out + w.pixels[token] * job.shape.out_channels + head * channels;
      const float factor = 1.0f / totals[2 * row];
#pragma unroll
      for (int c = 0; c < 2 * kSteps; ++c) {
        const float values[2] = {sums[c][2 * row] * factor, sums[c][2 * row + 1] * factor};
        if (8 * c + column < channels) store<2>(to + 8 * c + column, values);
      }
    }
    __syncwarp();  // the instruction needs the whole warp
  }
}

}  // namespace
}  // namespace nystra::cuda
