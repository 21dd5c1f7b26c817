// Landmarks and blocks of tokens of bfloat16 as tiles. Landmarks, scores and what follows from them
// are floats: each is split in two parts, so that products are as good as those of floats.
#pragma once

#include "landmark_window.h"
#include "tiles.h"

namespace nystra::NYSTRA_ISA {
namespace {

#if defined(__AMX_BF16__)

struct LandmarkTiles {
  int64_t depth;      // pairs of a query's channels
  int64_t sums_step;  // channels of a value and two sums
  Pair* landmarks;    // two parts of (step, depth), or of (depth, step)
  Pair* columns;      // k of a block (depth, kBlock), or q (kBlock, depth)
  Pair* values;       // (kBlock / 2, e_step)
  Pair* weights;      // two parts of (step, kBlock / 2), or rows of both, (kBlock, step)
  Pair* product;      // two parts of (step, sums_step), each twice: for both parts of a row
  float* scores;      // (step, kBlock), or (kBlock, step)
  float* out;         // (kBlock, sums_step)

  LandmarkTiles(const LandmarkParams& params, Scratch& memory)
      : depth(pairs_of(params.shape.head_dim)),
        sums_step(round_up(params.shape.value_dim + 2, kSide)) {
    const int64_t step = round_up(params.landmarks(), kLanes);
    const int64_t e_step = round_up(params.shape.value_dim, kLanes);
    landmarks = memory.take_pairs(2 * step * depth);
    columns = memory.take_pairs(kBlock * depth);
    values = memory.take_pairs(kBlock / 2 * e_step);
    weights = memory.take_pairs(step * kBlock);
    product = memory.take_pairs(2 * step * sums_step);
    scores = memory.take(step * kBlock);
    out = memory.take(kBlock * sums_step);
  }

  // Splits weights of landmark j with tokens [i, i + kLanes) of a block.
  void split_weights(Vec v, int64_t j, int64_t i, int64_t part) const {
    __m256i high, low;
    split_vector(v, &high, &low);
    Pair* const into = weights + (j * kBlock + i) / 2;
    std::memcpy(into, &high, sizeof high);
    std::memcpy(into + part, &low, sizeof low);
  }

  // Splits weights of token i with landmarks [j, j + kLanes).
  void split_token(Vec v, int64_t step, int64_t i, int64_t j) const {
    __m256i high, low;
    split_vector(v, &high, &low);
    Pair* const into = weights + i * step + j / 2;
    std::memcpy(into, &high, sizeof high);
    std::memcpy(into + step / 2, &low, sizeof low);
  }

  // Splits a matrix (step, sums_step).
  void split_twice(const float* matrix, int64_t step) const {
    Pair* const rest = product + step * sums_step;
    for (int64_t j = 0; j < step; j += 2) {
      for (int64_t c = 0; c < sums_step; c += kLanes) {
        Vec high, low;
        split_rows(load(matrix + j * sums_step + c), load(matrix + (j + 1) * sums_step + c), &high,
                   &low);
        for (int64_t row = j / 2; row < step; row += step / 2) {
          std::memcpy(product + row * sums_step + c, &high, sizeof high);
          std::memcpy(rest + row * sums_step + c, &low, sizeof low);
        }
      }
    }
  }

  // Scores of a block of tokens as the guard takes them, landmarks in rows.
  void turn_scores(const LandmarkBuffers& b, int64_t count) const {
    for (int64_t i = 0; i < count; i += kLanes) {
      for (int64_t j = 0; j < b.rows; j += kLanes) {
        Vec block[kLanes];
        for (int k = 0; k < kLanes; ++k) block[k] = load(scores + (i + k) * b.step + j);
        transpose(block);
        for (int k = 0; k < kLanes && j + k < b.rows; ++k)
          store(b.scores + (j + k) * kBlock + i, block[k]);
      }
    }
  }

  void write(const WindowShape& s, const LandmarkBuffers& b, int64_t head, int64_t count,
             const float* factors, BFloat16* map) const {
    for (int64_t i = 0; i < count; ++i) {
      BFloat16* const token = map + b.pixels[i] * s.heads * s.value_dim + head * s.value_dim;
      for (int64_t c = 0; c < s.value_dim; c += kLanes)
        store_part(token + c, load(out + i * sums_step + c) * factors[i],
                   lanes_left(s.value_dim, c));
    }
  }
};

// Splits landmarks (d_step, step), channels in rows, into columns: f(channel pair, landmark, high,
// low) for each vector of landmarks.
template <class F>
inline void split_landmarks(const float* landmarks, int64_t d_step, int64_t step,
                            const LandmarkTiles& t, const F& f) {
  for (int64_t c = 0; c < t.depth; ++c) {
    for (int64_t j = 0; j < step; j += kLanes) {
      Vec high = {}, low = {};
      if (2 * c < d_step)
        split_rows(load(landmarks + 2 * c * step + j), load(landmarks + (2 * c + 1) * step + j),
                   &high, &low);
      f(c, j, high, low);
    }
  }
}

inline void split_landmark_columns(const float* landmarks, int64_t d_step, int64_t step,
                                   const LandmarkTiles& t) {
  split_landmarks(landmarks, d_step, step, t, [&](int64_t c, int64_t j, Vec high, Vec low) {
    std::memcpy(t.landmarks + c * step + j, &high, sizeof high);
    std::memcpy(t.landmarks + (t.depth + c) * step + j, &low, sizeof low);
  });
}

// The same into rows, a landmark each.
inline void split_landmark_rows(const float* landmarks, int64_t d_step, int64_t step,
                                const LandmarkTiles& t) {
  split_landmarks(landmarks, d_step, step, t, [&](int64_t c, int64_t j, Vec high, Vec low) {
    for (int k = 0; k < kLanes; ++k) {
      Pair* const into = t.landmarks + (j + k) * t.depth + c;
      into[0] = Pair(((IntVec)high)[k]);
      into[step * t.depth] = Pair(((IntVec)low)[k]);
    }
  });
}

// The first n lanes; zeros in the others.
inline Vec first_lanes(Vec v, int64_t n) {
  return n <= 0 ? Vec{} : (Vec)_mm512_maskz_mov_ps(__mmask16((1u << n) - 1), (__m512)v);
}

#else

struct LandmarkTiles {
  LandmarkTiles(const LandmarkParams&, Scratch&) {}
};

#endif

}  // namespace
}  // namespace nystra::NYSTRA_ISA
