// Cuts the scratch memory of a task into arrays, or counts how much is needed.
#pragma once

#include "simd.h"

namespace nystra::NYSTRA_ISA {
namespace {

class Scratch {
 public:
  explicit Scratch(float* base) : base_(base) {}

  float* take(int64_t floats) {
    float* const taken = base_ == nullptr ? nullptr : base_ + used_;
    used_ += round_up(floats, 16);
    return taken;
  }

  int64_t used() const { return used_; }

 private:
  float* base_;
  int64_t used_ = 0;
};

}  // namespace
}  // namespace nystra::NYSTRA_ISA
