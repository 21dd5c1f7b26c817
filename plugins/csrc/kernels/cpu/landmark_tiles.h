// Landmarks and blocks of tokens of bfloat16 as tiles. Landmarks, scores and further values are
// floats: each is split into two parts, so that products are as accurate as those of floats.
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
  Pair* weights;      // two parts of (step, kBlock / 2), or (kBlock, step): in each kSide pairs
                      // both parts of weights with kLanes landmarks
  Pair* product;      // two parts of (step, sums_step), each twice: for both parts of a row
  float* scores;      // (step, kBlock), or (kBlock, step)
  float* out;         // (kBlock, sums_step)

  LandmarkTiles(const WindowNystromParams& params, Scratch& memory)
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

  // Splits weights of landmark j with 2 kLanes tokens of a block from token i on.
  void split_weights(Vec first, Vec second, int64_t step, int64_t j, int64_t i) const {
    Pair* const high = weights + (j * kBlock + i) / 2;
    _mm512_storeu_si512(high, upper_halves(first, second));
    _mm512_storeu_si512(high + step * kBlock / 2,
                        upper_halves(lower_half(first), lower_half(second)));
  }

  // Splits weights of token i with kLanes landmarks from landmark j on.
  void split_token(Vec v, int64_t step, int64_t i, int64_t j) const {
    _mm512_storeu_si512(weights + i * step + j, upper_halves(v, lower_half(v)));
  }

  // Splits a matrix (step, sums_step).
  void split_product(const float* matrix, int64_t step) const {
    for (int64_t j = 0; j < step; j += 2) {
      for (int64_t c = 0; c < sums_step; c += kLanes) {
        Vec high, low;
        split_rows(load(matrix + j * sums_step + c), load(matrix + (j + 1) * sums_step + c), &high,
                   &low);
        for (int64_t half = 0; half < kLanes; half += kLanes / 2) {
          Pair* const into =
              product + (j / kLanes * kLanes + j % kLanes / 2 + half) * sums_step + c;
          std::memcpy(into, &high, sizeof high);
          std::memcpy(into + step * sums_step, &low, sizeof low);
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

  // Channel c of kLanes tokens from token i on.
  Vec sums(int64_t i, int64_t c) const {
    const __m512i step =
        _mm512_mullo_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
                           _mm512_set1_epi32(int(sums_step)));
    return (Vec)_mm512_i32gather_ps(step, out + i * sums_step + c, sizeof(float));
  }

  void write(const WindowShape& s, const LandmarkBuffers& b, int64_t head, int64_t count,
             const float* factors, BFloat16* map) const {
    for (int64_t i = 0; i < count; ++i) {
      write_token(out + i * sums_step, splat(factors[i]), s.value_dim,
                  map + b.pixels[i] * s.heads * s.value_dim + head * s.value_dim);
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
  LandmarkTiles(const WindowNystromParams&, Scratch&) {}
};

#endif

}  // namespace
}  // namespace nystra::NYSTRA_ISA
