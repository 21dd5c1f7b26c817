#include "window_cosine.h"

namespace nystra {

void WindowCosine::check(const Shape* in) const {
  WindowSoftmax::check(in);
  const Shape expected = {params(in).heads};
  if (!agree(in[2], expected))
    throw Refusal("input logit_scale is " + text(in[2]) + "; expected " + text(expected) +
                  " = (heads)");
}

void WindowCosine::compute(const Tensors& t, const Threads& threads, const Kernels& kernels) const {
  const WindowShape shape = params(t.shapes);
  const AlignedFloats factors(static_cast<size_t>(shape.heads));
  kernels.window_softmax_factors(shape, t.type, t.inputs[2], factors.get());
  WindowSoftmax::compute(t, threads, kernels, factors.get());
}

}  // namespace nystra
