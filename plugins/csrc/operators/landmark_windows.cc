#include "landmark_windows.h"

namespace nystra {

LandmarkWindows::LandmarkWindows(const Attributes& a)
    : windows_(a), batch_init_(a.flag("batch_init")) {
  params_.shape = windows_.unplaced();
  params_.rows = a.integer("landmark_rows");
  params_.cols = a.integer("landmark_cols");
  params_.iterations = a.integer("iterations");
}

LandmarkParams LandmarkWindows::params(const Shape* in) const {
  LandmarkParams result = params_;
  result.shape = windows_.shape(in[0]);
  return result;
}

}  // namespace nystra
