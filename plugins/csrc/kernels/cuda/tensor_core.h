// Tensor cores: products in tf32, and directly in half or bfloat16.
//
// tf32 has the 8 exponent bits of float and 11 significant bits. half and bfloat16 are exact in it,
// subnormal halves too, so a map is never rounded. A float that a kernel computed is split into two
// tf32 numbers, exact to 2^-20 of it and over the whole range of float: half with its 5 bits of
// exponent would overflow where the kernel function exceeds 65,504 and lose all of it below 2^-25.
// Sums are float.
//
// Splitting an infinity gives NaN, so an infinite input may give NaN where float gives infinity.
// The instruction exists from sm_80 on; code that is compiled for older architectures must not be
// launched.
#pragma once

#include <cstdlib>
#include <cstring>

#include "elements.h"

namespace nystra::cuda {
namespace {

// An environment variable turns tensor cores off for a whole process, for comparisons on a device.
inline bool tensor_cores_allowed(const LaunchLimits& limits) {
  const char* const setting = std::getenv("NYSTRA_CUDA_TENSOR_CORES");
  return limits.tensor_cores && (setting == nullptr || std::strcmp(setting, "0") != 0);
}

// Numbers truncated to tf32, and the remainders.
template <int n>
struct Split {
  uint32_t high[n], low[n];
};

__device__ __forceinline__ void split(float x, uint32_t& high, uint32_t& low) {
  high = __float_as_uint(x) & 0xffffe000u;
  low = __float_as_uint(x - __uint_as_float(high)) & 0xffffe000u;
}

// Two elements of 16 bits in a word, the first in the lower half, as tf32.
template <class T>
__device__ __forceinline__ uint32_t first_of(uint32_t word);
template <class T>
__device__ __forceinline__ uint32_t second_of(uint32_t word);
template <>
__device__ __forceinline__ uint32_t first_of<__half>(uint32_t word) {
  return __float_as_uint(
      __half2float(__ushort_as_half(static_cast<unsigned short>(word & 0xffffu))));
}
template <>
__device__ __forceinline__ uint32_t second_of<__half>(uint32_t word) {
  return __float_as_uint(__half2float(__ushort_as_half(static_cast<unsigned short>(word >> 16))));
}
template <>
__device__ __forceinline__ uint32_t first_of<__nv_bfloat16>(uint32_t word) {
  return word << 16;
}
template <>
__device__ __forceinline__ uint32_t second_of<__nv_bfloat16>(uint32_t word) {
  return word & 0xffff0000u;
}

// sums += A B of a 16 x 8 by an 8 x 8 matrix, by a whole warp. With group = lane / 4 and
// in = lane % 4 a lane holds
//   a: A (group, in), (group + 8, in), (group, in + 4), (group + 8, in + 4)
//   b: B (in, group), (in + 4, group)
//   sums: (group, 2 in), (group, 2 in + 1), (group + 8, 2 in), (group + 8, 2 in + 1)
#ifdef NYSTRA_BLOCK_EMULATOR
inline void multiply_add(float (&sums)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                         EMU_PLACE) {
  emu::multiply_add(sums, a, b, file, line);
}
#else
__device__ __forceinline__ void multiply_add(float (&sums)[4], const uint32_t (&a)[4],
                                             const uint32_t (&b)[2]) {
#if __CUDA_ARCH__ >= 800
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, "
      "%9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  __trap();
#endif
}
#endif

// sums += A B with A or B split.
__device__ __forceinline__ void multiply_add(float (&sums)[4], const Split<4>& a,
                                             const uint32_t (&b)[2]) {
  multiply_add(sums, a.low, b);
  multiply_add(sums, a.high, b);
}

__device__ __forceinline__ void multiply_add(float (&sums)[4], const uint32_t (&a)[4],
                                             const Split<2>& b) {
  multiply_add(sums, a, b.low);
  multiply_add(sums, a, b.high);
}

// The same with both split. The product of the remainders, below 2^-20 of the result, is left out.
__device__ __forceinline__ void multiply_add(float (&sums)[4], const Split<4>& a,
                                             const Split<2>& b) {
  multiply_add(sums, a.low, b.high);
  multiply_add(sums, a.high, b.low);
  multiply_add(sums, a.high, b.high);
}

// Sums as the left factor of another product: row r stays, the sums of columns 2 in and 2 in + 1
// become columns in and in + 4. The rows of the right factor are to be taken in that order.
__device__ __forceinline__ Split<4> as_left(const float (&sums)[4]) {
  Split<4> a;
  split(sums[0], a.high[0], a.low[0]);
  split(sums[2], a.high[1], a.low[1]);
  split(sums[1], a.high[2], a.low[2]);
  split(sums[3], a.high[3], a.low[3]);
  return a;
}

// Two numbers rounded to T in a word, the first in its lower half.
template <class T>
__device__ __forceinline__ uint32_t word_of(float first, float second) {
  const Pack<T, 2> values = {{from_float<T>(first), from_float<T>(second)}};
  return word_at(values.values);
}

// sums += A B of a 16 x 16 by a 16 x 8 matrix of T, half or bfloat16, by a whole warp; words hold
// two entries, side by side in A and one above the other in B. A lane holds
//   a: A (group, 2 in ...), (group + 8, 2 in ...), (group, 2 in + 8 ...), (group + 8, 2 in + 8 ...)
//   b: B (2 in ..., group), (2 in + 8 ..., group)
//   sums: as above
#ifdef NYSTRA_BLOCK_EMULATOR
template <class T>
void multiply_add_16(float (&sums)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                     EMU_PLACE) {
  const uint32_t b[2] = {b0, b1};
  emu::multiply_add_16<T>(sums, a, b, file, line);
}
#else
template <class T>
__device__ __forceinline__ void multiply_add_16(float (&sums)[4], const uint32_t (&a)[4],
                                                uint32_t b0, uint32_t b1) {
#if __CUDA_ARCH__ >= 800
  if constexpr (std::is_same_v<T, __half>)
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
  __trap();
#endif
}
#endif

constexpr int kTensorMost = 64;  // channels of products of 16 bits an entry

// Elements between two rows of `steps` times 16 channels: 16 bytes more than these, so that 8 rows
// lie in all banks.
__host__ __device__ constexpr int tensor_step(int steps) { return 16 * steps + 8; }

// Four 8 x 8 matrices of 16 bits an entry from shared memory. Lane l gives row l % 8 of matrix
// l / 8, 16 bytes at a multiple of 16; word n of a lane is then (group, 2 in ...) of matrix n, or
// with kTransposed its (2 in, group) and (2 in + 1, group).
#ifdef NYSTRA_BLOCK_EMULATOR
template <bool kTransposed>
__forceinline__ void load_matrices(uint32_t (&words)[4], const void* row, EMU_PLACE) {
  emu::load_matrices<kTransposed>(words, row, file, line);
}
#else
template <bool kTransposed>
__device__ __forceinline__ void load_matrices(uint32_t (&words)[4], const void* row) {
#if __CUDA_ARCH__ >= 800
  const auto from = static_cast<unsigned>(__cvta_generic_to_shared(row));
  if constexpr (kTransposed)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(from)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(from)
                 : "memory");
#else
  __trap();
#endif
}
#endif

// Returns the sum over the 4 lanes of a row.
__device__ __forceinline__ float row_sum(float v) {
  v += __shfl_xor_sync(kAllLanes, v, 1);
  return v + __shfl_xor_sync(kAllLanes, v, 2);
}

__device__ __forceinline__ float row_max(float v) {
  v = fmaxf(v, __shfl_xor_sync(kAllLanes, v, 1));
  return fmaxf(v, __shfl_xor_sync(kAllLanes, v, 2));
}

}  // namespace
}  // namespace nystra::cuda
