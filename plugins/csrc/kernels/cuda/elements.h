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

// Two elements of 16 bits in one word, the first in its lower half.
template <class T>
__device__ __forceinline__ uint32_t word_at(const T* from) {
  static_assert(sizeof(T) == 2, "");
  return *reinterpret_cast<const uint32_t*>(from);
}

// Returns 2^x with an error of at most 2 ulp, and 0 where the result would be subnormal. It is one
// instruction; exp2f() takes four.
__device__ __forceinline__ float power_of_two(float x) {
#ifdef NYSTRA_BLOCK_EMULATOR
  return emu::power_of_two(x);
#else
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
#endif
}

// A width as a compile-time constant.
template <int kWidth>
struct Width {
  static constexpr int value = kWidth;
};

// Calls f(Width<width>()).
template <class F>
__device__ __forceinline__ void with_width(int width, const F& f) {
  if (width == 4)
    f(Width<4>());
  else if (width == 2)
    f(Width<2>());
  else
    f(Width<1>());
}

// Returns whether `width` divides both counts and both pointers are aligned for such accesses.
inline bool width_fits(int64_t width, int64_t count, int64_t other_count, const void* a,
                       const void* b, int64_t size) {
  return count % width == 0 && other_count % width == 0 &&
         reinterpret_cast<uintptr_t>(a) % uintptr_t(width * size) == 0 &&
         reinterpret_cast<uintptr_t>(b) % uintptr_t(width * size) == 0;
}

// Returns the largest width of 4, 2 and 1 for which width_fits().
inline int common_width(int64_t count, int64_t other_count, const void* a, const void* b,
                        int64_t size) {
  return width_fits(4, count, other_count, a, b, size)   ? 4
         : width_fits(2, count, other_count, a, b, size) ? 2
                                                         : 1;
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

// The same for half and bfloat16 only.
template <class F>
auto with_half_type(Type type, const F& f) {
  return type == Type::kHalf ? f(static_cast<__half*>(nullptr))
                             : f(static_cast<__nv_bfloat16*>(nullptr));
}

constexpr int kAhead = 8;  // loads that a thread issues before it uses the first

// Returns a shift such that 1 << shift lanes (at most 32) load a token of so many groups of
// channels.
__device__ __forceinline__ int lanes_shift(int groups) {
  int shift = 0;
  while ((1 << shift) < groups && shift < 5) ++shift;
  return shift;
}

// tiles[n][i * step + c] = channel c of token i of map n, channels[n] of them and zeros up to a
// multiple of 4, for i < rows (zeros from `count` on). Done by `threads` threads, of which this is
// `thread`, each with kLoads loads of every map in flight. maps: the first channel of pixel 0, and
// how far apart pixels are; pixels: of the tokens; with kHoles those below 0 are tokens of zeros.
template <int kWidth, int kLoads, bool kHoles, int kMaps, class T>
__device__ __forceinline__ void stage(const T* const (&maps)[kMaps],
                                      const int64_t (&strides)[kMaps], const int* pixels, int rows,
                                      int count, const int (&channels)[kMaps],
                                      float* const (&tiles)[kMaps], int step, int thread,
                                      int threads) {
  int widest = channels[0];
#pragma unroll
  for (int n = 1; n < kMaps; ++n) widest = max(widest, channels[n]);
  const int groups = round_up(widest, 4) / kWidth, shift = lanes_shift(groups);
  const int lanes = 1 << shift, tokens = threads >> shift;
  for (int g = thread & (lanes - 1); g < groups; g += lanes) {
    const int c = g * kWidth;
    for (int first = thread >> shift; first < rows; first += kLoads * tokens) {
      Pack<T, kWidth> packs[kMaps][kLoads];
#pragma unroll
      for (int n = 0; n < kMaps; ++n)
#pragma unroll
        for (int u = 0; u < kLoads; ++u) {  // beyond the last token that one again: no branches
          const int i = min(first + u * tokens, count - 1);
          const int pixel = kHoles ? max(pixels[i], 0) : pixels[i];
          packs[n][u] = pack_at<kWidth>(maps[n] + pixel * strides[n] + (c < channels[n] ? c : 0));
        }
#pragma unroll
      for (int n = 0; n < kMaps; ++n)
#pragma unroll
        for (int u = 0; u < kLoads; ++u) {
          const int i = first + u * tokens;
          float values[kWidth];
          unpack(packs[n][u], values);
#pragma unroll
          for (int j = 0; j < kWidth; ++j)
            if (i >= count || c >= channels[n] || (kHoles && pixels[i] < 0)) values[j] = 0.0f;
          if (i < rows && c < round_up(channels[n], 4))
            store<kWidth>(tiles[n] + i * step + c, values);
        }
    }
  }
}

// The same for one map.
template <int kWidth, int kLoads, class T>
__device__ __forceinline__ void stage(const T* map, int64_t pixel_stride, const int* pixels,
                                      int rows, int count, int channels, float* tile, int step,
                                      int thread, int threads) {
  stage<kWidth, kLoads, false, 1>({map}, {pixel_stride}, pixels, rows, count, {channels}, {tile},
                                  step, thread, threads);
}

}  // namespace
}  // namespace nystra::cuda
