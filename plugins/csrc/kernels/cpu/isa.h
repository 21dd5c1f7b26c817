// The functions of each instruction set, with the same names in its namespace. A kernel's source
// includes this for the set that it is compiled for.
#pragma once

#include "kernels.h"

#define NYSTRA_FUNCTION(result, name, parameters) result name parameters;

namespace nystra::generic {
NYSTRA_CPU_KERNELS(NYSTRA_FUNCTION)
}
namespace nystra::avx2 {
NYSTRA_CPU_KERNELS(NYSTRA_FUNCTION)
}
namespace nystra::avx512 {
NYSTRA_CPU_KERNELS(NYSTRA_FUNCTION)
}
namespace nystra::avx512_bf16 {  // those that compute pairs alone; the others are avx512's
NYSTRA_CPU_KERNELS(NYSTRA_FUNCTION)
}
namespace nystra::amx {  // likewise those that compute on tiles
NYSTRA_CPU_KERNELS(NYSTRA_FUNCTION)
}

#undef NYSTRA_FUNCTION
