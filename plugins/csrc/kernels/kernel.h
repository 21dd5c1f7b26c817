// Common to all kernels: element types and the status of a call.
//
// Parameters of a kernel are checked by the operators: heads * (2 * head_dim + value_dim) channels,
// maps a multiple of the window, shifts smaller than it.
#pragma once

#include <cstdint>

#include "kernels/limits.h"

namespace nystra {

enum class Type { kFloat, kHalf, kBfloat16 };

constexpr int64_t element_bytes(Type type) { return type == Type::kFloat ? 4 : 2; }

enum class Status {
  kOk,
  kNoScratch,    // the call needs scratch memory (CUDA: a workspace) and got none
  kUnsupported,  // sizes that the kernel does not support
  kLaunch,       // CUDA refused a launch; no kernel image for the device, or no device
};

}  // namespace nystra
