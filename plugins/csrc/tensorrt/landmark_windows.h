// What the plugins of the two Nystrom forms share.
#pragma once

#include "windows.h"

namespace nystra::trt {

// The attributes of the windows and of their landmarks.
AttributeTable landmark_table();

// The attributes both forms have. Throws Refusal where there are too many landmarks, or where a
// masked region border cuts a landmark's cell.
LandmarkParams landmark_attributes(const Attributes&);

// The operator of either form: they differ in their kernels and in two attributes.
class LandmarkWindows final : public Operator {
 public:
  struct Kernels {
    size_t (*workspace)(const LandmarkParams&, bool batch_init);
    Status (*run)(const LandmarkParams&, bool batch_init, const Call&);
  };

  LandmarkWindows(const LandmarkParams& params, bool batch_init, const Kernels& kernels)
      : params_(params), batch_init_(batch_init), kernels_(kernels) {}

  void check(const Dims* in) const override { check_map(params_.shape, in[0]); }
  void output_shapes(const DimsExprs* in, const Sizes& sizes, DimsExprs* out) const override;
  size_t workspace(const Dims* in) const override;
  void run(const Call& call) const override;

 private:
  LandmarkParams with_map(const Dims& qkv) const;

  const LandmarkParams params_;
  const bool batch_init_;
  const Kernels kernels_;
};

}  // namespace nystra::trt
