// The kernels of both Nystrom forms, from landmarks to output.
//
// A task is one head of one window: landmarks, their pseudoinverse Z, one pass over the keys that
// sums G_U [V 1], one pass over the queries. Memory of a task: O(m (d + e + m)).
#pragma once

#include <cmath>

#include "landmark_tiles.h"
#include "softmax.h"

namespace nystra::NYSTRA_ISA {
namespace {

// How a score becomes an entry of G_L, A or G_U: by f, with the result divided by G_L Z G_U 1, or
// by the softmax of its row.
enum class Form { kKernel, kSoftmax };

// f(x) = exp(min(x, threshold)) + max(x - threshold, 0) of x log2(e).
struct Kernel {
  float threshold;  // times log2(e)

  explicit Kernel(const WindowNystromParams& params) : threshold(params.threshold * kLog2E) {}
  Vec operator()(Vec x) const {
    return fma(splat(kLn2), max(Vec{}, x - threshold), exp2(min(splat(threshold), x)));
  }
};

template <Form kForm>
struct Buffers : LandmarkBuffers {
  static constexpr bool kSoftmax = kForm == Form::kSoftmax;
  static constexpr float kNone = kSoftmax ? -INFINITY : 0.0f;  // of no token or landmark

  RunningSoftmax running;     // of the softmax form: of the rows of G_U, or of A
  float* sums;                // (step) G_U 1; while summing (rows, kLanes)
  float* inverse_sums;        // (step) Z G_U 1
  float* soft;                // (rows, e_step) (G_U 1)^-1 G_U V
  float* magnitudes;          // (kBlock) |G_L Z| G_U 1
  float* denominators;        // (kBlock) G_L Z G_U 1
  float* shares;              // (kBlock) t of the guard
  float *numerators, *softs;  // (kBlock, e_step) of guarded blocks
  LandmarkTiles tiles;        // of bfloat16

  Buffers(const WindowNystromParams& params, Scratch& memory)
      : LandmarkBuffers(params, memory),
        running{memory.take(rows), memory.take(rows), memory.take(rows)},
        sums(memory.take(rows * kLanes)),
        inverse_sums(memory.take(step)),
        soft(memory.take(rows * e_step)),
        magnitudes(memory.take(kBlock)),
        denominators(memory.take(kBlock)),
        shares(memory.take(kBlock)),
        numerators(memory.take(kBlock * e_step)),
        softs(memory.take(kBlock * e_step)),
        tiles(params, memory) {}

  // What becomes of a score where it is computed.
  static auto weight(const WindowNystromParams& params) {
    if constexpr (kSoftmax)
      return Same();
    else
      return Kernel(params);
  }
  // What it is instead where the landmark and the token are in different regions.
  template <class V>
  static V apart(V score) {
    return kSoftmax ? score - 100.0f * kLog2E : V{};
  }
};

// A weight up to it counts for nothing in A: the products of two in the pseudoinverse would be
// denormal.
constexpr float kNothing = 1e-18f;

// A: the landmarks against each other.
template <Form kForm>
void fill_core(const WindowNystromParams& params, const Place& p, const Buffers<kForm>& b) {
  float* const a = b.pinv.a;
  const int64_t step = b.pinv.step;
  multiply(b.rows, b.step, params.shape.head_dim, b.q, Fixed<1>(), b.step, b.k, b.step, Zero(),
           store_to(a, step, b.weight(params)));
  for (int64_t i = 0; i < b.rows; ++i) {
    for (int64_t j = 0; j < b.step; ++j) {
      if (i >= b.m || j >= b.m)
        a[i * step + j] = i < b.m ? b.kNone : 0.0f;
      else if (p.cut && b.regions[i] != b.regions[j])
        a[i * step + j] = b.apart(a[i * step + j]);
    }
  }
  if constexpr (kForm == Form::kSoftmax) {
    b.running.reset(b.m);
    softmax_block(a, step, b.m, b.step, b.running);
    for (int64_t i = 0; i < b.m; ++i) {
      const float factor = 1.0f / b.running.totals[i];
      for (int64_t j = 0; j < b.step; ++j) {
        const float weight = a[i * step + j];
        a[i * step + j] = j >= b.m || weight <= kNothing ? 0.0f : weight * factor;
      }
    }
  }
}

template <Form kForm>
void mask_scores(const Buffers<kForm>& b, int64_t count) {
  for (int64_t j = 0; j < b.m; ++j) {
    const Vec region = splat(float(b.regions[j]));
    for (int64_t i = 0; i < count; i += kLanes) {
      float* const s = b.scores + j * kBlock + i;
      const IntVec same = load(b.token_regions + i) == region;
      store(s, (Vec)(((IntVec)load(s) & same) | ((IntVec)b.apart(load(s)) & ~same)));
    }
  }
}

template <Form kForm>
void reset_sums(const Buffers<kForm>& b) {
  for (int64_t i = 0; i < b.step * b.e_step; i += kLanes) store(b.upper + i, Vec{});
  if constexpr (kForm == Form::kSoftmax)
    b.running.reset(b.rows);
  else
    for (int64_t i = 0; i < b.rows * kLanes; i += kLanes) store(b.sums + i, Vec{});
}

// Adds a block to upper and sums; the rest of its columns counts for nothing.
template <Form kForm>
void sum_values(const Buffers<kForm>& b, int64_t count, Ahead& ahead) {
  const int64_t padded = round_up(count, kLanes);
  for (int64_t j = 0; j < b.rows; ++j)
    for (int64_t i = count; i < padded; ++i) b.scores[j * kBlock + i] = b.kNone;
  if constexpr (kForm == Form::kSoftmax) {
    softmax_block(b.scores, kBlock, b.rows, padded, b.running);
  } else {
    for (int64_t j = 0; j < b.m; ++j) {
      Vec total = load(b.sums + j * kLanes);
      for (int64_t i = 0; i < padded; i += kLanes) total += load(b.scores + j * kBlock + i);
      store(b.sums + j * kLanes, total);
    }
  }
  const auto before = [upper = b.upper, step = b.e_step, factors = b.running.corrections](
                          int64_t r, int64_t c) {
    const Vec sum = load(upper + r * step + c);
    return kForm == Form::kSoftmax ? sum * factors[r] : sum;
  };
  multiply(b.rows, b.e_step, count, b.scores, Fixed<kBlock>(), Fixed<1>(), b.values, b.e_step,
           before, store_to(b.upper, b.e_step, Same()), ahead);
}

// Pass 1: upper = G_U V and sums = G_U 1, or those of the softmax before it is divided.
template <Form kForm, class T>
void pass_keys(const WindowNystromParams& params, const Place& p, const Head<T>& head,
               Buffers<kForm>& b, Ahead& ahead) {
  const WindowShape& s = params.shape;
  reset_sums(b);
  for_blocks(params, p, b, [&](int64_t count) {
    pack_columns(head.k, s.channels(), b.pixels, count, s.head_dim, b.columns, kBlock);
    pack_rows(head.v, s.channels(), b.pixels, count, s.value_dim, b.values, b.e_step);
    score(params, b, b.q, count, b.weight(params), ahead);
    if (p.cut) mask_scores(b, count);
    sum_values(b, count, ahead);
  });
}

// product = Z G_U V; of the kernel form also inverse_sums = Z G_U 1, soft = (G_U 1)^-1 G_U V.
template <Form kForm>
void combine(const Buffers<kForm>& b) {
  if constexpr (kForm == Form::kSoftmax) {
    for (int64_t j = 0; j < b.m; ++j) {
      const float factor = 1.0f / b.running.totals[j];
      for (int64_t c = 0; c < b.e_step; c += kLanes)
        store(b.upper + j * b.e_step + c, load(b.upper + j * b.e_step + c) * factor);
    }
    apply_inverse(b);
    return;
  }
  for (int64_t j = 0; j < b.step; ++j) b.sums[j] = j < b.m ? sum(load(b.sums + j * kLanes)) : 0.0f;
  apply_inverse(b);
  for (int64_t i = 0; i < b.m; ++i) {
    Vec total = {};
    for (int64_t j = 0; j < b.step; j += kLanes)
      total = fma(load(b.pinv.z + i * b.pinv.step + j), load(b.sums + j), total);
    b.inverse_sums[i] = sum(total);
    const float divisor = b.sums[i] < 1e-30f ? 1e-30f : b.sums[i];
    for (int64_t c = 0; c < b.e_step; c += kLanes)
      store(b.soft + i * b.e_step + c, load(b.upper + i * b.e_step + c) / divisor);
  }
}

// Fills denominators, magnitudes, shares and factors of a block. Returns whether any is guarded.
template <Form kForm>
bool guard_block(const WindowNystromParams& params, const Buffers<kForm>& b, int64_t count) {
  const int64_t padded = round_up(count, kLanes);
  for (int64_t i = 0; i < padded; i += kLanes) {
    Vec den = {};
    for (int64_t j = 0; j < b.m; ++j)
      den = fma(load(b.scores + j * kBlock + i), splat(b.inverse_sums[j]), den);
    store(b.denominators + i, den);
    store(b.magnitudes + i, Vec{});
    if (params.guard == 0) store(b.factors + i, 1.0f / (den + 1e-12f));
  }
  if (params.guard == 0) return false;
  const auto add_magnitude = [magnitudes = b.magnitudes, sums = b.sums](int64_t row, int64_t col,
                                                                        const auto& acc) {
    constexpr int kRows = sizeof acc / sizeof acc[0], kVecs = sizeof acc[0] / sizeof acc[0][0];
#pragma GCC unroll 2
    for (int v = 0; v < kVecs; ++v) {
      Vec total = load(magnitudes + col + v * kLanes);
#pragma GCC unroll 12
      for (int r = 0; r < kRows; ++r) total = fma(abs(acc[r][v]), splat(sums[row + r]), total);
      store(magnitudes + col + v * kLanes, total);
    }
  };
  multiply(b.rows, padded, b.m, b.pinv.z, Fixed<1>(), b.pinv.step, b.scores, kBlock, Zero(),
           add_magnitude);
  bool guarded = false;
  for (int64_t i = 0; i < padded; i += kLanes) {
    const Vec magnitude = max(splat(1e-30f), load(b.magnitudes + i));
    const Vec den = load(b.denominators + i);
    const Vec ratio = (den / magnitude - params.guard) / params.guard;
    const Vec share = max(Vec{}, min(splat(1.0f), ratio));
    store(b.shares + i, share);
    store(b.factors + i, 1.0f / max(den, params.guard * magnitude));
    guarded |= any(~(share >= 1.0f));
  }
  return guarded;
}

// Writes a block some of whose tokens take the two-step form, in part or wholly.
template <Form kForm, class T>
void write_guarded(const WindowShape& s, const Buffers<kForm>& b, int64_t head, int64_t count,
                   T* out) {
  const int64_t rows = round_up(count, 4);
  multiply(rows, b.e_step, b.m, b.scores, Fixed<1>(), Fixed<kBlock>(), b.product, b.e_step, Zero(),
           store_to(b.numerators, b.e_step, Same()));
  multiply(rows, b.e_step, b.m, b.scores, Fixed<1>(), Fixed<kBlock>(), b.soft, b.e_step, Zero(),
           store_to(b.softs, b.e_step, Same()));
  for (int64_t i = 0; i < count; ++i) {
    float total = 0;
    for (int64_t j = 0; j < b.m; ++j) total += b.scores[j * kBlock + i];
    const float divisor = total < 1e-30f ? 1e-30f : total;
    const float share = b.shares[i];
    T* const token = out + b.pixels[i] * s.heads * s.value_dim + head * s.value_dim;
    for (int64_t c = 0; c < s.value_dim; c += kLanes) {
      const Vec soft = load(b.softs + i * b.e_step + c) / divisor;
      const Vec full = load(b.numerators + i * b.e_step + c) * b.factors[i];
      store_part(token + c, share > 0 ? soft + share * (full - soft) : soft,
                 lanes_left(s.value_dim, c));
    }
  }
}

// scores = 2^(scores - maximum of the token), factors = 1 / (their sum over the landmarks).
template <Form kForm>
void normalize(const Buffers<kForm>& b, int64_t count) {
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

// Pass 2: out = (G_L product) / (G_L inverse_sums), guarded, or softmax(Q k_m) product.
template <Form kForm, class T>
void pass_queries(const WindowNystromParams& params, const Place& p, const Head<T>& in,
                  int64_t head, Buffers<kForm>& b, T* out, Ahead& ahead) {
  const WindowShape& s = params.shape;
  scale_keys(params, b);
  for_blocks(params, p, b, [&](int64_t count) {
    pack_columns(in.q, s.channels(), b.pixels, count, s.head_dim, b.columns, kBlock);
    score(params, b, b.k, count, b.weight(params), ahead);
    if (p.cut) mask_scores(b, count);
    if constexpr (kForm == Form::kSoftmax)
      normalize(b, count);
    else if (guard_block(params, b, count))
      return write_guarded(s, b, head, count, out);
    write_tokens(s, b, head, count, b.product, b.factors, out, ahead);
  });
}

template <Form kForm, class T>
void attend(const WindowNystromParams& params, const T* qkv, const BatchMaxima& batch, T* out,
            int64_t task, float* scratch) {
  const int64_t head = task % params.shape.heads;
  const Place p = place(params.shape, task / params.shape.heads);
  const Head<T> in(params.shape, qkv, head);
  Scratch memory(scratch);
  Buffers<kForm> b(params, memory);
  find_landmarks(params, p, in, b);
  fill_core(params, p, b);
  start_value(b.pinv, batch, p.cut ? b.regions : nullptr);
  iterate(b.pinv, params.iterations);
  Ahead ahead(params.shape, qkv, out, task);
  pass_keys(params, p, in, b, ahead);
  combine(b);
  pass_queries(params, p, in, head, b, out, ahead);
}

template <Form kForm, class T>
void merge_maxima(const WindowNystromParams& params, const T* qkv, int64_t task, float* scratch,
                  BatchMaxima* result) {
  const Place p = place(params.shape, task / params.shape.heads);
  Scratch memory(scratch);
  Buffers<kForm> b(params, memory);
  find_landmarks(params, p, Head<T>(params.shape, qkv, task % params.shape.heads), b);
  fill_core(params, p, b);
  merge(maxima(b.pinv), result);
}

template <Form kForm>
int64_t landmark_scratch(const WindowNystromParams& params) {
  Scratch memory(nullptr);
  const Buffers<kForm> buffers(params, memory);
  return memory.used();
}

template <Form kForm>
Status landmark_maxima(const WindowNystromParams& params, Type type, const void* qkv, int64_t first,
                       int64_t last, float* scratch, BatchMaxima* result) {
  if (scratch == nullptr) return Status::kNoScratch;
  if (params.landmarks() > kMaxLandmarks) return Status::kUnsupported;
  with_elements(type, [&](auto t) {
    for (int64_t task = first; task < last; ++task)
      merge_maxima<kForm>(params, t.of(qkv), task, scratch, result);
  });
  return Status::kOk;
}

template <Form kForm>
Status landmark_attention(const WindowNystromParams& params, Type type, const void* qkv,
                          const BatchMaxima& batch, void* out, int64_t first, int64_t last,
                          float* scratch) {
  if (scratch == nullptr) return Status::kNoScratch;
  if (params.landmarks() > kMaxLandmarks) return Status::kUnsupported;
  with_elements(type, [&](auto t) {
    [[maybe_unused]] const TilesOf<typename decltype(t)::Element> tiles;
    for (int64_t task = first; task < last; ++task)
      attend<kForm>(params, t.of(qkv), batch, t.of(out), task, scratch);
  });
  return Status::kOk;
}

}  // namespace
}  // namespace nystra::NYSTRA_ISA
