// The common part of both Nystrom forms: landmarks of a window and blocks of its tokens.
#pragma once

#include "prefetch.h"
#include "pseudoinverse.h"

namespace nystra::NYSTRA_ISA {
namespace {

constexpr int64_t kBlock = 64;  // tokens

struct LandmarkBuffers {
  int64_t m, rows, step;  // landmarks; rounded up for products; rounded up for vectors
  int64_t d_step, e_step;
  float *q, *k;          // landmarks (d_step, step), channels in rows; q times scale and log2(e)
  float* upper;          // (step, e_step) G_U V; rows beyond `rows` are for tiles
  float* product;        // (rows, e_step) Z G_U V
  float* columns;        // (d_step, kBlock) q or k of a block, channels in rows
  float* values;         // (kBlock, e_step) v of a block
  float* scores;         // (rows, kBlock) landmarks against a block
  float* factors;        // (kBlock) what a token's result is multiplied by
  float* token_regions;  // (kBlock)
  PinvBuffers pinv;
  int regions[kMaxLandmarks];
  int64_t pixels[kBlock];

  LandmarkBuffers(const WindowNystromParams& params, Scratch& memory)
      : m(params.landmarks()),
        rows(round_up(m, 4)),
        step(round_up(m, kLanes)),
        d_step(round_up(params.shape.head_dim, kLanes)),
        e_step(round_up(params.shape.value_dim, kLanes)),
        q(memory.take(d_step * step)),
        k(memory.take(d_step * step)),
        upper(memory.take(step * e_step)),
        product(memory.take(rows * e_step)),
        columns(memory.take(d_step * kBlock)),
        values(memory.take(kBlock * e_step)),
        scores(memory.take(rows * kBlock)),
        factors(memory.take(kBlock)),
        token_regions(memory.take(kBlock)),
        pinv(m, memory) {}
};

inline int64_t cell_start(int64_t i, int64_t n, int64_t parts) { return i * n / parts; }
inline int64_t cell_end(int64_t i, int64_t n, int64_t parts) {
  return ((i + 1) * n + parts - 1) / parts;
}

struct Cell {
  int64_t y0, y1, x0, x1;
};

inline Cell cell(const WindowNystromParams& params, int64_t j) {
  const WindowShape& s = params.shape;
  const int64_t row = j / params.cols, col = j % params.cols;
  return Cell{cell_start(row, s.window_h, params.rows), cell_end(row, s.window_h, params.rows),
              cell_start(col, s.window_w, params.cols), cell_end(col, s.window_w, params.cols)};
}

// out[c * step] = factor * sum of channel c of a map over a cell, up to 2 kLanes channels.
template <class T>
inline void pool(const Place& p, const Cell& cell, const T* map, int64_t stride, int64_t channels,
                 float factor, float* out, int64_t step) {
  const int n0 = lanes_left(channels, 0);
  const int n1 = channels > kLanes ? lanes_left(channels, kLanes) : 0;
  Vec sum0 = {}, sum1 = {};
  for (int64_t y = cell.y0; y < cell.y1; ++y) {
    for (int64_t x = cell.x0; x < cell.x1; ++x) {
      const T* const token = map + p.pixel(y, x) * stride;
      sum0 += load_part(token, n0);
      if (n1 > 0) sum1 += load_part(token + kLanes, n1);
    }
  }
  float means[2 * kLanes];  // a lane taken out of the sums would keep them in memory all along
  store(means, sum0 * factor);
  store(means + kLanes, sum1 * factor);
  for (int i = 0; i < n0 + n1; ++i) out[i * step] = means[i];
}

// Fills the landmarks: q times scale and log2(e), k as it is. Padding is zero.
template <class T>
inline void find_landmarks(const WindowNystromParams& params, const Place& p, const Head<T>& head,
                           LandmarkBuffers& b) {
  for (int64_t i = 0; i < b.d_step * b.step; ++i) b.q[i] = b.k[i] = 0;
  const WindowShape& s = params.shape;
  for (int64_t j = 0; j < b.m; ++j) {
    const Cell area = cell(params, j);
    const float mean = 1.0f / float((area.y1 - area.y0) * (area.x1 - area.x0));
    for (int64_t c = 0; c < s.head_dim; c += 2 * kLanes) {
      const int64_t n = s.head_dim - c;
      pool(p, area, head.q + c, s.channels(), n, mean * s.scale * kLog2E, b.q + c * b.step + j,
           b.step);
      pool(p, area, head.k + c, s.channels(), n, mean, b.k + c * b.step + j, b.step);
    }
    b.regions[j] = p.region(area.y0, area.x0);
  }
}

// Multiplies the key landmarks by scale and log2(e), for pass 2.
inline void scale_keys(const WindowNystromParams& params, const LandmarkBuffers& b) {
  const float scale = params.shape.scale * kLog2E;
  for (int64_t i = 0; i < b.d_step * b.step; i += kLanes) store(b.k + i, load(b.k + i) * scale);
}

// Calls f(count) for each block of tokens, their pixels (and regions, in a cut window) filled in.
template <class F>
inline void for_blocks(const WindowNystromParams& params, const Place& p, LandmarkBuffers& b,
                       const F& f) {
  const int64_t tokens = params.shape.tokens();
  for (int64_t first = 0; first < tokens; first += kBlock) {
    const int64_t count = tokens - first < kBlock ? tokens - first : kBlock;
    token_pixels(p, first, count, b.pixels);
    if (p.cut) {
      token_regions(p, first, count, b.token_regions);
      for (int64_t i = count; i < kBlock; ++i) b.token_regions[i] = 0;
    }
    f(count);
  }
}

// scores = f(landmarks^T columns), for the tokens of a block. A function of its own, whose
// registers are those of f alone.
template <class F, class Between>
__attribute__((noinline)) void score(const WindowNystromParams& params, const LandmarkBuffers& b,
                                     const float* landmarks, int64_t count, const F& f,
                                     Between& between) {
  multiply(b.rows, round_up(count, kLanes), params.shape.head_dim, landmarks, Fixed<1>(), b.step,
           b.columns, kBlock, Zero(), store_to(b.scores, Fixed<kBlock>(), f), between);
}

// product = Z upper.
inline void apply_inverse(const LandmarkBuffers& b) {
  multiply(b.rows, b.e_step, b.m, b.pinv.z, b.pinv.step, Fixed<1>(), b.upper, b.e_step, Zero(),
           store_to(b.product, b.e_step, Same()));
}

// Writes token i of a block as factors[i] * (scores^T matrix)[i].
template <class T, class Between>
inline void write_tokens(const WindowShape& s, const LandmarkBuffers& b, int64_t head,
                         int64_t count, const float* matrix, const float* factors, T* out,
                         Between& between) {
  const int64_t stride = s.heads * s.value_dim, width = s.value_dim;
  const auto finish = [=, map = out + head * width, pixels = b.pixels](int64_t row, int64_t col,
                                                                       auto& acc) {
    each(row, col, acc, [=](int64_t r, int64_t c, Vec v) {
      if (r < count) store_part(map + pixels[r] * stride + c, v * factors[r], lanes_left(width, c));
    });
  };
  multiply(round_up(count, 4), b.e_step, b.m, b.scores, Fixed<1>(), Fixed<kBlock>(), matrix,
           b.e_step, Zero(), finish, between);
}

}  // namespace
}  // namespace nystra::NYSTRA_ISA
