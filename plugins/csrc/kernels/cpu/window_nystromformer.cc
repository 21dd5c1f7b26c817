// NystraWindowNystromformer: the row-normalized Nystrom attention in windows of a shifted map.
//
// A task is one head of one window: landmarks, their pseudoinverse Z, one pass over the keys
// (online softmax with the landmarks as queries), one pass over the queries.
#include "isa.h"
#include "landmark_kernel.h"
#include "softmax.h"

namespace nystra::NYSTRA_ISA {
namespace {

struct Buffers : LandmarkBuffers {
  RunningSoftmax running;  // of the rows of G_U, or of A
  float* factors;          // (kBlock)

  Buffers(const LandmarkParams& params, Scratch& memory)
      : LandmarkBuffers(params, memory),
        running{memory.take(rows), memory.take(rows), memory.take(rows)},
        factors(memory.take(kBlock)) {}
};

Vec other_lower(Vec v, IntVec same) { return v + (Vec)((IntVec)splat(-100.0f * kLog2E) & ~same); }

// A weight up to it counts for nothing in A: the products of two in the pseudoinverse would be
// denormal.
constexpr float kNothing = 1e-18f;

// A = softmax(q_m k_m).
void fill_core(const LandmarkParams& params, const Place& p, const Buffers& b) {
  float* const a = b.pinv.a;
  const int64_t step = b.pinv.step;
  multiply(b.rows, b.step, params.shape.head_dim, b.q, Fixed<1>(), b.step, b.k, b.step, Zero(),
           store_to(a, step, Same()));
  for (int64_t i = 0; i < b.m; ++i) {
    for (int64_t j = 0; j < b.step; ++j) {
      if (j >= b.m)
        a[i * step + j] = -INFINITY;
      else if (p.cut && b.regions[i] != b.regions[j])
        a[i * step + j] -= 100.0f * kLog2E;
    }
  }
  b.running.reset(b.m);
  softmax_block(a, step, b.m, b.step, b.running);
  for (int64_t i = 0; i < b.rows; ++i) {
    const float factor = i < b.m ? 1.0f / b.running.totals[i] : 0.0f;
    for (int64_t j = 0; j < b.step; ++j) {
      const float weight = a[i * step + j];
      a[i * step + j] = i >= b.m || j >= b.m || weight <= kNothing ? 0.0f : weight * factor;
    }
  }
}

// Pass 1: upper = softmax(q_m K) V.
template <class T>
void pass_keys(const LandmarkParams& params, const Place& p, const Head<T>& head, Buffers& b,
               Ahead<T>& ahead) {
  const WindowShape& s = params.shape;
  for (int64_t i = 0; i < b.rows * b.e_step; i += kLanes) store(b.upper + i, Vec{});
  b.running.reset(b.rows);
  for_blocks(params, p, b, [&](int64_t count) {
    pack_columns(head.k, s.channels(), b.pixels, count, s.head_dim, b.columns, kBlock);
    pack_rows(head.v, s.channels(), b.pixels, count, s.value_dim, b.values, b.e_step);
    score(params, b, b.q, count, Same(), ahead);
    if (p.cut) mask_scores(b, count, other_lower);
    const int64_t padded = round_up(count, kLanes);
    for (int64_t j = 0; j < b.rows; ++j)
      for (int64_t i = count; i < padded; ++i) b.scores[j * kBlock + i] = -INFINITY;
    softmax_block(b.scores, kBlock, b.rows, padded, b.running);
    add_values(
        b, count,
        [upper = b.upper, step = b.e_step, factors = b.running.corrections](int64_t r, int64_t c) {
          return load(upper + r * step + c) * factors[r];
        },
        ahead);
  });
  for (int64_t j = 0; j < b.m; ++j) {
    const float factor = 1.0f / b.running.totals[j];
    for (int64_t c = 0; c < b.e_step; c += kLanes)
      store(b.upper + j * b.e_step + c, load(b.upper + j * b.e_step + c) * factor);
  }
}

// scores = 2^(scores - maximum of the token), factors = 1 / (their sum over the landmarks).
void normalize(const Buffers& b, int64_t count) {
  for (int64_t i = 0; i < count; i += kLanes) {
    Vec top = load(b.scores + i);
    for (int64_t j = 1; j < b.m; ++j) top = max(top, load(b.scores + j * kBlock + i));
    Vec total = {};
    for (int64_t j = 0; j < b.m; ++j) {
      const Vec w = softmax_weight(load(b.scores + j * kBlock + i) - top);
      total += w;
      store(b.scores + j * kBlock + i, w);
    }
    store(b.factors + i, 1.0f / total);
  }
}

void combine(const Buffers& b) { apply_inverse(b); }

// Pass 2: out = softmax(Q k_m) product.
template <class T>
void pass_queries(const LandmarkParams& params, const Place& p, const Head<T>& in, int64_t head,
                  Buffers& b, T* out, Ahead<T>& ahead) {
  const WindowShape& s = params.shape;
  scale_keys(params, b);
  for_blocks(params, p, b, [&](int64_t count) {
    pack_columns(in.q, s.channels(), b.pixels, count, s.head_dim, b.columns, kBlock);
    score(params, b, b.k, count, Same(), ahead);
    if (p.cut) mask_scores(b, count, other_lower);
    normalize(b, count);
    write_tokens(s, b, head, count, b.product, b.factors, out, ahead);
  });
}

}  // namespace

int64_t window_nystromformer_scratch(const LandmarkParams& params) {
  return landmark_scratch<Buffers>(params);
}

Status window_nystromformer_maxima(const LandmarkParams& params, Type type, const void* qkv,
                                   int64_t first, int64_t last, float* scratch,
                                   BatchMaxima* result) {
  return landmark_maxima<Buffers>(params, type, qkv, first, last, scratch, result);
}

Status window_nystromformer(const LandmarkParams& params, Type type, const void* qkv,
                            const BatchMaxima& batch, void* out, int64_t first, int64_t last,
                            float* scratch) {
  return landmark_attention<Buffers>(params, type, qkv, batch, out, first, last, scratch);
}

}  // namespace nystra::NYSTRA_ISA
