// NystraWindowCluster: attention to clustered keys, exact inside the query's own block, in the
// windows of a shifted map.
//
// A thread block computes one head of one window. The tokens of a window are divided into groups:
// bias_block x bias_block tokens with a bias, else block x block, the exact blocks. Each warp takes
// some of the groups. It assigns their keys to clusters, sums their values by cluster, and then
// computes the attention of 16 queries at a time to the clusters and to the tokens of their own
// block. All tokens of a group are processed by one warp, so sums are always added in the same
// order.
//
// Let S_P be the sums of values (and n_P the counts) of group P for each cluster, and E_PQ the mean
// of exp(bias) over the pairs of tokens of groups P and Q. For each cluster, the queries of an
// exact block I in group P use
//   U_P - E_PP S_I,  where U_P = sum of E_PQ S_Q over the groups Q in the region of P.
// E_PP S_I is not computed: it is subtracted from the weights of the block's own tokens.
//
// Cost, with S bytes per element: (2d + 2e) S bytes per token and head, and 2d S more for each
// round of clustering; m d multiply-adds per token, head and round to assign clusters; (m +
// block^2) (d + e) multiply-adds and m + block^2 exponentials per token and head for the attention,
// and with a bias m e groups / (tokens of a group) more multiply-adds.
#include <utility>

#include "kernels/window_cluster.h"

#include "cluster_attend_tensor.h"

namespace nystra::cuda {
namespace {

// Computes the mean of exp(bias - maximum) over the token pairs of every two groups: `weights`
// (heads, groups, groups); and the maximum of the bias of each head: `maxima` (heads).
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

// Blocks per multiprocessor for __launch_bounds__, few enough that no register is spilled.
constexpr int min_blocks(int far, int steps) {
  return steps == 4 || (steps > 0 && far == 2) ? 2 : 3;
}

// kFar is `far` of the job, as a constant so that the compiler can tell shared memory from the
// workspace; kSteps is `steps` of the job.
template <int kFar, int kSteps, class T>
__global__ void __launch_bounds__(kMaxWarps* kWarp, min_blocks(kFar, kSteps))
    window_cluster_kernel(ClusterJob job, const T* __restrict__ qkv, const T* __restrict__ table,
                          T* __restrict__ out) {
  if constexpr (kSteps == 0 || kTensorCores) {  // otherwise the kernel is never launched
    DYNAMIC_SHARED(memory);
    SharedMemory near(memory);
    Workspace far(job.workspace + blockIdx.x * job.block_bytes);
    const ClusterBuffers b(job, kFar, int(blockDim.x) / kWarp, far, near);
    for (int64_t task = blockIdx.x; task < job.tasks; task += gridDim.x) {
      const int head = int(task % job.shape.heads);
      const Place place(job.shape, int(task / job.shape.heads));
      const Head<T> in(job.shape, qkv, head);
      seed(job, place, in.k, b);
      const auto warp = [&] { return ClusterWarp(job, b, thread_again()); };
      for (int round = 0; round <= job.rounds; ++round)
        if constexpr (kSteps > 0)
          cluster_on_tensor_cores<kSteps>(job, place, in.k, b, warp());
        else
          cluster(job, place, in.k, b, warp());
      if (job.biased) fill_own_bias(job, table, head, b);
      if constexpr (kSteps > 0) {
        make_pieces<kSteps, T>(job, b);
        sum_values_on_tensor_cores<kSteps>(job, place, in.v, b, warp());
      } else {
        sum_values(job, place, in.v, b, warp());
      }
      for (int group = int(threadIdx.x) / kWarp; group < job.groups;
           group += int(blockDim.x) / kWarp) {
        const ClusterWarp w = warp();
        const Seen seen = see(job, place, head, group, b, w);
        for_blocks(job, group_at(job, group), [&](const OwnBlock& own) {
          if constexpr (kSteps > 0)
            attend_on_tensor_cores<kSteps>(job, place, in, head, own, seen, b, w, out);
          else
            attend(job, place, in, head, own, seen, b, w, out);
        });
      }
      __syncthreads();  // the next task overwrites the buffers
    }
  }
}

// Where the buffers of a block are, and how many warps it has.
struct Plan {
  ClusterJob job{};
  int warps;
  bool fits = true;
  int64_t blocks, shared_bytes;

  Plan(const ClusterParams& params, bool biased, const LaunchLimits& limits, int steps) {
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
    job.steps = steps;
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
    const int64_t by_registers = job.steps == 4 ? 8 : 12;
    return std::min(by_registers, warps_held(shared_bytes, warps));
  }

  int64_t workspace() const { return tables_bytes() + blocks * job.block_bytes; }

  // Takes the outputs of window_cluster_bias_kernel from a workspace: weights and maxima.
  template <class Memory>
  std::pair<float*, float*> tables(Memory& memory) const {
    float* const weights =
        memory.template take<float>(int64_t(job.shape.heads) * job.groups * job.groups);
    return {weights, memory.template take<float>(job.shape.heads)};
  }

 private:
  // Keeps as many buffers in shared memory as possible (the smallest `far`) with at least two warps
  // per block, if a window has work for two; only the last choice may have one.
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

template <int kSteps, class T>
auto kernel_of(int far) {
  return far == 0   ? window_cluster_kernel<0, kSteps, T>
         : far == 1 ? window_cluster_kernel<1, kSteps, T>
                    : window_cluster_kernel<2, kSteps, T>;
}

// Returns the number of steps of 16 channels on tensor cores, or 0 if they do not support the
// sizes.
int steps_of(const WindowShape& s) {
  const int64_t largest = std::max(s.head_dim, s.value_dim);
  if (s.head_dim % 2 != 0 || s.value_dim % 2 != 0 || largest > kTensorMost) return 0;
  return largest <= 32 ? 2 : 4;
}

// Returns whether type, alignment, device and limits allow tensor cores.
bool on_tensor_cores(const ClusterParams& params, Type type, const void* qkv, const void* out,
                     const LaunchLimits& limits) {
  return type != Type::kFloat && tensor_cores_allowed(limits) &&
         width_fits(2, params.shape.head_dim, params.shape.value_dim, qkv, out, 2) &&
         with_half_type(type, [](auto* element) {
           using T = std::remove_pointer_t<decltype(element)>;
           return architecture_of(window_cluster_kernel<0, 2, T>) >= 80;
         });
}

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
  auto kernel = kernel_of<0, T>(job.far);
  if constexpr (sizeof(T) == 2) {
    job.copy_bytes =
        width_fits(8, job.shape.head_dim, job.shape.value_dim, qkv, qkv, sizeof(T)) ? 16 : 4;
    if (job.steps > 0)
      kernel = job.steps == 2 ? kernel_of<2, T>(job.far) : kernel_of<4, T>(job.far);
  }
  if (allow_shared(kernel, plan.shared_bytes) != cudaSuccess) return false;
  return launch(kernel, dim3(unsigned(plan.blocks)), dim3(unsigned(plan.warps * kWarp)),
                size_t(plan.shared_bytes), stream, job, qkv, table, out) == cudaSuccess;
}

}  // namespace

size_t window_cluster_workspace(const ClusterParams& params, bool biased,
                                const LaunchLimits& limits) {
  if (params.shape.windows() == 0) return 0;
  const int64_t on_cores = Plan(params, biased, limits, 0).workspace();
  const Plan tensor(params, biased, limits, steps_of(params.shape));
  return size_t(tensor.fits ? std::max(on_cores, tensor.workspace()) : on_cores);
}

Status window_cluster(const ClusterParams& params, Type type, const void* qkv,
                      const void* bias_table, void* out, void* workspace, Stream stream,
                      const LaunchLimits& limits) {
  if (params.shape.windows() == 0) return Status::kOk;
  if (!countable(params.shape)) return Status::kUnsupported;
  const bool biased = bias_table != nullptr;
  const int steps = on_tensor_cores(params, type, qkv, out, limits) ? steps_of(params.shape) : 0;
  Plan plan(params, biased, limits, steps);
  if (!plan.fits) plan = Plan(params, biased, limits, 0);
  if (!plan.fits) return Status::kUnsupported;
  // Use more shared memory than `limits` if the current device has it and a
  // multiprocessor then still runs as many warps.
  if (plan.job.far > 0) {
    const Plan fitted(params, biased, on_this_device(limits), plan.job.steps);
    if (fitted.job.far < plan.job.far && fitted.workspace() <= plan.workspace() &&
        fitted.warps_of_multiprocessor() >= plan.warps_of_multiprocessor())
      plan = fitted;
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
