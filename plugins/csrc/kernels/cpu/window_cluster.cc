// NystraWindowCluster: attention with clustered keys in the windows of a shifted map.
//
// A task is one head of one window, its tokens block by block. A pass over the keys a round sends
// each to its nearest center; the last one sums values and members by cluster and bias block. A
// pass over the queries then attends to the clusters, less the members in the query's own block,
// and to the tokens of that block: one softmax over both. Memory of a task: O(m (d + e)) a bias
// block, and the cluster of each token.
//
// With covariance, a cluster has a record of its members: the sums of their values, of their keys,
// and of the products of both, O(m d e) a bias block. The keys are relative to the center that they
// were compared with.
#include "cluster_records.h"
#include "isa.h"
#include "matmul.h"
#include "scratch.h"
#include "softmax.h"

namespace nystra::NYSTRA_ISA {
namespace {

template <class T>
void seed(const ClusterParams& params, const Place& p, const Head<T>& in, const Buffers& b) {
  const WindowShape& s = params.shape;
  zero(b.shift, b.d_step);
  for (int64_t j = 0; j < b.m; ++j) {
    const int64_t y = (2 * (j / params.cols) + 1) * s.window_h / (2 * params.rows);
    const int64_t x = (2 * (j % params.cols) + 1) * s.window_w / (2 * params.cols);
    const T* const key = in.k + p.pixel(y, x) * s.channels();
    for (int64_t c = 0; c < s.head_dim; c += kLanes)
      store(b.centers + j * b.d_step + c, load_part(key + c, lanes_left(s.head_dim, c)));
    add(b.shift, b.centers + j * b.d_step, b.d_step);
  }
  for (int64_t c = 0; c < b.d_step; c += kLanes)
    store(b.shift + c, load(b.shift + c) * (1.0f / float(b.m)));
}

// The search of the nearest center c of a key k: k.(c - s) - s.(c - s) - |c - s|^2 / 2 is largest
// where |k - c| is least. With s among the centers the terms stay small.
void shift_centers(const ClusterParams& params, const Buffers& b) {
  for (int64_t i = 0; i < b.d_step * b.step; i += kLanes) store(b.shifted + i, Vec{});
  for (int64_t j = 0; j < b.rows; ++j) {
    float total = 0;
    for (int64_t c = 0; j < b.m && c < params.shape.head_dim; ++c) {
      const float apart = b.centers[j * b.d_step + c] - b.shift[c];
      b.shifted[c * b.step + j] = apart;
      total += (b.shift[c] + 0.5f * apart) * apart;
    }
    b.halves[j] = -total;
  }
}

// Scores of the centers for the keys of a chunk. The products that do not depend on the type of the
// elements are functions of their own: they are compiled once, not for each type.
void compare_keys(const WindowShape& s, const Buffers& b, int64_t columns, Ahead& ahead) {
  const auto start = [halves = b.halves](int64_t row, int64_t) { return splat(halves[row]); };
  multiply(b.rows, columns, s.head_dim, b.shifted, Fixed<1>(), b.step, b.keys, kChunk, start,
           store_to(b.scores, Fixed<kChunk>(), Same()), ahead);
}

// The first largest score of each column of a chunk.
void choose(const Buffers& b, int64_t columns, float* cluster) {
  for (int64_t i = 0; i < columns; i += kLanes) {
    Vec best = load(b.scores + i), chosen = {};
    for (int64_t j = 1; j < b.m; ++j) {
      const Vec score = load(b.scores + j * kChunk + i);
      chosen = score > best ? splat(float(j)) : chosen;
      best = score > best ? score : best;
    }
    store(cluster + i, chosen);
  }
}

// Adds tokens to the sums (m, step) of their clusters, and their number to the counts.
template <class T>
void add_members(const T* map, int64_t stride, const Members members, int64_t channels,
                 int64_t step, float* sums, float* counts) {
  for (int64_t t = 0; t < members.count; ++t) {
    const int64_t j = int64_t(members.cluster[t]);
    add_part(sums + j * step, map + members.pixels[t] * stride, channels);
    counts[j] += 1;
  }
}

// One round of clustering; the last one sums the values.
template <class T>
void pass_keys(const ClusterParams& params, const Blocks& blocks, const Place& p, const Head<T>& in,
               Buffers& b, bool last, Ahead& ahead) {
  const WindowShape& s = params.shape;
  shift_centers(params, b);
  zero(b.moved, b.m * b.d_step);
  for (int64_t j = 0; j < b.m; ++j) b.members[j] = 0;
  zero(b.sums, blocks.coarse * b.sums_step);
  zero(b.counts, blocks.coarse * b.step);
  for (int64_t c = 0; c < b.e_step; c += kLanes) {
    store(b.least + c, splat(kLargest));
    store(b.most + c, splat(-kLargest));
  }
  for_chunks(blocks, [&](int64_t number, const Block* chunk, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      int64_t* const pixels = b.pixels + i * blocks.slots;
      chunk[i].pixels(p, pixels);
      if (last) prefetch_tokens(in.v, s.channels(), pixels, chunk[i].count(), s.value_dim);
      pack_columns(in.k, s.channels(), pixels, chunk[i].count(), s.head_dim,
                   b.keys + i * blocks.slots, kChunk);
    }
    compare_keys(s, b, n * blocks.slots, ahead);
    float* const cluster = b.cluster + number * blocks.slots;
    choose(b, n * blocks.slots, cluster);
    for (int64_t i = 0; i < n; ++i) {
      float* const sums = b.sums + chunk[i].coarse * b.sums_step;
      float* const counts = b.counts + chunk[i].coarse * b.step;
      const int64_t at = i * blocks.slots, count = chunk[i].count();
      const Members members = {b.pixels + at, cluster + at, count};
      if (last && params.covariance) {
        add_records(s, in, b, members, sums, counts);
        continue;
      }
      add_members(in.k, s.channels(), members, s.head_dim, b.d_step, b.moved, b.members);
      if (last) add_members(in.v, s.channels(), members, s.value_dim, b.width, sums, counts);
    }
  });
  if (last && params.covariance) return;  // records are relative to these centers
  for (int64_t j = 0; j < b.m; ++j)
    if (b.members[j] > 0)
      for (int64_t c = 0; c < b.d_step; c += kLanes)
        store(b.centers + j * b.d_step + c,
              load(b.moved + j * b.d_step + c) * (1.0f / b.members[j]));
}

// The members in other bias blocks of the same region, for each bias block.
void see_others(const Blocks& blocks, const Place& p, const Buffers& b, const float* bias) {
  if (p.cut) {
    for (int64_t i = 0; i < blocks.coarse; ++i)
      for (int64_t j = 0; j < blocks.coarse; ++j) {
        const bool same = blocks.region(p, i) == blocks.region(p, j);
        b.seen[i * blocks.coarse + j] = same ? bias[i * blocks.coarse + j] : 0.0f;
      }
    for (int64_t i = blocks.coarse * blocks.coarse; i < blocks.coarse_rows * blocks.coarse; ++i)
      b.seen[i] = 0;
    bias = b.seen;
  }
  multiply(blocks.coarse_rows, b.sums_step, blocks.coarse, bias, blocks.coarse, Fixed<1>(), b.sums,
           b.sums_step, Zero(), store_to(b.others, b.sums_step, Same()));
  multiply(blocks.coarse_rows, b.step, blocks.coarse, bias, blocks.coarse, Fixed<1>(), b.counts,
           b.step, Zero(), store_to(b.other_counts, b.step, Same()));
}

// Fills the starts of a block's scores with clusters, at vectors [first, last) of the chunk.
void count_seen(const Buffers& b, const Block& block, const float* cluster, float inside,
                int64_t first, int64_t last) {
  float* const left = b.left;
  const float* const counts = b.counts + block.coarse * b.step;
  const float* const others = b.other_counts + block.coarse * b.step;
  for (int64_t j = 0; j < b.step; j += kLanes) store(left + j, load(counts + j));
  for (int64_t t = 0; t < block.count(); ++t) left[int64_t(cluster[t])] -= 1;
  for (int64_t j = 0; j < b.step; j += kLanes) {
    const Vec count = fma(splat(inside), load(left + j), load(others + j));
    const Vec some = max(splat(kLeast), count);
    const Vec start = count >= splat(kLeast) ? log2(some) : splat(kNever);
    const Vec inverse = count >= splat(kLeast) ? 1.0f / some : Vec{};
    for (int64_t i = j; i < j + kLanes && i < b.rows; ++i)
      for (int64_t v = first; v < last; ++v) {
        b.starts[i * kVectors + v] = start[i - j];
        b.inverse[i * kVectors + v] = inverse[i - j];
      }
  }
}

// Fills `values`: sums of each cluster as a block sees them, then the values of its tokens.
template <class T>
void take_values(const WindowShape& s, const Buffers& b, const Head<T>& in, const Block& block,
                 const int64_t* pixels, const float* cluster, float inside) {
  const float* const others = b.others + block.coarse * b.sums_step;
  float* const own = b.values + b.m * b.e_step;
  pack_rows(in.v, s.channels(), pixels, block.count(), s.value_dim, own, b.e_step);
  if (block.alone) {  // the bias block has no other tokens
    for (int64_t i = 0; i < b.sums_step; i += kLanes) store(b.values + i, load(others + i));
    return;
  }
  const float* const sums = b.sums + block.coarse * b.sums_step;
  const Vec weight = splat(inside);
  for (int64_t i = 0; i < b.sums_step; i += kLanes)
    store(b.values + i, fma(weight, load(sums + i), load(others + i)));
  for (int64_t t = 0; t < block.count(); ++t) {
    float* const into = b.values + int64_t(cluster[t]) * b.e_step;
    for (int64_t c = 0; c < b.e_step; c += kLanes)
      store(into + c, fma(-weight, load(own + t * b.e_step + c), load(into + c)));
  }
}

// Scores of the clusters for the queries of a chunk from a column on.
void score_clusters(const WindowShape& s, const Buffers& b, int64_t column, int64_t columns,
                    Ahead& ahead) {
  const auto start = [starts = b.starts + column / kLanes](int64_t row, int64_t col) {
    return splat(starts[row * kVectors + col / kLanes]);
  };
  multiply(b.rows, columns, s.head_dim, b.shifted, Fixed<1>(), b.step, b.queries + column, kChunk,
           start, store_to(b.scores + column, Fixed<kChunk>(), Same()), ahead);
}

// Scores of the tokens of a block for its queries, after those of the clusters.
void score_block(const WindowShape& s, const Buffers& b, const Block& block, const float* pairs,
                 int64_t column, int64_t slots, Ahead& ahead) {
  const auto start = [=](int64_t row, int64_t col) { return load(pairs + row * slots + col); };
  multiply(round_up(block.count(), 4), slots, s.head_dim, b.keys + column, Fixed<1>(),
           Fixed<kChunk>(), b.queries + column, kChunk, start,
           store_to(b.scores + b.m * kChunk + column, Fixed<kChunk>(), Same()), ahead);
}

// Turns the scores of a block's queries, in columns, into weights of the values; fills factors.
void softmax(const Buffers& b, const Block& block, int64_t column, int64_t slots) {
  const int64_t all = b.m + block.count();
  for (int64_t i = column; i < column + slots; i += kLanes) {
    float* const scores = b.scores + i;
    Vec top = load(scores);
    for (int64_t j = 1; j < all; ++j) top = max(top, load(scores + j * kChunk));
    Vec total = {};
    for (int64_t j = 0; j < b.m; ++j) {
      const Vec weight = softmax_weight(load(scores + j * kChunk) - top);
      total += weight;
      store(scores + j * kChunk, weight * splat(b.inverse[j * kVectors + i / kLanes]));
    }
    for (int64_t j = b.m; j < all; ++j) {
      const Vec weight = softmax_weight(load(scores + j * kChunk) - top);
      total += weight;
      store(scores + j * kChunk, weight);
    }
    store(b.factors + i, 1.0f / total);
  }
}

template <class T>
void write(const WindowShape& s, const Buffers& b, const Block& block, int64_t column, int64_t head,
           T* out, Ahead& ahead) {
  const int64_t stride = s.heads * s.value_dim, width = s.value_dim, count = block.count();
  const auto finish = [=, map = out + head * width, pixels = b.pixels + column,
                       factors = b.factors + column, limited = b.tilts > 0, least = b.least,
                       most = b.most](int64_t row, int64_t col, auto& acc) {
    each(row, col, acc, [=](int64_t r, int64_t c, Vec v) {
      if (r >= count) return;
      v *= splat(factors[r]);
      if (limited) {
        const Vec low = load(least + c), high = load(most + c);
        v = v < low ? low : v;  // NaN stays
        v = v > high ? high : v;
      }
      store_part(map + pixels[r] * stride + c, v, lanes_left(width, c));
    });
  };
  multiply(round_up(count, 4), b.e_step, b.m + count + b.tilts, b.scores + column, Fixed<1>(),
           Fixed<kChunk>(), b.values, b.e_step, Zero(), finish, ahead);
}

template <class T>
void pass_queries(const ClusterParams& params, const Blocks& blocks, const Place& p,
                  const Head<T>& in, int64_t head, Buffers& b, const float* bias, T* out,
                  Ahead& ahead) {
  const WindowShape& s = params.shape;
  const float *const inside = bias + blocks.inside(), *const pairs = bias + blocks.pairs();
  const Vec scale = splat(s.scale * kLog2E);
  zero(b.shifted, b.d_step * b.step);
  for (int64_t j = 0; j < b.m; ++j)
    for (int64_t c = 0; c < s.head_dim; ++c)
      b.shifted[c * b.step + j] = b.centers[j * b.d_step + c];
  for_chunks(blocks, [&](int64_t number, const Block* chunk, int64_t n) {
    const float* const cluster = b.cluster + number * blocks.slots;
    const int64_t columns = n * blocks.slots;
    for (int64_t i = 0; i < n; ++i) {
      const int64_t at = i * blocks.slots, count = chunk[i].count();
      chunk[i].pixels(p, b.pixels + at);
      pack_columns(in.q, s.channels(), b.pixels + at, count, s.head_dim, b.queries + at, kChunk);
      pack_columns(in.k, s.channels(), b.pixels + at, count, s.head_dim, b.keys + at, kChunk);
      if (!params.covariance)
        count_seen(b, chunk[i], cluster + at, inside[chunk[i].coarse], at / kLanes,
                   (at + blocks.slots) / kLanes);
    }
    for (int64_t c = 0; c < s.head_dim; ++c)
      for (int64_t i = 0; i < columns; i += kLanes)
        store(b.queries + c * kChunk + i, load(b.queries + c * kChunk + i) * scale);
    if (!params.covariance) score_clusters(s, b, 0, columns, ahead);
    for (int64_t i = 0; i < n; ++i) {
      const Block& block = chunk[i];
      const int64_t at = i * blocks.slots;
      if (params.covariance) {
        count_seen(b, block, cluster + at, inside[block.coarse], at / kLanes,
                   (at + blocks.slots) / kLanes);
        take_records(s, b, in, block, b.pixels + at, cluster + at, inside[block.coarse], at);
        score_clusters(s, b, at, blocks.slots, ahead);
      }
      score_block(s, b, block, pairs + blocks.kind(block), at, blocks.slots, ahead);
      softmax(b, block, at, blocks.slots);
      if (params.covariance)
        weigh_covariances(s, b, block, at, blocks.slots);
      else
        take_values(s, b, in, block, b.pixels + at, cluster + at, inside[block.coarse]);
      write(s, b, block, at, head, out, ahead);
    }
  });
}

template <class T>
void run(const WindowClusterParams& params, const T* qkv, T* out, int64_t task, float* scratch) {
  const ClusterParams& cluster = params.cluster;
  const int64_t head = task % cluster.shape.heads;
  const Place p = place(cluster.shape, task / cluster.shape.heads);
  const Head<T> in(cluster.shape, qkv, head);
  const Blocks blocks(cluster);
  const float* const bias = params.bias + head * blocks.bias_step();
  Scratch memory(scratch);
  Buffers b(cluster, blocks, memory);
  Ahead ahead(cluster.shape, qkv, out, task);
  seed(cluster, p, in, b);
  for (int64_t round = 0; round <= cluster.rounds; ++round)
    pass_keys(cluster, blocks, p, in, b, round == cluster.rounds, ahead);
  see_others(blocks, p, b, bias);
  pass_queries(cluster, blocks, p, in, head, b, bias, out, ahead);
}

}  // namespace

int64_t window_cluster_scratch(const ClusterParams& params) {
  Scratch memory(nullptr);
  const Buffers buffers(params, Blocks(params), memory);
  return memory.used();
}

int64_t window_cluster_bias_size(const ClusterParams& params) { return bias_size(params); }

void window_cluster_bias(const ClusterParams& params, Type type, const void* table, float* bias) {
  with_elements(type, [&](auto t) { fill_bias(params, t.of(table), bias); });
}

Status window_cluster(const WindowClusterParams& params, Type type, const void* qkv, void* out,
                      int64_t first, int64_t last, float* scratch) {
  if (scratch == nullptr) return Status::kNoScratch;
  with_elements(type, [&](auto t) {
    for (int64_t task = first; task < last; ++task)
      run(params, t.of(qkv), t.of(out), task, scratch);
  });
  return Status::kOk;
}

}  // namespace nystra::NYSTRA_ISA
