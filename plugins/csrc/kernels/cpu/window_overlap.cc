// NystraWindowOverlap: exact attention of windows to the keys in and around them.
#include "softmax_window.h"

namespace nystra::NYSTRA_ISA {

Status window_overlap(const WindowSoftmaxParams& params, Type type, const void* qkv, void* out,
                      int64_t first, int64_t last, float* scratch) {
  return softmax_tasks<Keys::kAround>(params, type, qkv, out, first, last, scratch);
}

}  // namespace nystra::NYSTRA_ISA
