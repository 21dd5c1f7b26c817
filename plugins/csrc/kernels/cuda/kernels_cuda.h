// The CUDA kernels: device pointers and a stream in, a status out.
//
// A call enqueues its work on the stream and returns: it allocates nothing, does not synchronise
// and may be captured into a graph. `workspace` is device memory of at least as many bytes as the
// function named after the operator says for the same parameters, aligned to 256 bytes; null where
// that is 0. It is the call's own until its work is done. Inputs and outputs are contiguous,
// aligned to their elements (faster: to 16 bytes), and do not overlap; all are of `type`,
// arithmetic is in float. Parameters are checked by the caller, see ../params.h; a map without
// elements is fine.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../params.h"

namespace nystra::cuda {

using Stream = void*;  // a cudaStream_t

// What a launch may use; tests ask for less. Every architecture from sm_75 on has the defaults.
struct Limits {
  int64_t shared_bytes = 48 * 1024;  // of a block; more where the device has more and it helps
  int64_t warps = 4;                 // of a block: 1, 2 or 4
  int64_t blocks = 512;              // that share a workspace among them
  bool tensor_cores = true;          // where they pay; NYSTRA_CUDA_TENSOR_CORES=0 forbids them too
};

// Z (matrices, m, m) of A (matrices, m, m), m = params.size to kMaxPinvSize. batch_init: the
// maxima of the start value run over all matrices.
size_t pinv_workspace(const PinvParams& params, bool batch_init, const Limits& limits = {});
Status pinv(const PinvParams& params, bool batch_init, Type type, const void* a, void* z,
            void* workspace, Stream stream, const Limits& limits = {});

// Exact attention: qkv (B, H, W, h(2d+e)) to (B, H, W, h e). bias_table ((2wh-1)(2ww-1), h), or
// null: none.
size_t window_softmax_workspace(const WindowShape& shape, const Limits& limits = {});
Status window_softmax(const WindowShape& shape, Type type, const void* qkv, const void* bias_table,
                      void* out, void* workspace, Stream stream, const Limits& limits = {});

// Exact attention to the keys in and around each window; zeros beyond the map. bias_table
// ((wh+kh-1)(ww+kw-1), h), or null: none.
size_t window_overlap_workspace(const WindowShape& shape, const Limits& limits = {});
Status window_overlap(const WindowShape& shape, Type type, const void* qkv, const void* bias_table,
                      void* out, void* workspace, Stream stream, const Limits& limits = {});

// The kernel Nystrom form, to kMaxLandmarks landmarks.
size_t window_nystrom_workspace(const LandmarkParams& params, bool batch_init,
                                const Limits& limits = {});
Status window_nystrom(const LandmarkParams& params, bool batch_init, Type type, const void* qkv,
                      void* out, void* workspace, Stream stream, const Limits& limits = {});

// The row-normalised Nystrom form; params.threshold and params.guard are not read.
size_t window_nystromformer_workspace(const LandmarkParams& params, bool batch_init,
                                      const Limits& limits = {});
Status window_nystromformer(const LandmarkParams& params, bool batch_init, Type type,
                            const void* qkv, void* out, void* workspace, Stream stream,
                            const Limits& limits = {});

// Attention with clustered keys. bias_table ((2wh-1)(2ww-1), h), or null: none.
size_t window_cluster_workspace(const ClusterParams& params, bool biased,
                                const Limits& limits = {});
Status window_cluster(const ClusterParams& params, Type type, const void* qkv,
                      const void* bias_table, void* out, void* workspace, Stream stream,
                      const Limits& limits = {});

// Where the search reads and writes. Masks and starts are read with steps, in elements; a step
// of 0 where they are broadcast along an axis. Query (B, C, H, W), key (B, C, Hk, Wk) and the field
// (B, k, H, W) are contiguous.
struct PatchMatchMaps {
  int64_t batch;
  const void *query, *key;
  const void *query_mask, *key_mask;
  int64_t query_mask_steps[3],
      key_mask_steps[3];  // from image to image, row to row, column to column
  const int32_t* start;
  int64_t
      start_steps[4];  // from image to image, neighbour to neighbour, row to row, column to column
  int32_t* index;
  void* score;
};

// k approximate nearest patches; params.same_map is not read. Maps have fewer than 2^24 pixels.
size_t patch_match_workspace(const PatchMatchParams& params, int64_t batch,
                             const Limits& limits = {});
Status patch_match(const PatchMatchParams& params, Type type, const PatchMatchMaps& maps,
                   void* workspace, Stream stream, const Limits& limits = {});

}  // namespace nystra::cuda
