// The records of clusters with covariance: what is summed of their members, and what a block sees.
#pragma once

#include "cluster_buffers.h"

namespace nystra::NYSTRA_ISA {
namespace {

// Fills the difference of a key from its center.
template <class T>
void take_difference(const WindowShape& s, const Buffers& b, const T* key, int64_t j) {
  for (int64_t c = 0; c < s.head_dim; c += kLanes)
    store(b.difference + c,
          load_part(key + c, lanes_left(s.head_dim, c)) - load(b.centers + j * b.d_step + c));
}

// Adds weight times a member to a record: its difference, and the products with its value
// (e_step).
void add_products(const WindowShape& s, const Buffers& b, float weight, const float* value,
                  float* record) {
  float* const keys = record + b.keys_at();
  for (int64_t c = 0; c < b.d_step; c += kLanes)
    store(keys + c, fma(splat(weight), load(b.difference + c), load(keys + c)));
  for (int64_t c = 0; c < s.head_dim; ++c) {
    const Vec by = splat(weight * b.difference[c]);
    float* const products = record + b.products_at(c);
    for (int64_t i = 0; i < b.e_step; i += kLanes)
      store(products + i, fma(by, load(value + i), load(products + i)));
  }
}

// Adds the keys of tokens and their products with the values to the records of their clusters.
template <class T>
void add_records(const WindowShape& s, const Head<T>& in, const Buffers& b, const Members members,
                 float* sums) {
  float* const value = b.values;  // not used yet
  for (int64_t t = 0; t < members.count; ++t) {
    const int64_t j = int64_t(members.cluster[t]), pixel = members.pixels[t] * s.channels();
    take_difference(s, b, in.k + pixel, j);
    for (int64_t c = 0; c < b.e_step; c += kLanes) {
      const Vec v =
          c < s.value_dim ? load_part(in.v + pixel + c, lanes_left(s.value_dim, c)) : Vec{};
      store(value + c, v);
      store(b.least + c, min(load(b.least + c), v));
      store(b.most + c, max(load(b.most + c), v));
    }
    add_products(s, b, 1, value, sums + j * b.width);
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
  float* const own = b.values + b.m * b.e_step;
  pack_rows(in.v, s.channels(), pixels, block.count(), s.value_dim, own, b.e_step);
  for (int64_t j = 0; j < b.m; ++j) {
    const Vec weight = splat(b.left[j] > 0 ? inside : 0.0f);
    for (int64_t i = j * b.width; i < (j + 1) * b.width; i += kLanes)
      store(b.record + i, fma(weight, load(sums + i), load(others + i)));
  }
  for (int64_t t = 0; t < block.count(); ++t) {
    const int64_t j = int64_t(cluster[t]);
    if (!(b.left[j] > 0)) continue;  // nothing was added
    float* const record = b.record + j * b.width;
    const float* const value = own + t * b.e_step;
    take_difference(s, b, in.k + pixels[t] * s.channels(), j);
    for (int64_t c = 0; c < b.e_step; c += kLanes)
      store(record + c, fma(splat(-inside), load(value + c), load(record + c)));
    add_products(s, b, -inside, value, record);
  }
  float* products = own + block.count() * b.e_step;
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
