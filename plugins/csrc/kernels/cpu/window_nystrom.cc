// NystraWindowNystrom: the kernel Nystrom attention of PnP-Nystra in windows of a shifted map.
//
// A task is one head of one window: landmarks, their pseudoinverse Z, one pass over the keys that
// sums G_U [V 1], one pass over the queries. Memory of a task: O(m (d + e + m)).
#include <cmath>

#include "isa.h"
#include "landmark_kernel.h"
#include "landmark_tiles.h"

namespace nystra::NYSTRA_ISA {
namespace {

// f(x) = exp(min(x, threshold)) + max(x - threshold, 0) of x log2(e).
struct Kernel {
  float threshold;  // times log2(e)

  explicit Kernel(const WindowNystromParams& params) : threshold(params.threshold * kLog2E) {}
  Vec operator()(Vec x) const {
    return fma(splat(kLn2), max(Vec{}, x - threshold), exp2(min(splat(threshold), x)));
  }
};

struct Buffers : LandmarkBuffers {
  float* sums;                // (step) G_U 1; while summing (rows, kLanes)
  float* inverse_sums;        // (step) Z G_U 1
  float* soft;                // (rows, e_step) (G_U 1)^-1 G_U V
  float* magnitudes;          // (kBlock) |G_L Z| G_U 1
  float* denominators;        // (kBlock) G_L Z G_U 1
  float* factors;             // (kBlock) what a token's numerator is multiplied by
  float* shares;              // (kBlock) t of the guard
  float *numerators, *softs;  // (kBlock, e_step) of guarded blocks
  LandmarkTiles tiles;        // of bfloat16

  Buffers(const WindowNystromParams& params, Scratch& memory)
      : LandmarkBuffers(params, memory),
        sums(memory.take(rows * kLanes)),
        inverse_sums(memory.take(step)),
        soft(memory.take(rows * e_step)),
        magnitudes(memory.take(kBlock)),
        denominators(memory.take(kBlock)),
        factors(memory.take(kBlock)),
        shares(memory.take(kBlock)),
        numerators(memory.take(kBlock * e_step)),
        softs(memory.take(kBlock * e_step)),
        tiles(params, memory) {}
};

Vec only_same(Vec v, IntVec same) { return (Vec)((IntVec)v & same); }

// A = f(q_m k_m), 0 between regions.
void fill_core(const WindowNystromParams& params, const Place& p, const Buffers& b) {
  multiply(b.rows, b.step, params.shape.head_dim, b.q, Fixed<1>(), b.step, b.k, b.step, Zero(),
           store_to(b.pinv.a, b.pinv.step, Kernel(params)));
  for (int64_t i = 0; i < b.rows; ++i)
    for (int64_t j = 0; j < b.step; ++j)
      if (i >= b.m || j >= b.m || (p.cut && b.regions[i] != b.regions[j]))
        b.pinv.a[i * b.pinv.step + j] = 0;
}

// Pass 1: upper = G_U V, sums = G_U 1.
template <class T>
void pass_keys(const WindowNystromParams& params, const Place& p, const Head<T>& head, Buffers& b,
               Ahead<T>& ahead) {
  const WindowShape& s = params.shape;
  for (int64_t i = 0; i < b.rows * b.e_step; i += kLanes) store(b.upper + i, Vec{});
  for (int64_t i = 0; i < b.rows * kLanes; i += kLanes) store(b.sums + i, Vec{});
  for_blocks(params, p, b, [&](int64_t count) {
    pack_columns(head.k, s.channels(), b.pixels, count, s.head_dim, b.columns, kBlock);
    pack_rows(head.v, s.channels(), b.pixels, count, s.value_dim, b.values, b.e_step);
    score(params, b, b.q, count, Kernel(params), ahead);
    if (p.cut) mask_scores(b, count, only_same);
    const int64_t padded = round_up(count, kLanes);
    for (int64_t j = 0; j < b.m; ++j) {
      for (int64_t i = count; i < padded; ++i) b.scores[j * kBlock + i] = 0;
      Vec total = load(b.sums + j * kLanes);
      for (int64_t i = 0; i < padded; i += kLanes) total += load(b.scores + j * kBlock + i);
      store(b.sums + j * kLanes, total);
    }
    add_values(
        b, count,
        [upper = b.upper, step = b.e_step](int64_t r, int64_t c) {
          return load(upper + r * step + c);
        },
        ahead);
  });
  for (int64_t j = 0; j < b.step; ++j) b.sums[j] = j < b.m ? sum(load(b.sums + j * kLanes)) : 0.0f;
}

// product = Z G_U V, inverse_sums = Z G_U 1, soft = (G_U 1)^-1 G_U V.
void combine(const Buffers& b) {
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
bool guard_block(const WindowNystromParams& params, const Buffers& b, int64_t count) {
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
template <class T>
void write_guarded(const WindowShape& s, const Buffers& b, int64_t head, int64_t count, T* out) {
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

// Pass 2: out = (G_L product) / (G_L inverse_sums), guarded.
template <class T>
void pass_queries(const WindowNystromParams& params, const Place& p, const Head<T>& in,
                  int64_t head, Buffers& b, T* out, Ahead<T>& ahead) {
  const WindowShape& s = params.shape;
  scale_keys(params, b);
  for_blocks(params, p, b, [&](int64_t count) {
    pack_columns(in.q, s.channels(), b.pixels, count, s.head_dim, b.columns, kBlock);
    score(params, b, b.k, count, Kernel(params), ahead);
    if (p.cut) mask_scores(b, count, only_same);
    if (guard_block(params, b, count))
      write_guarded(s, b, head, count, out);
    else
      write_tokens(s, b, head, count, b.product, b.factors, out, ahead);
  });
}

#if defined(__AMX_BF16__)

// Both passes on tiles; inputs are exact, all else is split into two parts. Windows of fewer tokens
// are slower on tiles than in vectors (studies/performance/isas.py).
constexpr int64_t kFewestTokens = 1024;

void pass_keys(const WindowNystromParams& params, const Place& p, const Head<BFloat16>& head,
               Buffers& b, Ahead<BFloat16>& ahead) {
  const WindowShape& s = params.shape;
  if (s.tokens() < kFewestTokens) return pass_keys<BFloat16>(params, p, head, b, ahead);
  const LandmarkTiles& t = b.tiles;
  const Kernel kernel(params);
  split_landmark_rows(b.q, b.d_step, b.step, t);
  for (int64_t i = 0; i < b.step * b.e_step; i += kLanes) store(b.upper + i, Vec{});
  for (int64_t i = 0; i < b.rows * kLanes; i += kLanes) store(b.sums + i, Vec{});
  for_blocks(params, p, b, [&](int64_t count) {
    pack_pair_columns(head.k, s.channels(), b.pixels, count, s.head_dim, t.columns, kBlock);
    pack_token_pairs<false>(head.v, s.channels(), b.pixels, count, s.value_dim, t.values, b.e_step);
    multiply_pairs<false>(b.step, count, t.depth, 2, {t.landmarks, t.depth, b.step * t.depth},
                          {t.columns, kBlock, 0}, t.scores, kBlock);
    for (int64_t j = 0; j < b.m; ++j) {
      const Vec region = splat(float(b.regions[j]));
      Vec total = load(b.sums + j * kLanes);
      const auto weigh = [&](int64_t i) {
        Vec weight = kernel(load(t.scores + j * kBlock + i));
        if (p.cut) weight = only_same(weight, load(b.token_regions + i) == region);
        if (i + kLanes > count) weight = first_lanes(weight, count - i);
        total += weight;
        return weight;
      };
      for (int64_t i = 0; i < count; i += 2 * kLanes) {
        const Vec first = weigh(i), second = weigh(i + kLanes);
        t.split_weights(first, second, b.step, j, i);
      }
      store(b.sums + j * kLanes, total);
      ahead();
    }
    multiply_pairs<true>(b.step, b.e_step, pairs_of(count), 2,
                         {t.weights, kBlock / 2, b.step * kBlock / 2}, {t.values, b.e_step, 0},
                         b.upper, b.e_step);
  });
  for (int64_t j = 0; j < b.step; ++j) b.sums[j] = j < b.m ? sum(load(b.sums + j * kLanes)) : 0.0f;
}

// Splits Z G_U V, with Z G_U 1 and |Z| G_U 1 in the channels after it.
void split_product(const WindowShape& s, const Buffers& b) {
  const LandmarkTiles& t = b.tiles;
  for (int64_t j = 0; j < b.step; ++j) {
    float* const row = t.out + j * t.sums_step;
    for (int64_t c = 0; c < t.sums_step; c += kLanes)
      store(row + c, j < b.m && c < b.e_step ? load(b.product + j * b.e_step + c) : Vec{});
    Vec bound = {};
    for (int64_t i = 0; j < b.m && i < b.step; i += kLanes)
      bound = fma(abs(load(b.pinv.z + j * b.pinv.step + i)), load(b.sums + i), bound);
    row[s.value_dim] = j < b.m ? b.inverse_sums[j] : 0.0f;
    row[s.value_dim + 1] = sum(bound);
  }
  t.split_product(t.out, b.step);
}

// Fills factors if a bound of the magnitude shows that no token of a block can be guarded.
bool unguarded(const WindowNystromParams& params, const Buffers& b, int64_t count) {
  const int64_t channel = params.shape.value_dim;
  bool safe = true;
  for (int64_t i = 0; i < count; i += kLanes) {
    const Vec den = b.tiles.sums(i, channel);
    if (params.guard == 0) {
      store(b.factors + i, 1.0f / (den + 1e-12f));
      continue;
    }
    const Vec minimum = 2 * params.guard * b.tiles.sums(i, channel + 1) + 1e-29f;
    const unsigned lanes = (1u << lanes_left(count, i)) - 1;
    safe = safe && (_mm512_cmp_ps_mask((__m512)den, (__m512)minimum, _CMP_GE_OQ) & lanes) == lanes;
    store(b.factors + i, 1.0f / den);
  }
  return safe;
}

void pass_queries(const WindowNystromParams& params, const Place& p, const Head<BFloat16>& in,
                  int64_t head, Buffers& b, BFloat16* out, Ahead<BFloat16>& ahead) {
  const WindowShape& s = params.shape;
  if (s.tokens() < kFewestTokens) return pass_queries<BFloat16>(params, p, in, head, b, out, ahead);
  const LandmarkTiles& t = b.tiles;
  const Kernel kernel(params);
  scale_keys(params, b);
  split_landmark_columns(b.k, b.d_step, b.step, t);
  split_product(s, b);
  alignas(64) float regions[kMaxLandmarks];
  for (int64_t j = 0; j < b.step; ++j) regions[j] = j < b.m ? float(b.regions[j]) : -1.0f;
  for_blocks(params, p, b, [&](int64_t count) {
    pack_pair_rows(in.q, s.channels(), b.pixels, count, s.head_dim, t.columns, t.depth);
    multiply_pairs<false>(count, b.step, t.depth, 2, {t.columns, t.depth, 0},
                          {t.landmarks, b.step, t.depth * b.step}, t.scores, b.step);
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t j = 0; j < b.step; j += kLanes) {
        Vec score = kernel(load(t.scores + i * b.step + j));
        if (p.cut) score = only_same(score, load(regions + j) == splat(b.token_regions[i]));
        store(t.scores + i * b.step + j, score);
        t.split_token(score, b.step, i, j);
      }
      ahead();
    }
    multiply_pairs<false>(count, t.sums_step, b.step, 2, {t.weights, b.step, 0},
                          {t.product, t.sums_step, b.step * t.sums_step}, t.out, t.sums_step);
    if (unguarded(params, b, count)) {
      t.write(s, b, head, count, b.factors, out);
      return;
    }
    t.turn_scores(b, count);
    if (guard_block(params, b, count))
      write_guarded(s, b, head, count, out);
    else
      write_tokens(s, b, head, count, b.product, b.factors, out, ahead);
  });
}

#endif

}  // namespace

int64_t window_nystrom_scratch(const WindowNystromParams& params) {
  return landmark_scratch<Buffers>(params);
}

Status window_nystrom_maxima(const WindowNystromParams& params, Type type, const void* qkv,
                             int64_t first, int64_t last, float* scratch, BatchMaxima* result) {
  return landmark_maxima<Buffers>(params, type, qkv, first, last, scratch, result);
}

Status window_nystrom(const WindowNystromParams& params, Type type, const void* qkv,
                      const BatchMaxima& batch, void* out, int64_t first, int64_t last,
                      float* scratch) {
  return landmark_attention<Buffers>(params, type, qkv, batch, out, first, last, scratch);
}

}  // namespace nystra::NYSTRA_ISA
