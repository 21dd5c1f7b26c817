// Limits that kernels are built for. Made by write_tables.py from
// ../../operators/*/schema.py: change those, and run it.
// clang-format off
#pragma once

#include <cstdint>

namespace nystra {

constexpr int64_t kMaxPinvSize = 128;  // m, of the kernels
constexpr int64_t kMaxLandmarks = 64;  // landmarks of a window
constexpr int64_t kMaxClusters = 64;  // clusters of a window
constexpr int64_t kMaxBlock = 8;  // side of a block that is exact inside
constexpr int64_t kMaxBiasBlocks = 1024;  // blocks of the coarse bias in a window
constexpr int64_t kMaxPixels = 16777216;  // pixels of a map that is searched: fewer
constexpr int64_t kMaxPatch = 23;  // side of a patch
constexpr int64_t kMaxNeighbors = 32;  // entries of a row
constexpr int64_t kL2 = 0;  // metric
constexpr int64_t kDot = 1;  // metric
constexpr int64_t kCosine = 2;  // metric

}  // namespace nystra
