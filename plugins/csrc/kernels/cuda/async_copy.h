// Asynchronous copies (cp.async) from global to shared memory, which need no registers.
//
// The copies since the last commit_copies() form a group. A thread waits only for its own groups; a
// barrier after the wait makes the copies visible to the block. The instruction exists from sm_80
// on; code that is compiled for older architectures must not be launched.
#pragma once

#include "portable.h"

namespace nystra::cuda {
namespace {

// Copies kBytes (4, 8 or 16); both addresses are multiples of kBytes. If not `there`, writes zeros
// and does not read `from`.
#ifdef NYSTRA_BLOCK_EMULATOR
template <int kBytes>
__forceinline__ void copy_async(void* to, const void* from, bool valid, EMU_PLACE) {
  emu::begin_copy(to, from, kBytes, valid ? kBytes : 0, file, line);
}
inline void commit_copies() { emu::commit_copies(); }
template <int kGroups>
__forceinline__ void wait_for_copies() {
  emu::wait_for_copies(kGroups);
}
#else
template <int kBytes>
__device__ __forceinline__ void copy_async(void* to, const void* from, bool valid) {
#if __CUDA_ARCH__ >= 800
  const auto target = static_cast<unsigned>(__cvta_generic_to_shared(to));
  const int bytes = valid ? kBytes : 0;
  if constexpr (kBytes == 16)  // bypasses L1: no other thread of the block reads it again
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(target), "l"(from),
                 "r"(bytes)
                 : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(target), "l"(from),
                 "n"(kBytes), "r"(bytes)
                 : "memory");
#else
  __trap();
#endif
}

__device__ __forceinline__ void commit_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#else
  __trap();
#endif
}

// Waits until at most kGroups of this thread's groups are unfinished.
template <int kGroups>
__device__ __forceinline__ void wait_for_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
#else
  __trap();
#endif
}
#endif

}  // namespace
}  // namespace nystra::cuda
