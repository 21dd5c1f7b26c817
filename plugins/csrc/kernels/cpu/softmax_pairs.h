// Exact attention of bfloat16 by products of pairs, on the tiles of AMX or by the dot products of
// AVX512-BF16: the steps of softmax_head.h.
//
// Scores are sums of exact products. Weights are rounded to bfloat16, and the values divided by the
// sum of the rounded ones, a column of ones next to the values: they stay a convex combination.
#pragma once

#include <cmath>
#include <type_traits>

#include "dots.h"
#include "scratch.h"
#include "softmax.h"
#include "softmax_size.h"
#include "tiles.h"

namespace nystra::NYSTRA_ISA {
namespace {

#if defined(__AVX512BF16__)

constexpr int64_t kFew = 64;  // keys: of so few, twice as many queries are attended to at once

struct PairBuffers {
  int64_t depth;     // pairs of a query's channels
  int64_t e_step;    // channels of a value, and the one
  Pair* queries;     // (kQueries, depth)
  int64_t max_rows;  // queries that are attended to at once
  int64_t k_step;    // keys of a block, and some more: rows lie in different cache sets
  int64_t w_step;    // the same in pairs
  Pair* keys;        // (depth, k_step)
  Pair* values;      // (kKeys / 2, e_step)
  Pair* weights;     // (max_rows, w_step)
  float* scores;     // (max_rows, k_step)
  float* starts;     // (kKeys) the bias of a query, and slack for whole vectors
  float* regions;    // (kKeys) of the keys of a window that is cut
  float* out;        // (kQueries, e_step) sums of values, and in channel e of the weights
  float* maxima;     // (kQueries)
  float* of_query;   // (kQueries) factors of scores, with those of keys where they differ
  float* of_key;     // (kKeys)

  PairBuffers(const HeadSize& s, Scratch& memory)
      : depth(pairs_of(s.head_dim)), e_step(round_up(s.value_dim + 1, kSide)) {
    const int64_t max_keys = round_up(s.keys < kKeys ? s.keys : kKeys, 2 * kSide);
    max_rows = max_keys <= kFew ? 4 * kSide : 2 * kSide;
    k_step = max_keys + kSide;
    w_step = max_keys / 2 + kSide;
    queries = memory.take_pairs(kQueries * depth);
    keys = memory.take_pairs(depth * k_step);
    values = memory.take_pairs(max_keys / 2 * e_step);
    weights = memory.take_pairs(max_rows * w_step);
    scores = memory.take(max_rows * k_step);
    starts = memory.take(kKeys + kLanes);
    regions = memory.take(kKeys);
    out = memory.take(kQueries * e_step);
    maxima = memory.take(kQueries);
    of_query = memory.take(kQueries);
    of_key = memory.take(kKeys);
  }

  // How many queries are attended to at once from `row` on.
  int64_t rows(int64_t row, int64_t queries) const {
    return queries - row < max_rows ? queries - row : max_rows;
  }
};

int64_t pair_scratch(const HeadSize& s) {
  Scratch memory(nullptr);
  const PairBuffers buffers(s, memory);
  return memory.used();
}

// 2^t within 2^-13, which is enough for bfloat16, or 0 below 2^-100, as in softmax.h.
inline Vec rough_weight(Vec t) {
  const __mmask16 some = _mm512_cmp_ps_mask((__m512)t, _mm512_set1_ps(kLeastPower), _CMP_NLT_UQ);
  t = max(splat(kLeastPower), t);
  const Vec n = (Vec)_mm512_roundscale_ps((__m512)t, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const Vec r = t - n;
  Vec p = fma(splat(0.05517162f), r, splat(0.24261117f));
  p = fma(p, r, splat(0.693261f));
  p = fma(p, r, splat(0.99992807f));
  return (Vec)_mm512_maskz_scalef_ps(some, (__m512)p, (__m512)n);
}

inline __m512 add_squares(__m512 sums, const Pair* pairs) {
  const __m512bh v = (__m512bh)_mm512_loadu_si512(pairs);
  return _mm512_dpbf16_ps(sums, v, v);
}

// Divides factors, in place of sums of squares, by norms.
inline void divide_by_norms(const HeadSize& s, int64_t count, float factor, float* squares) {
  for (int64_t i = 0; i < count; i += kLanes)
    store(squares + i, splat(factor) / max(splat(s.epsilon), square_root(load(squares + i))));
}

void pack_queries(const HeadSize& s, const Tokens<const BFloat16>& q, int64_t count,
                  const PairBuffers& b) {
  pack_pair_rows(q.data, q.stride, q.places, count, s.head_dim, b.queries, b.depth);
  if (s.epsilon > 0) {
    for (int64_t i = 0; i < count; ++i) {
      __m512 squares = _mm512_setzero_ps();
      for (int64_t c = 0; c < b.depth; c += kSide)
        squares = add_squares(squares, b.queries + i * b.depth + c);
      b.of_query[i] = sum((Vec)squares);
    }
    divide_by_norms(s, count, s.scale * kLog2E, b.of_query);
  }
  for (int64_t i = 0; i < kKeys; i += kLanes) store(b.starts + i, Vec{});
}

void pack_keys(const HeadSize& s, const Tokens<const BFloat16>& k, const Tokens<const BFloat16>& v,
               int64_t count, const PairBuffers& b) {
  pack_pair_columns(k.data, k.stride, k.places, count, s.head_dim, b.keys, b.k_step);
  pack_token_pairs<true>(v.data, v.stride, v.places, count, s.value_dim, b.values, b.e_step);
  if (s.epsilon > 0) {
    for (int64_t i = 0; i < count; i += kSide) {
      __m512 squares = _mm512_setzero_ps();
      for (int64_t c = 0; c < b.depth; ++c)
        squares = add_squares(squares, b.keys + c * b.k_step + i);
      store(b.of_key + i, (Vec)squares);
    }
    divide_by_norms(s, count, 1.0f, b.of_key);
  }
}

inline void clear_key(const HeadSize& s, int64_t i, const PairBuffers& b) {
  for (int64_t c = 0; c < b.depth; ++c) b.keys[c * b.k_step + i] = 0;
  for (int64_t c = 0; c < s.value_dim; ++c)
    b.values[i / 2 * b.e_step + c] &= ~(Pair(0xffff) << i % 2 * 16);
}

// What the scores of a query with a block of keys start from.
template <class Terms>
const float* starts_of(const Terms& terms, int64_t query, int64_t first, int64_t count,
                       const PairBuffers& b) {
  if (const float* const pairs = terms.pairs(query, count)) return pairs;
  if (terms.biased()) terms.bias_row(query, first, count, b.starts);
  return b.starts;  // zeros where there is none
}

// Scales scores, with kCosine by factors of the keys too, adds what they start from, and where the
// window is cut (`regions`) `apart` to those of another region than `region`. Returns the maxima
// of the lanes.
template <bool kCut, bool kCosine>
Vec finish_scores(const float* starts, float scale, const float* of_key, const float* regions,
                  float region, float apart, int64_t count, float* scores) {
  Vec top = splat(-INFINITY);
  const auto score_at = [=](int64_t i) {
    const Vec scales = kCosine ? load(of_key + i) * scale : splat(scale);
    Vec score = fma(load(scores + i), scales, load(starts + i));
    if (kCut) score += (Vec)((IntVec)splat(apart) & (load(regions + i) != splat(region)));
    return score;
  };
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const Vec score = score_at(i);
    top = max(top, score);
    store(scores + i, score);
  }
  if (i < count) {
    const __mmask16 beyond = __mmask16(~0u << (count - i));
    const Vec score =
        (Vec)_mm512_mask_mov_ps((__m512)score_at(i), beyond, _mm512_set1_ps(-INFINITY));
    top = max(top, score);
    store(scores + i, score);
  }
  return top;
}

// Writes the weights of a query's scores as pairs; those to the next multiple of 2 kLanes are zeros
// or those of scores of -inf.
void write_weights(const float* scores, float base, int64_t count, Pair* weights) {
  const auto weight_at = [=](int64_t i) { return (__m512)rough_weight(load(scores + i) - base); };
  const auto write = [=](int64_t i, __m512 low, __m512 high) {
    _mm512_storeu_si512(weights + i / 2, (__m512i)_mm512_cvtne2ps_pbh(high, low));
  };
  int64_t i = 0;
  for (; i + kLanes < count; i += 2 * kLanes) write(i, weight_at(i), weight_at(i + kLanes));
  if (i < count) write(i, weight_at(i), _mm512_setzero_ps());
}

// Turns a query's scores into weights; its sums so far are scaled to their maximum. Not inlined:
// Clang compiles it better that way, and GCC does not inline it anyway.
__attribute__((noinline)) void weigh(const float* starts, float scale, const float* of_key,
                                     bool cut, float region, float apart, int64_t count,
                                     const PairBuffers& b, int64_t row, bool fresh, float* scores,
                                     Pair* weights) {
  const auto finish = [&](auto cosine) {
    constexpr bool kCosine = decltype(cosine)::value;
    return cut ? finish_scores<true, kCosine>(starts, scale, of_key, b.regions, region, apart,
                                              count, scores)
               : finish_scores<false, kCosine>(starts, scale, of_key, b.regions, region, apart,
                                               count, scores);
  };
  const Vec top = of_key == nullptr ? finish(std::false_type()) : finish(std::true_type());
  const float before = fresh ? -INFINITY : b.maxima[row], current = largest(top);
  const float maximum = current > before ? current : before;
  const float base = maximum == -INFINITY ? 0.0f : maximum;
  write_weights(scores, base, count, weights);
  b.maxima[row] = maximum;
  if (fresh || maximum == before) return;
  const Vec factor = before == -INFINITY ? Vec{} : softmax_weight(splat(before - base));
  float* const out = b.out + row * b.e_step;
  for (int64_t c = 0; c < b.e_step; c += kLanes) store(out + c, load(out + c) * factor);
}

// Attends to one block of keys with `rows` queries from row `row` of the chunk on.
template <class Terms, class Between>
void attend(const HeadSize& s, const PairBuffers& b, const Terms& terms, int64_t query, int64_t row,
            int64_t rows, int64_t first, int64_t count, Between& between) {
  const bool cut = terms.cut();
  if (cut && row == 0) terms.regions(first, count, b.regions);
  multiply_pairs<false>(rows, count, b.depth, 1, {b.queries + row * b.depth, b.depth, 0},
                        {b.keys, b.k_step, 0}, b.scores, b.k_step);
  for (int64_t r = 0; r < rows; ++r) {
    const bool cosine = s.epsilon > 0;
    weigh(starts_of(terms, query + r, first, count, b),
          cosine ? b.of_query[row + r] : s.scale * kLog2E, cosine ? b.of_key : nullptr, cut,
          cut ? terms.region(query + r) : 0.0f, s.apart, count, b, row + r, first == 0,
          b.scores + r * b.k_step, b.weights + r * b.w_step);
    between();
  }
  const Factor weights = {b.weights, b.w_step, 0}, values = {b.values, b.e_step, 0};
  float* const out = b.out + row * b.e_step;
  if (first == 0)
    multiply_pairs<false>(rows, b.e_step, pairs_of(count), 1, weights, values, out, b.e_step);
  else
    multiply_pairs<true>(rows, b.e_step, pairs_of(count), 1, weights, values, out, b.e_step);
}

void write(const HeadSize& s, const PairBuffers& b, int64_t count, const Tokens<BFloat16>& out) {
  for (int64_t i = 0; i < count; ++i) {
    const float* const sums = b.out + i * b.e_step;
    const float factor = b.maxima[i] == -INFINITY ? 0.0f : 1.0f / sums[s.value_dim];
    write_token(sums, splat(factor), s.value_dim, out.at(i));
  }
}

#else

int64_t pair_scratch(const HeadSize&) { return 0; }

#endif

}  // namespace
}  // namespace nystra::NYSTRA_ISA
