// The kernels of NystraPatchMatch: the k nearest patches, approximately.
#pragma once

#include "cuda_launch.h"

namespace nystra {

// Meaning and limits: ../../operators/patch_match. Query (B, C, H, W), key (B, C, Hk, Wk).
struct PatchMatchParams {
  int64_t channels, height, width, key_height, key_width;
  int64_t patch, iterations, neighbors, metric, seed;
  bool masked;    // the key mask has more than one element a map
  bool same_map;  // the query map is the key map; the CUDA kernel does not read it
};

// Where the search reads and writes. Masks and starts are read with steps, in elements: from image
// to image, (starts: from neighbor to neighbor,) from row to row, from column to column; 0 along
// an axis where they are broadcast. Query, key and the field (B, k, H, W) are contiguous.
struct PatchMatchMaps {
  int64_t batch;
  const void *query, *key;
  const void *query_mask, *key_mask;
  int64_t query_mask_steps[3], key_mask_steps[3];
  const int32_t* start;
  int64_t start_steps[4];
  int32_t* index;
  void* score;
};

// On the CPU a batch is searched image by image: `maps` are of one. A search goes in steps, each a
// number of tasks; all of them share one workspace (floats).
#define NYSTRA_PATCH_MATCH_CPU(X)                                                            \
  X(int64_t, patch_match_workspace, (const PatchMatchParams&))                               \
  X(int64_t, patch_match_steps, (const PatchMatchParams&))                                   \
  X(int64_t, patch_match_tasks, (const PatchMatchParams&, int64_t step))                     \
  X(Status, patch_match,                                                                     \
    (const PatchMatchParams&, Type, const PatchMatchMaps& maps, int64_t step, int64_t first, \
     int64_t last, float* workspace))

namespace cuda {

// Maps have fewer than kMaxPixels pixels; 0 bytes where the kernel does not support the sizes.
size_t patch_match_workspace(const PatchMatchParams& params, int64_t batch, Type type,
                             const LaunchLimits& limits = {});
Status patch_match(const PatchMatchParams& params, Type type, const PatchMatchMaps& maps,
                   void* workspace, Stream stream, const LaunchLimits& limits = {});

}  // namespace cuda
}  // namespace nystra
