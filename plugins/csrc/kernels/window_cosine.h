// The kernels of NystraWindowCosine, exact attention by the cosines of queries and keys: qkv
// (B, H, W, h(2d+e)) to (B, H, W, h e). On the CPU it is NystraWindowSoftmax's.
#pragma once

#include "window_softmax.h"

namespace nystra {

#define NYSTRA_WINDOW_COSINE_CPU(X)

}  // namespace nystra
