// What the plugins and their host call of CUDA's runtime, on the block emulator: memory is the
// host's, a launch runs at once, a captured graph has run when it is made, events read a clock.
#pragma once

#include <chrono>
#include <cstdlib>
#include <cstring>

#include "block_emulator.h"

#define CUDART_VERSION 13000

using cudaEvent_t = std::chrono::steady_clock::time_point*;
using cudaGraph_t = int*;
using cudaGraphExec_t = int*;
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost };
enum cudaStreamCaptureMode { cudaStreamCaptureModeGlobal };
constexpr unsigned cudaStreamNonBlocking = 1;

struct cudaDeviceProp {
  const char* name = "the block emulator";
  int major = 8, minor = 0;
};

inline cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
inline cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  return cudaSuccess;
}
inline const char* cudaGetErrorString(cudaError_t) { return emu::state.error.c_str(); }

inline cudaError_t cudaMalloc(void** memory, size_t size) {
  *memory = std::aligned_alloc(256, (size + 255) / 256 * 256);
  return *memory == nullptr ? cudaErrorInvalidValue : cudaSuccess;
}
template <class T>
cudaError_t cudaMalloc(T** memory, size_t size) {
  return cudaMalloc(reinterpret_cast<void**>(memory), size);
}
inline cudaError_t cudaFree(void* memory) {
  std::free(memory);
  return cudaSuccess;
}
inline cudaError_t cudaMemset(void* memory, int value, size_t size) {
  std::memset(memory, value, size);
  return cudaSuccess;
}
inline cudaError_t cudaMemcpy(void* to, const void* from, size_t size, cudaMemcpyKind) {
  std::memcpy(to, from, size);
  return cudaSuccess;
}
inline cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }

// One stream at a time: the emulator takes launches on no other.
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = emu::state.stream = reinterpret_cast<cudaStream_t>(std::malloc(1));
  return cudaSuccess;
}
inline cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  std::free(stream);
  emu::state.stream = nullptr;
  return cudaSuccess;
}
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) {
  return cudaSuccess;
}
inline cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t*) { return cudaSuccess; }
inline cudaError_t cudaGraphInstantiate(cudaGraphExec_t*, cudaGraph_t, unsigned long long) {
  return cudaSuccess;
}
inline cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaGraphExecDestroy(cudaGraphExec_t) { return cudaSuccess; }
inline cudaError_t cudaGraphDestroy(cudaGraph_t) { return cudaSuccess; }

inline cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = new std::chrono::steady_clock::time_point;
  return cudaSuccess;
}
inline cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
inline cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  *event = std::chrono::steady_clock::now();
  return cudaSuccess;
}
inline cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
inline cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  *milliseconds = std::chrono::duration<float, std::milli>(*end - *start).count();
  return cudaSuccess;
}
