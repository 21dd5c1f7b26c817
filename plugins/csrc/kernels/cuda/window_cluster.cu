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

#include "cluster_attend_tensor.h"

namespace nystra::cuda {
namespace {

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

// Of a multiprocessor, so that no thread keeps registers in memory.
constexpr int blocks_at_least(int far, int steps) {
  return steps == 4 || (steps > 0 && far == 2) ? 2 : 3;
}

// kFar is the job's `far`: the compiler then knows shared memory from a workspace. kSteps: the
// job's steps.
template <int kFar, int kSteps, class T>
__global__ void __launch_bounds__(kMaxWarps* kWarp, blocks_at_least(kFar, kSteps))
    window_cluster_kernel(ClusterJob job, const T* __restrict__ qkv, const T* __restrict__ table,
                          T* __restrict__ out) {
  if constexpr (kSteps == 0 || kTensorCores) {  // else it is not launched
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
      __syncthreads();  // the buffers are free
    }
  }
}

// Where the buffers are, and how many warps a block has.
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

template <int kSteps, class T>
auto kernel_of(int far) {
  return far == 0   ? window_cluster_kernel<0, kSteps, T>
         : far == 1 ? window_cluster_kernel<1, kSteps, T>
                    : window_cluster_kernel<2, kSteps, T>;
}

// Steps of 16 channels on tensor cores, 0 where the sizes do not suit them.
int steps_of(const WindowShape& s) {
  const int64_t most = std::max(s.head_dim, s.value_dim);
  if (s.head_dim % 2 != 0 || s.value_dim % 2 != 0 || most > kTensorMost) return 0;
  return most <= 32 ? 2 : 4;
}

// Whether the tensor cores may be used for a call whose sizes suit them.
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
  if (plan.job.far > 0) {  // more shared memory, where a multiprocessor then has as many warps
    const Plan here(params, biased, on_this_device(limits), plan.job.steps);
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
