// Copies from memory into shared memory that pass no register and that a thread waits for later.
//
// Those since the last commit_copies() are a group. A thread waits for its own groups alone; a
// barrier behind the wait shows the copies to the block. The instruction is there from sm_80 on;
// what is compiled for less must not be launched.
#pragma once

#include "portable.h"

namespace nystra::cuda {
namespace {

// kBytes (4, 8 or 16) at an address that is a multiple of them; zeros where not `there`: `from` is
// then not read.
#ifdef NYSTRA_BLOCK_EMULATOR
template <int kBytes>
__forceinline__ void copy_async(void* to, const void* from, bool there, EMU_PLACE) {
  emu::begin_copy(to, from, kBytes, there ? kBytes : 0, file, line);
}
inline void commit_copies() { emu::commit_copies(); }
template <int kGroups>
__forceinline__ void wait_for_copies() {
  emu::wait_for_copies(kGroups);
}
#else
template <int kBytes>
__device__ __forceinline__ void copy_async(void* to, const void* from, bool there) {
#if __CUDA_ARCH__ >= 800
  const auto target = static_cast<unsigned>(__cvta_generic_to_shared(to));
  const int bytes = there ? kBytes : 0;
  if constexpr (kBytes == 16)  // past L1, which others of the block will not ask again
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

// Until at most kGroups of this thread's groups are under way.
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
