// Kernels with one fault each, to show that the emulator notices; tests/plugins/test_emulator.py.
#include "kernels/cuda/portable.h"
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

}  // namespace
}  // namespace nystra::cuda

extern "C" __attribute__((visibility("default"))) int emulated_fault(int fault, unsigned seed,
                                                                     float* out) {
  emu::state.seed = seed;
  emu::watch(0, out, 128 * sizeof(float));
  return launch(nystra::cuda::kernel, dim3(2), dim3(64), 64 * sizeof(float), nullptr, fault, out);
}

extern "C" __attribute__((visibility("default"))) const char* emulator_error() {
  return emu::state.error.c_str();
}
