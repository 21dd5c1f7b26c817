// Limits that kernels are made for. Made by write_tables.py from
// ../../operators/*/schema.py: change those, and run it.
// clang-format off
#pragma once

#include <cstdint>

namespace nystra {

constexpr int64_t kMaxLandmarks = 64;       // of a window
constexpr int64_t kMaxClusters = 64;        // of a window
constexpr int64_t kMaxBlock = 8;            // side of a block that is exact inside
constexpr int64_t kMaxBiasBlocks = 1024;    // of a window
constexpr int64_t kMaxPixels = 16777216;    // of a map that is searched: fewer
constexpr int64_t kMaxPatch = 23;           // side of a patch
constexpr int64_t kMaxNeighbors = 32;       // of a pixel
constexpr int64_t kMaxPinvSize = 128;       // rows of a matrix
constexpr int64_t kL2 = 0, kDot = 1, kCosine = 2;  // metric

}  // namespace nystra
