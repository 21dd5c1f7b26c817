// Plans and launches the kernels of exact attention: on tensor cores where the types, the sizes and
// the device allow it, otherwise on CUDA cores.
#pragma once

#include "softmax_tensor.h"
#include "softmax_window.h"

namespace nystra::cuda {
namespace {

// Warps per multiprocessor on CUDA cores: with fewer, latency costs more than reading the bias from
// global memory.
constexpr int64_t kWarpsOnCores = 8;

// How many warps a block has, and whether its biases are in shared memory.
struct SoftmaxPlan {
  int warps;
  int64_t bytes = 0;
  bool fits = false;

  // Chooses both; bytes_of(warps) is the shared memory of the job as it is. The bias is staged if
  // that fits in the memory that every device has, or if a multiprocessor still holds enough warps.
  template <class F>
  SoftmaxPlan(SoftmaxJob& job, bool biased, int64_t enough_warps, const LaunchLimits& limits,
              const F& bytes_of)
      : warps(int(limits.warps)) {
    const Windows& s = job.shape;
    job.stage_bias = false;
    while (warps > 1 && (kQueries * warps / 2 >= s.tokens || bytes_of(warps) > limits.shared_bytes))
      warps /= 2;
    bytes = bytes_of(warps);
    fits = bytes <= limits.shared_bytes;
    job.chunks = (s.tokens + kQueries * warps - 1) / (kQueries * warps);
    const int64_t part = bias_part(s, warps), most = on_this_device(limits).shared_bytes;
    if (!fits || !biased || part > most) return;
    job.stage_bias = true;
    job.part = int(part);
    const int64_t staged = bytes_of(warps);
    if (staged <= limits.shared_bytes ||
        (staged <= most && warps_held(staged, warps) >= enough_warps))
      bytes = staged;
    else
      job.stage_bias = false;
  }
};

template <class Job, class T>
Status launch_softmax(void (*kernel)(Job, const T*, const T*, T*), const Job& job,
                      const SoftmaxPlan& plan, const T* qkv, const T* table, T* out,
                      cudaStream_t stream) {
  if (job.blocks > 0x7fffffff) return Status::kUnsupported;
  if (allow_shared(kernel, plan.bytes) != cudaSuccess) return Status::kLaunch;
  return launch(kernel, dim3(static_cast<unsigned>(job.blocks)), dim3(unsigned(plan.warps * kWarp)),
                size_t(plan.bytes), stream, job, qkv, table, out) == cudaSuccess
             ? Status::kOk
             : Status::kLaunch;
}

template <bool kAround, class T>
Status softmax_on_cores(const WindowShape& shape, const T* qkv, const T* table, T* out,
                        cudaStream_t stream, const LaunchLimits& limits) {
  SoftmaxWindowJob job{};
  job.shape = windows(shape);
  const Windows& s = job.shape;
  job.step = row_step(max(min(s.head_dim, kChunk), min(s.value_dim, kChunk)));
  job.width = common_width(shape.head_dim, shape.value_dim, qkv, out, sizeof(T));
  job.scale = shape.scale * kLog2E;
  job.parts = (s.value_dim + kChunk - 1) / kChunk;
  const SoftmaxPlan plan(job, table != nullptr, kWarpsOnCores, limits, [&](int warps) {
    Counter counter;
    SoftmaxWindowLayout(job, warps, counter);
    return counter.bytes();
  });
  if (!plan.fits) return Status::kUnsupported;
  job.blocks = shape.windows() * shape.heads * job.chunks * job.parts;
  return launch_softmax(window_softmax_kernel<kAround, T>, job, plan, qkv, table, out, stream);
}

// Launches the kernel for tensor cores. Returns kUnsupported if the one for CUDA cores has to be
// used.
template <bool kAround, int kSteps, class T>
Status softmax_on_tensor_cores(const WindowShape& shape, const T* qkv, const T* table, T* out,
                               cudaStream_t stream, const LaunchLimits& limits) {
  const auto kernel = window_softmax_tensor_kernel<kAround, kSteps, T>;
  if (architecture_of(kernel) < 80) return Status::kUnsupported;
  SoftmaxTensorJob job{};
  job.shape = windows(shape);
  job.scale = shape.scale * kLog2E;
  job.copy_bytes = width_fits(8, shape.head_dim, shape.value_dim, qkv, qkv, sizeof(T)) ? 16 : 4;
  const SoftmaxPlan plan(job, table != nullptr, 1, limits, [&](int) {
    Counter counter;
    SoftmaxTensorLayout<T>(job, kSteps, counter);
    return counter.bytes();
  });
  if (!plan.fits || (table != nullptr && !job.stage_bias)) return Status::kUnsupported;
  job.blocks = shape.windows() * shape.heads * job.chunks;
  return launch_softmax(kernel, job, plan, qkv, table, out, stream);
}

template <bool kAround, class T>
Status softmax(const WindowShape& shape, const T* qkv, const T* table, T* out, cudaStream_t stream,
               const LaunchLimits& limits) {
  if constexpr (sizeof(T) == 2)
    if (tensor_cores_allowed(limits) && std::max(shape.head_dim, shape.value_dim) <= kTensorMost &&
        shape.channels() <= 0x3fffffff &&
        width_fits(2, shape.head_dim, shape.value_dim, qkv, out, sizeof(T))) {
      const int64_t channels = std::max(shape.head_dim, shape.value_dim);
      const auto run = channels <= 16   ? softmax_on_tensor_cores<kAround, 1, T>
                       : channels <= 32 ? softmax_on_tensor_cores<kAround, 2, T>
                                        : softmax_on_tensor_cores<kAround, 4, T>;
      const Status status = run(shape, qkv, table, out, stream, limits);
      if (status != Status::kUnsupported) return status;
    }
  return softmax_on_cores<kAround>(shape, qkv, table, out, stream, limits);
}

template <bool kAround>
Status softmax_windows(const WindowShape& shape, Type type, const void* qkv, const void* bias_table,
                       void* out, Stream stream, const LaunchLimits& limits) {
  if (shape.windows() == 0) return Status::kOk;
  if (!countable(shape)) return Status::kUnsupported;
  return with_type(type, [&](auto* element) {
    using T = std::remove_pointer_t<decltype(element)>;
    return softmax<kAround>(shape, static_cast<const T*>(qkv), static_cast<const T*>(bias_table),
                            static_cast<T*>(out), static_cast<cudaStream_t>(stream), limits);
  });
}

}  // namespace
}  // namespace nystra::cuda
