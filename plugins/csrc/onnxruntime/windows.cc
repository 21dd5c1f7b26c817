#include "windows.h"

namespace nystra::ort {
namespace {

void check_shift(const char* axis, int64_t shift, int64_t window) {
  if (shift >= window)
    throw Refusal(std::string("attribute shift_") + axis + " is " + std::to_string(shift) +
                  "; expected less than window_" + axis + ", " + std::to_string(window));
}

void check_multiple(const char* what, int64_t got, int64_t window, const Tensor& qkv) {
  if (got % window != 0)
    throw Refusal(std::string("input qkv is ") + shape_text(qkv.shape) + ", its " + what + " " +
                  std::to_string(got) + "; expected a multiple of the window's " +
                  std::to_string(window) + " (the graph pads before)");
}

}  // namespace

WindowShape window_attributes(const Attributes& a) {
  WindowShape s{};
  s.heads = a.integer("heads", 1, 1024);
  s.head_dim = a.integer("head_dim", 1, 1024);
  s.value_dim = a.integer("value_dim", 1, 1024);
  s.window_h = a.integer("window_h", 1, 1024);
  s.window_w = a.integer("window_w", 1, 1024);
  s.shift_h = a.integer("shift_h", 0, 1023);
  s.shift_w = a.integer("shift_w", 0, 1023);
  s.mask = a.integer("mask", 0, 1);
  s.scale = a.number("scale", 0.0f, 1e6f);
  check_shift("h", s.shift_h, s.window_h);
  check_shift("w", s.shift_w, s.window_w);
  return s;
}

WindowShape with_map(WindowShape s, const Tensor& qkv) {
  if (qkv.shape.size() != 4)
    throw Refusal("input qkv is " + shape_text(qkv.shape) +
                  "; expected rank 4: (batch, height, width, channels)");
  s.batch = qkv.shape[0];
  s.height = qkv.shape[1];
  s.width = qkv.shape[2];
  if (qkv.shape[3] != s.channels())
    throw Refusal("input qkv is " + shape_text(qkv.shape) + " with " +
                  std::to_string(qkv.shape[3]) + " channels; expected " +
                  std::to_string(s.channels()) +
                  " = heads (2 head_dim + value_dim) = " + std::to_string(s.heads) + " (2 * " +
                  std::to_string(s.head_dim) + " + " + std::to_string(s.value_dim) + ")");
  check_multiple("height", s.height, s.window_h, qkv);
  check_multiple("width", s.width, s.window_w, qkv);
  return s;
}

}  // namespace nystra::ort
