#include "window_softmax.h"

namespace nystra {

void WindowSoftmax::check(const Shape* in) const {
  windows_.check(in[0]);
  if (bias_) windows_.check_bias_table(in[1]);
}

}  // namespace nystra
