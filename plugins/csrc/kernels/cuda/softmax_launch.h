// Plans and launches the kernels of exact attention, in windows or between lists of tokens: on
// tensor cores where the types, the sizes and the device allow it, otherwise on CUDA cores.
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
    const int64_t part = bias_part(s, warps), limit = on_this_device(limits).shared_bytes;
    if (!fits || !biased || part > limit) return;
    job.stage_bias = true;
    job.part = int(part);
    const int64_t staged = bytes_of(warps);
    if (staged <= limits.shared_bytes ||
        (staged <= limit && warps_held(staged, warps) >= enough_warps))
      bytes = staged;
    else
      job.stage_bias = false;
  }
};

// One call: its job, not yet planned, how many windows or images there are, and its tensors.
template <class T>
struct SoftmaxCall {
  SoftmaxJob job;
  int64_t images;
  const T *q, *k, *v, *bias;  // null: no bias
  T* out;

  int64_t channels() const { return std::max(job.shape.head_dim, job.shape.value_dim); }
  // Whether accesses to so many elements at once are aligned, in all tensors or in k and v.
  bool fits(int64_t width) const {
    return width_fits(width, job.shape.head_dim, job.shape.value_dim, q, out, sizeof(T)) &&
           copies_fit(width);
  }
  bool copies_fit(int64_t width) const {
    return width_fits(width, job.shape.head_dim, job.shape.value_dim, k, v, sizeof(T));
  }
};

template <class Job, class T>
Status launch_softmax(void (*kernel)(Job, const T*, const T*, const T*, const T*, T*),
                      const Job& job, const SoftmaxPlan& plan, const SoftmaxCall<T>& call,
                      cudaStream_t stream) {
  if (job.blocks > 0x7fffffff) return Status::kUnsupported;
  if (allow_shared(kernel, plan.bytes) != cudaSuccess) return Status::kLaunch;
  return launch(kernel, dim3(static_cast<unsigned>(job.blocks)), dim3(unsigned(plan.warps * kWarp)),
                size_t(plan.bytes), stream, job, call.q, call.k, call.v, call.bias,
                call.out) == cudaSuccess
             ? Status::kOk
             : Status::kLaunch;
}

template <Area kArea, class T>
Status softmax_on_cores(const SoftmaxCall<T>& call, cudaStream_t stream,
                        const LaunchLimits& limits) {
  SoftmaxWindowJob job{};
  static_cast<SoftmaxJob&>(job) = call.job;
  const Windows& s = job.shape;
  job.step = row_step(max(min(s.head_dim, kChunk), min(s.value_dim, kChunk)));
  job.width = call.fits(4) ? 4 : call.fits(2) ? 2 : 1;
  job.parts = (s.value_dim + kChunk - 1) / kChunk;
  const bool staged = kArea != Area::kList && call.bias != nullptr;
  const SoftmaxPlan plan(job, staged, kWarpsOnCores, limits, [&](int warps) {
    Counter counter;
    SoftmaxWindowLayout(job, warps, counter);
    return counter.bytes();
  });
  if (!plan.fits) return Status::kUnsupported;
  job.blocks = call.images * s.heads * job.chunks * job.parts;
  return launch_softmax(softmax_kernel<kArea, T>, job, plan, call, stream);
}

// Launches the kernel for tensor cores. Returns kUnsupported if the one for CUDA cores has to be
// used.
template <Area kArea, int kSteps, class T>
Status softmax_on_tensor_cores(const SoftmaxCall<T>& call, cudaStream_t stream,
                               const LaunchLimits& limits) {
  const auto kernel = softmax_tensor_kernel<kArea, kSteps, T>;
  if (architecture_of(kernel) < 80) return Status::kUnsupported;
  SoftmaxTensorJob job{};
  static_cast<SoftmaxJob&>(job) = call.job;
  job.copy_bytes = call.copies_fit(8) ? 16 : 4;
  const bool staged = kArea != Area::kList && call.bias != nullptr;
  const SoftmaxPlan plan(job, staged, 1, limits, [&](int) {
    Counter counter;
    SoftmaxTensorLayout<T>(job, kSteps, counter);
    return counter.bytes();
  });
  if (!plan.fits || (staged && !job.stage_bias)) return Status::kUnsupported;
  job.blocks = call.images * job.shape.heads * job.chunks;
  return launch_softmax(kernel, job, plan, call, stream);
}

template <Area kArea, class T>
Status softmax(const SoftmaxCall<T>& call, cudaStream_t stream, const LaunchLimits& limits) {
  if constexpr (sizeof(T) == 2)
    if (tensor_cores_allowed(limits) && call.channels() <= kTensorMost &&
        call.job.k.token <= 0x3fffffff && call.fits(2)) {
      const auto run = call.channels() <= 16   ? softmax_on_tensor_cores<kArea, 1, T>
                       : call.channels() <= 32 ? softmax_on_tensor_cores<kArea, 2, T>
                                               : softmax_on_tensor_cores<kArea, 4, T>;
      const Status status = run(call, stream, limits);
      if (status != Status::kUnsupported) return status;
    }
  return softmax_on_cores<kArea>(call, stream, limits);
}

template <Area kArea>
Status softmax_windows(const WindowShape& shape, Type type, const void* qkv, const void* bias_table,
                       void* out, Stream stream, const LaunchLimits& limits,
                       const void* factors = nullptr) {
  if (shape.windows() == 0) return Status::kOk;
  if (!countable(shape)) return Status::kUnsupported;
  return with_type(type, [&](auto* element) {
    using T = std::remove_pointer_t<decltype(element)>;
    const T* const q = static_cast<const T*>(qkv);
    const T* const k = q + shape.heads * shape.head_dim;
    const int64_t channels = shape.channels(), d = shape.head_dim, e = shape.value_dim;
    SoftmaxCall<T> call{{},
                        shape.windows(),
                        q,
                        k,
                        k + shape.heads * d,
                        static_cast<const T*>(bias_table),
                        static_cast<T*>(out)};
    call.job.shape = windows(shape);
    call.job.scale = shape.scale * kLog2E;
    call.job.factors = factors;
    call.job.epsilon = shape.epsilon;
    call.job.q = call.job.k = {channels, d, 0};
    call.job.v = {channels, e, 0};
    call.job.out = {shape.heads * e, e, 0};
    return softmax<kArea>(call, static_cast<cudaStream_t>(stream), limits);
  });
}

}  // namespace
}  // namespace nystra::cuda
