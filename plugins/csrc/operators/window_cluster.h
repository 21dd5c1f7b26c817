// NystraWindowCluster: qkv (B, H, W, h(2d+e)), bias_table -> (B, H, W, h e).
#pragma once

#include "table.h"
#include "windows.h"

namespace nystra {

class WindowCluster {
 public:
  static constexpr const Schema& kSchema = kWindowClusterSchema;

  // Throws Refusal where there are too many clusters or blocks, where bias_block is no multiple of
  // block, or where a masked region border cuts a block.
  explicit WindowCluster(const Attributes&);

  void check(const Shape* in) const;
  Shape output(int, const Shape* in) const { return windows_.output(in[0]); }
  ClusterParams params(const Shape* in) const;
  bool bias() const { return bias_; }

 private:
  Windows windows_;
  ClusterParams params_{};
  bool bias_;
};

}  // namespace nystra
