// The operators on a CUDA device: bytes of workspace(operator, shapes of the inputs), which throws
// Refusal where the kernel is not made for them, and launch(operator, its tensors, workspace,
// stream), which allocates nothing and does not wait. One file each.
#pragma once

#include "kernels/cuda/kernels_cuda.h"
#include "operators/operators.h"
#include "operators/table.h"
#include "operators/tensors.h"

namespace nystra::cuda {

#define NYSTRA_DECLARE(Operator)                      \
  size_t workspace(const Operator&, const Shape* in); \
  Status launch(const Operator&, const Tensors&, void* workspace, Stream);
NYSTRA_OPERATORS(NYSTRA_DECLARE)
#undef NYSTRA_DECLARE

}  // namespace nystra::cuda
