// Exact attention of a chunk of the queries of one head to all its keys.
//
// The queries stay packed while the keys and values are processed in blocks; scores exist for a few
// queries and one block only. The steps are functions of buffers: these here, of vectors, or those
// of softmax_pairs.h. What is added to scores is a class Terms:
//
//   by_row()                         row() has all that is added
//   row(query, first, count, out)    of a query, which may be beyond the last, and a block of keys;
//                                    whole vectors are written
//   pairs(query, count)              or null: rows of it, one after another, for each query
//   biased(), bias_row(...)          the part of it that is not that between regions
//   cut(), region(query),            whether there is such a part, and of what region a query and
//   regions(first, count, out)       keys are
//
// A query all of whose scores are -inf gets zeros.
#pragma once

#include "isa.h"
#include "matmul.h"
#include "scratch.h"
#include "softmax.h"
#include "softmax_pairs.h"

namespace nystra::NYSTRA_ISA {
namespace {

struct Buffers {
  int64_t d_step, e_step;
  float* queries;  // (d_step, kQueries), channels in rows
  float* keys;     // (d_step, kKeys), channels in rows
  float* values;   // (kKeys, e_step)
  float* scores;   // (kTileRows, kKeys), and slack for copies of whole vectors
  float* out;      // (kQueries, e_step)
  RunningSoftmax running;

  Buffers(const HeadSize& s, Scratch& memory)
      : d_step(round_up(s.head_dim, kLanes)), e_step(round_up(s.value_dim, kLanes)) {
    queries = memory.take(d_step * kQueries);
    keys = memory.take(d_step * kKeys);
    values = memory.take(kKeys * e_step);
    scores = memory.take(kTileRows * kKeys + kLanes);
    out = memory.take(kQueries * e_step);
    running = {memory.take(kQueries), memory.take(kQueries), memory.take(kQueries)};
  }

  // How many queries are attended to at once from `row` on, the last ones rounded up to four.
  int64_t rows(int64_t row, int64_t queries) const {
    const int64_t left = round_up(queries, 4) - row;
    return left >= kTileRows && left != 16 ? kTileRows
           : left >= 8 && kTileRows >= 8   ? 8
           : left < 4                      ? left
                                           : 4;
  }
};

// The implementation for elements of T.
template <class T>
struct BuffersOf {
  using Type = Buffers;
};
#if defined(__AVX512BF16__)
template <>
struct BuffersOf<BFloat16> {
  using Type = PairBuffers;
};
#endif

// Multiplies packed tokens by a factor, and divides them by their norms if the size says so.
inline void scale_columns(const HeadSize& s, int64_t count, float factor, float* columns,
                          int64_t step) {
  for (int64_t i = 0; i < count; i += kLanes) {
    Vec factors = splat(factor);
    if (s.epsilon > 0) {
      Vec squares = {};
      for (int64_t c = 0; c < s.head_dim; ++c) {
        const Vec v = load(columns + c * step + i);
        squares = fma(v, v, squares);
      }
      factors = factors / max(splat(s.epsilon), square_root(squares));
    }
    for (int64_t c = 0; c < s.head_dim; ++c)
      store(columns + c * step + i, load(columns + c * step + i) * factors);
  }
}

template <class T>
void pack_queries(const HeadSize& s, const Tokens<const T>& q, int64_t count, const Buffers& b) {
  pack_columns(q.data, q.stride, q.places, count, s.head_dim, b.queries, kQueries);
  const int64_t rows = round_up(count, 4);
  scale_columns(s, rows, s.scale * kLog2E, b.queries, kQueries);
  b.running.reset(rows);
}

template <class T>
void pack_keys(const HeadSize& s, const Tokens<const T>& k, const Tokens<const T>& v, int64_t count,
               const Buffers& b) {
  pack_columns(k.data, k.stride, k.places, count, s.head_dim, b.keys, kKeys);
  if (s.epsilon > 0) scale_columns(s, count, 1.0f, b.keys, kKeys);
  pack_rows(v.data, v.stride, v.places, count, s.value_dim, b.values, b.e_step);
}

inline void clear_key(const HeadSize& s, int64_t i, const Buffers& b) {
  for (int64_t c = 0; c < s.head_dim; ++c) b.keys[c * kKeys + i] = 0;
  for (int64_t c = 0; c < b.e_step; c += kLanes) store(b.values + i * b.e_step + c, Vec{});
}

// scores = start + queries keys, for `rows` queries and a block of keys.
template <class Start, class Between>
void score(const HeadSize& s, const Buffers& b, int64_t row, int64_t rows, int64_t count,
           const Start& start, Between& between) {
  multiply(rows, round_up(count, kLanes), s.head_dim, b.queries + row, Fixed<1>(),
           Fixed<kQueries>(), b.keys, kKeys, start, store_to(b.scores, Fixed<kKeys>(), Same()),
           between);
}

// Attends to one block of keys with kTileRows queries at most.
template <class Terms, class Between>
void attend(const HeadSize& s, const Buffers& b, const Terms& terms, int64_t query, int64_t row,
            int64_t rows, int64_t first, int64_t count, Between& between) {
  const int64_t padded = round_up(count, kLanes);
  if (terms.by_row()) {
    for (int64_t r = 0; r < rows; ++r) terms.row(query + r, first, count, b.scores + r * kKeys);
    const auto start = [scores = b.scores](int64_t r, int64_t i) {
      return load(scores + r * kKeys + i);
    };
    score(s, b, row, rows, count, start, between);
  } else if (const float* const pairs = terms.pairs(query, count)) {
    const auto start = [pairs, padded](int64_t r, int64_t i) {
      return load(pairs + r * padded + i);
    };
    score(s, b, row, rows, count, start, between);
  } else {
    score(s, b, row, rows, count, Zero(), between);
  }
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = count; i < padded; ++i) b.scores[r * kKeys + i] = -INFINITY;

  const RunningSoftmax running = {b.running.maxima + row, b.running.totals + row,
                                  b.running.corrections + row};
  softmax_block(b.scores, kKeys, rows, padded, running);

  float* const out = b.out + row * b.e_step;
  const auto keep_out = store_to(out, b.e_step, Same());
  if (first == 0) {
    multiply(rows, b.e_step, count, b.scores, Fixed<kKeys>(), Fixed<1>(), b.values, b.e_step,
             Zero(), keep_out, between);
  } else {
    const auto rescaled = [out, step = b.e_step, factors = running.corrections](int64_t r,
                                                                                int64_t c) {
      return load(out + r * step + c) * factors[r];
    };
    multiply(rows, b.e_step, count, b.scores, Fixed<kKeys>(), Fixed<1>(), b.values, b.e_step,
             rescaled, keep_out, between);
  }
}

template <class T>
void write(const HeadSize& s, const Buffers& b, int64_t count, const Tokens<T>& out) {
  for (int64_t i = 0; i < count; ++i) {
    T* const token = out.at(i);
    const float factor = b.running.maxima[i] == -INFINITY ? 0.0f : 1.0f / b.running.totals[i];
    for (int64_t c = 0; c < s.value_dim; c += kLanes)
      store_part(token + c, load(b.out + i * b.e_step + c) * factor, lanes_left(s.value_dim, c));
  }
}

// Attends to all keys with the packed queries, of which the first is `query`. pack(first, count)
// packs a block of keys.
template <class AnyBuffers, class Terms, class Pack, class Between>
void attend_to_all(const HeadSize& s, const AnyBuffers& b, const Terms& terms, int64_t query,
                   int64_t queries, const Pack& pack, Between& between) {
  for (int64_t first = 0; first < s.keys; first += kKeys) {
    const int64_t count = s.keys - first < kKeys ? s.keys - first : kKeys;
    pack(first, count);
    for (int64_t row = 0; row < queries;) {
      const int64_t rows = b.rows(row, queries);
      attend(s, b, terms, query + row, row, rows, first, count, between);
      row += rows;
    }
  }
}

inline int64_t head_scratch(const HeadSize& s) {
  Scratch memory(nullptr);
  const Buffers buffers(s, memory);
  return memory.used() > pair_scratch(s) ? memory.used() : pair_scratch(s);
}

}  // namespace
}  // namespace nystra::NYSTRA_ISA
