// NystraWindowNystromformer: the row-normalised Nystrom attention in windows of a shifted map.
//
// A block does one head of one window: landmarks, their pseudoinverse Z, one pass over the keys
// (online softmax with the landmarks as queries), one pass over the queries.
//
// Floor: that of window_nystrom.cu, without the guard.
#include "landmark_launch.h"

namespace nystra::cuda {
namespace {

// A = softmax of the logits of landmarks, a row a warp. Ends with a barrier.
__device__ void normalise_core(const LandmarkJob& job, const LandmarkBuffers& b, const WarpBuffers& w) {
  for (int i = w.warp; i < job.m; i += w.warps) {
    float* const row = b.pinv.a + i * b.m_step;
    float most = -INFINITY, total = 0.0f;
    for (int j = w.lane; j < job.m; j += kWarp) most = fmaxf(most, row[j]);
    most = warp_max(most);
    for (int j = w.lane; j < job.m; j += kWarp) {
      row[j] = exp2f(row[j] - most);
      total += row[j];
    }
    total = warp_sum(total);
    for (int j = w.lane; j < job.m; j += kWarp) row[j] /= total;
  }
  __syncthreads();
}

// Pass 1: values = softmax(q_m K) V. A warp's rows: maxima, totals and corrections of landmarks.
template <class T>
__device__ void pass_keys(const LandmarkJob& job, const Place& place, const Head<T>& head, const LandmarkBuffers& b,
                          const WarpBuffers& w) {
  float *const maxima = w.rows, *const totals = w.rows + b.m4, *const corrections = w.rows + 2 * b.m4;
  for (int e = w.lane; e < b.m4 * b.e_step; e += kWarp) w.values[e] = 0.0f;
  for (int j = w.lane; j < b.m4; j += kWarp) maxima[j] = -INFINITY, totals[j] = 0.0f;
  for_tiles(job, place, w, [&](int first, int count) {
    score(job, head.k, b.queries, count, b, w, [&](float x, int t, int j) {
      return place.cut && place.region(min(first + t, job.shape.tokens - 1)) != b.regions[j] ? x + kApart : x;
    });
    for (int j = w.lane; j < b.m4; j += kWarp) {
      float most = maxima[j], total = 0.0f;
#pragma unroll 8
      for (int t = 0; t < count; ++t) most = fmaxf(most, w.scores[t * b.m_step + j]);
#pragma unroll 8
      for (int t = 0; t < count; ++t) {
        const float weight = exp2f(w.scores[t * b.m_step + j] - most);
        w.scores[t * b.m_step + j] = weight;
        total += weight;
      }
      const float correction = exp2f(maxima[j] - most);
      maxima[j] = most;
      totals[j] = totals[j] * correction + total;
      corrections[j] = correction;
    }
    add_values(job, head.v, count, b, w, [&](int j) { return corrections[j]; });
  });
  __syncthreads();
}

// product = Z softmax(q_m K) V, from what the warps summed.
__device__ void combine(const LandmarkJob& job, const LandmarkBuffers& b, const WarpBuffers& w) {
  const auto share_of = [&](int warp, int j, float most) { return exp2f(b.rows[warp * 3 * b.m4 + j] - most); };
  for (int j = int(threadIdx.x); j < b.m4; j += int(blockDim.x)) {
    float most = -INFINITY, total = 0.0f;
    for (int i = 0; i < w.warps; ++i) most = fmaxf(most, b.rows[i * 3 * b.m4 + j]);
    for (int i = 0; i < w.warps; ++i) total += share_of(i, j, most) * b.rows[(i * 3 + 1) * b.m4 + j];
    for (int i = 0; i < w.warps; ++i) b.rows[(i * 3 + 2) * b.m4 + j] = share_of(i, j, most) / total;
  }
  __syncthreads();
  merge_values(job, b, w.warps, [&](int warp, int j) { return b.rows[(warp * 3 + 2) * b.m4 + j]; });
  __syncthreads();
  apply_inverse(job, b);
  __syncthreads();
}

// Pass 2: out = softmax(Q k_m) product.
template <class T>
__device__ void pass_queries(const LandmarkJob& job, const Place& place, const Head<T>& in, int head,
                             const LandmarkBuffers& b, const WarpBuffers& w, T* out) {
  for_tiles(job, place, w, [&](int first, int count) {
    score(job, in.q, b.keys, count, b, w, [&](float x, int t, int j) {
      x *= job.scale;
      return place.cut && place.region(min(first + t, job.shape.tokens - 1)) != b.regions[j] ? x + kApart : x;
    });
    float* const row = w.scores + w.lane * b.m_step;
    float most = -INFINITY, total = 0.0f;
    for (int j = 0; j < job.m; ++j) most = fmaxf(most, row[j]);
    for (int j = 0; j < job.m; ++j) {
      row[j] = exp2f(row[j] - most);
      total += row[j];
    }
    w.factors[w.lane] = 1.0f / total;
    __syncwarp();
    for_outputs(job, count, b.product, b, w, [&](int t, int c, float(&v)[4]) {
#pragma unroll
      for (int j = 0; j < 4; ++j) v[j] *= w.factors[t];
      write4(output(job, w, out, head, t) + c, 0, job.shape.value_dim - c, job.width, v);
    });
  });
}

template <class T, bool kShared>
__global__ void __launch_bounds__(kMostWarps* kWarp, kShared ? 4 : 3)
    window_nystromformer_kernel(LandmarkJob job, const T* __restrict__ qkv, T* __restrict__ out) {
  DYNAMIC_SHARED(memory);
  for_tasks<kShared>(job, memory, [&](int64_t task, LandmarkBuffers& b) {
    const int head = int(task % job.shape.heads);
    const Place place(job.shape, int(task / job.shape.heads));
    const Head<T> in(job.shape, qkv, head);
    const WarpBuffers w(job, b);
    find_landmarks(job, place, in, b, w);
    fill_core(job, b, [&](float x, int i, int j) { return b.regions[i] == b.regions[j] ? x : x + kApart; });
    normalise_core(job, b, w);
    if (!invert_core(job, place, b)) return;
    pass_keys(job, place, in, b, w);
    combine(job, b, w);
    pass_queries(job, place, in, head, b, w, out);
  });
}

struct Kernels {
  template <class T, bool kShared>
  static auto run() {
    return window_nystromformer_kernel<T, kShared>;
  }
};

}  // namespace

size_t window_nystromformer_workspace(const LandmarkParams& params, bool batch_init, const Limits& limits) {
  return params.shape.windows() == 0 ? 0 : LandmarkPlan(params, limits).workspace(batch_init);
}

Status window_nystromformer(const LandmarkParams& params, bool batch_init, Type type, const void* qkv, void* out,
                            void* workspace, Stream stream, const Limits& limits) {
  return launch_landmarks<Kernels>(params, batch_init, type, qkv, out, workspace, stream, limits);
}

}  // namespace nystra::cuda
