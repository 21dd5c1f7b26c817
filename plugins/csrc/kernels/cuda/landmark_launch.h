// Plans and launches a kernel of a Nystrom form; its workspace.
#pragma once

#include "kernels_cuda.h"
#include "landmark_window.h"

namespace nystra::cuda {
namespace {

constexpr int64_t kMaximaBytes = 256;

struct LandmarkPlan {
  LandmarkJob job;
  int warps;
  bool in_shared;
  int64_t blocks, shared_bytes;

  LandmarkPlan(const LandmarkParams& params, const Limits& limits) : job{} {
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
    const int d = s.head_dim < kChunk ? s.head_dim : kChunk, e = s.value_dim < kChunk ? s.value_dim : kChunk;
    job.tile_step = row_step(d > e ? d : e);
    // Shared memory alone, with two warps at least if there is work for them; else the workspace.
    const int fewest = s.tokens > kTokens && limits.warps > 1 ? 2 : 1;
    warps = int(limits.warps);
    while (warps > fewest && bytes(warps, true).small > limits.shared_bytes) warps /= 2;
    in_shared = bytes(warps, true).small <= limits.shared_bytes;
    if (!in_shared)
      for (warps = int(limits.warps); warps > 1 && bytes(warps, false).small > limits.shared_bytes;) warps /= 2;
    const Bytes used = bytes(warps, in_shared);
    shared_bytes = used.small;
    job.block_bytes = used.big;
    const int64_t most = in_shared ? 0x7fffffff : limits.blocks;
    blocks = job.tasks < most ? job.tasks : most;
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

// Kernels::run<T, kShared> is the kernel.
template <class Kernels>
Status launch_landmarks(const LandmarkParams& params, bool batch_init, Type type, const void* qkv, void* out,
                        void* workspace, Stream stream, const Limits& limits) {
  if (params.shape.windows() == 0) return Status::kOk;
  if (params.landmarks() < 1 || params.landmarks() > kMaxLandmarks || !countable(params.shape))
    return Status::kUnsupported;
  const LandmarkPlan plan(params, limits);
  if (plan.shared_bytes > limits.shared_bytes) return Status::kUnsupported;
  if (workspace == nullptr && plan.workspace(batch_init) > 0) return Status::kNoScratch;
  LandmarkJob job = plan.job;
  const auto queue = static_cast<cudaStream_t>(stream);
  job.workspace = static_cast<unsigned char*>(workspace) + (batch_init ? kMaximaBytes : 0);
  const auto run = [&](auto* element) {
    using T = std::remove_pointer_t<decltype(element)>;
    job.width = common_width(params.shape.head_dim, params.shape.value_dim, qkv, out, sizeof(T));
    const auto kernel = plan.in_shared ? Kernels::template run<T, true>() : Kernels::template run<T, false>();
    return launch(kernel, dim3(static_cast<unsigned>(plan.blocks)), dim3(unsigned(plan.warps * kWarp)),
                  size_t(plan.shared_bytes), queue, job, static_cast<const T*>(qkv), static_cast<T*>(out)) == cudaSuccess;
  };
  if (batch_init) {
    job.maxima = static_cast<unsigned*>(workspace);
    job.only_maxima = true;
    if (cudaMemsetAsync(workspace, 0, 2 * sizeof(float), queue) != cudaSuccess) return Status::kLaunch;
    if (!with_type(type, run)) return Status::kLaunch;
    job.only_maxima = false;
  }
  return with_type(type, run) ? Status::kOk : Status::kLaunch;
}

// Calls run(task, buffers) for each task of this block.
template <bool kShared, class F>
__device__ __forceinline__ void for_tasks(const LandmarkJob& job, unsigned char* memory, const F& run) {
  const int warps = int(blockDim.x) / kWarp;
  SharedMemory shared(memory);
  const auto all = [&](LandmarkBuffers b) {
    for (int64_t task = blockIdx.x; task < job.tasks; task += gridDim.x) {
      run(task, b);
      __syncthreads();  // the buffers are free
    }
  };
  if constexpr (kShared) {
    all(LandmarkBuffers(job, warps, shared, shared));
  } else {
    Workspace workspace(job.workspace + blockIdx.x * job.block_bytes);
    all(LandmarkBuffers(job, warps, workspace, shared));
  }
}

}  // namespace
}  // namespace nystra::cuda
