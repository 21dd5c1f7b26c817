// Kernels with one fault each, to show that the emulator notices; tests/plugins/test_emulator.py.
#include "kernels/cuda/async_copy.h"
#include "kernels/cuda/tensor_core.h"
#include "races.h"

namespace nystra::cuda {
namespace {

enum Fault {
  kNone,
  kNoBarrier,
  kNoWarpSync,
  kDivergent,
  kShuffle,
  kTooMuch,
  kUnwritten,
  kTwoBlocks
};

// Every thread gets the sum of its neighbors in the block, by way of shared memory.
__global__ void kernel(int fault, float* out) {
  DYNAMIC_SHARED(memory);
  SharedMemory shared(memory);
  const int thread = int(threadIdx.x), threads = int(blockDim.x);
  float* const values = shared.take<float>(threads + (fault == kTooMuch ? 4 : 0));
  if (fault != kUnwritten || thread != 5) values[thread] = float(thread);
  if (fault == kDivergent && thread == 3) return;
  if (fault != kNoBarrier) __syncthreads();
  float sum = values[(thread + 1) % threads] + values[(thread + threads - 1) % threads];
  if (fault == kShuffle && thread % 2 == 0) sum += __shfl_xor_sync(0x55555555u, sum, 1);
  if (fault != kNoWarpSync) __syncthreads();
  values[thread] = sum;
  __syncwarp();
  if (fault == kNoWarpSync) sum = values[thread ^ 1] - sum + sum;
  out[(fault == kTwoBlocks ? 0 : int(blockIdx.x) * threads) + thread] = sum;
}

enum ProductFault { kRight, kSwapped, kNoLow, kExtraBits, kHalfAWarp };

// d (16, 8) = a (16, 8) b (8, 8) by one warp; b exact in tf32. The places are those of the manual.
__global__ void product_kernel(int fault, const float* a, const float* b, float* d) {
  const int lane = int(threadIdx.x), group = lane / 4, in = lane % 4;
  Split<4> left;
  const float mine[4] = {a[group * 8 + in], a[(group + 8) * 8 + in], a[group * 8 + in + 4],
                         a[(group + 8) * 8 + in + 4]};
  for (int i = 0; i < 4; ++i) {
    const int from = fault == kSwapped && (i == 1 || i == 2) ? 3 - i : i;
    split(mine[from], left.high[i], left.low[i]);
    if (fault == kNoLow) left.low[i] = 0;
  }
  uint32_t right[2] = {__float_as_uint(b[in * 8 + group]),
                       __float_as_uint(b[(in + 4) * 8 + group])};
  if (fault == kExtraBits && lane == 7) right[1] |= 1u;
  float sums[4] = {};
  if (fault != kHalfAWarp || lane < 16) multiply_add(sums, left, right);
  d[group * 8 + 2 * in] = sums[0];
  d[group * 8 + 2 * in + 1] = sums[1];
  d[(group + 8) * 8 + 2 * in] = sums[2];
  d[(group + 8) * 8 + 2 * in + 1] = sums[3];
}

enum TileFault {
  kGood,
  kNoWait,       // for the last group of copies
  kNoBarrier16,  // behind the wait
  kLeft,         // copies, at the end of the kernel
  kLanes,        // ldmatrix: the matrices in another order
  kStraight,     // without .trans
  kWords,        // of A exchanged
  kMisaligned    // a row of ldmatrix
};

// d (16, 8) = a (16, 16) b (16, 8) of T by the first warp. Every thread of the block copies a part
// of `a` and b, in two groups.
template <class T>
__global__ void tile_kernel(int fault, const T* a, const T* b, float* d) {
  DYNAMIC_SHARED(memory);
  SharedMemory shared(memory);
  T *const left = shared.take<T>(16 * 24), *const right = shared.take<T>(16 * 24);
  const int thread = int(threadIdx.x), row = thread / 4, part = thread % 4;
  copy_async<8>(left + row * 24 + part * 4, a + row * 16 + part * 4, true);
  commit_copies();
  copy_async<4>(right + row * 24 + part * 2, b + row * 8 + part * 2, true);
  commit_copies();
  if (fault == kNoWait)
    wait_for_copies<1>();
  else
    wait_for_copies<0>();
  if (fault != kNoBarrier16) __syncthreads();
  if (fault == kLeft) copy_async<4>(right + row * 24 + 8, b, false);
  if (thread < kWarp) {
    const int group = thread / 4, in = thread % 4, matrix = thread / 8;
    const int down = fault == kLanes ? matrix / 2 : matrix % 2,
              over = fault == kLanes ? matrix % 2 : matrix / 2;
    uint32_t x[4], y[4];
    load_matrices<false>(x, left + (thread % 8 + 8 * down) * 24 + 8 * over);
    const T* const rows = right + thread % 16 * 24 + (fault == kMisaligned ? 2 : 0);
    if (fault == kStraight)
      load_matrices<false>(y, rows);
    else
      load_matrices<true>(y, rows);
    if (fault == kWords) {
      const uint32_t first = x[1];
      x[1] = x[2];
      x[2] = first;
    }
    float sums[4] = {};
    multiply_add_16<T>(sums, x, y[0], y[1]);
    for (int i = 0; i < 4; ++i) d[(group + i / 2 * 8) * 8 + 2 * in + i % 2] = sums[i];
  }
  if (fault == kNoWait) wait_for_copies<0>();
}

}  // namespace
}  // namespace nystra::cuda

// Of half (0) or bfloat16 (1), as bits.
extern "C" __attribute__((visibility("default"))) int emulated_tile(int fault, int type,
                                                                    const void* a, const void* b,
                                                                    float* d) {
  const auto run = [&](auto* element) {
    using T = std::remove_pointer_t<decltype(element)>;
    return launch(nystra::cuda::tile_kernel<T>, dim3(1), dim3(64), 2 * 16 * 24 * sizeof(T), nullptr,
                  fault, static_cast<const T*>(a), static_cast<const T*>(b), d);
  };
  emu::state.seed = 1;  // the warp that multiplies comes last: it would read what others left out
  return type == 0 ? run(static_cast<__half*>(nullptr)) : run(static_cast<__nv_bfloat16*>(nullptr));
}

extern "C" __attribute__((visibility("default"))) int emulated_product(int fault, const float* a,
                                                                       const float* b, float* d) {
  return launch(nystra::cuda::product_kernel, dim3(1), dim3(32), 0, nullptr, fault, a, b, d);
}

extern "C" __attribute__((visibility("default"))) int emulated_fault(int fault, unsigned seed,
                                                                     float* out) {
  emu::state.seed = seed;
  emu::watch(0, out, 128 * sizeof(float));
  return launch(nystra::cuda::kernel, dim3(2), dim3(64), 64 * sizeof(float), nullptr, fault, out);
}

extern "C" __attribute__((visibility("default"))) const char* emulator_error() {
  return emu::state.error.c_str();
}
