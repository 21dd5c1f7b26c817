// The kernels of NystraWindowOverlap, exact attention to the keys in and around each window, zeros
// beyond the map: qkv (B, H, W, h(2d+e)) to (B, H, W, h e). On the CPU it is NystraWindowSoftmax's.
#pragma once

#include "window_softmax.h"

namespace nystra {

#define NYSTRA_WINDOW_OVERLAP_CPU(X)

}  // namespace nystra
