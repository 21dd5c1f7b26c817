#include "windows.h"

namespace nystra {
namespace {

void check_multiple(const char* what, int64_t got, int64_t window, const Shape& qkv) {
  if (got != -1 && got % window != 0)
    throw Refusal("input qkv is " + text(qkv) + ", its " + what + " " + std::to_string(got) +
                  "; expected a multiple of the window's " + std::to_string(window) +
                  " (pad the map first)");
}

}  // namespace

void Windows::read_sizes(const Attributes& a) {
  shape_.heads = a.integer("heads");
  shape_.head_dim = a.integer("head_dim");
  shape_.value_dim = a.integer("value_dim");
  shape_.window_h = a.integer("window_h");
  shape_.window_w = a.integer("window_w");
  shape_.scale = a.number("scale");
}

Windows Windows::around(const Attributes& a) {
  Windows result;
  result.read_sizes(a);
  result.shape_.margin_h = a.integer("margin_h");
  result.shape_.margin_w = a.integer("margin_w");
  return result;
}

Windows Windows::of_cosines(const Attributes& a) {
  Windows result(a);
  result.shape_.epsilon = a.number("epsilon");
  return result;
}

Windows::Windows(const Attributes& a) {
  read_sizes(a);
  shape_.shift_h = a.integer("shift_h");
  shape_.shift_w = a.integer("shift_w");
  shape_.mask = a.integer("mask");
}

void Windows::check(const Shape& qkv) const {
  const WindowShape& s = shape_;
  if (qkv.rank != 4)
    throw Refusal("input qkv is " + text(qkv) +
                  "; expected rank 4: (batch, height, width, channels)");
  if (!agree(qkv[3], s.channels()))
    throw Refusal("input qkv is " + text(qkv) + " with " + std::to_string(qkv[3]) +
                  " channels; expected " + std::to_string(s.channels()) +
                  " = heads (2 head_dim + value_dim) = " + std::to_string(s.heads) + " (2 * " +
                  std::to_string(s.head_dim) + " + " + std::to_string(s.value_dim) + ")");
  check_multiple("height", qkv[1], s.window_h, qkv);
  check_multiple("width", qkv[2], s.window_w, qkv);
}

void Windows::check_bias_table(const Shape& table) const {
  const Shape expected = {shape_.bias_rows(), shape_.heads};
  const char* const formula =
      shape_.keys() == shape_.tokens()
          ? " = ((2 window_h - 1) (2 window_w - 1), heads)"
          : " = ((2 window_h + 2 margin_h - 1) (2 window_w + 2 margin_w - 1), heads)";
  if (!agree(table, expected))
    throw Refusal("input bias_table is " + text(table) + "; expected " + text(expected) + formula);
}

Shape Windows::output(const Shape& qkv) const {
  return {qkv[0], qkv[1], qkv[2], shape_.heads * shape_.value_dim};
}

WindowShape Windows::shape(const Shape& qkv) const {
  WindowShape result = shape_;
  result.batch = qkv[0];
  result.height = qkv[1];
  result.width = qkv[2];
  return result;
}

}  // namespace nystra
