// The CPU kernels: the table of one instruction set.
//
// A kernel takes raw pointers, a range of tasks and scratch memory, and returns a status. A task
// is one matrix, or one head of one window; tasks of a call touch disjoint parts of the output
// and may run at the same time, each with scratch of its own. An operator's functions, and their
// parameters, are in ../<operator>.h: `scratch` functions return the floats that one running task
// needs, aligned to 64 bytes, `maxima` functions merge into `result`.
#pragma once

#include "kernels/operators.h"

namespace nystra {

struct Half {
  uint16_t bits;
};

struct BFloat16 {
  uint16_t bits;
};

// The kernels of one instruction set.
struct Kernels {
  const char* isa;
#define NYSTRA_POINTER(result, name, parameters) result(*name) parameters;
  NYSTRA_CPU_KERNELS(NYSTRA_POINTER)
#undef NYSTRA_POINTER
};

// The table in use: the best of this CPU, or that of NYSTRA_CPU_ISA; null if that one is unknown or
// cannot run here.
const Kernels* kernels();

}  // namespace nystra
