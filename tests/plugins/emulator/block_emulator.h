// Runs CUDA kernels on the host, one block at a time: what portable.h includes instead of CUDA.
// The rules for kernels are in README.md.
#pragma once

#include <tuple>
#include <utility>

#include "block.h"

namespace emu {

inline cudaError_t run(const void* kernel, dim3 grid, dim3 block, size_t shared_bytes,
                       std::function<void()> body) {
  const size_t threads = size_t(block.x) * block.y * block.z;
  const bool fits = threads >= 1 && threads <= 1024 && threads % kWarp == 0 && grid.x >= 1 &&
                    grid.y >= 1 && grid.z >= 1 && grid.x <= 0x7fffffffu && grid.y <= 65535 &&
                    grid.z <= 65535;
  if (!fits) return state.last_error = cudaErrorInvalidConfiguration;
  const auto allowed = state.allowed_shared.find(kernel);
  if (shared_bytes > (allowed == state.allowed_shared.end() ? kSharedLimit : allowed->second))
    return state.last_error = cudaErrorInvalidValue;
  state.most_shared = std::max(state.most_shared, shared_bytes);
  state.shared_bytes = shared_bytes;
  state.memory_bytes = shared_bytes + kSharedArrays * kRedZone;
  std::vector<unsigned char> memory(state.memory_bytes + 32);
  const uintptr_t start = (reinterpret_cast<uintptr_t>(memory.data()) + 31) / 32 * 32;
  state.dynamic_shared = reinterpret_cast<unsigned char*>(start);
  state.body = std::move(body);
  state.error.clear();
  state.in_block = true;
  state.first_block = state.block + 1;
  gridDim = grid;
  blockDim = block;
  const size_t blocks = size_t(grid.x) * grid.y * grid.z;
  for (size_t i = blocks > state.most_blocks ? blocks - 1 : 0; i < blocks && state.error.empty();
       ++i) {
    const size_t b = state.seed == 1 ? blocks - 1 - i : i;
    blockIdx = {unsigned(b % grid.x), unsigned(b / grid.x % grid.y), unsigned(b / grid.x / grid.y)};
    run_block();
  }
  state.in_block = false;
  unpoison_for_asan(memory.data(), memory.size());
  return state.error.empty() ? cudaSuccess : state.last_error = cudaErrorLaunchFailure;
}

inline cudaError_t refuse_stream() {
  state.error = "the work was put on another stream";
  return state.last_error = cudaErrorInvalidValue;
}

}  // namespace emu

template <class... P, class... A>
cudaError_t launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared_bytes,
                   cudaStream_t stream, A&&... arguments) {
  if (stream != emu::state.stream) return emu::refuse_stream();
  std::tuple<std::decay_t<P>...> values(static_cast<P>(arguments)...);
  return emu::run(reinterpret_cast<const void*>(kernel), grid, block, shared_bytes,
                  [&] { std::apply(kernel, values); });
}

inline cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = int(emu::state.device_shared);
  return cudaSuccess;
}
inline cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute, int value) {
  if (size_t(value) > emu::state.device_shared)
    return emu::state.last_error = cudaErrorInvalidValue;
  emu::state.allowed_shared[kernel] = size_t(value);
  return cudaSuccess;
}
inline cudaError_t cudaGetLastError() {
  const cudaError_t error = emu::state.last_error;
  emu::state.last_error = cudaSuccess;
  return error;
}

inline cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream) {
  if (stream != emu::state.stream) return emu::refuse_stream();
  std::memset(memory, value, bytes);
  return cudaSuccess;
}

inline void __syncthreads(EMU_PLACE) { emu::wait(emu::Waits::kAtBarrier, file, line); }

inline void __syncwarp(unsigned mask = ~0u, EMU_PLACE) {
  emu::warp_operation(emu::WarpOp::kSync, mask, 0, 0, 32, file, line);
}
inline unsigned __ballot_sync(unsigned mask, int p, EMU_PLACE) {
  return unsigned(emu::warp_operation(emu::WarpOp::kBallot, mask, p != 0, 0, 32, file, line));
}
inline int __any_sync(unsigned mask, int p, EMU_PLACE) {
  return __ballot_sync(mask, p, file, line) != 0;
}

template <class T>
T __shfl_sync(unsigned mask, T value, int lane, int width = 32, EMU_PLACE) {
  return emu::shuffle(emu::WarpOp::kIndex, mask, value, lane, width, file, line);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32, EMU_PLACE) {
  return emu::shuffle(emu::WarpOp::kUp, mask, value, int(by), width, file, line);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32, EMU_PLACE) {
  return emu::shuffle(emu::WarpOp::kDown, mask, value, int(by), width, file, line);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32, EMU_PLACE) {
  return emu::shuffle(emu::WarpOp::kXor, mask, value, lanes, width, file, line);
}

template <class T>
__attribute__((no_sanitize("thread"))) T atomicMax(T* p, T value) {
  const T old = *p;
  *p = old < value ? value : old;
  return old;
}
