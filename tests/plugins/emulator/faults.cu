// Kernels with one fault each, to show that the emulator notices; tests/plugins/test_emulator.py.
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

// Every thread gets the sum of its neighbours in the block, by way of shared memory.
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

}  // namespace
}  // namespace nystra::cuda

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
