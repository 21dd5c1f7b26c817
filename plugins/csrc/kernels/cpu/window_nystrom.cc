// NystraWindowNystrom: the kernel Nystrom attention of PnP-Nystra in windows of a shifted map.
#include "isa.h"
#include "landmark_kernel.h"

namespace nystra::NYSTRA_ISA {
namespace {

#if defined(__AMX_BF16__)

using KernelBuffers = Buffers<Form::kKernel>;

// Both passes on tiles; inputs are exact, all else is split into two parts. Windows of fewer tokens
// are slower on tiles than in vectors (studies/performance/isas.py).
constexpr int64_t kFewestTokens = 1024;

void pass_keys(const WindowNystromParams& params, const Place& p, const Head<BFloat16>& head,
               KernelBuffers& b, Ahead& ahead) {
  const WindowShape& s = params.shape;
  if (s.tokens() < kFewestTokens)
    return pass_keys<Form::kKernel, BFloat16>(params, p, head, b, ahead);
  const LandmarkTiles& t = b.tiles;
  const Kernel kernel(params);
  split_landmark_rows(b.q, b.d_step, b.step, t);
  reset_sums(b);
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
        if (p.cut) weight = (Vec)((IntVec)weight & (load(b.token_regions + i) == region));
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
}

// Splits Z G_U V, with Z G_U 1 and |Z| G_U 1 in the channels after it.
void split_product(const WindowShape& s, const KernelBuffers& b) {
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
bool unguarded(const WindowNystromParams& params, const KernelBuffers& b, int64_t count) {
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
                  int64_t head, KernelBuffers& b, BFloat16* out, Ahead& ahead) {
  const WindowShape& s = params.shape;
  if (s.tokens() < kFewestTokens)
    return pass_queries<Form::kKernel, BFloat16>(params, p, in, head, b, out, ahead);
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
        if (p.cut) score = (Vec)((IntVec)score & (load(regions + j) == splat(b.token_regions[i])));
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
  return landmark_scratch<Form::kKernel>(params);
}

Status window_nystrom_maxima(const WindowNystromParams& params, Type type, const void* qkv,
                             int64_t first, int64_t last, float* scratch, BatchMaxima* result) {
  return landmark_maxima<Form::kKernel>(params, type, qkv, first, last, scratch, result);
}

Status window_nystrom(const WindowNystromParams& params, Type type, const void* qkv,
                      const BatchMaxima& batch, void* out, int64_t first, int64_t last,
                      float* scratch) {
  return landmark_attention<Form::kKernel>(params, type, qkv, batch, out, first, last, scratch);
}

}  // namespace nystra::NYSTRA_ISA
