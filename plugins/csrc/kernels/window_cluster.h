// The kernels of NystraWindowCluster, attention with clustered keys: qkv (B, H, W, h(2d+e)) to
// (B, H, W, h e).
#pragma once

#include "window_shape.h"

namespace nystra {

// Meaning and limits: ../../operators/window_cluster. bias_block is a multiple of block.
struct ClusterParams {
  WindowShape shape;
  int64_t rows, cols, rounds;  // of clusters; rounds after the first
  int64_t block, bias_block;   // sides; the last block of a window may be smaller
  bool covariance;             // clusters have the covariance of their keys and values

  int64_t clusters() const { return rows * cols; }
};

struct WindowClusterParams {
  ClusterParams cluster;
  const float* bias;  // by window_cluster_bias
};

#define NYSTRA_WINDOW_CLUSTER_CPU(X)                                                            \
  X(int64_t, window_cluster_scratch, (const ClusterParams&))                                    \
  X(int64_t, window_cluster_bias_size, (const ClusterParams&))                                  \
  X(void, window_cluster_bias, (const ClusterParams&, Type, const void* table, float* bias))    \
  X(Status, window_cluster,                                                                     \
    (const WindowClusterParams&, Type, const void* qkv, void* out, int64_t first, int64_t last, \
     float* scratch))

}  // namespace nystra
