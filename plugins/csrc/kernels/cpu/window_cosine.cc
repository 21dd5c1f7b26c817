// NystraWindowCosine: exact attention by cosines in the windows of a shifted map.
#include "softmax_window.h"

namespace nystra::NYSTRA_ISA {

void window_cosine_factors(const WindowShape& s, Type type, const void* logit_scale,
                           float* factors) {
  with_elements(type, [&](auto t) {
    for (int64_t head = 0; head < s.heads; ++head)
      factors[head] = to_float(t.of(logit_scale)[head]);
  });
}

Status window_cosine(const WindowSoftmaxParams& params, Type type, const void* qkv, void* out,
                     int64_t first, int64_t last, float* scratch) {
  return softmax_tasks<Keys::kCosine>(params, type, qkv, out, first, last, scratch);
}

}  // namespace nystra::NYSTRA_ISA
