// The terms that exact attention in windows adds to scores, and the positions of a window's keys.
#pragma once

#include "prefetch.h"
#include "softmax_size.h"

namespace nystra::NYSTRA_ISA {
namespace {

int64_t chunks(const WindowShape& s) { return chunks_of(s.tokens()); }

// Whether the bias of small windows is kept for each pair of tokens, as start of their scores.
bool pairwise(const WindowShape& s) { return s.keys() <= kKeys; }

int64_t table_step(const WindowShape& s) { return round_up(s.bias_rows() + kLanes, kLanes); }

// Floats that the bias of a head takes: its reversed table, and its pairs.
int64_t bias_step(const WindowShape& s) {
  return table_step(s) + (pairwise(s) ? round_up(s.tokens(), 4) * round_up(s.keys(), kLanes) : 0);
}

// Writes the terms added to the scores of one query (token `query`) with the keys of a block: its
// bias, and with a place the separation of regions.
void start_row(const WindowShape& s, const Place* p, const float* bias, int64_t query,
               int64_t first, int64_t count, float* row) {
  const int64_t qy = query / s.window_w, qx = query % s.window_w;
  const int64_t key_w = s.key_w(), step = s.window_w + key_w - 1;
  int64_t y = first / key_w, x = first % key_w;
  // The entry of the query and of the first key of row y of the keys.
  const float* entry =
      bias == nullptr ? nullptr : bias + (y - qy + s.window_h - 1) * step - qx + s.window_w - 1;
  for (int64_t i = 0; i < count;) {
    const int64_t n = key_w - x < count - i ? key_w - x : count - i;
    if (entry != nullptr) {
#pragma GCC unroll 1
      for (int64_t j = 0; j < n; j += kLanes) store(row + i + j, load(entry + x + j));
      entry += step;
    } else {
#pragma GCC unroll 1
      for (int64_t j = 0; j < n; j += kLanes) store(row + i + j, Vec{});
    }
    if (p != nullptr) {
      const bool rows_differ = (y >= p->row_cut) != (qy >= p->row_cut);
      const bool right = qx >= p->col_cut;
      const float apart = s.between_regions() * kLog2E;
      for (int64_t j = 0; j < n; ++j)
        if (rows_differ || (x + j >= p->col_cut) != right) row[i + j] += apart;
    }
    i += n;
    x = 0;
    ++y;
  }
}

// A head's table in powers of two and reversed, so that the entries of a query and consecutive
// keys follow each other (with a vector's slack, for copies of whole vectors); then its pairs.
template <class T>
void fill_bias(const WindowShape& s, const T* table, float* bias) {
  const int64_t entries = s.bias_rows(), keys = s.keys(), step = round_up(keys, kLanes);
  for (int64_t head = 0; head < s.heads; ++head, bias += bias_step(s)) {
    for (int64_t i = 0; i < table_step(s); ++i)
      bias[i] = i < entries ? to_float(table[(entries - 1 - i) * s.heads + head]) * kLog2E : 0.0f;
    for (int64_t query = 0; pairwise(s) && query < round_up(s.tokens(), 4); ++query) {
      float* const row = bias + table_step(s) + query * step;
      for (int64_t i = 0; i < step; ++i) row[i] = 0;
      // Its last whole vector reaches into what is written after it.
      if (query < s.tokens()) start_row(s, nullptr, bias, query, 0, keys, row);
    }
  }
}

// What attention in a window adds to scores, as softmax_head.h asks for it.
struct WindowTerms {
  const WindowShape& shape;
  const Place& place;
  const float* bias;  // of the head, by fill_bias(); null: none

  bool cut() const { return place.cut; }
  bool biased() const { return bias != nullptr; }
  bool by_row() const { return place.cut || (bias != nullptr && !pairwise(shape)); }
  const float* pairs(int64_t query, int64_t count) const {
    return bias != nullptr && pairwise(shape)
               ? bias + table_step(shape) + query * round_up(count, kLanes)
               : nullptr;
  }
  void row(int64_t query, int64_t first, int64_t count, float* out) const {
    const int64_t token = query < shape.tokens() ? query : shape.tokens() - 1;
    start_row(shape, place.cut ? &place : nullptr, bias, token, first, count, out);
  }
  void bias_row(int64_t query, int64_t first, int64_t count, float* out) const {
    start_row(shape, nullptr, bias, query, first, count, out);
  }
  float region(int64_t query) const {
    return float(place.region(query / shape.window_w, query % shape.window_w));
  }
  void regions(int64_t first, int64_t count, float* out) const {
    token_regions(place, first, count, out);
  }
};

// The pixels of `count` keys of a window from key `first` on; those beyond the map are marked, and
// get a pixel that is there. Returns whether there are any.
bool around_pixels(const WindowShape& s, const Place& p, int64_t first, int64_t count,
                   int64_t* pixels, bool* beyond) {
  const int64_t key_w = s.key_w();
  int64_t y = first / key_w, x = first % key_w;
  bool any = false;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = p.top + y - s.margin_h, column = p.left + x - s.margin_w;
    beyond[i] = row < 0 || row >= p.height || column < 0 || column >= p.width;
    any = any || beyond[i];
    pixels[i] = beyond[i] ? p.image : p.image + row * p.width + column;
    if (++x == key_w) x = 0, ++y;
  }
  return any;
}

}  // namespace
}  // namespace nystra::NYSTRA_ISA
