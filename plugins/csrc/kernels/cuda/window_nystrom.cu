// NystraWindowNystrom: the kernel Nystrom attention of PnP-Nystra in windows of a shifted map.
//
// A thread block computes one head of one window: the landmarks, the pseudoinverse Z of their
// matrix, one pass over the keys that accumulates G_U [V 1], and one pass over the queries. It
// needs O(m (d + e + m)) memory. For half and bfloat16 with at most 16 landmarks and 32 channels,
// the passes run on tensor cores (landmark_tensor.h).
//
// Cost, with S bytes per element: (2d + 2e) S bytes per token and head, and 2d S more if q and k of
// the window are evicted from the caches between pooling and the passes; 4 m (d + e) FLOPs and 2 m
// exponentials per token and head, m^2 additions more for the guard; iterations * 8 m^3 FLOPs per
// window and head. At m = 16 and d = e = 32 that is 4,096 FLOPs for 512 bytes of float or 256 of
// half. On tensor cores it is 10,752 FLOPs in tf32, since split operands are multiplied two or
// three times; 32 tokens take about 1,650 instructions of a warp (counted in the code for sm_90),
// and 434 to pool them.
#include "kernels/window_nystrom.h"

#include "landmark_launch.h"

namespace nystra::cuda {
namespace {

struct NystromJob : LandmarkJob {
  NystromJob(const LandmarkJob& job, const WindowNystromParams& params)
      : LandmarkJob(job), threshold(params.threshold * kLog2E), guard(params.guard) {}

  float threshold;  // times log2(e)
  float guard;
};

// f(x) = exp(min(x, threshold)) + max(x - threshold, 0); x and threshold are given times log2(e).
// NaN returns NaN.
__device__ __forceinline__ float kernel_form(float x, float threshold) {
  const float power = power_of_two(x > threshold ? threshold : x);
  return x > threshold ? fmaf(kLn2, x - threshold, power) : power;
}

// A = f of the logits between landmarks, 0 for landmarks of different regions.
__device__ void fill(const NystromJob& job, const LandmarkBuffers& b, const WarpBuffers&) {
  fill_core(job, b, [&](float x, int i, int j) {
    return b.regions[i] == b.regions[j] ? kernel_form(x, job.threshold) : 0.0f;
  });
}

// Pass 1: values = G_U V and rows = G_U 1, summed over the tokens of this warp.
template <class T>
__device__ void pass_keys(const NystromJob& job, const Place& place, const Head<T>& head,
                          const LandmarkBuffers& b, const WarpBuffers& w) {
  for (int e = w.lane; e < b.m4 * b.e_step; e += kWarp) w.values[e] = 0.0f;
  for (int j = w.lane; j < b.m4; j += kWarp) w.rows[j] = 0.0f;
  for_tiles<Share::kFirstPass>(job, place, w, [&](int first, int count) {
    score(job, head.k, b.queries, count, b, w, [&](float x, int t, int j) {
      const float value = kernel_form(x, job.threshold);
      return place.cut && place.region(min(first + t, job.shape.tokens - 1)) != b.regions[j]
                 ? 0.0f
                 : value;
    });
    for (int j = w.lane; j < b.m4; j += kWarp) {
      float sum = w.rows[j];
#pragma unroll 8
      for (int t = 0; t < count; ++t) sum += w.scores[t * b.m_step + j];
      w.rows[j] = sum;
    }
    add_values(job, head.v, count, b, w, [](int) { return 1.0f; });
  });
  __syncthreads();
}

// Merges the sums of all warps: product = Z G_U V, combined = Z G_U 1, rows of warp 0 = G_U 1, and
// with a guard values = (G_U 1)^-1 G_U V.
__device__ void combine(const NystromJob& job, const LandmarkBuffers& b, const WarpBuffers& w) {
  const int thread = int(threadIdx.x), threads = int(blockDim.x);
  merge_values(job, b, w.warps, [](int, int) { return 1.0f; });
  for (int j = thread; j < b.m4; j += threads) {
    float sum = 0.0f;
    for (int i = 0; i < w.warps && j < job.m; ++i) sum += b.rows[i * 3 * b.m4 + j];
    b.rows[j] = sum;
  }
  __syncthreads();
  apply_inverse(job, b);
  for (int j = thread; j < b.m4; j += threads) {
    float sum = 0.0f;
    for (int k = 0; k < job.m; ++k) sum = fmaf(b.inverse[j * b.m_step + k], b.rows[k], sum);
    b.combined[j] = sum;
  }
  __syncthreads();
  if (job.guard == 0.0f) return;
  for (int e = thread; e < b.m4 * b.e_step; e += threads) {
    const float sum = b.rows[e / b.e_step];
    b.values[e] /= sum < 1e-30f ? 1e-30f : sum;
  }
  __syncthreads();
}

// The guard's coefficients for a token: out = soft + share (factor numerator - soft).
struct Guarded {
  float factor, share, divisor;  // `divisor` is G_L 1, of the soft form
};

// Returns the coefficients from magnitude = |P| G_U 1, denominator = P G_U 1 and total = G_L 1 of a
// token.
__device__ __forceinline__ Guarded guarded(const NystromJob& job, float magnitude,
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
__device__ __forceinline__ Guarded guard_token(const NystromJob& job, const LandmarkBuffers& b,
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

// Pass 2: out = (G_L product) / (G_L combined), with the guard applied.
template <class T>
__device__ void pass_queries(const NystromJob& job, const Place& place, const Head<T>& in, int head,
                             const LandmarkBuffers& b, const WarpBuffers& w, T* out) {
  const int channels = job.shape.value_dim;
  for_tiles<Share::kEqual>(job, place, w, [&](int first, int count) {
    score(job, in.q, b.keys, count, b, w, [&](float x, int t, int j) {
      const float value = kernel_form(x * job.scale, job.threshold);
      return place.cut && place.region(min(first + t, job.shape.tokens - 1)) != b.regions[j]
                 ? 0.0f
                 : value;
    });
    const Guarded mine = guard_token(job, b, w);
    w.factors[w.lane] = mine.factor;
    const bool touched = __any_sync(kAllLanes, w.lane < count && mine.share < 1.0f);
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

// Pass 1 on tensor cores.
template <class T>
__device__ void tensor_pass_keys(const NystromJob& job, const Place& place, const Head<T>& head,
                                 const LandmarkBuffers& b, const WarpBuffers& w) {
  const TensorLane at(w.lane);
  float rows[2] = {};  // for landmarks `group` and `group + 8`
  int regions[2];
#pragma unroll
  for (int i = 0; i < 2; ++i)
    regions[i] = at.group + 8 * i < job.m ? b.regions[at.group + 8 * i] : 0;
  tensor_keys(job, place, head, b, w, [&](const TensorTile& tile, float (&s)[kFold][4], auto&) {
#pragma unroll
    for (int t = 0; t < kFold; ++t)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float value = kernel_form(s[t][i], job.threshold);
        s[t][i] = 8 * t + 2 * at.in + i % 2 < tile.count ? value : 0.0f;
      }
    if (place.cut) {
#pragma unroll
      for (int t = 0; t < kFold; ++t)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          if (tile.region(8 * t + 2 * at.in + i % 2) != regions[i / 2]) s[t][i] = 0.0f;
    }
#pragma unroll
    for (int t = 0; t < kFold; ++t)
#pragma unroll
      for (int i = 0; i < 4; ++i) rows[i / 2] += s[t][i];
  });
  const WarpBuffers own(job, b);  // computed again, so that the loop does not keep it in registers
  const TensorLane to(own.lane);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    rows[i] = row_sum(rows[i]);
    if (to.in == 0 && to.group + 8 * i < b.m4) own.rows[to.group + 8 * i] = rows[i];
  }
  __syncthreads();
}

// Pass 2 on tensor cores.
template <class T>
__device__ void tensor_pass_queries(const NystromJob& job, const Place& place, const Head<T>& in,
                                    int head, const LandmarkBuffers& b, const WarpBuffers& w,
                                    T* out) {
  const TensorLane at(w.lane);
  const Fragments fragments(b, w.lane);
  const ColumnRegions regions(job, b, at);
  make_fragments(job, b, w, job.guard != 0.0f);
  for_tensor_tiles<Share::kEqual>(job, place, w, [&](const TensorTile& tile) {
    uint32_t queries[kFold][kSteps];
    load_queries(job, in, tile, at, queries);
#pragma unroll
    for (int part = 0; part < 2; ++part) {  // 16 tokens
      const int token = 16 * part + at.group;
      float s[kColumnParts][4] = {};
      score_queries<T>(queries[2 * part], queries[2 * part + 1], fragments, s);
      float denominators[2] = {}, totals[2] = {}, magnitudes[2] = {};
      Split<4> weights[kColumnParts];
#pragma unroll
      for (int n = 0; n < kColumnParts; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float value = kernel_form(s[n][i] * job.scale, job.threshold);
          s[n][i] = 8 * n + 2 * at.in + i % 2 < job.m ? value : 0.0f;
        }
        if (place.cut) {
#pragma unroll
          for (int i = 0; i < 4; ++i)
            if (tile.region(token + i / 2 * 8) != regions(n, i % 2)) s[n][i] = 0.0f;
        }
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int landmark = 8 * n + 2 * at.in + i;
          const float combined = landmark < job.m ? b.combined[landmark] : 0.0f;
          denominators[0] = fmaf(s[n][i], combined, denominators[0]);
          denominators[1] = fmaf(s[n][2 + i], combined, denominators[1]);
          totals[0] += s[n][i];
          totals[1] += s[n][2 + i];
        }
        weights[n] = as_left(s[n]);
      }
      if (job.guard != 0.0f) {
#pragma unroll
        for (int o = 0; o < kColumnParts; ++o) {
          float p[4] = {};
#pragma unroll
          for (int n = 0; n < kColumnParts; ++n)
            multiply_add(p, weights[n], fragments.get(kOfInverse + n * kColumnParts + o));
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            const int landmark = 8 * o + 2 * at.in + i;
            const float sum = landmark < job.m ? b.rows[landmark] : 0.0f;
            magnitudes[0] = fmaf(fabsf(p[i]), sum, magnitudes[0]);
            magnitudes[1] = fmaf(fabsf(p[2 + i]), sum, magnitudes[1]);
          }
        }
      }
      float full[kChannelParts][4] = {};
#pragma unroll
      for (int n = 0; n < kColumnParts; ++n)
#pragma unroll
        for (int c = 0; c < kChannelParts; ++c)
          multiply_add(full[c], weights[n], fragments.get(kOfProduct + n * kChannelParts + c));
      Guarded guards[2];
      bool touched = false;
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        guards[r] =
            guarded(job, row_sum(magnitudes[r]), row_sum(denominators[r]), row_sum(totals[r]));
        touched = touched || (token + 8 * r < tile.count && guards[r].share < 1.0f);
#pragma unroll
        for (int c = 0; c < kChannelParts; ++c)
          full[c][2 * r] *= guards[r].factor, full[c][2 * r + 1] *= guards[r].factor;
      }
      if (__any_sync(kAllLanes, touched)) {
#pragma unroll
        for (int c = 0; c < kChannelParts; ++c) {
          float soft[4] = {};
#pragma unroll
          for (int n = 0; n < kColumnParts; ++n)
            multiply_add(soft, weights[n], right_output(job, b.values, b, at, n, c));
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const float share = guards[i / 2].share, safe = soft[i] / guards[i / 2].divisor;
            full[c][i] = share > 0.0f ? safe + share * (full[c][i] - safe) : safe;
          }
        }
      }
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        write_channels(job, tile, token + 8 * r, head, at, r, full, out);
      }
    }
  });
}

template <class T, Way kWay>
__global__ void __launch_bounds__(kMaxWarps* kWarp, kWay == Way::kWorkspace ? 2 : 4)
    window_nystrom_kernel(NystromJob job, const T* __restrict__ qkv, T* __restrict__ out) {
  DYNAMIC_SHARED(memory);
  attend<kWay>(job, memory, qkv, out);
}

struct Form {
  using Job = NystromJob;

  template <class T, Way kWay>
  static auto kernel() {
    return window_nystrom_kernel<T, kWay>;
  }
};

}  // namespace

size_t window_nystrom_workspace(const WindowNystromParams& params, bool batch_init,
                                const LaunchLimits& limits) {
  return params.shape.windows() == 0 ? 0 : LandmarkPlan(params, limits).workspace(batch_init);
}

Status window_nystrom(const WindowNystromParams& params, bool batch_init, Type type,
                      const void* qkv, void* out, void* workspace, Stream stream,
                      const LaunchLimits& limits) {
  return launch_landmarks<Form>(params, batch_init, type, qkv, out, workspace, stream, limits);
}

}  // namespace nystra::cuda
