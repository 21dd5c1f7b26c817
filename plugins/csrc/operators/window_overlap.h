// NystraWindowOverlap: qkv (B, H, W, h(2d+e)), bias_table -> (B, H, W, h e).
#pragma once

#include "table.h"
#include "windows.h"

namespace nystra {

class WindowOverlap {
 public:
  static constexpr const Schema& kSchema = kWindowOverlapSchema;

  explicit WindowOverlap(const Attributes& a)
      : windows_(Windows::around(a)), bias_(a.flag("bias")) {}

  void check(const Shape* in) const;
  Shape output(int, const Shape* in) const { return windows_.output(in[0]); }
  WindowShape params(const Shape* in) const { return windows_.shape(in[0]); }
  bool bias() const { return bias_; }

 private:
  Windows windows_;
  bool bias_;
};

}  // namespace nystra
