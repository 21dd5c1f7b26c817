#include "windows.h"

namespace nystra::trt {
namespace {

void check_shift(const char* axis, int64_t shift, int64_t window) {
  if (shift >= window)
    throw Refusal(std::string("attribute shift_") + axis + " is " + std::to_string(shift) +
                  "; expected less than window_" + axis + ", " + std::to_string(window));
}

void check_multiple(const char* what, int64_t got, int64_t window, const Dims& qkv) {
  if (got != -1 && got % window != 0)
    throw Refusal("input qkv is " + shape_text(qkv) + ", its " + what + " " + std::to_string(got) +
                  "; expected a multiple of the window's " + std::to_string(window) +
                  " (the graph pads before)");
}

}  // namespace

AttributeTable window_table() {
  return {
      integer_attribute("heads", 1, 1024),     integer_attribute("head_dim", 1, 1024),
      integer_attribute("value_dim", 1, 1024), integer_attribute("window_h", 1, 1024),
      integer_attribute("window_w", 1, 1024),  integer_attribute("shift_h", 0, 1023),
      integer_attribute("shift_w", 0, 1023),   integer_attribute("mask", 0, 1),
      number_attribute("scale", 0.0, 1e6),
  };
}

WindowShape window_attributes(const Attributes& a) {
  WindowShape s{};
  s.heads = a.integer("heads");
  s.head_dim = a.integer("head_dim");
  s.value_dim = a.integer("value_dim");
  s.window_h = a.integer("window_h");
  s.window_w = a.integer("window_w");
  s.shift_h = a.integer("shift_h");
  s.shift_w = a.integer("shift_w");
  s.mask = a.integer("mask");
  s.scale = a.number("scale");
  check_shift("h", s.shift_h, s.window_h);
  check_shift("w", s.shift_w, s.window_w);
  return s;
}

void check_map(const WindowShape& s, const Dims& qkv) {
  if (qkv.nbDims != 4)
    throw Refusal("input qkv is " + shape_text(qkv) +
                  "; expected rank 4: (batch, height, width, channels)");
  if (qkv.d[3] != -1 && qkv.d[3] != s.channels())
    throw Refusal("input qkv is " + shape_text(qkv) + " with " + std::to_string(qkv.d[3]) +
                  " channels; expected " + std::to_string(s.channels()) +
                  " = heads (2 head_dim + value_dim) = " + std::to_string(s.heads) + " (2 * " +
                  std::to_string(s.head_dim) + " + " + std::to_string(s.value_dim) + ")");
  check_multiple("height", qkv.d[1], s.window_h, qkv);
  check_multiple("width", qkv.d[2], s.window_w, qkv);
}

WindowShape with_map(WindowShape s, const Dims& qkv) {
  s.batch = qkv.d[0];
  s.height = qkv.d[1];
  s.width = qkv.d[2];
  return s;
}

void window_output(const WindowShape& s, const DimsExprs& qkv, const Sizes& sizes, DimsExprs* out) {
  *out = qkv;
  out->d[3] = sizes.constant(s.heads * s.value_dim);
}

}  // namespace nystra::trt
