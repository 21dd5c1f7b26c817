// NystraWindowSoftmax: exact attention in the windows of a shifted map.
#include "softmax_window.h"

namespace nystra::NYSTRA_ISA {

int64_t window_softmax_tasks(const WindowShape& s) { return s.windows() * s.heads * chunks(s); }

int64_t window_softmax_scratch(const WindowShape& s) { return head_scratch(head_size(s)); }

int64_t window_softmax_bias_size(const WindowShape& s) { return s.heads * bias_step(s) + kLanes; }

void window_softmax_bias(const WindowShape& s, Type type, const void* table, float* bias) {
  with_elements(type, [&](auto t) { fill_bias(s, t.of(table), bias); });
}

Status window_softmax(const WindowSoftmaxParams& params, Type type, const void* qkv, void* out,
                      int64_t first, int64_t last, float* scratch) {
  return softmax_tasks<Keys::kInside>(params, type, qkv, out, first, last, scratch);
}

}  // namespace nystra::NYSTRA_ISA
