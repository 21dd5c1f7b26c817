#include "landmark_windows.h"

namespace nystra::trt {
namespace {

// The region border of a shifted window must not lie strictly inside a landmark's cell.
void check_cells(const char* what, int64_t window, int64_t shift, int64_t parts) {
  const int64_t border = window - shift;
  for (int64_t i = 0; i < parts && shift > 0; ++i) {
    const int64_t start = i * window / parts, end = ((i + 1) * window + parts - 1) / parts;
    if (start < border && border < end)
      throw Refusal(
          "with mask 1 the region border at " + std::to_string(border) + " of " +
          std::to_string(window) + " " + what + " cuts a landmark's cell (" +
          std::to_string(parts) +
          " cells); expected a border between cells: use mask 0, other landmarks or full attention "
          "(NystraWindowSoftmax) here");
  }
}

}  // namespace

AttributeTable landmark_table() {
  AttributeTable table = window_table();
  table.push_back(integer_attribute("landmark_rows", 1, kMaxLandmarks));
  table.push_back(integer_attribute("landmark_cols", 1, kMaxLandmarks));
  table.push_back(integer_attribute("iterations", 1, 8));
  table.push_back(integer_attribute("batch_init", 0, 1));
  return table;
}

LandmarkParams landmark_attributes(const Attributes& a) {
  LandmarkParams p{};
  p.shape = window_attributes(a);
  p.rows = a.integer("landmark_rows");
  p.cols = a.integer("landmark_cols");
  p.iterations = a.integer("iterations");
  if (p.landmarks() > kMaxLandmarks)
    throw Refusal("attributes landmark_rows and landmark_cols give " + std::to_string(p.rows) +
                  " x " + std::to_string(p.cols) + " landmarks; expected at most " +
                  std::to_string(kMaxLandmarks));
  if (p.shape.mask) {
    check_cells("rows", p.shape.window_h, p.shape.shift_h, p.rows);
    check_cells("columns", p.shape.window_w, p.shape.shift_w, p.cols);
  }
  return p;
}

void LandmarkWindows::output_shapes(const DimsExprs* in, const Sizes& sizes, DimsExprs* out) const {
  window_output(params_.shape, in[0], sizes, &out[0]);
}

size_t LandmarkWindows::workspace(const Dims* in) const {
  return kernels_.workspace(with_map(in[0]), batch_init_);
}

void LandmarkWindows::run(const Call& call) const {
  require_ok(kernels_.run(with_map(call.shapes[0]), batch_init_, call));
}

LandmarkParams LandmarkWindows::with_map(const Dims& qkv) const {
  LandmarkParams params = params_;
  params.shape = nystra::trt::with_map(params.shape, qkv);
  return params;
}

}  // namespace nystra::trt
