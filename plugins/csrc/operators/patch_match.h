// NystraPatchMatch: query (B, C, H, W), key (B, C, Hk, Wk), masks and starts that broadcast
// -> index (B, k, H, W) int32, score (B, k, H, W).
#pragma once

#include "attributes.h"
#include "kernels/patch_match.h"
#include "operators/table.h"
#include "shape.h"
#include "tensors.h"
#include "threads.h"

namespace nystra {

class PatchMatch {
 public:
  static constexpr const Schema& kSchema = kPatchMatchSchema;

  explicit PatchMatch(const Attributes&);

  void check(const Shape* in) const;
  Shape output(int index, const Shape* in) const;
  PatchMatchParams params(const Shape* in) const;

  void compute(const Tensors&, const Threads&, const Kernels&) const;

  size_t workspace(const Shape* in, Type type, const cuda::LaunchLimits& limits = {}) const {
    const size_t bytes = cuda::patch_match_workspace(params(in), in[0][0], type, limits);
    if (bytes == 0 && !in[0].empty()) refuse_sizes(in);
    return bytes;
  }
  Status launch(const Tensors& t, void* workspace, cuda::Stream stream,
                const cuda::LaunchLimits& limits = {}) const {
    return cuda::patch_match(params(t.shapes), t.type, maps_of(t), workspace, stream, limits);
  }

 private:
  static PatchMatchMaps maps_of(const Tensors&);
  [[noreturn]] static void refuse_sizes(const Shape* in);

  PatchMatchParams params_{};
};

}  // namespace nystra
