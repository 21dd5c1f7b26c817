// What the kernel sources include: CUDA itself, or the block emulator of the tests.
//
// A kernel is launched by launch(), takes dynamic shared memory through DYNAMIC_SHARED and cuts it
// into arrays through SharedMemory. A layout is written once, as a template over what it takes
// its arrays from; the host counts its bytes with Counter.
#pragma once

#include <cstddef>
#include <cstdint>

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
template <class... P, class... A>
cudaError_t launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared, cudaStream_t stream,
                   A&&... arguments) {
  kernel<<<grid, block, shared, stream>>>(static_cast<P>(arguments)...);
  return cudaGetLastError();
}
#endif

constexpr unsigned kAllLanes = 0xffffffffu;
constexpr int kWarp = 32;

__host__ __device__ constexpr int round_up(int n, int multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

// Arrays one after another, each aligned to 16 bytes.
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
  using Workspace::Workspace;

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
