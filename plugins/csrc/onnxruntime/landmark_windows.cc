#include "operators.h"
#include "windows.h"

namespace nystra::ort {
namespace {

// The region border of a shifted window must not lie strictly inside a landmark's cell.
void check_cells(const char* what, int64_t window, int64_t shift, int64_t parts) {
  const int64_t border = window - shift;
  for (int64_t i = 0; i < parts && shift > 0; ++i) {
    const int64_t start = i * window / parts, end = ((i + 1) * window + parts - 1) / parts;
    if (start < border && border < end)
      throw Refusal("with mask 1 the region border at " + std::to_string(border) + " of " +
                    std::to_string(window) + " " + what + " cuts a landmark's cell (" +
                    std::to_string(parts) +
                    " cells); expected a border between cells: use mask 0, "
                    "other landmarks or full attention (NystraWindowSoftmax) here");
  }
}

}  // namespace

LandmarkWindows::LandmarkWindows(const Attributes& a) : params_{} {
  params_.shape = window_attributes(a);
  params_.rows = a.integer("landmark_rows", 1, kMaxLandmarks);
  params_.cols = a.integer("landmark_cols", 1, kMaxLandmarks);
  params_.iterations = a.integer("iterations", 1, 8);
  batch_init_ = a.integer("batch_init", 0, 1) != 0;
  if (params_.landmarks() > kMaxLandmarks)
    throw Refusal("attributes landmark_rows and landmark_cols give " +
                  std::to_string(params_.rows) + " x " + std::to_string(params_.cols) +
                  " landmarks; expected at most " + std::to_string(kMaxLandmarks));
  if (params_.shape.mask) {
    check_cells("rows", params_.shape.window_h, params_.shape.shift_h, params_.rows);
    check_cells("columns", params_.shape.window_w, params_.shape.shift_w, params_.cols);
  }
}

LandmarkParams LandmarkWindows::with_map(const Tensor& qkv) const {
  LandmarkParams params = params_;
  params.shape = nystra::ort::with_map(params.shape, qkv);
  return params;
}

void LandmarkWindows::compute(const CpuCall& call, const Kernels& k) const {
  const Tensor qkv = call.input(0);
  const LandmarkParams params = with_map(qkv);
  void* const out = call.output(0, output_shape(params.shape));
  if (is_empty(params.shape)) return;
  const int64_t tasks = params.shape.windows() * params.shape.heads, floats = k.scratch(params);
  BatchMaxima given = kOwnMaxima;
  if (batch_init_)
    given = batch_maxima(call, tasks, floats, [&](auto... share) {
      return k.maxima(params, call.type, qkv.data, share...);
    });
  call.parallel(tasks, floats, [&](int64_t first, int64_t last, float* scratch) {
    return k.run(params, call.type, qkv.data, given, out, first, last, scratch);
  });
}

WindowNystrom::WindowNystrom(const Attributes& a) : LandmarkWindows(a) {
  params_.threshold = a.number("threshold", -30.0f, 30.0f);
  params_.guard = a.number("guard", 0.0f, 0.5f);
}

void WindowNystrom::compute(const CpuCall& call) const {
  const nystra::Kernels& k = *kernels();
  LandmarkWindows::compute(call,
                           {k.window_nystrom_scratch, k.window_nystrom_maxima, k.window_nystrom});
}

void WindowNystromformer::compute(const CpuCall& call) const {
  const nystra::Kernels& k = *kernels();
  LandmarkWindows::compute(call, {k.window_nystromformer_scratch, k.window_nystromformer_maxima,
                                  k.window_nystromformer});
}

}  // namespace nystra::ort
