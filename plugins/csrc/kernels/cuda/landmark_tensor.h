// The passes over the tokens of a window on tensor cores, for both Nystrom forms.
//
// For half and bfloat16, with at most 16 landmarks and 32 channels each of q, k and v, both numbers
// of channels even. A warp loads 32 tokens at a time from global memory into registers, in the
// layout of the instruction. The order of channels and tokens in a product is free, so each lane
// loads whole words of a few tokens, and the weights stay in registers. With group = lane / 4
// and in = lane % 4, a lane holds
//   q, k     Channels 8 in ... 8 in + 7 of a token. Numbers 2 s and 2 s + 1 of them are columns
//            (rows) in and in + 4 of step s.
//   v        Channels 4 group ... 4 group + 3 of tokens 2 in and 2 in + 1 of eight. Number c of
//            them is column `group` of part c.
//   output   Channels 8 in ... 8 in + 7 of a token. Columns 2 in and 2 in + 1 of part c are
//            channels 8 in + 2 c and 8 in + 2 c + 1.
#pragma once

#include "landmark_window.h"
#include "tensor_core.h"

namespace nystra::cuda {
namespace {

constexpr int kFold = kTokens / 8;                  // of 8 tokens
constexpr int kSteps = kTensorChannels / 8;         // of the sum over channels
constexpr int kChannelParts = kTensorChannels / 8;  // of 8 channels
constexpr int kColumnParts = kTensorLandmarks / 8;  // of 8 landmarks

struct TensorLane {
  int group, in;
  __device__ explicit TensorLane(int lane) : group(lane / 4), in(lane % 4) {}
};

// 32 tokens of a warp; each lane holds the pixel of one.
struct TensorTile {
  int count, own_y, own_x, own_pixel;
  unsigned right, below;  // bits of a token's region, where the window is cut

  __device__ int pixel(int token) const { return __shfl_sync(kAllLanes, own_pixel, token); }
  __device__ int region(int token) const {
    return int(2 * (below >> token & 1u) + (right >> token & 1u));
  }
};

template <int kWords>
struct alignas(4 * kWords) Words {
  uint32_t w[kWords];
};

// Channels first ... first + 2 kWords - 1 of a token, zeros beyond the last.
template <bool kWide, int kWords, class T>
__device__ __forceinline__ void load_words(const T* token, int first, int channels,
                                           uint32_t (&words)[kWords]) {
  Words<kWords> loaded = {};
  if constexpr (kWide) {
    if (first < channels) loaded = *reinterpret_cast<const Words<kWords>*>(token + first);
  } else {
#pragma unroll
    for (int i = 0; i < kWords; ++i)
      if (first + 2 * i < channels)
        loaded.w[i] = reinterpret_cast<const Words<1>*>(token + first + 2 * i)->w[0];
  }
#pragma unroll
  for (int i = 0; i < kWords; ++i) words[i] = loaded.w[i];
}

// Returns the address of the first channel of a pixel.
template <class T>
__device__ __forceinline__ const T* token_at(const LandmarkJob& job, const T* map, int pixel) {
  const unsigned bytes = unsigned(job.shape.channels) * unsigned(sizeof(T));
  return reinterpret_cast<const T*>(reinterpret_cast<const char*>(map) +
                                    uint64_t(unsigned(pixel)) * bytes);
}

// Calls f(std::true_type) if 8 elements can be one access, otherwise f(std::false_type).
template <class F>
__device__ __forceinline__ void with_wide(bool wide, const F& f) {
  if (wide)
    f(std::true_type());
  else
    f(std::false_type());
}

// An entry of a small matrix in shared memory, 0 outside of it.
__device__ __forceinline__ float entry_of(const float* matrix, int step, int rows, int columns,
                                          int row, int column) {
  return row < rows && column < columns ? matrix[row * step + column] : 0.0f;
}

// Landmarks on the left of a product with tokens: rows group and group + 8, step s.
__device__ __forceinline__ Split<4> left_landmarks(const LandmarkJob& job, const float* landmarks,
                                                   const LandmarkBuffers& b, const TensorLane& at,
                                                   int s) {
  Split<4> a;
#pragma unroll
  for (int i = 0; i < 4; ++i)
    split(entry_of(landmarks, b.d_step, job.m, job.shape.head_dim, at.group + i % 2 * 8,
                   8 * at.in + 2 * s + i / 2),
          a.high[i], a.low[i]);
  return a;
}

// Landmarks on the right: column `group` of a part of 8 landmarks, step s.
__device__ __forceinline__ Split<2> right_landmarks(const LandmarkJob& job, const float* landmarks,
                                                    const LandmarkBuffers& b, const TensorLane& at,
                                                    int part, int s) {
  Split<2> right;
#pragma unroll
  for (int i = 0; i < 2; ++i)
    split(entry_of(landmarks, b.d_step, job.m, job.shape.head_dim, 8 * part + at.group,
                   8 * at.in + 2 * s + i),
          right.high[i], right.low[i]);
  return right;
}

// A column of a matrix with a row for each landmark, on the right of as_left(weights): rows 2 in
// and 2 in + 1 of a part of 8.
__device__ __forceinline__ Split<2> right_column(const LandmarkJob& job, const float* matrix,
                                                 int step, int columns, const TensorLane& at,
                                                 int part, int column) {
  Split<2> right;
#pragma unroll
  for (int i = 0; i < 2; ++i)
    split(entry_of(matrix, step, job.m, columns, 8 * part + 2 * at.in + i, column), right.high[i],
          right.low[i]);
  return right;
}

// Column `group` of a part of the output's channels, for a part of 8 landmarks.
__device__ __forceinline__ Split<2> right_output(const LandmarkJob& job, const float* matrix,
                                                 const LandmarkBuffers& b, const TensorLane& at,
                                                 int landmarks, int part) {
  return right_column(job, matrix, b.e_step, job.shape.value_dim, at, landmarks,
                      at.group / 2 * 8 + 2 * part + at.group % 2);
}

// Operands that all warps use, in shared memory. One access loads a lane's part of a Split<2>, or
// half of its part of a Split<4>. The pseudoinverse used this memory before.
class Fragments {
 public:
  __device__ Fragments(const LandmarkBuffers& b, int lane)
      : mine_(reinterpret_cast<Four*>(b.scores) + lane) {}

  __device__ void put(int number, const Split<2>& s) const {
    mine_[number * kWarp] = {{s.high[0], s.high[1], s.low[0], s.low[1]}};
  }
  __device__ void put_left(int number, const Split<4>& s) const {
    mine_[2 * number * kWarp] = {{s.high[0], s.high[1], s.high[2], s.high[3]}};
    mine_[(2 * number + 1) * kWarp] = {{s.low[0], s.low[1], s.low[2], s.low[3]}};
  }
  __device__ Split<2> get(int number) const {
    const Four kept = mine_[number * kWarp];
    return {{kept.w[0], kept.w[1]}, {kept.w[2], kept.w[3]}};
  }
  __device__ Split<4> get_left(int number) const {
    const Four high = mine_[2 * number * kWarp], low = mine_[(2 * number + 1) * kWarp];
    return {{high.w[0], high.w[1], high.w[2], high.w[3]}, {low.w[0], low.w[1], low.w[2], low.w[3]}};
  }

 private:
  using Four = Words<4>;
  Four* mine_;
};

// Numbers of the first fragments: keys (part of landmarks, step), the product (part of landmarks,
// part of channels), the inverse (part, part).
constexpr int kOfKeys = 0, kOfProduct = kColumnParts * kSteps,
              kOfInverse = kOfProduct + kColumnParts * kChannelParts;
static_assert(kOfInverse + kColumnParts * kColumnParts == kFragments,
              "the shared memory is for these");

__device__ __forceinline__ void make_fragments(const LandmarkJob& job, const LandmarkBuffers& b,
                                               const WarpBuffers& w, bool with_inverse) {
  const TensorLane at(w.lane);
  const Fragments all(b, w.lane);
  for (int i = w.warp; i < (with_inverse ? kFragments : kOfInverse); i += w.warps) {
    const int product = i - kOfProduct, inverse = i - kOfInverse;
    if (product < 0)
      all.put(i, right_landmarks(job, b.keys, b, at, i / kSteps, i % kSteps));
    else if (inverse < 0)
      all.put(
          i, right_output(job, b.product, b, at, product / kChannelParts, product % kChannelParts));
    else
      all.put(i, right_column(job, b.inverse, b.m_step, job.m, at, inverse / kColumnParts,
                              8 * (inverse % kColumnParts) + at.group));
  }
  __syncthreads();
}

// Calls f(tile) for each tile of the warp.
template <Share kShare, class F>
__device__ __forceinline__ void for_tensor_tiles(const LandmarkJob& job, const Place& place,
                                                 const WarpBuffers& w, const F& f) {
  const int tokens = job.shape.tokens;
  for_turns<kShare>(job, w, [&](int first) {
    const int token = min(first + w.lane, tokens - 1), y = token / place.window_w,
              x = token % place.window_w;
    TensorTile tile{min(kTokens, tokens - first), y, x, place.pixel(y, x), 0, 0};
    if (place.cut) {
      const int region = place.region(y, x);
      tile.right = __ballot_sync(kAllLanes, region & 1);
      tile.below = __ballot_sync(kAllLanes, region & 2);
    }
    f(tile);
  });
}

// Stores the fragments of the queries for tensor_keys. They are visible to all warps after the next
// barrier.
__device__ __forceinline__ void put_queries(const LandmarkJob& job, const LandmarkBuffers& b,
                                            const WarpBuffers& w) {
  static_assert(2 * kSteps == kQueryFragments, "behind these a warp inverts");
  const TensorLane at(w.lane);
  const Fragments queries(b, w.lane);
  for (int s = w.warp; s < kSteps; s += w.warps)
    queries.put_left(s, left_landmarks(job, b.queries, b, at, s));
}

// Computes values = weights V for the warp's tokens. weigh(tile, s, sums) turns logits into
// weights: s[t] holds those of the landmarks (rows) with tokens 8 t ... 8 t + 7 of the tile
// (columns), and sums[c] the sums so far of the landmarks in the channels of part c. Tokens past
// the tile's count have to get weight 0.
template <class T, class F>
__device__ __forceinline__ void tensor_keys(const LandmarkJob& job, const Place& place,
                                            const Head<T>& head, const LandmarkBuffers& b,
                                            const WarpBuffers& w, const F& weigh) {
  const TensorLane at(w.lane);
  const Fragments queries(b, w.lane);
  float sums[kChannelParts][4] = {};
  for_tensor_tiles<Share::kFirstPass>(job, place, w, [&](const TensorTile& tile) {
    uint32_t keys[kFold][kSteps], values[kFold][2][2];
    with_wide(job.wide, [&](auto wide) {
#pragma unroll
      for (int t = 0; t < kFold; ++t)
        load_words<decltype(wide)::value>(token_at(job, head.k, tile.pixel(8 * t + at.group)),
                                          8 * at.in, job.shape.head_dim, keys[t]);
#pragma unroll
      for (int t = 0; t < kFold; ++t)
#pragma unroll
        for (int i = 0; i < 2; ++i)
          load_words<decltype(wide)::value>(
              token_at(job, head.v, tile.pixel(8 * t + 2 * at.in + i)), 4 * at.group,
              job.shape.value_dim, values[t][i]);
    });
    float s[kFold][4] = {};
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const Split<4> left = queries.get_left(step);
#pragma unroll
      for (int t = 0; t < kFold; ++t) {
        const uint32_t right[2] = {first_of<T>(keys[t][step]), second_of<T>(keys[t][step])};
        multiply_add(s[t], left, right);
      }
    }
    weigh(tile, s, sums);
#pragma unroll
    for (int t = 0; t < kFold; ++t) {
      const Split<4> weights = as_left(s[t]);
#pragma unroll
      for (int c = 0; c < kChannelParts; ++c) {
        const uint32_t word[2] = {values[t][0][c / 2], values[t][1][c / 2]};
        const uint32_t right[2] = {c % 2 ? second_of<T>(word[0]) : first_of<T>(word[0]),
                                   c % 2 ? second_of<T>(word[1]) : first_of<T>(word[1])};
        multiply_add(sums[c], weights, right);
      }
    }
  });
  const WarpBuffers own(job, b);  // computed again, so that the loop does not keep it in registers
  const TensorLane to(own.lane);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int row = to.group + i / 2 * 8, column = 4 * (2 * to.in + i % 2);
    const float part[4] = {sums[0][i], sums[1][i], sums[2][i], sums[3][i]};
    if (row < b.m4 && column < round_up(job.shape.value_dim, 4))
      store4(own.values + row * b.e_step + column, part);
  }
}

// The queries of a tile: of tokens group and group + 8 of each 16.
template <class T>
__device__ __forceinline__ void load_queries(const LandmarkJob& job, const Head<T>& head,
                                             const TensorTile& tile, const TensorLane& at,
                                             uint32_t (&queries)[kFold][kSteps]) {
  with_wide(job.wide, [&](auto wide) {
#pragma unroll
    for (int i = 0; i < kFold; ++i)
      load_words<decltype(wide)::value>(token_at(job, head.q, tile.pixel(8 * i + at.group)),
                                        8 * at.in, job.shape.head_dim, queries[i]);
  });
}

// s[part] = logits of 16 tokens (rows) with 8 landmarks (columns). rows: two of load_queries.
template <class T>
__device__ __forceinline__ void score_queries(const uint32_t (&low)[kSteps],
                                              const uint32_t (&high)[kSteps],
                                              const Fragments& fragments,
                                              float (&s)[kColumnParts][4]) {
  __syncwarp();  // the instruction needs the whole warp
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const uint32_t left[4] = {first_of<T>(low[step]), first_of<T>(high[step]),
                              second_of<T>(low[step]), second_of<T>(high[step])};
#pragma unroll
    for (int part = 0; part < kColumnParts; ++part)
      multiply_add(s[part], left, fragments.get(kOfKeys + part * kSteps + step));
  }
}

// The regions of the landmarks in a lane's columns: 2 in and 2 in + 1 of each part of 8.
class ColumnRegions {
 public:
  __device__ ColumnRegions(const LandmarkJob& job, const LandmarkBuffers& b, const TensorLane& at) {
#pragma unroll
    for (int part = 0; part < kColumnParts; ++part)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int landmark = 8 * part + 2 * at.in + i;
        bits_ |= (landmark < job.m ? b.regions[landmark] : 0) << (4 * part + 2 * i);
      }
  }
  __device__ int operator()(int part, int i) const { return bits_ >> (4 * part + 2 * i) & 3; }

 private:
  int bits_ = 0;  // two for each landmark
};

// Writes 8 channels of a token of the tile, if it exists, from row `second` of the sums. All lanes
// of the warp have to call it together.
template <class T>
__device__ __forceinline__ void write_channels(const LandmarkJob& job, const TensorTile& tile,
                                               int token, int head, const TensorLane& at,
                                               int second, const float (&sums)[kChannelParts][4],
                                               T* out) {
  T* const to =
      out + int64_t(tile.pixel(token)) * job.shape.out_channels + head * job.shape.value_dim;
  if (token >= tile.count) return;
  const int first = 8 * at.in, channels = job.shape.value_dim;
  float v[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) v[i] = sums[i / 2][2 * second + i % 2];
  if (job.wide) {
    if (first < channels) store<8>(to + first, v);
  } else {
#pragma unroll
    for (int i = 0; i < 8; i += 2)
      if (first + i < channels) store<2>(to + first + i, v + i);
  }
}

}  // namespace
}  // namespace nystra::cuda
