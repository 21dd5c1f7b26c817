// NystraWindowNystromformer: the row-normalized Nystrom attention in the windows of a shifted map.
//
// A thread block computes one head of one window: the landmarks, the pseudoinverse Z of their
// matrix, one pass over the keys (online softmax with the landmarks as queries), and one pass over
// the queries.
//
// Cost: as in window_nystrom.cu, without the guard.
#include "kernels/window_nystromformer.h"

#include "landmark_launch.h"

namespace nystra::cuda {
namespace {

struct NystromformerJob : LandmarkJob {
  NystromformerJob(const LandmarkJob& job, const LandmarkParams&) : LandmarkJob(job) {}
};

// A = softmax over the logits between landmarks; each warp computes whole rows. Ends with a
// barrier.
__device__ void fill(const NystromformerJob& job, const LandmarkBuffers& b, const WarpBuffers& w) {
  fill_core(job, b,
            [&](float x, int i, int j) { return b.regions[i] == b.regions[j] ? x : x + kApart; });
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

// Pass 1: values = softmax(q_m K) V over the tokens of this warp, not yet divided by the totals.
// `rows` of a warp holds the maxima, totals and corrections of the landmarks.
template <class T>
__device__ void pass_keys(const NystromformerJob& job, const Place& place, const Head<T>& head,
                          const LandmarkBuffers& b, const WarpBuffers& w) {
  float *const maxima = w.rows, *const totals = w.rows + b.m4,
               *const corrections = w.rows + 2 * b.m4;
  for (int e = w.lane; e < b.m4 * b.e_step; e += kWarp) w.values[e] = 0.0f;
  for (int j = w.lane; j < b.m4; j += kWarp) maxima[j] = -INFINITY, totals[j] = 0.0f;
  for_tiles<Share::kFirstPass>(job, place, w, [&](int first, int count) {
    score(job, head.k, b.queries, count, b, w, [&](float x, int t, int j) {
      return place.cut && place.region(min(first + t, job.shape.tokens - 1)) != b.regions[j]
                 ? x + kApart
                 : x;
    });
    for (int j = w.lane; j < b.m4; j += kWarp) {
      float largest = maxima[j], total = 0.0f;
#pragma unroll 8
      for (int t = 0; t < count; ++t) largest = fmaxf(largest, w.scores[t * b.m_step + j]);
#pragma unroll 8
      for (int t = 0; t < count; ++t) {
        const float weight = power_of_two(w.scores[t * b.m_step + j] - largest);
        w.scores[t * b.m_step + j] = weight;
        total += weight;
      }
      const float correction = power_of_two(maxima[j] - largest);
      maxima[j] = largest;
      totals[j] = totals[j] * correction + total;
      corrections[j] = correction;
    }
    add_values(job, head.v, count, b, w, [&](int j) { return corrections[j]; });
  });
  __syncthreads();
}

// Merges the sums of all warps: product = Z softmax(q_m K) V.
__device__ void combine(const NystromformerJob& job, const LandmarkBuffers& b,
                        const WarpBuffers& w) {
  const auto share_of = [&](int warp, int j, float largest) {
    return power_of_two(b.rows[warp * 3 * b.m4 + j] - largest);
  };
  for (int j = int(threadIdx.x); j < b.m4; j += int(blockDim.x)) {
    float largest = -INFINITY, total = 0.0f;
    for (int i = 0; i < w.warps; ++i) largest = fmaxf(largest, b.rows[i * 3 * b.m4 + j]);
    for (int i = 0; i < w.warps; ++i)
      total += share_of(i, j, largest) * b.rows[(i * 3 + 1) * b.m4 + j];
    for (int i = 0; i < w.warps; ++i)
      b.rows[(i * 3 + 2) * b.m4 + j] = share_of(i, j, largest) / total;
  }
  __syncthreads();
  merge_values(job, b, w.warps, [&](int warp, int j) { return b.rows[(warp * 3 + 2) * b.m4 + j]; });
  __syncthreads();
  apply_inverse(job, b);
  __syncthreads();
}

// Pass 2: out = softmax(Q k_m) product.
template <class T>
__device__ void pass_queries(const NystromformerJob& job, const Place& place, const Head<T>& in,
                             int head, const LandmarkBuffers& b, const WarpBuffers& w, T* out) {
  for_tiles<Share::kEqual>(job, place, w, [&](int first, int count) {
    score(job, in.q, b.keys, count, b, w, [&](float x, int t, int j) {
      x *= job.scale;
      return place.cut && place.region(min(first + t, job.shape.tokens - 1)) != b.regions[j]
                 ? x + kApart
                 : x;
    });
    float* const row = w.scores + w.lane * b.m_step;
    float largest = -INFINITY, total = 0.0f;
    for (int j = 0; j < job.m; ++j) largest = fmaxf(largest, row[j]);
    for (int j = 0; j < job.m; ++j) {
      row[j] = power_of_two(row[j] - largest);
      total += row[j];
    }
    w.factors[w.lane] = 1.0f / total;
    __syncwarp();
    for_outputs(job, count, b.product, b, w, [&](int t, int c, float (&v)[4]) {
#pragma unroll
      for (int j = 0; j < 4; ++j) v[j] *= w.factors[t];
      write4(output(job, w, out, head, t) + c, 0, job.shape.value_dim - c, job.width, v);
    });
  });
}

// Pass 1 on tensor cores.
template <class T>
__device__ void tensor_pass_keys(const NystromformerJob& job, const Place& place,
                                 const Head<T>& head, const LandmarkBuffers& b,
                                 const WarpBuffers& w) {
  const TensorLane at(w.lane);
  // For landmarks `group` and `group + 8`.
  float maxima[2] = {-INFINITY, -INFINITY}, totals[2] = {};
  int regions[2];
#pragma unroll
  for (int r = 0; r < 2; ++r)
    regions[r] = at.group + 8 * r < job.m ? b.regions[at.group + 8 * r] : 0;
  tensor_keys(job, place, head, b, w,
              [&](const TensorTile& tile, float (&s)[kFold][4], float (&sums)[kChannelParts][4]) {
#pragma unroll
                for (int r = 0; r < 2; ++r) {
                  float largest = maxima[r], total = 0.0f;
#pragma unroll
                  for (int t = 0; t < kFold; ++t)
#pragma unroll
                    for (int i = 2 * r; i < 2 * r + 2; ++i) {
                      const int token = 8 * t + 2 * at.in + i % 2;
                      if (place.cut && tile.region(token) != regions[r]) s[t][i] += kApart;
                      if (token < tile.count) largest = fmaxf(largest, s[t][i]);
                    }
                  largest = row_max(largest);
#pragma unroll
                  for (int t = 0; t < kFold; ++t)
#pragma unroll
                    for (int i = 2 * r; i < 2 * r + 2; ++i) {
                      s[t][i] = 8 * t + 2 * at.in + i % 2 < tile.count
                                    ? power_of_two(s[t][i] - largest)
                                    : 0.0f;
                      total += s[t][i];
                    }
                  const float correction = power_of_two(maxima[r] - largest);
                  maxima[r] = largest;
                  totals[r] = totals[r] * correction + total;
#pragma unroll
                  for (int c = 0; c < kChannelParts; ++c)
                    sums[c][2 * r] *= correction, sums[c][2 * r + 1] *= correction;
                }
              });
  const WarpBuffers own(job, b);  // computed again, so that the loop does not keep it in registers
  const TensorLane to(own.lane);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float total = row_sum(totals[r]);
    const int landmark = to.group + 8 * r;
    if (to.in == 0 && landmark < b.m4)
      own.rows[landmark] = maxima[r], own.rows[b.m4 + landmark] = total;
  }
  __syncthreads();
}

// Pass 2 on tensor cores.
template <class T>
__device__ void tensor_pass_queries(const NystromformerJob& job, const Place& place,
                                    const Head<T>& in, int head, const LandmarkBuffers& b,
                                    const WarpBuffers& w, T* out) {
  const TensorLane at(w.lane);
  const Fragments fragments(b, w.lane);
  const ColumnRegions regions(job, b, at);
  make_fragments(job, b, w, false);
  for_tensor_tiles<Share::kEqual>(job, place, w, [&](const TensorTile& tile) {
    uint32_t queries[kFold][kSteps];
    load_queries(job, in, tile, at, queries);
#pragma unroll
    for (int part = 0; part < 2; ++part) {  // 16 tokens
      const int token = 16 * part + at.group;
      float s[kColumnParts][4] = {}, sums[kChannelParts][4] = {},
            maxima[2] = {-INFINITY, -INFINITY}, totals[2] = {};
      score_queries<T>(queries[2 * part], queries[2 * part + 1], fragments, s);
#pragma unroll
      for (int n = 0; n < kColumnParts; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          s[n][i] *= job.scale;
          if (place.cut && tile.region(token + i / 2 * 8) != regions(n, i % 2)) s[n][i] += kApart;
          if (8 * n + 2 * at.in + i % 2 >= job.m) s[n][i] = -INFINITY;
          maxima[i / 2] = fmaxf(maxima[i / 2], s[n][i]);
        }
#pragma unroll
      for (int r = 0; r < 2; ++r) maxima[r] = row_max(maxima[r]);
#pragma unroll
      for (int n = 0; n < kColumnParts; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          s[n][i] = power_of_two(s[n][i] - maxima[i / 2]);
          totals[i / 2] += s[n][i];
        }
        const Split<4> weights = as_left(s[n]);
#pragma unroll
        for (int c = 0; c < kChannelParts; ++c)
          multiply_add(sums[c], weights, fragments.get(kOfProduct + n * kChannelParts + c));
      }
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float factor = 1.0f / row_sum(totals[r]);
#pragma unroll
        for (int c = 0; c < kChannelParts; ++c)
          sums[c][2 * r] *= factor, sums[c][2 * r + 1] *= factor;
        write_channels(job, tile, token + 8 * r, head, at, r, sums, out);
      }
    }
  });
}

template <class T, Way kWay>
__global__ void __launch_bounds__(kMaxWarps* kWarp, kWay == Way::kWorkspace ? 2 : 4)
    window_nystromformer_kernel(NystromformerJob job, const T* __restrict__ qkv,
                                T* __restrict__ out) {
  DYNAMIC_SHARED(memory);
  attend<kWay>(job, memory, qkv, out);
}

struct Form {
  using Job = NystromformerJob;

  template <class T, Way kWay>
  static auto kernel() {
    return window_nystromformer_kernel<T, kWay>;
  }
};

}  // namespace

size_t window_nystromformer_workspace(const LandmarkParams& params, bool batch_init,
                                      const LaunchLimits& limits) {
  return params.shape.windows() == 0 ? 0 : LandmarkPlan(params, limits).workspace(batch_init);
}

Status window_nystromformer(const LandmarkParams& params, bool batch_init, Type type,
                            const void* qkv, void* out, void* workspace, Stream stream,
                            const LaunchLimits& limits) {
  return launch_landmarks<Form>(params, batch_init, type, qkv, out, workspace, stream, limits);
}

}  // namespace nystra::cuda
