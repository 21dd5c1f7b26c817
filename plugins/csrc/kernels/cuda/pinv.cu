// NystraPinv: the iterative pseudoinverse of each matrix of a batch.
//
// Up to m = 16 each warp computes one matrix, and a block has several warps; above, each block
// computes one matrix. The five m x m buffers of a matrix are in shared memory. If they do not fit
// (with 48 KiB: m > 44), they are in a workspace in global memory, read through the caches.
//
// Cost per matrix: 2 m^2 elements read and written, and iterations * 8 m^3 FLOPs. At m = 16 and 6
// iterations that is 196,608 FLOPs for 2 KiB of float, so the kernel is bound by arithmetic, in
// chains of dependent products, and not by memory. batch_init reads A twice.
#include "elements.h"
#include "kernels/pinv.h"

#include "pseudoinverse.h"

namespace nystra::cuda {
namespace {

constexpr int kMaxThreads = 128;
constexpr int64_t kMaximaBytes = 256;  // at the start of a workspace, for the maxima of the batch

struct Job {
  int64_t matrices;
  int size, iterations;
  unsigned* maxima;  // of the whole batch, or null
  bool only_maxima;  // only compute the maxima of the batch, without inverting
  unsigned char* workspace;
  int64_t block_bytes;  // workspace of one block
};

// The buffers of several matrices: each array holds its part of all matrices.
struct Layout : PinvBuffers {
  int size;

  template <class Big, class Small>
  __host__ __device__ Layout(int m, int matrices, Big& big, Small& small) : size(m) {
    a = big.template take<float>(matrices * pinv_floats(m));
    z = big.template take<float>(matrices * pinv_floats(m));
    x = big.template take<float>(matrices * pinv_floats(m));
    u = big.template take<float>(matrices * pinv_floats(m));
    t = big.template take<float>(matrices * pinv_floats(m));
    row_sums = small.template take<float>(matrices * m);
    col_sums = small.template take<float>(matrices * m);
    divisors = small.template take<float>(matrices * m);
  }

  __device__ PinvBuffers of(int matrix) const {
    const int far = matrix * pinv_floats(size), near = matrix * size;
    return {a + far, z + far,         x + far,         u + far,
            t + far, row_sums + near, col_sums + near, divisors + near};
  }
};

// Inverts one matrix with the threads of a group (a warp or a block).
template <class T, class Group>
__device__ void invert(const Group& group, const Job& job, PinvBuffers p, const T* a, T* z) {
  const int m = job.size, step = row_step(m), padded = pinv_floats(m);
  for (int e = group.thread(); e < padded; e += group.threads()) {
    const int i = e / step, j = e % step;
    p.a[e] = i < m && j < m ? to_float(a[i * m + j]) : 0.0f;
  }
  group.sync();
  absolute_sums(group, p, m);
  if (job.only_maxima) {
    merge_maxima(group, p, m, job.maxima);
    return;
  }
  start_value(group, p, m, job.maxima);
  iterate(group, p, m, job.iterations);
  for (int e = group.thread(); e < m * m; e += group.threads())
    z[e] = from_float<T>(p.z[e / m * step + e % m]);
}

template <class T>
__global__ void __launch_bounds__(kMaxThreads, 4)
    pinv_warp_kernel(Job job, const T* __restrict__ a, T* __restrict__ z) {
  DYNAMIC_SHARED(memory);
  SharedMemory shared(memory);
  const int warps = int(blockDim.x) / kWarp, warp = int(threadIdx.x) / kWarp;
  const Layout layout(job.size, warps, shared, shared);
  const int64_t matrix = int64_t(blockIdx.x) * warps + warp, at = matrix * job.size * job.size;
  if (matrix < job.matrices) invert(WarpGroup(), job, layout.of(warp), a + at, z + at);
}

template <class T, bool kShared>
__global__ void __launch_bounds__(kMaxThreads, 4)
    pinv_block_kernel(Job job, const T* __restrict__ a, T* __restrict__ z) {
  DYNAMIC_SHARED(memory);
  SharedMemory shared(memory);
  const int64_t elements = int64_t(job.size) * job.size;
  const auto run = [&](const PinvBuffers& p) {
    for (int64_t matrix = blockIdx.x; matrix < job.matrices; matrix += gridDim.x) {
      // No barrier is needed before the next matrix is read into p.a: the last product of this
      // one does not read p.a.
      invert(BlockGroup(), job, p, a + matrix * elements, z + matrix * elements);
    }
  };
  if constexpr (kShared) {
    run(Layout(job.size, 1, shared, shared));
  } else {
    Workspace workspace(job.workspace + blockIdx.x * job.block_bytes);
    run(Layout(job.size, 1, workspace, shared));
  }
}

// How the work is divided into blocks and where the buffers are. The size of the workspace and the
// launch are derived from the same plan.
struct Plan {
  bool by_warps, in_shared;
  int threads;
  int64_t blocks, shared_bytes, block_bytes;

  Plan(const PinvParams& params, const LaunchLimits& limits) {
    const int m = int(params.size), warps = int(limits.warps);
    Counter big, small, one, several;
    Layout(m, 1, big, small);
    Layout(m, 1, one, one);
    Layout(m, warps, several, several);
    by_warps = m <= kWarpMatrix && several.bytes() <= limits.shared_bytes;
    in_shared = by_warps || one.bytes() <= limits.shared_bytes;
    threads = warps * kWarp;
    shared_bytes = by_warps ? several.bytes() : in_shared ? one.bytes() : small.bytes();
    block_bytes = in_shared ? 0 : big.bytes();
    constexpr int64_t kMaxBlocks = 0x7fffffff;
    const int64_t wanted = by_warps ? (params.matrices + warps - 1) / warps : params.matrices;
    const int64_t limit = in_shared ? kMaxBlocks : limits.blocks;
    blocks = wanted < limit ? wanted : limit;
  }
};

template <class T>
cudaError_t enqueue(const Plan& plan, const Job& job, const T* a, T* z, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(plan.blocks)), block(static_cast<unsigned>(plan.threads));
  const auto kernel = plan.by_warps    ? pinv_warp_kernel<T>
                      : plan.in_shared ? pinv_block_kernel<T, true>
                                       : pinv_block_kernel<T, false>;
  const cudaError_t error = allow_shared(kernel, plan.shared_bytes);
  if (error != cudaSuccess) return error;
  return launch(kernel, grid, block, size_t(plan.shared_bytes), stream, job, a, z);
}

}  // namespace

size_t pinv_workspace(const PinvParams& params, bool batch_init, const LaunchLimits& limits) {
  if (params.matrices < 1 || params.size < 1 || params.size > kMaxPinvSize) return 0;
  const Plan plan(params, limits);
  return size_t((batch_init ? kMaximaBytes : 0) + plan.blocks * plan.block_bytes);
}

Status pinv(const PinvParams& params, bool batch_init, Type type, const void* a, void* z,
            void* workspace, Stream stream, const LaunchLimits& limits) {
  if (params.matrices == 0) return Status::kOk;
  if (params.size < 1 || params.size > kMaxPinvSize) return Status::kUnsupported;
  if (workspace == nullptr && pinv_workspace(params, batch_init, limits) > 0)
    return Status::kNoScratch;
  Plan plan(params, limits);
  if (!plan.in_shared) {  // the current device may have more shared memory than `limits`
    const Plan fitted(params, on_this_device(limits));
    if (fitted.in_shared) plan = fitted;
  }
  if (plan.by_warps && plan.blocks * limits.warps < params.matrices) return Status::kUnsupported;
  const auto queue = static_cast<cudaStream_t>(stream);
  auto* const bytes = static_cast<unsigned char*>(workspace);
  Job job{params.matrices,
          int(params.size),
          int(params.iterations),
          nullptr,
          false,
          bytes + (batch_init ? kMaximaBytes : 0),
          plan.block_bytes};
  const auto run = [&](auto* element) {
    using T = std::remove_pointer_t<decltype(element)>;
    return enqueue(plan, job, static_cast<const T*>(a), static_cast<T*>(z), queue) == cudaSuccess;
  };
  if (batch_init) {  // a pass of its own leaves the maxima at the start of the workspace
    job.maxima = static_cast<unsigned*>(workspace);
    job.only_maxima = true;
    if (cudaMemsetAsync(workspace, 0, 2 * sizeof(float), queue) != cudaSuccess)
      return Status::kLaunch;
    if (!with_type(type, run)) return Status::kLaunch;
    job.only_maxima = false;
  }
  return with_type(type, run) ? Status::kOk : Status::kLaunch;
}

}  // namespace nystra::cuda
