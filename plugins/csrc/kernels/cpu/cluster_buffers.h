// The memory of a task of NystraWindowCluster, and sums of rows.
#pragma once

#include "cluster_blocks.h"

namespace nystra::NYSTRA_ISA {
namespace {

constexpr float kNever = -1e30f;  // a logit that gets no weight
constexpr float kLeast = 1e-37f;  // a count below it is none
constexpr float kLargest = 3e38f;

struct Buffers {
  int64_t m, rows, step;  // clusters; rounded up for products; rounded up for vectors
  int64_t d_step, e_step;
  int64_t tilts;        // rows of covariances: m d, or 0
  int64_t width;        // of a cluster's record
  int64_t sums_step;    // m width
  float* centers;       // (m, d_step)
  float* moved;         // (m, d_step) sums of their members
  float* members;       // (m) number of them
  float* shifted;       // (d_step, step) centers less `shift`, channels in rows
  float* shift;         // (d_step) mean of the seeds
  float* halves;        // (rows) what the nearness of a center starts from
  float* sums;          // (coarse, m, width) records of the members in each bias block
  float* counts;        // (coarse, step) how many they are
  float* others;        // (coarse rows, m, width) the same as other bias blocks see them
  float* other_counts;  // (coarse rows, step)
  float* seen;          // (coarse rows, coarse) mean exp(bias) of a window that borders cut
  float* keys;          // (d_step, kChunk), channels in rows
  float* queries;       // (d_step, kChunk), channels in rows
  float* scores;        // (rows + block tokens + tilts, kChunk)
  float* values;        // (m + block tokens + tilts, e_step)
  float* starts;        // (rows, kChunk / kLanes) log2 of the counts that a block sees
  float* inverse;       // (rows, kChunk / kLanes) one over them
  float* factors;       // (kChunk) one over the sum of a query's weights
  float* cluster;       // (all slots) of each token
  float* left;          // (step) members in a block's bias block, outside of the block
  float* record;        // (m, width) as a block sees the clusters; with covariance
  float* own;           // (m, width) of the members in a block; with covariance, as those below
  float* differences;   // (places, d_step) of a block's keys and their centers, by cluster
  float* ordered;       // (places, e_step) the values of these keys
  float *least, *most;  // (e_step) of the values of a window
  int64_t pixels[kChunk];

  Buffers(const ClusterParams& params, const Blocks& b, Scratch& memory)
      : m(params.clusters()),
        rows(round_up(m, 4)),
        step(round_up(m, kLanes)),
        d_step(round_up(params.shape.head_dim, kLanes)),
        e_step(round_up(params.shape.value_dim, kLanes)),
        tilts(params.covariance ? m * params.shape.head_dim : 0),
        width(params.covariance ? d_step + (1 + round_up(params.shape.head_dim, 4)) * e_step
                                : e_step),
        sums_step(m * width),
        centers(memory.take(m * d_step)),
        moved(memory.take(m * d_step)),
        members(memory.take(m)),
        shifted(memory.take(d_step * step)),
        shift(memory.take(d_step)),
        halves(memory.take(rows)),
        sums(memory.take(b.coarse * sums_step)),
        counts(memory.take(b.coarse * step)),
        others(memory.take(b.coarse_rows * sums_step)),
        other_counts(memory.take(b.coarse_rows * step)),
        seen(memory.take(b.coarse_rows * b.coarse)),
        keys(memory.take(d_step * kChunk)),
        queries(memory.take(d_step * kChunk)),
        scores(memory.take((rows + round_up(b.places, 4) + tilts) * kChunk)),
        values(memory.take((m + b.places + tilts) * e_step)),
        starts(memory.take(rows * kVectors)),
        inverse(memory.take(rows * kVectors)),
        factors(memory.take(kChunk)),
        cluster(memory.take(b.count() * b.slots)),
        left(memory.take(step)),
        record(memory.take(params.covariance ? sums_step : 0)),
        own(memory.take(params.covariance ? sums_step : 0)),
        differences(memory.take(params.covariance ? b.places * d_step : 0)),
        ordered(memory.take(params.covariance ? b.places * e_step : 0)),
        least(memory.take(e_step)),
        most(memory.take(e_step)) {}

  // The parts of a record: sums of values at its beginning, of keys, and of products with the
  // keys' channel c.
  int64_t keys_at() const { return e_step; }
  int64_t products_at(int64_t c) const { return e_step + d_step + c * e_step; }
};

// into[0, n) += from[0, n); n is a multiple of kLanes.
inline void add(float* into, const float* from, int64_t n) {
  for (int64_t i = 0; i < n; i += kLanes) store(into + i, load(into + i) + load(from + i));
}

template <class T>
inline void add_part(float* into, const T* from, int64_t n) {
  for (int64_t i = 0; i < n; i += kLanes)
    store(into + i, load(into + i) + load_part(from + i, lanes_left(n, i)));
}

inline void zero(float* p, int64_t n) {
  for (int64_t i = 0; i < n; i += kLanes) store(p + i, Vec{});
}

// The tokens of a block, and the cluster of each.
struct Members {
  const int64_t* pixels;
  const float* cluster;
  int64_t count;
};

}  // namespace
}  // namespace nystra::NYSTRA_ISA
