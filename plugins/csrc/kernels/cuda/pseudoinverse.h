// The iterative pseudoinverse of one m x m matrix, computed by a group of threads.
//
//   Z0[i, j] = A[j, i] / (R C + 1e-15), then Z <- Z (13 I - A Z (15 I - A Z (7 I - A Z))) / 4
#pragma once

#include "products.h"

namespace nystra::cuda {
namespace {

// Matrices of round_up(m, 4) rows at a distance of row_step(m) floats; the padding is zero.
struct PinvBuffers {
  float *a, *z, *x, *u, *t;
  float *row_sums, *col_sums, *divisors;  // (m)
};

__host__ __device__ constexpr int pinv_floats(int m) { return round_up(m, 4) * row_step(m); }

constexpr int kWarpMatrix = 16;  // the largest matrix that a single warp inverts

// The threads that work on one matrix: a warp, or the whole block.
struct WarpGroup {
  __device__ int thread() const { return int(threadIdx.x) % kWarp; }
  __device__ int threads() const { return kWarp; }
  __device__ void sync() const { __syncwarp(); }
};

struct BlockGroup {
  __device__ int thread() const { return int(threadIdx.x); }
  __device__ int threads() const { return int(blockDim.x); }
  __device__ void sync() const { __syncthreads(); }
};

// Returns the larger number, or NaN if one is NaN.
__device__ __forceinline__ float larger(float a, float b) { return b > a || b != b ? b : a; }

// Fills row_sums and col_sums of abs A. Ends with a barrier.
template <class Group>
__device__ void absolute_sums(const Group& group, const PinvBuffers& p, int m) {
  const int step = row_step(m);
  for (int i = group.thread(); i < 2 * m; i += group.threads()) {
    float sum = 0.0f;
    for (int k = 0; k < m; ++k) sum += fabsf(i < m ? p.a[i * step + k] : p.a[k * step + i - m]);
    (i < m ? p.row_sums[i] : p.col_sums[i - m]) = sum;
  }
  group.sync();
}

// Merges the largest row and column sum into two floats that were set to 0. The atomic maximum is
// of their bits, which have the order of the floats for numbers >= 0 and NaN.
template <class Group>
__device__ void merge_maxima(const Group& group, const PinvBuffers& p, int m, unsigned* maxima) {
  if (group.thread() < 2) {
    const float* const sums = group.thread() == 0 ? p.row_sums : p.col_sums;
    float largest = 0.0f;
    for (int i = 0; i < m; ++i) largest = larger(largest, sums[i]);
    atomicMax(maxima + group.thread(), __float_as_uint(fabsf(largest)));
  }
}

// Computes Z0 from row_sums and col_sums. R and C are the maxima of the batch or, if `batch` is
// null, the largest sums of this matrix. Ends with a barrier.
template <class Group>
__device__ void start_value(const Group& group, const PinvBuffers& p, int m,
                            const unsigned* batch) {
  const int step = row_step(m), rows = round_up(m, 4);
  for (int i = group.thread(); i < m; i += group.threads()) {
    float row = 0.0f, column = 0.0f;
    if (batch != nullptr) {
      row = __uint_as_float(batch[0]);
      column = __uint_as_float(batch[1]);
    } else {
      for (int k = 0; k < m; ++k) {
        row = larger(row, p.row_sums[k]);
        column = larger(column, p.col_sums[k]);
      }
    }
    p.divisors[i] = row * column + 1e-15f;
  }
  group.sync();
  for (int e = group.thread(); e < rows * step; e += group.threads()) {
    const int i = e / step, j = e % step;
    p.z[e] = i < m && j < m ? p.a[j * step + i] / p.divisors[i] : 0.0f;
  }
  group.sync();
}

// Computes out = scale (diagonal I + linear a + product a b).
template <int kRows, class Group>
__device__ __forceinline__ void polynomial(const Group& group, float* out, const float* a,
                                           const float* b, int m, float scale, float diagonal,
                                           float linear, float product) {
  const int step = row_step(m), size = round_up(m, 4), across = size / 4;
  for (int unit = group.thread(); unit < size / kRows * across; unit += group.threads()) {
    const int row = unit / across * kRows, column = unit % across * 4;
    Result<kRows> sum = zero_result<kRows>(), old;
    add_rows_by_columns(sum, a + row * step, step, b + column, step, size);
    load_rows(old, a + row * step + column, step);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float identity = row + i == column + j && row + i < m ? diagonal : 0.0f;
        sum.v[i][j] = scale * (product * sum.v[i][j] + (linear * old.v[i][j] + identity));
      }
      store4(out + (row + i) * step + column, sum.v[i]);
    }
  }
  group.sync();
}

template <int kRows, class Group>
__device__ void iterate(const Group& group, PinvBuffers& p, int m, int iterations) {
  for (int i = 0; i < iterations; ++i) {
    polynomial<kRows>(group, p.x, p.a, p.z, m, 1.0f, 0.0f, 0.0f, 1.0f);    // X = A Z
    polynomial<kRows>(group, p.u, p.x, p.x, m, 1.0f, 15.0f, -7.0f, 1.0f);  // U = 15 I - X (7 I - X)
    polynomial<kRows>(group, p.t, p.x, p.u, m, 1.0f, 13.0f, 0.0f, -1.0f);  // T = 13 I - X U
    polynomial<kRows>(group, p.x, p.z, p.t, m, 0.25f, 0.0f, 0.0f, 1.0f);   // Z = Z T / 4
    float* const z = p.z;
    p.z = p.x;
    p.x = z;
  }
}

// Runs the iterations on A and Z0. Afterwards p.z points to Z. Ends with a barrier.
__device__ __forceinline__ void iterate(const WarpGroup& group, PinvBuffers& p, int m,
                                        int iterations) {
  if (m <= 8)  // few results: one row a thread keeps more threads busy
    iterate<1>(group, p, m, iterations);
  else
    iterate<2>(group, p, m, iterations);
}

__device__ __forceinline__ void iterate(const BlockGroup& group, PinvBuffers& p, int m,
                                        int iterations) {
  iterate<4>(group, p, m, iterations);
}

}  // namespace
}  // namespace nystra::cuda
