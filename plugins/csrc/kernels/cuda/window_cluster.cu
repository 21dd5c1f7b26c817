// NystraWindowCluster: attention with clustered keys and exact own blocks, in windows of a shifted
// map.
//
// A block does one head of one window. Its warps share out the window's groups (blocks of the
// coarse bias, of bias_block x bias_block tokens; without a bias the exact blocks): each assigns
// the keys of its groups to clusters, sums their values, and then, 16 queries at a time, attends to
// clusters and own tokens. A group belongs to one warp, so sums have one order.
//
// With S_P the sums of the values (and counts n_P) of group P by cluster, and E the mean of
// exp(bias) over the pairs of two groups, the queries of an exact block I in P see
//   U_P - E_PP S_I,  U_P = sum over the groups P' of P's region of E_PP' S_P'
// of each cluster. E_PP S_I is not formed: it is taken off the weights of the block's own tokens.
//
// Floor, S bytes an element: (2d + 2e) S bytes a token and head, 2d S more for each round of
// clusters; m d multiply-adds a token, head and round for the clusters, (m + block^2) (d + e) and
// as many exponentials to attend, and with a bias m e groups / (tokens of a group).
#include <utility>

#include "kernels/window_cluster.h"

#include "cluster_keys.h"

namespace nystra::cuda {
namespace {

// What the queries of a group see of the clusters, before their own block is taken off.
struct Seen {
  const float *values, *counts;  // (m4, e_step) U_P; n_P: every e_step-th
  float own;                     // E_PP
};

// With a bias: values and others[j] = sum over the other groups of E n, in the warp's buffers.
__device__ __forceinline__ Seen see(const ClusterJob& job, const Place& place, int head, int group,
                                    const ClusterBuffers& b, const ClusterWarp& w) {
  const int region = group_region(job, place, group);
  const float* const counts =
      b.groups + (job.biased ? group : region) * b.group_size + job.shape.value_dim;
  if (!job.biased) {
    for (int j = w.lane; j < b.m4; j += kWarp) w.others[j] = 0.0f;
    return {counts - job.shape.value_dim, counts, 1.0f};
  }
  const float* const weights = job.weights + (int64_t(head) * job.groups + group) * job.groups;
  const auto weight = [&](int other) {
    return !place.cut || group_region(job, place, other) == region ? weights[other] : 0.0f;
  };
  __syncwarp();  // the warp's buffers are free
  for (int e = 4 * w.lane; e < b.group_size; e += 4 * kWarp) {
    float sum[4] = {};
    for (int other = 0; other < job.groups; ++other) {
      const float share = weight(other);
      const float4 v = load4(b.groups + other * b.group_size + e);
      sum[0] = fmaf(share, v.x, sum[0]), sum[1] = fmaf(share, v.y, sum[1]);
      sum[2] = fmaf(share, v.z, sum[2]), sum[3] = fmaf(share, v.w, sum[3]);
    }
    store4(w.sums + e, sum);
  }
  for (int j = w.lane; j < b.m4; j += kWarp) {
    float sum = 0.0f;
    for (int other = 0; other < job.groups; ++other)
      if (other != group)
        sum = fmaf(weight(other),
                   b.groups[other * b.group_size + j * b.e_step + job.shape.value_dim], sum);
    w.others[j] = sum;
  }
  return {w.sums, counts, weights[group]};
}

// Logits (times log2(e)) of 16 queries with clusters and own tokens; -infinity where there is none.
template <class T>
__device__ __forceinline__ void score(const ClusterJob& job, const Head<T>& in, const OwnBlock& own,
                                      int first, int count, const ClusterBuffers& b,
                                      const ClusterWarp& w) {
  const int channels = job.shape.head_dim, own4 = round_up(own.tokens, 4);
  for (int c = 0; c < channels; c += kSpan) {
    const int n = min(kSpan, channels - c);
    __syncwarp();  // the tiles are free
    stage_rows(job, in.q + c, w.pixels + first, kQueries, count, n, w.queries, w);
    stage_rows(job, in.k + c, w.pixels, own4, own.tokens, n, w.tile, w);
    shift_rows(w.tile, own4, n, b.origin + c, w);
    for (int unit = w.lane; unit < b.m4 + own4; unit += kWarp) {
      const int t = unit % 4, j0 = unit / 4 * 4, key0 = j0 - b.m4;  // queries t, t + 4, ...
      float* const out = w.logits + t * b.l_step + j0;
      Result<4> r = zero_result<4>();
      if (c > 0) load_rows(r, out, 4 * b.l_step);
      add_rows_by_rows(r, w.queries + t * kTileStep, 4 * kTileStep,
                       key0 < 0 ? b.centres + j0 * b.d_step + c : w.tile + key0 * kTileStep,
                       key0 < 0 ? b.d_step : kTileStep, round_up(n, 4));
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (c + kSpan >= channels) {
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            const bool there = key0 < 0 ? w.seen[j0 + j] > 0.0f : key0 + j < own.tokens;
            const float bias =
                key0 >= 0 && there && job.biased
                    ? b.own_bias[own.offset(min(first + t + 4 * i, own.tokens - 1), key0 + j)]
                    : 0.0f;
            r.v[i][j] = there ? fmaf(r.v[i][j], job.scale, bias) : -INFINITY;
          }
        }
        store4(out + 4 * i * b.l_step, r.v[i]);
      }
    }
  }
  __syncwarp();
}

// Logits become weights of the cluster values U and of the own values; factors their divisors.
__device__ __forceinline__ void weigh(const OwnBlock& own, float share, const ClusterBuffers& b,
                                      const ClusterWarp& w) {
  const int row = w.lane / 2, half = w.lane % 2, columns = b.m4 + round_up(own.tokens, 4);
  float* const logits = w.logits + row * b.l_step;
  float largest = -INFINITY, total = 0.0f;
  for (int j = half; j < columns; j += 2) largest = fmaxf(largest, logits[j]);
  largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, 1));
  for (int j = half; j < columns; j += 2) {
    logits[j] = power_of_two(logits[j] - largest);
    total = fmaf(logits[j], j < b.m4 ? w.seen[j] : 1.0f, total);
  }
  total += __shfl_xor_sync(kAllLanes, total, 1);
  if (half == 0) w.factors[row] = 1.0f / total;
  __syncwarp();
  for (int j = half; j < own.tokens; j += 2)
    logits[b.m4 + j] = fmaf(-share, logits[w.members[j]], logits[b.m4 + j]);
  __syncwarp();
}

// The queries of one exact block of a group.
template <class T>
__device__ void attend(const ClusterJob& job, const Place& place, const Head<T>& in, int head,
                       const OwnBlock& own, const Seen& seen, const ClusterBuffers& b,
                       const ClusterWarp& w, T* out) {
  const int channels = job.shape.value_dim, own4 = round_up(own.tokens, 4);
  __syncwarp();  // the block before is done
  for (int i = w.lane; i < own.tokens; i += kWarp) {
    const int y = own.top + i / own.wide, x = own.left + i % own.wide;
    w.pixels[i] = place.pixel(y, x);
    w.members[i] = b.members[y * job.shape.window_w + x];
  }
  __syncwarp();
  for (int j = w.lane; j < b.m4; j += kWarp) {
    const float others = seen.counts[j * b.e_step] - float(w.count_of(j, 0, own.tokens));
    w.seen[j] = j < job.m ? fmaf(seen.own, others, w.others[j]) : 0.0f;
  }
  for (int first = 0; first < own.tokens; first += kQueries) {
    const int count = min(kQueries, own.tokens - first);
    score(job, in, own, first, count, b, w);
    weigh(own, seen.own, b, w);
    for (int c = 0; c < channels; c += kSpan) {
      const int n = min(kSpan, channels - c), across = round_up(n, 4) / 4;
      if (c > 0) __syncwarp();  // the tile is free
      stage_rows(job, in.v + c, w.pixels, own4, own.tokens, n, w.tile, w);
      __syncwarp();
      for (int unit = w.lane; unit < 4 * across; unit += kWarp) {
        const int t = unit / across, c0 = unit % across * 4;
        Result<4> r = zero_result<4>();
        const float* const weights = w.logits + t * b.l_step;
        add_rows_by_columns(r, weights, 4 * b.l_step, seen.values + c + c0, b.e_step, b.m4);
        add_rows_by_columns(r, weights + b.m4, 4 * b.l_step, w.tile + c0, kTileStep, own4);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int row = t + 4 * i;
          if (row >= count) continue;
#pragma unroll
          for (int j = 0; j < 4; ++j) r.v[i][j] *= w.factors[row];
          write4(out + w.pixels[first + row] * job.shape.out_channels + head * channels + c, c0, n,
                 job.width, r.v[i]);
        }
      }
    }
  }
}

// The mean of exp(bias) over the pairs of each two groups, and the largest bias, which is taken off
// all of them: (heads, groups, groups) and (heads).
template <class T>
__global__ void __launch_bounds__(kMaxWarps* kWarp)
    window_cluster_bias_kernel(ClusterJob job, const T* __restrict__ table, int chunks,
                               float* weights, float* maxima) {
  DYNAMIC_SHARED(memory);
  SharedMemory shared(memory);
  float* const maxima_of = shared.take<float>(kMaxWarps);
  const Windows& s = job.shape;
  const int head = int(blockIdx.x) / chunks, chunk = int(blockIdx.x) % chunks;
  const int thread = int(threadIdx.x), threads = int(blockDim.x), across = 2 * s.window_w - 1;
  float largest = -INFINITY;
  for (int i = thread; i < (2 * s.window_h - 1) * across; i += threads)
    largest = fmaxf(largest, to_float(table[int64_t(i) * s.heads + head]));
  largest = warp_max(largest);
  if (thread % kWarp == 0) maxima_of[thread / kWarp] = largest;
  __syncthreads();
  for (int i = 0; i < threads / kWarp; ++i) largest = fmaxf(largest, maxima_of[i]);
  if (chunk == 0 && thread == 0) maxima[head] = largest;
  const int pairs = job.groups * job.groups, end = min(pairs, (chunk + 1) * kPairs);
  for (int pair = chunk * kPairs + thread; pair < end; pair += threads) {
    const Rectangle to = group_at(job, pair / job.groups), from = group_at(job, pair % job.groups);
    float sum = 0.0f;
    for (int dy = to.top - from.bottom + 1; dy < to.bottom - from.top; ++dy) {
      const int rows = min(to.bottom, from.bottom + dy) - max(to.top, from.top + dy);
      for (int dx = to.left - from.right + 1; dx < to.right - from.left; ++dx) {
        const int columns = min(to.right, from.right + dx) - max(to.left, from.left + dx);
        const int64_t entry = (dy + s.window_h - 1) * across + dx + s.window_w - 1;
        const float bias = to_float(table[entry * s.heads + head]) - largest;
        sum = fmaf(float(rows * columns), power_of_two(bias * kLog2E), sum);
      }
    }
    weights[int64_t(head) * pairs + pair] = sum / float(to.tokens() * from.tokens());
  }
}

// kFar is the job's `far`: the compiler then knows shared memory from a workspace.
template <int kFar, class T>
__global__ void __launch_bounds__(kMaxWarps* kWarp, 3)
    window_cluster_kernel(ClusterJob job, const T* __restrict__ qkv, const T* __restrict__ table,
                          T* __restrict__ out) {
  DYNAMIC_SHARED(memory);
  SharedMemory near(memory);
  Workspace far(job.workspace + blockIdx.x * job.block_bytes);
  const ClusterBuffers b(job, kFar, int(blockDim.x) / kWarp, far, near);
  const ClusterWarp w(job, b);
  for (int64_t task = blockIdx.x; task < job.tasks; task += gridDim.x) {
    const int head = int(task % job.shape.heads);
    const Place place(job.shape, int(task / job.shape.heads));
    const Head<T> in(job.shape, qkv, head);
    seed(job, place, in.k, b);
    for (int round = 0; round <= job.rounds; ++round) cluster(job, place, in.k, b, w);
    if (job.biased) fill_own_bias(job, table, head, b);
    sum_values(job, place, in.v, b, w);
    for (int group = w.warp; group < job.groups; group += w.warps) {
      const Seen seen = see(job, place, head, group, b, w);
      for_blocks(job, group_at(job, group),
                 [&](const OwnBlock& own) { attend(job, place, in, head, own, seen, b, w, out); });
    }
    __syncthreads();  // the buffers are free
  }
}

// Where the buffers are, and how many warps a block has.
struct Plan {
  ClusterJob job{};
  int warps;
  bool fits = true;
  int64_t blocks, shared_bytes;

  Plan(const ClusterParams& params, bool biased, const LaunchLimits& limits) {
    const Windows s = windows(params.shape);
    job.shape = s;
    job.tasks = params.shape.windows() * params.shape.heads;
    job.rows = int(params.rows);
    job.cols = int(params.cols);
    job.m = int(params.clusters());
    job.rounds = int(params.rounds);
    job.block = int(params.block);
    job.side = int(biased ? params.bias_block : params.block);
    job.down = (s.window_h + job.side - 1) / job.side;
    job.across = (s.window_w + job.side - 1) / job.side;
    job.groups = job.down * job.across;
    job.regions = s.mask && (s.shift_h > 0 || s.shift_w > 0) ? 4 : 1;
    job.biased = biased;
    job.scale = params.shape.scale * kLog2E;
    choose(limits);
    blocks = std::min<int64_t>(job.tasks, job.far > 0 ? limits.blocks : 0x7fffffff);
  }

  int64_t tables_bytes() const {
    if (!job.biased) return 0;
    Counter counter;
    tables(counter);
    return counter.bytes();
  }

  int64_t warps_of_multiprocessor() const {
    constexpr int64_t kByRegisters = 12;
    return std::min(kByRegisters, warps_held(shared_bytes, warps));
  }

  int64_t workspace() const { return tables_bytes() + blocks * job.block_bytes; }

  // The averaged bias of each head and each two groups, and the largest of each head.
  template <class Memory>
  std::pair<float*, float*> tables(Memory& memory) const {
    float* const weights =
        memory.template take<float>(int64_t(job.shape.heads) * job.groups * job.groups);
    return {weights, memory.template take<float>(job.shape.heads)};
  }

 private:
  // The nearest place with two warps at least, where there is work for them; else the last.
  void choose(const LaunchLimits& limits) {
    const int fewest = job.shape.tokens > kTokens && limits.warps > 1 ? 2 : 1;
    for (job.far = 0; job.far <= 2; ++job.far)
      for (warps = int(limits.warps); warps >= (job.far < 2 ? fewest : 1); warps /= 2) {
        Counter far, near;
        ClusterBuffers(job, job.far, warps, far, near);
        job.block_bytes = far.bytes();
        shared_bytes = near.bytes();
        if (shared_bytes <= limits.shared_bytes) return;
      }
    fits = false;
  }
};

template <class T>
bool enqueue(const Plan& plan, const T* qkv, const T* table, T* out, void* workspace,
             cudaStream_t stream) {
  ClusterJob job = plan.job;
  job.width = common_width(job.shape.head_dim, job.shape.value_dim, qkv, out, sizeof(T));
  job.workspace = static_cast<unsigned char*>(workspace) + plan.tables_bytes();
  if (job.biased) {
    Workspace memory(static_cast<unsigned char*>(workspace));
    const auto [weights, maxima] = plan.tables(memory);
    const int64_t pairs = int64_t(job.groups) * job.groups, chunks = (pairs + kPairs - 1) / kPairs;
    job.weights = weights;
    job.maxima = maxima;
    if (launch(window_cluster_bias_kernel<T>, dim3(unsigned(chunks * job.shape.heads)),
               dim3(unsigned(kMaxWarps * kWarp)), 16, stream, job, table, int(chunks), weights,
               maxima) != cudaSuccess)
      return false;
  }
  const auto kernel = job.far == 0   ? window_cluster_kernel<0, T>
                      : job.far == 1 ? window_cluster_kernel<1, T>
                                     : window_cluster_kernel<2, T>;
  if (allow_shared(kernel, plan.shared_bytes) != cudaSuccess) return false;
  return launch(kernel, dim3(unsigned(plan.blocks)), dim3(unsigned(plan.warps * kWarp)),
                size_t(plan.shared_bytes), stream, job, qkv, table, out) == cudaSuccess;
}

}  // namespace

size_t window_cluster_workspace(const ClusterParams& params, bool biased,
                                const LaunchLimits& limits) {
  return params.shape.windows() == 0 ? 0 : size_t(Plan(params, biased, limits).workspace());
}

Status window_cluster(const ClusterParams& params, Type type, const void* qkv,
                      const void* bias_table, void* out, void* workspace, Stream stream,
                      const LaunchLimits& limits) {
  if (params.shape.windows() == 0) return Status::kOk;
  if (!countable(params.shape)) return Status::kUnsupported;
  Plan plan(params, bias_table != nullptr, limits);
  if (!plan.fits) return Status::kUnsupported;
  if (plan.job.far > 0) {  // more shared memory, where a multiprocessor then has as many warps
    const Plan here(params, bias_table != nullptr, on_this_device(limits));
    if (here.job.far < plan.job.far && here.workspace() <= plan.workspace() &&
        here.warps_of_multiprocessor() >= plan.warps_of_multiprocessor())
      plan = here;
  }
  if (workspace == nullptr && plan.workspace() > 0) return Status::kNoScratch;
  const bool done = with_type(type, [&](auto* element) {
    using T = std::remove_pointer_t<decltype(element)>;
    return enqueue(plan, static_cast<const T*>(qkv), static_cast<const T*>(bias_table),
                   static_cast<T*>(out), workspace, static_cast<cudaStream_t>(stream));
  });
  return done ? Status::kOk : Status::kLaunch;
}

}  // namespace nystra::cuda
