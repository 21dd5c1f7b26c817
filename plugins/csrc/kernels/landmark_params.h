// Common parameters of the kernels of both Nystrom forms.
#pragma once

#include "batch_maxima.h"
#include "window_shape.h"

namespace nystra {

struct LandmarkParams {
  WindowShape shape;
  int64_t rows, cols, iterations;

  int64_t landmarks() const { return rows * cols; }
};

}  // namespace nystra
