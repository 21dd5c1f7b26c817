// Exact attention in windows: NystraWindowSoftmax, and with kAround NystraWindowOverlap, whose keys
// extend beyond their window by margins. Keys beyond the map are zeros.
//
// A task is a chunk of the queries of one head in one window. Its queries stay packed while the
// keys and values are processed in blocks; scores exist for a few queries and one block only. The
// steps of a task are functions of its buffers: these here, of vectors, or those of
// softmax_pairs.h.
#pragma once

#include "isa.h"
#include "matmul.h"
#include "scratch.h"
#include "softmax.h"
#include "softmax_pairs.h"
#include "softmax_scores.h"

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

  Buffers(const WindowShape& s, Scratch& memory)
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

template <class T>
void pack_queries(const WindowShape& s, const Head<T>& in, const int64_t* pixels, int64_t count,
                  const Buffers& b) {
  pack_columns(in.q, s.channels(), pixels, count, s.head_dim, b.queries, kQueries);
  const float scale = s.scale * kLog2E;
  const int64_t rows = round_up(count, 4);
  for (int64_t c = 0; c < s.head_dim; ++c)
    for (int64_t i = 0; i < rows; i += kLanes)
      store(b.queries + c * kQueries + i, load(b.queries + c * kQueries + i) * scale);
  b.running.reset(rows);
}

template <class T>
void pack_keys(const WindowShape& s, const Place&, const Head<T>& in, const int64_t* pixels,
               int64_t, int64_t count, const Buffers& b) {
  pack_columns(in.k, s.channels(), pixels, count, s.head_dim, b.keys, kKeys);
  pack_rows(in.v, s.channels(), pixels, count, s.value_dim, b.values, b.e_step);
}

void clear_key(const WindowShape& s, int64_t i, const Buffers& b) {
  for (int64_t c = 0; c < s.head_dim; ++c) b.keys[c * kKeys + i] = 0;
  for (int64_t c = 0; c < b.e_step; c += kLanes) store(b.values + i * b.e_step + c, Vec{});
}

// scores = start + queries keys, for `rows` queries and a block of keys.
template <class Start, class Between>
void score(const WindowShape& s, const Buffers& b, int64_t row, int64_t rows, int64_t count,
           const Start& start, Between& between) {
  multiply(rows, round_up(count, kLanes), s.head_dim, b.queries + row, Fixed<1>(),
           Fixed<kQueries>(), b.keys, kKeys, start, store_to(b.scores, Fixed<kKeys>(), Same()),
           between);
}

// Attends to one block of keys with kTileRows queries at most.
template <class Between>
void attend(const WindowShape& s, const Place& p, const Buffers& b, const float* bias,
            int64_t query, int64_t row, int64_t rows, int64_t first, int64_t count,
            Between& between) {
  const int64_t padded = round_up(count, kLanes);
  if (p.cut || (bias != nullptr && !pairwise(s))) {
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t token = query + r < s.tokens() ? query + r : s.tokens() - 1;
      start_row(s, p.cut ? &p : nullptr, bias, token, first, count, b.scores + r * kKeys);
    }
    const auto start = [scores = b.scores](int64_t r, int64_t i) {
      return load(scores + r * kKeys + i);
    };
    score(s, b, row, rows, count, start, between);
  } else if (bias != nullptr) {
    const auto start = [pairs = bias + table_step(s) + query * padded, padded](
                           int64_t r, int64_t i) { return load(pairs + r * padded + i); };
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
void write(const WindowShape& s, const Buffers& b, int64_t head, int64_t count,
           const int64_t* pixels, T* out) {
  for (int64_t i = 0; i < count; ++i) {
    T* const token = out + pixels[i] * s.heads * s.value_dim + head * s.value_dim;
    const float factor = 1.0f / b.running.totals[i];
    for (int64_t c = 0; c < s.value_dim; c += kLanes)
      store_part(token + c, load(b.out + i * b.e_step + c) * factor, lanes_left(s.value_dim, c));
  }
}

// Packs a block of keys and values; those beyond the map are zeros.
template <bool kAround, class T, class AnyBuffers>
void pack_block(const WindowShape& s, const Place& p, const Head<T>& in, int64_t first,
                int64_t count, const AnyBuffers& b) {
  int64_t pixels[kKeys];
  bool beyond[kKeys], any = false;
  if constexpr (kAround)
    any = around_pixels(s, p, first, count, pixels, beyond);
  else
    token_pixels(p, first, count, pixels);
  pack_keys(s, p, in, pixels, first, count, b);
  for (int64_t i = 0; any && i < count; ++i)
    if (beyond[i]) clear_key(s, i, b);
}

template <bool kAround, class T, class Between>
void run(const WindowSoftmaxParams& params, const T* qkv, T* out, int64_t task, float* scratch,
         Between& between) {
  const WindowShape& s = params.shape;
  const int64_t chunk = task % chunks(s), head = task / chunks(s) % s.heads;
  const Place p = place(s, task / chunks(s) / s.heads);
  const Head<T> in(s, qkv, head);
  const float* const bias = params.bias == nullptr ? nullptr : params.bias + head * bias_step(s);
  Scratch memory(scratch);
  const typename BuffersOf<T>::Type b(s, memory);

  const int64_t query = chunk * kQueries;
  const int64_t queries = s.tokens() - query < kQueries ? s.tokens() - query : kQueries;
  int64_t pixels[kQueries];
  token_pixels(p, query, queries, pixels);
  pack_queries(s, in, pixels, queries, b);
  for (int64_t first = 0; first < s.keys(); first += kKeys) {
    const int64_t count = s.keys() - first < kKeys ? s.keys() - first : kKeys;
    pack_block<kAround>(s, p, in, first, count, b);
    for (int64_t row = 0; row < queries;) {
      const int64_t rows = b.rows(row, queries);
      attend(s, p, b, bias, query + row, row, rows, first, count, between);
      row += rows;
    }
  }
  write(s, b, head, queries, pixels, out);
}

template <bool kAround, class T>
void run_all(const WindowSoftmaxParams& params, const T* qkv, T* out, int64_t first, int64_t last,
             float* scratch) {
  const WindowShape& s = params.shape;
  [[maybe_unused]] const TilesOf<T> tiles;
  for (int64_t task = first; task < last; ++task) {
    if (chunks(s) == 1) {
      Ahead<T> ahead(s, qkv, out, task);
      run<kAround>(params, qkv, out, task, scratch, ahead);
    } else {  // the next chunk reads what this one has in its cache
      const auto nothing = [] {};
      run<kAround>(params, qkv, out, task, scratch, nothing);
    }
  }
}

int64_t softmax_scratch(const WindowShape& s) {
  Scratch memory(nullptr);
  const Buffers buffers(s, memory);
  return memory.used() > pair_scratch(s) ? memory.used() : pair_scratch(s);
}

void softmax_bias(const WindowShape& s, Type type, const void* table, float* bias) {
  with_elements(type, [&](auto t) { fill_bias(s, t.of(table), bias); });
}

template <bool kAround>
Status softmax_tasks(const WindowSoftmaxParams& params, Type type, const void* qkv, void* out,
                     int64_t first, int64_t last, float* scratch) {
  if (scratch == nullptr) return Status::kNoScratch;
  with_elements(
      type, [&](auto t) { run_all<kAround>(params, t.of(qkv), t.of(out), first, last, scratch); });
  return Status::kOk;
}

}  // namespace
}  // namespace nystra::NYSTRA_ISA
