// NystraWindowOverlap: exact attention of windows to the keys in and around them.
#include "softmax_window.h"

namespace nystra::NYSTRA_ISA {

int64_t window_overlap_tasks(const WindowShape& s) { return s.windows() * s.heads * chunks(s); }

int64_t window_overlap_scratch(const WindowShape& s) { return softmax_scratch(s); }

int64_t window_overlap_bias_size(const WindowShape& s) { return s.heads * bias_step(s) + kLanes; }

void window_overlap_bias(const WindowShape& s, Type type, const void* table, float* bias) {
  softmax_bias(s, type, table, bias);
}

Status window_overlap(const WindowSoftmaxParams& params, Type type, const void* qkv, void* out,
                      int64_t first, int64_t last, float* scratch) {
  return softmax_tasks<true>(params, type, qkv, out, first, last, scratch);
}

}  // namespace nystra::NYSTRA_ISA
