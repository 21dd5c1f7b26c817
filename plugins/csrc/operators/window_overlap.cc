#include "window_overlap.h"

namespace nystra {

void WindowOverlap::check(const Shape* in) const {
  windows_.check(in[0]);
  if (bias_) windows_.check_bias_table(in[1]);
}

}  // namespace nystra
