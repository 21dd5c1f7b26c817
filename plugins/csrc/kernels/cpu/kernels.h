// The CPU kernels: their parameters, and the table of one instruction set.
//
// A kernel takes raw pointers, a range of tasks and scratch memory, and returns a status. A task
// is one matrix, or one head of one window; tasks of a call touch disjoint parts of the output
// and may run at the same time, each with scratch of its own. Parameters are in ../params.h.
#pragma once

#include <cstdint>

#include "../params.h"

namespace nystra {

struct Half {
  uint16_t bits;
};

struct BFloat16 {
  uint16_t bits;
};

// Maxima of row and column sums of abs A over a whole batch; negative: take those of each matrix.
struct BatchMaxima {
  float row, column;
};

constexpr BatchMaxima kOwnMaxima = {-1.0f, -1.0f};

// Merges maxima; NaN stays NaN.
static inline void merge(const BatchMaxima& from, BatchMaxima* into) {
  const auto larger = [](float a, float b) { return b > a || b != b ? b : a; };
  into->row = larger(into->row, from.row);
  into->column = larger(into->column, from.column);
}

struct WindowSoftmaxParams {
  WindowShape shape;
  const float* bias;  // made by window_softmax_bias or window_overlap_bias; null: none
};

struct WindowClusterParams {
  ClusterParams cluster;
  const float* bias;  // made by window_cluster_bias
};

// One element of the batch. Masks and starts are read with a step of 0 where they are broadcast.
struct PatchMatchMaps {
  const void *query, *key;
  const void *query_mask, *key_mask;
  int64_t query_mask_steps[2], key_mask_steps[2];  // from row to row, from column to column
  const int32_t* start;
  int64_t start_steps[3];  // from neighbour to neighbour, row to row, column to column
  int32_t* index;
  void* score;
};

// X(result, name, parameters) of every function of an instruction set. `scratch` functions return
// the floats that one running task needs, aligned to 64 bytes. `maxima` functions merge into
// `result`. A search goes in steps, each a number of tasks; all of them share one workspace
// (floats).
#define NYSTRA_CPU_KERNELS(X)                                                                    \
  X(int64_t, pinv_scratch, (const PinvParams&))                                                  \
  X(Status, pinv_maxima,                                                                         \
    (const PinvParams&, Type, const void* a, int64_t first, int64_t last, float* scratch,        \
     BatchMaxima* result))                                                                       \
  X(Status, pinv,                                                                                \
    (const PinvParams&, Type, const void* a, const BatchMaxima&, void* z, int64_t first,         \
     int64_t last, float* scratch))                                                              \
  X(int64_t, window_softmax_tasks, (const WindowShape&))                                         \
  X(int64_t, window_softmax_scratch, (const WindowShape&))                                       \
  X(int64_t, window_softmax_bias_size, (const WindowShape&))                                     \
  X(void, window_softmax_bias, (const WindowShape&, Type, const void* table, float* bias))       \
  X(Status, window_softmax,                                                                      \
    (const WindowSoftmaxParams&, Type, const void* qkv, void* out, int64_t first, int64_t last,  \
     float* scratch))                                                                            \
  X(int64_t, window_overlap_tasks, (const WindowShape&))                                         \
  X(int64_t, window_overlap_scratch, (const WindowShape&))                                       \
  X(int64_t, window_overlap_bias_size, (const WindowShape&))                                     \
  X(void, window_overlap_bias, (const WindowShape&, Type, const void* table, float* bias))       \
  X(Status, window_overlap,                                                                      \
    (const WindowSoftmaxParams&, Type, const void* qkv, void* out, int64_t first, int64_t last,  \
     float* scratch))                                                                            \
  X(int64_t, window_nystrom_scratch, (const LandmarkParams&))                                    \
  X(Status, window_nystrom_maxima,                                                               \
    (const LandmarkParams&, Type, const void* qkv, int64_t first, int64_t last, float* scratch,  \
     BatchMaxima* result))                                                                       \
  X(Status, window_nystrom,                                                                      \
    (const LandmarkParams&, Type, const void* qkv, const BatchMaxima&, void* out, int64_t first, \
     int64_t last, float* scratch))                                                              \
  X(int64_t, window_nystromformer_scratch, (const LandmarkParams&))                              \
  X(Status, window_nystromformer_maxima,                                                         \
    (const LandmarkParams&, Type, const void* qkv, int64_t first, int64_t last, float* scratch,  \
     BatchMaxima* result))                                                                       \
  X(Status, window_nystromformer,                                                                \
    (const LandmarkParams&, Type, const void* qkv, const BatchMaxima&, void* out, int64_t first, \
     int64_t last, float* scratch))                                                              \
  X(int64_t, window_cluster_scratch, (const ClusterParams&))                                     \
  X(int64_t, window_cluster_bias_size, (const ClusterParams&))                                   \
  X(void, window_cluster_bias, (const ClusterParams&, Type, const void* table, float* bias))     \
  X(Status, window_cluster,                                                                      \
    (const WindowClusterParams&, Type, const void* qkv, void* out, int64_t first, int64_t last,  \
     float* scratch))                                                                            \
  X(int64_t, patch_match_workspace, (const PatchMatchParams&))                                   \
  X(int64_t, patch_match_steps, (const PatchMatchParams&))                                       \
  X(int64_t, patch_match_tasks, (const PatchMatchParams&, int64_t step))                         \
  X(Status, patch_match,                                                                         \
    (const PatchMatchParams&, Type, const PatchMatchMaps&, int64_t step, int64_t first,          \
     int64_t last, float* workspace))

// The kernels of one instruction set.
struct Kernels {
  const char* isa;
#define NYSTRA_POINTER(result, name, parameters) result(*name) parameters;
  NYSTRA_CPU_KERNELS(NYSTRA_POINTER)
#undef NYSTRA_POINTER
};

// The table in use: the best this CPU has, or the one NYSTRA_CPU_ISA names; null where that one
// is unknown or cannot run here.
const Kernels* kernels();

}  // namespace nystra
