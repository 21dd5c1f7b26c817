// NystraPinv: A (..., m, m) -> Z (..., m, m).
//
// Like all operator classes here it has the checked attributes and functions of shapes. `check`
// throws Refusal at unsupported shapes, in which -1 is an unknown size; each size of an `output` is
// one of the inputs' or a number from the attributes; `params` are the parameters of its kernels,
// for checked and known shapes.
//
// `compute` runs it on the CPU, on the threads and with the kernels of an instruction set; it
// throws Refusal or std::bad_alloc. On a CUDA device `workspace` is the number of bytes that it
// needs for shapes up to these (a Refusal if the kernel does not support them), and `launch`
// enqueues it on the stream: it allocates nothing and does not wait. Both are inline, so that a
// library without CUDA kernels needs none. No output is empty.
#pragma once

#include "attributes.h"
#include "kernels/pinv.h"
#include "operators/table.h"
#include "shape.h"
#include "tensors.h"
#include "threads.h"

namespace nystra {

class Pinv {
 public:
  static constexpr const Schema& kSchema = kPinvSchema;

  explicit Pinv(const Attributes& a)
      : iterations_(a.integer("iterations")), batch_init_(a.flag("batch_init")) {}

  void check(const Shape* in) const;
  Shape output(int, const Shape* in) const { return in[0]; }
  PinvParams params(const Shape* in) const;

  void compute(const Tensors&, const Threads&, const Kernels&) const;

  size_t workspace(const Shape* in, Type, const cuda::LaunchLimits& limits = {}) const {
    check(in);
    return cuda::pinv_workspace(params(in), batch_init_, limits);
  }
  Status launch(const Tensors& t, void* workspace, cuda::Stream stream,
                const cuda::LaunchLimits& limits = {}) const {
    return cuda::pinv(params(t.shapes), batch_init_, t.type, t.inputs[0], t.outputs[0], workspace,
                      stream, limits);
  }

 private:
  int64_t iterations_;
  bool batch_init_;
};

}  // namespace nystra
