// The map of all window operators, qkv (B, H, W, h(2d+e)), and its windows.
#pragma once

#include "attributes.h"
#include "kernels/window_shape.h"
#include "operators/table.h"
#include "shape.h"
#include "tensors.h"
#include "threads.h"

namespace nystra {

class Windows {
 public:
  explicit Windows(const Attributes&);

  // Windows without shift, with larger key windows.
  static Windows around(const Attributes&);

  // Windows whose queries and keys are divided by their norms.
  static Windows of_cosines(const Attributes&);

  void check(const Shape& qkv) const;
  void check_bias_table(const Shape& table) const;
  Shape output(const Shape& qkv) const;  // (B, H, W, h e)
  WindowShape shape(const Shape& qkv) const;

  const WindowShape& unplaced() const { return shape_; }  // batch, height and width are 0

 private:
  Windows() = default;
  void read_sizes(const Attributes&);

  WindowShape shape_{};
};

}  // namespace nystra
