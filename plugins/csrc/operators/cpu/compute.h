// The operators on the CPU: compute(operator, its tensors, who runs the tasks), one file each.
// They throw Refusal or std::bad_alloc. No output is empty.
#pragma once

#include "operators/operators.h"
#include "operators/table.h"
#include "operators/tensors.h"
#include "threads.h"

namespace nystra::cpu {

#define NYSTRA_DECLARE(Operator) void compute(const Operator&, const Tensors&, const Threads&);
NYSTRA_OPERATORS(NYSTRA_DECLARE)
#undef NYSTRA_DECLARE

}  // namespace nystra::cpu
