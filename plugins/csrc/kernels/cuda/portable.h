// What the kernel sources include: CUDA, or the block emulator of the tests.
//
// A kernel is launched by launch(), gets dynamic shared memory from DYNAMIC_SHARED and divides
// it into arrays with SharedMemory. A layout is written once, as a template over the allocator; the
// host computes its size with Counter.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>

#include "kernels/cuda_launch.h"

#ifdef NYSTRA_BLOCK_EMULATOR
#include "block_emulator.h"
#else
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#define DYNAMIC_SHARED(name) extern __shared__ __align__(16) unsigned char name[]
#endif

namespace nystra::cuda {
namespace {

#ifndef NYSTRA_BLOCK_EMULATOR
// Launches a kernel and returns the error of this launch. Earlier errors of the thread stay in
// place.
template <class... P, class... A>
cudaError_t launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared, cudaStream_t stream,
                   A&&... arguments) {
  std::tuple<std::decay_t<P>...> values(static_cast<P>(arguments)...);
  const cudaError_t error = std::apply(
      [&](auto&... each) {
        void* pointers[] = {const_cast<void*>(static_cast<const void*>(&each))...};
        return cudaLaunchKernel(reinterpret_cast<const void*>(kernel), grid, block, pointers,
                                shared, stream);
      },
      values);
  if (error != cudaSuccess) cudaGetLastError();
  return error;
}
#endif

constexpr int64_t kSharedEverywhere = 48 * 1024;  // bytes that every block may use

// Returns an attribute of the current device, or its guaranteed minimum if it is unknown.
inline int64_t device_attribute(cudaDeviceAttr attribute, int64_t fallback) {
  int device = 0, value = 0;
  if (cudaGetDevice(&device) == cudaSuccess &&
      cudaDeviceGetAttribute(&value, attribute, device) == cudaSuccess)
    return value;
  cudaGetLastError();
  return fallback;
}

// Returns the shared memory, in bytes, that a block may use on the current device on request.
inline int64_t device_shared_bytes() {
  return device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, kSharedEverywhere);
}

// Returns the limits with the shared memory of the current device, if it has more.
inline LaunchLimits on_this_device(const LaunchLimits& limits) {
  LaunchLimits raised = limits;
  raised.shared_bytes =
      std::max(limits.shared_bytes, std::min(device_shared_bytes(), limits.max_shared_bytes));
  return raised;
}

// Has to be called before a launch with so many bytes. It requests all that a block may use, so
// that two threads that launch the same kernel do not lower each other's limit.
template <class... P>
cudaError_t allow_shared(void (*kernel)(P...), int64_t bytes) {
  if (bytes <= kSharedEverywhere) return cudaSuccess;
  const cudaError_t error =
      cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                           cudaFuncAttributeMaxDynamicSharedMemorySize, int(device_shared_bytes()));
  if (error != cudaSuccess) cudaGetLastError();
  return error;
}

constexpr unsigned kAllLanes = 0xffffffffu;
constexpr int kWarp = 32;

// For n >= 0. As an unsigned number the compiler knows which bits of the result are zero.
__host__ __device__ constexpr int round_up(int n, int multiple) {
  return int((unsigned(n) + unsigned(multiple) - 1u) / unsigned(multiple) * unsigned(multiple));
}

// Allocates arrays one after another, each aligned to 16 bytes.
class Workspace {
 public:
  __host__ __device__ explicit Workspace(unsigned char* memory) : next_(memory) {}

  template <class T>
  __host__ __device__ T* take(int64_t count) {
    T* const array = reinterpret_cast<T*>(next_);
    next_ += (count * int64_t(sizeof(T)) + 15) / 16 * 16;
    return array;
  }

 protected:
  unsigned char* next_;
};

// The same in the dynamic shared memory of a block.
class SharedMemory : public Workspace {
 public:
  __host__ __device__ explicit SharedMemory(unsigned char* memory) : Workspace(memory) {
#ifdef NYSTRA_BLOCK_EMULATOR
    emu::begin_shared_arrays();
#endif
  }

  template <class T>
  __host__ __device__ T* take(int64_t count) {
    T* const array = Workspace::take<T>(count);
#ifdef NYSTRA_BLOCK_EMULATOR
    emu::end_of_shared_array(array + count, next_);
#endif
    return array;
  }
};

class Counter {
 public:
  template <class T>
  __host__ __device__ T* take(int64_t count) {
    bytes_ += (count * int64_t(sizeof(T)) + 15) / 16 * 16;
    return nullptr;
  }

  __host__ __device__ int64_t bytes() const { return bytes_; }

 private:
  int64_t bytes_ = 0;
};

}  // namespace
}  // namespace nystra::cuda
