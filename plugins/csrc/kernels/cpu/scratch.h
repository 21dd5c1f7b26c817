// Cuts the scratch memory of a task into arrays, or counts how much is needed.
#pragma once

#include "simd.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace nystra::NYSTRA_ISA {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr int64_t kFence = 16;  // floats after each array that nothing may touch
#else
constexpr int64_t kFence = 0;
#endif

class Scratch {
 public:
  explicit Scratch(float* base) : base_(base) {}

  float* take(int64_t floats) {
    float* const taken = base_ == nullptr ? nullptr : base_ + used_;
    used_ += round_up(floats, 16) + kFence;
#if defined(__SANITIZE_ADDRESS__)
    if (taken != nullptr) {
      __asan_unpoison_memory_region(taken, size_t(floats) * sizeof(float));
      __asan_poison_memory_region(taken + floats,
                                  size_t(base_ + used_ - taken - floats) * sizeof(float));
    }
#endif
    return taken;
  }

  // As many pairs of bfloat16 (pairs.h).
  uint32_t* take_pairs(int64_t pairs) { return reinterpret_cast<uint32_t*>(take(pairs)); }

  int64_t used() const { return used_; }

 private:
  float* base_;
  int64_t used_ = 0;
};

}  // namespace
}  // namespace nystra::NYSTRA_ISA
