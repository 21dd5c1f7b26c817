// Products of small float matrices in shared memory or in a workspace. A thread computes 4 columns
// of kRows rows of a result. Rows are padded with zeros to a multiple of 4 floats, and `step`, an
// odd multiple of 4, lets 8 lanes read 4 floats each of 8 rows without a bank conflict.
#pragma once

#include "portable.h"

namespace nystra::cuda {
namespace {

// Returns the distance between padded rows of n floats.
__host__ __device__ constexpr int row_step(int n) {
  return round_up(n, 4) / 4 % 2 == 0 ? round_up(n, 4) + 4 : round_up(n, 4);
}

template <int kRows>
struct Result {
  float v[kRows][4];
};

__device__ __forceinline__ float4 load4(const float* p) {
  return *reinterpret_cast<const float4*>(p);
}

__device__ __forceinline__ void store4(float* p, const float (&v)[4]) {
  *reinterpret_cast<float4*>(p) = make_float4(v[0], v[1], v[2], v[3]);
}

template <int kRows>
__device__ __forceinline__ Result<kRows> zero_result() {
  Result<kRows> r;
#pragma unroll
  for (int i = 0; i < kRows; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) r.v[i][j] = 0.0f;
  return r;
}

// r[i] = p[i * step ... + 3]
template <int kRows>
__device__ __forceinline__ void load_rows(Result<kRows>& r, const float* p, int step) {
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const float4 row = load4(p + i * step);
    r.v[i][0] = row.x, r.v[i][1] = row.y, r.v[i][2] = row.z, r.v[i][3] = row.w;
  }
}

// r[i][j] += sum over k < n of a[i * a_step + k] b[k * b_step + j]; n a multiple of 4
template <int kRows>
__device__ __forceinline__ void add_rows_by_columns(Result<kRows>& r, const float* a, int a_step,
                                                    const float* b, int b_step, int n) {
  for (int k = 0; k < n; k += 4) {
    Result<4> y;
    load_rows(y, b + k * b_step, b_step);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const float4 x = load4(a + i * a_step + k);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        r.v[i][j] = fmaf(x.x, y.v[0][j], r.v[i][j]);
        r.v[i][j] = fmaf(x.y, y.v[1][j], r.v[i][j]);
        r.v[i][j] = fmaf(x.z, y.v[2][j], r.v[i][j]);
        r.v[i][j] = fmaf(x.w, y.v[3][j], r.v[i][j]);
      }
    }
  }
}

}  // namespace
}  // namespace nystra::cuda
