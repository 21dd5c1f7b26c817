// The tensors of one run of an operator, on any device. Shapes were checked.
#pragma once

#include "kernels/kernel.h"
#include "shape.h"

namespace nystra {

constexpr int kMaxTensors = 8;  // inputs, or outputs, of an operator

struct Tensors {
  Type type;            // of every tensor of kind T
  const Shape* shapes;  // of the inputs
  const void* const* inputs;
  void* const* outputs;
};

}  // namespace nystra
