// Loads and stores of float, half and bfloat16 elements as floats, one, two or four at a time.
#pragma once

#include "kernels/kernel.h"
#include "portable.h"

namespace nystra::cuda {
namespace {

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(__half x) { return __half2float(x); }
__device__ __forceinline__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }

template <class T>
__device__ __forceinline__ T from_float(float x);
template <>
__device__ __forceinline__ float from_float<float>(float x) {
  return x;
}
template <>
__device__ __forceinline__ __half from_float<__half>(float x) {
  return __float2half(x);
}
template <>
__device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float x) {
  return __float2bfloat16(x);
}

// kWidth elements that one instruction loads or stores, aligned to their total size.
template <class T, int kWidth>
struct alignas(sizeof(T) * kWidth) Pack {
  T values[kWidth];
};

template <int kWidth, class T>
__device__ __forceinline__ const Pack<T, kWidth>& pack_at(const T* from) {
  return *reinterpret_cast<const Pack<T, kWidth>*>(from);
}

template <int kWidth, class T>
__device__ __forceinline__ void unpack(const Pack<T, kWidth>& pack, float (&to)[kWidth]) {
#pragma unroll
  for (int i = 0; i < kWidth; ++i) to[i] = to_float(pack.values[i]);
}

template <int kWidth, class T>
__device__ __forceinline__ void load(const T* from, float (&to)[kWidth]) {
  const Pack<T, kWidth> pack = pack_at<kWidth>(from);
  unpack(pack, to);
}

template <int kWidth, class T>
__device__ __forceinline__ void store(T* to, const float* from) {
  Pack<T, kWidth> pack;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) pack.values[i] = from_float<T>(from[i]);
  *reinterpret_cast<Pack<T, kWidth>*>(to) = pack;
}

// Calls f(a null pointer of the element type) and returns what it returns.
template <class F>
auto with_type(Type type, const F& f) {
  switch (type) {
    case Type::kHalf: return f(static_cast<__half*>(nullptr));
    case Type::kBfloat16: return f(static_cast<__nv_bfloat16*>(nullptr));
    default: return f(static_cast<float*>(nullptr));
  }
}

}  // namespace
}  // namespace nystra::cuda
