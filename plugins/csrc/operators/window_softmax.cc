#include "window_softmax.h"

namespace nystra {

void WindowSoftmax::check(const Shape* in) const {
  windows_.check(in[0]);
  const WindowShape& s = windows_.unplaced();
  const Shape expected = {(2 * s.window_h - 1) * (2 * s.window_w - 1), s.heads};
  if (bias_ && !agree(in[1], expected))
    throw Refusal("input bias_table is " + text(in[1]) + "; expected " + text(expected) +
                  " = ((2 window_h - 1) (2 window_w - 1), heads)");
}

}  // namespace nystra
