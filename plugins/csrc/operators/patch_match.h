// NystraPatchMatch: query (B, C, H, W), key (B, C, Hk, Wk), masks and starts that broadcast
// -> index (B, k, H, W) int32, score (B, k, H, W).
#pragma once

#include "attributes.h"
#include "kernels/params.h"
#include "shape.h"
#include "table.h"

namespace nystra {

class PatchMatch {
 public:
  static constexpr const Schema& kSchema = kPatchMatchSchema;

  // Throws Refusal where patches have no middle.
  explicit PatchMatch(const Attributes&);

  void check(const Shape* in) const;
  Shape output(int index, const Shape* in) const;
  PatchMatchParams params(const Shape* in) const;

 private:
  PatchMatchParams params_{};
};

}  // namespace nystra
