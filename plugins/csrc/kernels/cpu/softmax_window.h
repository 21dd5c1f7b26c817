// Exact attention in windows: NystraWindowSoftmax, and with kAround NystraWindowOverlap, whose keys
// stand over their window by margins. Keys beyond the map are zeros.
//
// A task is a chunk of the queries of one head in one window. Its queries stay packed while the
// keys and values pass by in blocks; scores exist for kTileRows queries and one block only.
#pragma once

#include "isa.h"
#include "matmul.h"
#include "scratch.h"
#include "softmax.h"
#include "softmax_scores.h"
#include "softmax_tiles.h"

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
};

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

// Packs a block of keys and values.
template <bool kAround, class T>
void pack_keys(const WindowShape& s, const Place& p, const Head<T>& in, int64_t first,
               int64_t count, const Buffers& b) {
  int64_t pixels[kKeys];
  bool beyond[kKeys], any = false;
  if constexpr (kAround)
    any = around_pixels(s, p, first, count, pixels, beyond);
  else
    token_pixels(p, first, count, pixels);
  pack_columns(in.k, s.channels(), pixels, count, s.head_dim, b.keys, kKeys);
  pack_rows(in.v, s.channels(), pixels, count, s.value_dim, b.values, b.e_step);
  for (int64_t i = 0; any && i < count; ++i) {
    if (!beyond[i]) continue;
    for (int64_t c = 0; c < s.head_dim; ++c) b.keys[c * kKeys + i] = 0;
    for (int64_t c = 0; c < b.e_step; c += kLanes) store(b.values + i * b.e_step + c, Vec{});
  }
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
  const Buffers b(s, memory);

  const int64_t query = chunk * kQueries;
  const int64_t queries = s.tokens() - query < kQueries ? s.tokens() - query : kQueries;
  const int64_t rows = round_up(queries, 4);
  int64_t query_pixels[kQueries];
  token_pixels(p, query, queries, query_pixels);
  pack_columns(in.q, s.channels(), query_pixels, queries, s.head_dim, b.queries, kQueries);
  const float scale = s.scale * kLog2E;
  for (int64_t c = 0; c < s.head_dim; ++c)
    for (int64_t i = 0; i < rows; i += kLanes)
      store(b.queries + c * kQueries + i, load(b.queries + c * kQueries + i) * scale);
  b.running.reset(rows);

  for (int64_t first = 0; first < s.keys(); first += kKeys) {
    const int64_t count = s.keys() - first < kKeys ? s.keys() - first : kKeys;
    pack_keys<kAround>(s, p, in, first, count, b);
    for (int64_t row = 0; row < rows;) {
      const int64_t n = rows - row >= kTileRows && rows - row != 16 ? kTileRows
                        : rows - row >= 8 && kTileRows >= 8         ? 8
                        : rows - row < 4                            ? rows - row
                                                                    : 4;
      attend(s, p, b, bias, query + row, row, n, first, count, between);
      row += n;
    }
  }
  write(s, b, head, queries, query_pixels, out);
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
  return memory.used() > tile_scratch(s) ? memory.used() : tile_scratch(s);
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
