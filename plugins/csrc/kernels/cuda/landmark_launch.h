// Plans and launches the kernels of the Nystrom forms, and computes the size of their workspace.
#pragma once

#include "kernels/window_nystrom.h"
#include "landmark_tensor_passes.h"
#include "landmark_tensor_pool.h"
#include "with_maxima.h"

namespace nystra::cuda {
namespace {

// Where the buffers are, in the workspace or in shared memory, and whether the passes run on tensor
// cores (kTensor, with buffers in shared memory).
enum class Way { kWorkspace, kShared, kTensor };

struct LandmarkPlan {
  LandmarkJob job;
  int warps;
  bool in_shared;
  int64_t blocks, shared_bytes;

  LandmarkPlan(const WindowNystromParams& params, const LaunchLimits& limits, bool tensor = false)
      : job{} {
    const Windows s = windows(params.shape);
    job.shape = s;
    job.tasks = params.shape.windows() * params.shape.heads;
    job.rows = int(params.rows);
    job.cols = int(params.cols);
    job.m = int(params.landmarks());
    job.iterations = int(params.iterations);
    job.scale = params.shape.scale * kLog2E;
    job.threshold = params.threshold * kLog2E;
    job.guard = params.guard;
    job.tensor = tensor;
    const int d = s.head_dim < kChunk ? s.head_dim : kChunk,
              e = s.value_dim < kChunk ? s.value_dim : kChunk;
    job.tile_step = row_step(d > e ? d : e);
    // All buffers in shared memory if they fit with at least two warps (if there is work for two),
    // otherwise in the workspace.
    const int fewest = s.tokens > kTokens && limits.warps > 1 ? 2 : 1;
    warps = int(limits.warps);
    while (warps > fewest && bytes(warps, true).small > limits.shared_bytes) warps /= 2;
    in_shared = bytes(warps, true).small <= limits.shared_bytes && job.tasks <= 0x7fffffff;
    if (!in_shared)
      for (warps = int(limits.warps); warps > 1 && bytes(warps, false).small > limits.shared_bytes;)
        warps /= 2;
    // The first warp gets fewer tiles, by the number that takes as long as the pseudoinverse: two
    // per iteration on tensor cores (930 instructions against about 500 per tile), otherwise one
    // for two iterations.
    const int tiles = (s.tokens + kTokens - 1) / kTokens,
              late = job.m > kWarpMatrix ? 0
                     : tensor            ? 2 * job.iterations
                                         : job.iterations / 2,
              left = tiles - late * (warps - 1);
    job.last = tiles - (left > 0 ? left / warps : 0);
    const Bytes used = bytes(warps, in_shared);
    shared_bytes = used.small;
    job.block_bytes = used.big;
    blocks = in_shared || job.tasks < limits.blocks ? job.tasks : limits.blocks;
  }

  size_t workspace(bool batch_init) const {
    return size_t((batch_init ? kMaximaBytes : 0) + blocks * job.block_bytes);
  }

 private:
  struct Bytes {
    int64_t big, small;
  };

  Bytes bytes(int warps_used, bool together) const {
    Counter big, small;
    if (together)
      LandmarkBuffers(job, warps_used, small, small);
    else
      LandmarkBuffers(job, warps_used, big, small);
    return {big.bytes(), small.bytes()};
  }
};

// Returns whether the sizes, the type and the alignment allow the passes to run on tensor cores.
inline bool suits_tensor_cores(const WindowNystromParams& params, Type type, const void* qkv,
                               const void* out) {
  const WindowShape& s = params.shape;
  return type != Type::kFloat && params.landmarks() <= kTensorLandmarks &&
         s.head_dim <= kTensorChannels && s.value_dim <= kTensorChannels &&
         width_fits(2, s.head_dim, s.value_dim, qkv, out, 2);
}

// Returns the buffers of a block. Each step of a kernel calls it again. The sizes pass through
// hidden(), so that the compiler computes the addresses again instead of keeping them in registers
// during the other steps.
template <Way kWay>
__device__ __forceinline__ LandmarkBuffers buffers_of(LandmarkJob job, unsigned char* memory) {
  job.m = hidden(job.m);
  job.shape.head_dim = hidden(job.shape.head_dim);
  job.shape.value_dim = hidden(job.shape.value_dim);
  const int warps = int(blockDim.x) / kWarp;
  SharedMemory shared(memory);
  if constexpr (kWay == Way::kWorkspace) {
    Workspace workspace(job.workspace + blockIdx.x * job.block_bytes);
    return LandmarkBuffers(job, warps, workspace, shared);
  } else {
    return LandmarkBuffers(job, warps, shared, shared);
  }
}

// Calls run(window, head) for each task of this block: one, or several if the buffers are in the
// workspace.
template <Way kWay, class F>
__device__ __forceinline__ void for_tasks(const LandmarkJob& job, const F& run) {
  if constexpr (kWay == Way::kTensor && !kTensorCores) {
    return;  // never launched
  } else if constexpr (kWay != Way::kWorkspace) {
    const unsigned heads = unsigned(job.shape.heads);
    run(int(blockIdx.x / heads), int(blockIdx.x % heads));
  } else {
    for (int64_t task = blockIdx.x; task < job.tasks; task += gridDim.x) {
      run(int(task / job.shape.heads), int(task % job.shape.heads));
      __syncthreads();  // the next task overwrites the buffers
    }
  }
}

// The steps of the kernel of a form. Its passes over the keys contain no barrier of the block
// except at their end.
template <Form kForm, Way kWay, class T>
__device__ __forceinline__ void attend(LandmarkJob job, unsigned char* memory, const T* qkv,
                                       T* out) {
  job.tensor = kWay == Way::kTensor;  // a compile-time constant
  for_tasks<kWay>(job, [&](int window, int head) {
    const Place place(job.shape, window);
    const Head<T> in(job.shape, qkv, head);
    {
      const LandmarkBuffers b = buffers_of<kWay>(job, memory);
      if constexpr (kWay == Way::kTensor) {
        find_tensor_landmarks(job, place, in, b, WarpBuffers(job, b));
        put_queries(job, b, WarpBuffers(job, b));
      } else {
        find_landmarks(job, place, in, b, WarpBuffers(job, b));
      }
    }
    {
      const LandmarkBuffers b = buffers_of<kWay>(job, memory);
      fill<kForm>(job, b, WarpBuffers(job, b));
      if (job.only_maxima) {
        absolute_sums(BlockGroup(), b.pinv, job.m);
        merge_maxima(BlockGroup(), b.pinv, job.m, job.maxima);
        return;
      }
      if (kWay != Way::kTensor && job.m > kWarpMatrix)
        invert_core(BlockGroup(), job, place, b);
      else if (thread_again() < kWarp)
        invert_core(WarpGroup(), job, place, b);
    }
    {
      const LandmarkBuffers b = buffers_of<kWay>(job, memory);
      if constexpr (kWay == Way::kTensor)
        tensor_pass_keys<kForm>(job, place, in, b, WarpBuffers(job, b));
      else
        pass_keys<kForm>(job, place, in, b, WarpBuffers(job, b));
    }
    {
      const LandmarkBuffers b = buffers_of<kWay>(job, memory);
      combine<kForm>(job, b, WarpBuffers(job, b));
    }
    {
      const LandmarkBuffers b = buffers_of<kWay>(job, memory);
      if constexpr (kWay == Way::kTensor)
        tensor_pass_queries<kForm>(job, place, in, head, b, WarpBuffers(job, b), out);
      else
        pass_queries<kForm>(job, place, in, head, b, WarpBuffers(job, b), out);
    }
  });
}

template <Form kForm, class T, Way kWay>
__global__ void __launch_bounds__(kMaxWarps* kWarp, kWay == Way::kWorkspace ? 2 : 4)
    landmark_kernel(LandmarkJob job, const T* __restrict__ qkv, T* __restrict__ out) {
  DYNAMIC_SHARED(memory);
  attend<kForm, kWay>(job, memory, qkv, out);
}

template <Form kForm>
Status launch_landmarks(const WindowNystromParams& params, bool batch_init, Type type,
                        const void* qkv, void* out, void* workspace, Stream stream,
                        const LaunchLimits& limits) {
  if (params.shape.windows() == 0) return Status::kOk;
  if (params.landmarks() < 1 || params.landmarks() > kMaxLandmarks || !countable(params.shape))
    return Status::kUnsupported;
  LandmarkPlan plan(params, limits);
  if (tensor_cores_allowed(limits) && suits_tensor_cores(params, type, qkv, out) &&
      with_half_type(type, [](auto* element) {
        return architecture_of(landmark_kernel<kForm, std::remove_pointer_t<decltype(element)>,
                                               Way::kTensor>) >= 80;
      })) {
    const LandmarkPlan other(params, limits, true);
    if (other.in_shared) plan = other;  // needs no workspace beyond that of the first plan
  }
  if (!plan.in_shared) {  // the current device may have more shared memory than `limits`
    const LandmarkPlan fitted(params, on_this_device(limits));
    if (fitted.in_shared) plan = fitted;
  }
  if (!plan.in_shared && plan.shared_bytes > limits.shared_bytes) return Status::kUnsupported;
  if (workspace == nullptr && plan.workspace(batch_init) > 0) return Status::kNoScratch;
  LandmarkJob job = plan.job;
  const auto queue = static_cast<cudaStream_t>(stream);
  job.workspace = static_cast<unsigned char*>(workspace) + (batch_init ? kMaximaBytes : 0);
  const auto run = [&](auto* element) {
    using T = std::remove_pointer_t<decltype(element)>;
    const int64_t d = params.shape.head_dim, e = params.shape.value_dim;
    job.width = common_width(d, e, qkv, out, sizeof(T));
    job.wide = width_fits(8, d, e, qkv, out, sizeof(T));
    auto kernel = plan.in_shared ? landmark_kernel<kForm, T, Way::kShared>
                                 : landmark_kernel<kForm, T, Way::kWorkspace>;
    if constexpr (sizeof(T) == 2)
      if (job.tensor) kernel = landmark_kernel<kForm, T, Way::kTensor>;
    if (allow_shared(kernel, plan.shared_bytes) != cudaSuccess) return false;
    return launch(kernel, dim3(static_cast<unsigned>(plan.blocks)),
                  dim3(unsigned(plan.warps * kWarp)), size_t(plan.shared_bytes), queue, job,
                  static_cast<const T*>(qkv), static_cast<T*>(out)) == cudaSuccess;
  };
  return run_with_maxima(batch_init, job, type, workspace, queue, run);
}

}  // namespace
}  // namespace nystra::cuda
