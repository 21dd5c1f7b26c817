#include "landmark_windows.h"

namespace nystra {
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

LandmarkWindows::LandmarkWindows(const Attributes& a)
    : windows_(a), batch_init_(a.flag("batch_init")) {
  params_.shape = windows_.unplaced();
  params_.rows = a.integer("landmark_rows");
  params_.cols = a.integer("landmark_cols");
  params_.iterations = a.integer("iterations");
  if (params_.landmarks() > kMaxLandmarks)
    throw Refusal("attributes landmark_rows and landmark_cols give " +
                  std::to_string(params_.rows) + " x " + std::to_string(params_.cols) +
                  " landmarks; expected at most " + std::to_string(kMaxLandmarks));
  const WindowShape& s = params_.shape;
  if (!s.mask) return;
  check_cells("rows", s.window_h, s.shift_h, params_.rows);
  check_cells("columns", s.window_w, s.shift_w, params_.cols);
}

LandmarkParams LandmarkWindows::params(const Shape* in) const {
  LandmarkParams result = params_;
  result.shape = windows_.shape(in[0]);
  return result;
}

}  // namespace nystra
