// NystraWindowNystromformer: the row-normalized Nystrom attention in windows of a shifted map.
#include "isa.h"
#include "landmark_kernel.h"

namespace nystra::NYSTRA_ISA {

int64_t window_nystromformer_scratch(const WindowNystromParams& params) {
  return landmark_scratch<Form::kSoftmax>(params);
}

Status window_nystromformer_maxima(const WindowNystromParams& params, Type type, const void* qkv,
                                   int64_t first, int64_t last, float* scratch,
                                   BatchMaxima* result) {
  return landmark_maxima<Form::kSoftmax>(params, type, qkv, first, last, scratch, result);
}

Status window_nystromformer(const WindowNystromParams& params, Type type, const void* qkv,
                            const BatchMaxima& batch, void* out, int64_t first, int64_t last,
                            float* scratch) {
  return landmark_attention<Form::kSoftmax>(params, type, qkv, batch, out, first, last, scratch);
}

}  // namespace nystra::NYSTRA_ISA
