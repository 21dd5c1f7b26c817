// NystraPinv: A (..., m, m) -> Z (..., m, m).
//
// As every class of an operator here: its attributes, checked, and what it says of shapes. `check`
// throws Refusal at shapes it cannot serve, where sizes of -1 are not known yet; `output` is the
// first input's shape with some sizes replaced by numbers that the attributes say; `params` are
// what its kernels take, of checked and known shapes.
#pragma once

#include "attributes.h"
#include "kernels/params.h"
#include "shape.h"
#include "table.h"

namespace nystra {

class Pinv {
 public:
  static constexpr const Schema& kSchema = kPinvSchema;

  explicit Pinv(const Attributes& a)
      : iterations_(a.integer("iterations")), batch_init_(a.flag("batch_init")) {}

  void check(const Shape* in) const;
  Shape output(int, const Shape* in) const { return in[0]; }
  PinvParams params(const Shape* in) const;
  bool batch_init() const { return batch_init_; }

 private:
  int64_t iterations_;
  bool batch_init_;
};

}  // namespace nystra
