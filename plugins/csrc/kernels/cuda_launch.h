// How the CUDA kernels are called: device pointers and a stream in, a status out.
//
// A call enqueues its work on the stream and returns: it allocates nothing, does not synchronize
// and may be captured into a graph. `workspace` is device memory of at least as many bytes as the
// function named after the operator says for the same parameters, aligned to 256 bytes; null where
// that is 0. It is the call's own until its work is done. Inputs and outputs are contiguous,
// aligned to their elements (faster: to 16 bytes), and do not overlap; all are of `type`,
// arithmetic is in float. A map without elements is fine.
#pragma once

#include <cstddef>

#include "kernel.h"

namespace nystra::cuda {

using Stream = void*;  // a cudaStream_t

// What a launch may use; tests pass less. Every architecture from sm_75 on has the defaults.
struct LaunchLimits {
  int64_t shared_bytes = 48 * 1024;      // of a block; more where the device has more and it helps
  int64_t warps = 4;                     // of a block: 1, 2 or 4
  int64_t blocks = 512;                  // that share a workspace among them
  int64_t max_shared_bytes = INT64_MAX;  // of a block, on devices that have more
};

}  // namespace nystra::cuda
