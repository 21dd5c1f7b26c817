// The steps of both Nystrom forms after the landmarks: their matrix, and the passes over the tokens
// of a window.
#pragma once

#include "landmark_window.h"

namespace nystra::cuda {
namespace {

// How a logit becomes an entry of G_L, A or G_U: by f, with the result divided by G_L Z G_U 1, or
// by the softmax of its row.
enum class Form { kKernel, kSoftmax };

// f(x) = exp(min(x, threshold)) + max(x - threshold, 0); x and threshold are given times log2(e).
// NaN returns NaN.
__device__ __forceinline__ float kernel_form(float x, float threshold) {
  const float power = power_of_two(x > threshold ? threshold : x);
  return x > threshold ? fmaf(kLn2, x - threshold, power) : power;
}

// What becomes of a logit where it is computed, before the softmax.
template <Form kForm>
__device__ __forceinline__ float weigh(const LandmarkJob& job, float x) {
  return kForm == Form::kSoftmax ? x : kernel_form(x, job.threshold);
}

// What it is instead if the landmark and the token are in different regions.
template <Form kForm>
__device__ __forceinline__ float apart(float x) {
  return kForm == Form::kSoftmax ? x + kApart : 0.0f;
}

// What it is where there is no landmark or token.
template <Form kForm>
constexpr float kNone = kForm == Form::kSoftmax ? -INFINITY : 0.0f;

// A: the landmarks against each other. For the softmax each warp computes whole rows. Ends with a
// barrier.
template <Form kForm>
__device__ void fill(const LandmarkJob& job, const LandmarkBuffers& b, const WarpBuffers& w) {
  fill_core(job, b, [&](float x, int i, int j) {
    const float score = weigh<kForm>(job, x);
    return b.regions[i] == b.regions[j] ? score : apart<kForm>(score);
  });
  if constexpr (kForm == Form::kSoftmax) {
    for (int i = w.warp; i < job.m; i += w.warps) {
      float* const row = b.pinv.a + i * b.m_step;
      float largest = -INFINITY, total = 0.0f;
      for (int j = w.lane; j < job.m; j += kWarp) largest = fmaxf(largest, row[j]);
      largest = warp_max(largest);
      for (int j = w.lane; j < job.m; j += kWarp) {
        row[j] = power_of_two(row[j] - largest);
        total += row[j];
      }
      total = warp_sum(total);
      for (int j = w.lane; j < job.m; j += kWarp) row[j] /= total;
    }
    __syncthreads();
  }
}

// Computes the scores of a tile: of q with the key landmarks, or of k with the query landmarks.
template <Form kForm, class T>
__device__ __forceinline__ void score_tile(const LandmarkJob& job, const Place& place, const T* map,
                                           const float* landmarks, float scale, int first,
                                           int count, const LandmarkBuffers& b,
                                           const WarpBuffers& w) {
  score(job, map, landmarks, count, b, w, [&](float x, int t, int j) {
    const float score = weigh<kForm>(job, x * scale);
    return place.cut && place.region(min(first + t, job.shape.tokens - 1)) != b.regions[j]
               ? apart<kForm>(score)
               : score;
  });
}

// Pass 1: values = G_U V over the tokens of this warp, not yet divided by the totals of a softmax.
// `rows` of a warp holds the totals G_U 1 and, of a softmax, the maxima and corrections of the
// landmarks.
template <Form kForm, class T>
__device__ void pass_keys(const LandmarkJob& job, const Place& place, const Head<T>& head,
                          const LandmarkBuffers& b, const WarpBuffers& w) {
  float *const totals = w.rows, *const maxima = w.rows + b.m4,
               *const corrections = w.rows + 2 * b.m4;
  for (int e = w.lane; e < b.m4 * b.e_step; e += kWarp) w.values[e] = 0.0f;
  for (int j = w.lane; j < b.m4; j += kWarp) totals[j] = 0.0f, maxima[j] = -INFINITY;
  for_tiles<Share::kFirstPass>(job, place, w, [&](int first, int count) {
    score_tile<kForm>(job, place, head.k, b.queries, 1.0f, first, count, b, w);
    for (int j = w.lane; j < b.m4; j += kWarp) {
      float before = totals[j], total = 0.0f;
      if constexpr (kForm == Form::kSoftmax) {
        float largest = maxima[j];
#pragma unroll 8
        for (int t = 0; t < count; ++t) largest = fmaxf(largest, w.scores[t * b.m_step + j]);
#pragma unroll 8
        for (int t = 0; t < count; ++t) {
          float& weight = w.scores[t * b.m_step + j];
          weight = power_of_two(weight - largest);
        }
        corrections[j] = power_of_two(maxima[j] - largest);
        before *= corrections[j];
        maxima[j] = largest;
      }
#pragma unroll 8
      for (int t = 0; t < count; ++t) total += w.scores[t * b.m_step + j];
      totals[j] = before + total;
    }
    add_values(job, head.v, count, b, w,
               [&](int j) { return kForm == Form::kSoftmax ? corrections[j] : 1.0f; });
  });
  __syncthreads();
}

// Merges the sums of all warps: product = Z G_U V; of the kernel form also combined = Z G_U 1, rows
// of warp 0 = G_U 1, and with a guard values = (G_U 1)^-1 G_U V.
template <Form kForm>
__device__ void combine(const LandmarkJob& job, const LandmarkBuffers& b, const WarpBuffers& w) {
  constexpr bool kSoftmax = kForm == Form::kSoftmax;
  const int thread = int(threadIdx.x), threads = int(blockDim.x);
  const auto row = [&](int warp, int which) { return b.rows + (3 * warp + which) * b.m4; };
  for (int j = thread; j < b.m4; j += threads) {
    float largest = -INFINITY, total = 0.0f;
    for (int i = 0; kSoftmax && i < w.warps; ++i) largest = fmaxf(largest, row(i, 1)[j]);
    for (int i = 0; i < w.warps && j < job.m; ++i) {
      const float share = kSoftmax ? power_of_two(row(i, 1)[j] - largest) : 1.0f;
      total += share * row(i, 0)[j];
      if (kSoftmax) row(i, 2)[j] = share;
    }
    for (int i = 0; kSoftmax && i < w.warps; ++i) row(i, 2)[j] /= total;
    b.rows[j] = total;
  }
  __syncthreads();
  merge_values(job, b, w.warps, [&](int warp, int j) { return kSoftmax ? row(warp, 2)[j] : 1.0f; });
  __syncthreads();
  apply_inverse(job, b);
  if constexpr (!kSoftmax) {
    for (int j = thread; j < b.m4; j += threads) {
      float sum = 0.0f;
      for (int k = 0; k < job.m; ++k) sum = fmaf(b.inverse[j * b.m_step + k], b.rows[k], sum);
      b.combined[j] = sum;
    }
    if (job.guard != 0.0f) {
      __syncthreads();
      for (int e = thread; e < b.m4 * b.e_step; e += threads) {
        const float sum = b.rows[e / b.e_step];
        b.values[e] /= sum < 1e-30f ? 1e-30f : sum;
      }
    }
  }
  __syncthreads();
}

// The guard's coefficients for a token: out = soft + share (factor numerator - soft).
struct Guarded {
  float factor, share, divisor;  // `divisor` is G_L 1, of the soft form
};

// Returns the coefficients from magnitude = |P| G_U 1, denominator = P G_U 1 and total = G_L 1 of a
// token.
__device__ __forceinline__ Guarded guarded(const LandmarkJob& job, float magnitude,
                                           float denominator, float total) {
  if (job.guard == 0.0f) return {1.0f / (denominator + 1e-12f), 1.0f, 1.0f};
  magnitude = magnitude < 1e-30f ? 1e-30f : magnitude;
  const float minimum = job.guard * magnitude;
  float ratio = 1.0f;
  if (!(denominator > 2.001f * minimum))
    ratio = (denominator / magnitude - job.guard) / job.guard;  // NaN gives a share of 0
  return {1.0f / fmaxf(denominator, minimum),
          ratio >= 1.0f  ? 1.0f
          : ratio > 0.0f ? ratio
                         : 0.0f,
          total < 1e-30f ? 1e-30f : total};
}

// Returns the coefficients of token `lane` of the warp's tile.
__device__ __forceinline__ Guarded guard_token(const LandmarkJob& job, const LandmarkBuffers& b,
                                               const WarpBuffers& w) {
  const int t = w.lane % 8, quarter = w.lane / 8;  // tokens t + 8 i, landmarks 4 quarter + 16 n
  float magnitudes[4] = {}, denominators[4] = {}, totals[4] = {};
  for (int j0 = 4 * quarter; j0 < b.m4; j0 += 16) {
    Result<4> p = zero_result<4>(), s;
    if (job.guard != 0.0f)
      add_rows_by_columns(p, w.scores + t * b.m_step, 8 * b.m_step, b.inverse + j0, b.m_step, b.m4);
    load_rows(s, w.scores + t * b.m_step + j0, 8 * b.m_step);
    const float4 sums = load4(b.rows + j0), combined = load4(b.combined + j0);
    const float weights[4] = {sums.x, sums.y, sums.z, sums.w};
    const float products[4] = {combined.x, combined.y, combined.z, combined.w};
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        magnitudes[i] = fmaf(fabsf(p.v[i][j]), weights[j], magnitudes[i]);
        denominators[i] = fmaf(s.v[i][j], products[j], denominators[i]);
        totals[i] += s.v[i][j];
      }
  }
  float magnitude = 0.0f, denominator = 0.0f, total = 0.0f;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int lanes = 8; lanes < kWarp; lanes *= 2) {
      magnitudes[i] += __shfl_xor_sync(kAllLanes, magnitudes[i], lanes);
      denominators[i] += __shfl_xor_sync(kAllLanes, denominators[i], lanes);
      totals[i] += __shfl_xor_sync(kAllLanes, totals[i], lanes);
    }
    if (i == quarter) magnitude = magnitudes[i], denominator = denominators[i], total = totals[i];
  }
  return guarded(job, magnitude, denominator, total);
}

// Turns the scores of token `lane` of the warp's tile into those of a softmax, not yet divided by
// their sum, and returns the coefficients.
__device__ __forceinline__ Guarded softmax_token(const LandmarkJob& job, const LandmarkBuffers& b,
                                                 const WarpBuffers& w) {
  float* const row = w.scores + w.lane * b.m_step;
  float largest = -INFINITY, total = 0.0f;
  for (int j = 0; j < job.m; ++j) largest = fmaxf(largest, row[j]);
  for (int j = 0; j < job.m; ++j) {
    row[j] = power_of_two(row[j] - largest);
    total += row[j];
  }
  return {1.0f / total, 1.0f, 1.0f};
}

// Pass 2: out = (G_L product) / (G_L combined), with the guard applied, or softmax(Q k_m) product.
template <Form kForm, class T>
__device__ void pass_queries(const LandmarkJob& job, const Place& place, const Head<T>& in,
                             int head, const LandmarkBuffers& b, const WarpBuffers& w, T* out) {
  constexpr bool kSoftmax = kForm == Form::kSoftmax;
  const int channels = job.shape.value_dim;
  for_tiles<Share::kEqual>(job, place, w, [&](int first, int count) {
    score_tile<kForm>(job, place, in.q, b.keys, job.scale, first, count, b, w);
    const Guarded mine = kSoftmax ? softmax_token(job, b, w) : guard_token(job, b, w);
    w.factors[w.lane] = mine.factor;
    const bool touched = !kSoftmax && __any_sync(kAllLanes, w.lane < count && mine.share < 1.0f);
    __syncwarp();
    if (!touched) {
      for_outputs(job, count, b.product, b, w, [&](int t, int c, float (&v)[4]) {
#pragma unroll
        for (int j = 0; j < 4; ++j) v[j] *= w.factors[t];
        write4(output(job, w, out, head, t) + c, 0, channels - c, job.width, v);
      });
      return;
    }
    w.tile[w.lane] = mine.share;  // the tile's queries are no longer needed
    w.tile[kTokens + w.lane] = mine.divisor;
    __syncwarp();
    const int across = round_up(channels, 4) / 4;
    for (int unit = w.lane; unit < kTokens * across; unit += kWarp) {
      const int t = unit / across, c = unit % across * 4;
      if (t >= count) continue;
      Result<1> full = zero_result<1>(), soft = zero_result<1>();
      add_rows_by_columns(full, w.scores + t * b.m_step, 0, b.product + c, b.e_step, b.m4);
      add_rows_by_columns(soft, w.scores + t * b.m_step, 0, b.values + c, b.e_step, b.m4);
      const float share = w.tile[t], divisor = w.tile[kTokens + t];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float safe = soft.v[0][j] / divisor;
        full.v[0][j] = share > 0.0f ? safe + share * (full.v[0][j] * w.factors[t] - safe) : safe;
      }
      write4(output(job, w, out, head, t) + c, 0, channels - c, job.width, full.v[0]);
    }
  });
}

}  // namespace
}  // namespace nystra::cuda
