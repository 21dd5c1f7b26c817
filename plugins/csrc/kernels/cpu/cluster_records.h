// The records of clusters with covariance: what is summed of their members, and what a block sees.
#pragma once

#include "cluster_buffers.h"
#include "matmul.h"

namespace nystra::NYSTRA_ISA {
namespace {

// Fills the difference of a key from its center.
template <class T>
void take_difference(const WindowShape& s, const Buffers& b, const T* key, int64_t j, float* out) {
  for (int64_t c = 0; c < s.head_dim; c += kLanes)
    store(out + c,
          load_part(key + c, lanes_left(s.head_dim, c)) - load(b.centers + j * b.d_step + c));
}

// The sum of rows of `step` floats.
inline void sum_rows(const float* rows, int64_t count, int64_t step, float* out) {
  for (int64_t c = 0; c < step; c += kLanes) {
    Vec total = {};
    for (int64_t t = 0; t < count; ++t) total += load(rows + t * step + c);
    store(out + c, total);
  }
}

// Fills `own` with the records of a block's members. They are ordered by cluster, so that the
// products of each cluster's keys and values are one matrix product.
template <class T>
void sum_members(const WindowShape& s, const Head<T>& in, const Buffers& b, const Members members) {
  int64_t ends[kChunk] = {};
  for (int64_t t = 0; t < members.count; ++t) ++ends[int64_t(members.cluster[t])];
  for (int64_t j = 0, end = 0; j < b.m; ++j) {
    const int64_t count = ends[j];
    ends[j] = end;
    end += count;
  }
  for (int64_t t = 0; t < members.count; ++t) {
    const int64_t j = int64_t(members.cluster[t]), at = ends[j]++;
    const int64_t pixel = members.pixels[t] * s.channels();
    take_difference(s, b, in.k + pixel, j, b.differences + at * b.d_step);
    for (int64_t c = 0; c < b.e_step; c += kLanes)
      store(b.ordered + at * b.e_step + c,
            c < s.value_dim ? load_part(in.v + pixel + c, lanes_left(s.value_dim, c)) : Vec{});
  }
  for (int64_t j = 0, first = 0; j < b.m; first = ends[j++]) {
    float* const record = b.own + j * b.width;
    const int64_t count = ends[j] - first;
    const float* const keys = b.differences + first * b.d_step;
    const float* const values = b.ordered + first * b.e_step;
    sum_rows(values, count, b.e_step, record);
    sum_rows(keys, count, b.d_step, record + b.keys_at());
    if (count == 0)
      zero(record + b.products_at(0), b.width - b.products_at(0));
    else
      multiply(round_up(s.head_dim, 4), b.e_step, count, keys, Fixed<1>(), b.d_step, values,
               b.e_step, Zero(), store_to(record + b.products_at(0), b.e_step, Same()));
  }
}

// Adds the records of tokens to those of their clusters.
template <class T>
void add_records(const WindowShape& s, const Head<T>& in, const Buffers& b, const Members members,
                 float* sums, float* counts) {
  sum_members(s, in, b, members);
  add(sums, b.own, b.m * b.width);
  for (int64_t t = 0; t < members.count; ++t) {
    counts[int64_t(members.cluster[t])] += 1;
    for (int64_t c = 0; c < b.e_step; c += kLanes) {
      const Vec value = load(b.ordered + t * b.e_step + c);
      store(b.least + c, min(load(b.least + c), value));
      store(b.most + c, max(load(b.most + c), value));
    }
  }
}

// The same with covariance: fills `values` with the sums of the values of each cluster as a block
// sees it, the values of its tokens, and the covariance of each cluster's keys and values times
// its count; and `shifted` with the mean of its keys. To be called after count_seen.
template <class T>
void take_records(const WindowShape& s, const Buffers& b, const Head<T>& in, const Block& block,
                  const int64_t* pixels, const float* cluster, float inside, int64_t column) {
  const float* const others = b.others + block.coarse * b.sums_step;
  const float* const sums = b.sums + block.coarse * b.sums_step;
  float* const values = b.values + b.m * b.e_step;
  pack_rows(in.v, s.channels(), pixels, block.count(), s.value_dim, values, b.e_step);
  if (!block.alone) sum_members(s, in, b, {pixels, cluster, block.count()});
  for (int64_t j = 0; j < b.m; ++j) {
    const bool some = !block.alone && b.left[j] > 0;
    for (int64_t i = j * b.width; i < (j + 1) * b.width; i += kLanes) {
      const Vec seen = load(others + i);
      const Vec rest = some ? load(sums + i) - load(b.own + i) : Vec{};
      store(b.record + i, fma(splat(inside), rest, seen));
    }
  }
  float* products = values + block.count() * b.e_step;
  for (int64_t j = 0; j < b.m; ++j) {
    const float* const record = b.record + j * b.width;
    const float inverse = b.inverse[j * kVectors + column / kLanes];
    for (int64_t i = 0; i < b.e_step; i += kLanes)
      store(b.values + j * b.e_step + i, load(record + i));
    for (int64_t c = 0; c < s.head_dim; ++c, products += b.e_step) {
      const float mean = record[b.keys_at() + c] * inverse;
      b.shifted[c * b.step + j] = b.centers[j * b.d_step + c] + mean;
      const float* const sum = record + b.products_at(c);
      for (int64_t i = 0; i < b.e_step; i += kLanes)
        store(products + i, splat(kLn2) * fma(splat(-mean), load(record + i), load(sum + i)));
    }
  }
}

// Fills the rows of scores that weigh the covariances: of each cluster and channel of the keys, the
// cluster's weight times the query's channel.
void weigh_covariances(const WindowShape& s, const Buffers& b, const Block& block, int64_t column,
                       int64_t slots) {
  float* row = b.scores + (b.m + block.count()) * kChunk;
  for (int64_t j = 0; j < b.m; ++j)
    for (int64_t c = 0; c < s.head_dim; ++c, row += kChunk)
      for (int64_t i = column; i < column + slots; i += kLanes)
        store(row + i, load(b.scores + j * kChunk + i) * load(b.queries + c * kChunk + i));
}

}  // namespace
}  // namespace nystra::NYSTRA_ISA
