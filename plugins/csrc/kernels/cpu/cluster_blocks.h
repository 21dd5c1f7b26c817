// The blocks of a window with exact attention, their bias blocks, and the bias.
#pragma once

#include "prefetch.h"
#include "scratch.h"

namespace nystra::NYSTRA_ISA {
namespace {

constexpr int64_t kChunk = 64;                 // places of blocks that are worked on together
constexpr int64_t kVectors = kChunk / kLanes;  // of them

struct Block {
  int64_t y, x, rows, cols;
  int64_t coarse;  // the bias block it lies in
  bool alone;      // it is that block

  int64_t count() const { return rows * cols; }
  void pixels(const Place& p, int64_t* out) const {
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < cols; ++j) *out++ = p.pixel(y + i, x + j);
  }
};

inline int64_t minimum(int64_t a, int64_t b) { return a < b ? a : b; }

struct Blocks {
  int64_t window_h, window_w, side, coarse_side;
  int64_t rows, cols;                                       // of a whole block
  int64_t places, slots;                                    // of a block; rounded up for vectors
  int64_t down, across;                                     // blocks of a window
  int64_t coarse_down, coarse_across, coarse, coarse_rows;  // bias blocks; rounded up for products

  explicit Blocks(const ClusterParams& p)
      : window_h(p.shape.window_h),
        window_w(p.shape.window_w),
        side(p.block),
        coarse_side(p.bias_block),
        rows(minimum(side, window_h)),
        cols(minimum(side, window_w)),
        places(rows * cols),
        slots(round_up(places, kLanes)),
        down((window_h + side - 1) / side),
        across((window_w + side - 1) / side),
        coarse_down((window_h + coarse_side - 1) / coarse_side),
        coarse_across((window_w + coarse_side - 1) / coarse_side),
        coarse(coarse_down * coarse_across),
        coarse_rows(round_up(coarse, 4)) {}

  int64_t count() const { return down * across; }
  int region(const Place& p, int64_t i) const {
    return p.region(i / coarse_across * coarse_side, i % coarse_across * coarse_side);
  }

  // A head's bias: between bias blocks (coarse_rows, coarse), 0 for one with itself; of one with
  // itself (coarse); and of the pairs in a block (key, slots of queries) for each kind of block:
  // whole, or cut by the window's right side, its bottom, or both.
  int64_t inside() const { return coarse_rows * coarse; }
  int64_t pairs() const { return inside() + round_up(coarse, kLanes); }
  int64_t kind_step() const { return round_up(places, 4) * slots; }
  int64_t bias_step() const { return round_up(pairs() + 4 * kind_step(), kLanes); }
  int64_t kind(const Block& b) const {
    return (2 * (b.rows < rows) + (b.cols < cols)) * kind_step();
  }
};

// Calls f(number of the first, blocks, how many of them) for chunks of all blocks, those of one
// bias block after each other.
template <class F>
inline void for_chunks(const Blocks& b, const F& f) {
  Block chunk[kVectors];
  const int64_t max_blocks = kChunk / b.slots;
  int64_t n = 0, number = 0;
  for (int64_t i = 0; i < b.coarse; ++i) {
    const int64_t top = i / b.coarse_across * b.coarse_side;
    const int64_t left = i % b.coarse_across * b.coarse_side;
    const int64_t bottom = minimum(top + b.coarse_side, b.window_h);
    const int64_t right = minimum(left + b.coarse_side, b.window_w);
    const bool alone = bottom - top <= b.side && right - left <= b.side;
    for (int64_t y = top; y < bottom; y += b.side) {
      for (int64_t x = left; x < right; x += b.side) {
        chunk[n++] = {y, x, minimum(b.side, bottom - y), minimum(b.side, right - x), i, alone};
        if (n < max_blocks) continue;
        f(number, chunk, n);
        number += n;
        n = 0;
      }
    }
  }
  if (n > 0) f(number, chunk, n);
}

inline int64_t table_cols(const Blocks& b) { return 2 * b.window_w - 1; }
inline int64_t table_size(const Blocks& b) { return (2 * b.window_h - 1) * table_cols(b); }

// The bias blocks along one side of a window.
struct Side {
  int64_t size, side, count;

  int64_t start(int64_t i) const { return i * side; }
  int64_t length(int64_t i) const { return minimum(side, size - start(i)); }
  int64_t width() const { return 2 * minimum(side, size) - 1; }  // offsets between two blocks
  int64_t shares() const { return count * count * width(); }
  // The least offset of a place in block i to one in block j, as an index of the table.
  int64_t first(int64_t i, int64_t j) const {
    return start(i) - (start(j) + length(j) - 1) + size - 1;
  }

  // The share of the pairs of blocks i and j at each offset, from the least on.
  void fill_shares(float* out) const {
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t j = 0; j < count; ++j, out += width()) {
        for (int64_t k = 0; k < width(); ++k) out[k] = 0;
        for (int64_t y = 0; y < length(i); ++y)
          for (int64_t z = 0; z < length(j); ++z)
            out[y + length(j) - 1 - z] += 1.0f / float(length(i) * length(j));
      }
    }
  }
};

// Besides the bias of all heads: of one head the table, as logarithm and exp, and a row of it; and
// the shares of both sides.
struct BiasScratch {
  Side rows, cols;
  float *logs, *exps, *row, *row_shares, *col_shares;

  BiasScratch(const Blocks& b, Scratch& memory)
      : rows{b.window_h, b.coarse_side, b.coarse_down},
        cols{b.window_w, b.coarse_side, b.coarse_across},
        logs(memory.take(round_up(table_size(b), kLanes))),
        exps(memory.take(round_up(table_size(b), kLanes))),
        row(memory.take(table_cols(b))),
        row_shares(memory.take(rows.shares())),
        col_shares(memory.take(cols.shares())) {}
};

inline int64_t bias_size(const ClusterParams& params) {
  const Blocks b(params);
  Scratch memory(nullptr);
  memory.take(params.shape.heads * b.bias_step());
  const BiasScratch scratch(b, memory);
  return memory.used();
}

// The mean of exp(bias) over the pairs of each two bias blocks.
inline void fill_coarse(const Blocks& b, const BiasScratch& from, float* bias) {
  const int64_t cols = table_cols(b);
  for (int64_t i = b.coarse * b.coarse; i < b.inside(); ++i) bias[i] = 0;
  const float* row_share = from.row_shares;
  for (int64_t iy = 0; iy < b.coarse_down; ++iy) {
    for (int64_t jy = 0; jy < b.coarse_down; ++jy, row_share += from.rows.width()) {
      for (int64_t c = 0; c < cols; ++c) from.row[c] = 0;
      const float* entry = from.exps + from.rows.first(iy, jy) * cols;
      for (int64_t k = 0; k < from.rows.length(iy) + from.rows.length(jy) - 1; ++k, entry += cols)
        for (int64_t c = 0; c < cols; ++c) from.row[c] += row_share[k] * entry[c];
      const float* share = from.col_shares;
      for (int64_t ix = 0; ix < b.coarse_across; ++ix) {
        for (int64_t jx = 0; jx < b.coarse_across; ++jx, share += from.cols.width()) {
          const float* const row = from.row + from.cols.first(ix, jx);
          float mean = 0;
          for (int64_t k = 0; k < from.cols.length(ix) + from.cols.length(jx) - 1; ++k)
            mean += share[k] * row[k];
          const int64_t i = iy * b.coarse_across + ix, j = jy * b.coarse_across + jx;
          bias[i * b.coarse + j] = i == j ? 0.0f : mean;
          if (i == j) bias[b.inside() + i] = mean;
        }
      }
    }
  }
}

// The bias of the pairs in each kind of block.
inline void fill_pairs(const Blocks& b, const float* table, float* pairs) {
  for (int kind = 0; kind < 4; ++kind, pairs += b.kind_step()) {
    const int64_t rows = kind & 2 ? b.window_h % b.side : b.rows;
    const int64_t cols = kind & 1 ? b.window_w % b.side : b.cols;
    for (int64_t i = 0; i < b.kind_step(); ++i) pairs[i] = 0;
    for (int64_t key = 0; key < rows * cols; ++key) {
      for (int64_t query = 0; query < rows * cols; ++query) {
        const int64_t y = query / cols - key / cols + b.window_h - 1;
        const int64_t x = query % cols - key % cols + b.window_w - 1;
        pairs[key * b.slots + query] = table[y * table_cols(b) + x];
      }
    }
  }
}

// The bias of all heads, from the table (offsets, h) or null. The largest entry of a head is
// subtracted, which changes no softmax, so that no mean is above 1.
template <class T>
inline void fill_bias(const ClusterParams& params, const T* table, float* bias) {
  const Blocks b(params);
  Scratch memory(bias);
  const int64_t heads = params.shape.heads, entries = table_size(b);
  memory.take(heads * b.bias_step());
  const BiasScratch from(b, memory);
  from.rows.fill_shares(from.row_shares);
  from.cols.fill_shares(from.col_shares);
  const auto entry = [=](int64_t i, int64_t head) {
    return table == nullptr ? 0.0f : to_float(table[i * heads + head]);
  };
  for (int64_t head = 0; head < heads; ++head, bias += b.bias_step()) {
    float largest = entry(0, head);
    for (int64_t i = 1; i < entries; ++i)
      largest = entry(i, head) > largest ? entry(i, head) : largest;
    for (int64_t i = 0; i < round_up(entries, kLanes); ++i)
      from.logs[i] = i < entries ? (entry(i, head) - largest) * kLog2E : 0.0f;
    for (int64_t i = 0; i < entries; i += kLanes) store(from.exps + i, exp2(load(from.logs + i)));
    fill_coarse(b, from, bias);
    fill_pairs(b, from.logs, bias + b.pairs());
  }
}

}  // namespace
}  // namespace nystra::NYSTRA_ISA
