#include "pinv.h"

namespace nystra {

void Pinv::check(const Shape* in) const {
  const Shape& a = in[0];
  if (a.rank < 2 || !agree(a[a.rank - 2], a[a.rank - 1]))
    throw Refusal("input A is " + text(a) + "; expected square matrices (..., m, m)");
  for (const int64_t m : {a[a.rank - 2], a[a.rank - 1]})
    if (m != -1 && (m < 1 || m > kMaxPinvSize))
      throw Refusal("input A is " + text(a) + "; expected m from 1 to " +
                    std::to_string(kMaxPinvSize));
}

PinvParams Pinv::params(const Shape* in) const {
  const Shape& a = in[0];
  PinvParams result{1, a[a.rank - 1], iterations_};
  for (int axis = 0; axis + 2 < a.rank; ++axis) result.matrices *= a[axis];
  return result;
}

void Pinv::compute(const Tensors& t, const Threads& threads, const Kernels& kernels) const {
  const PinvParams p = params(t.shapes);
  const void* const a = t.inputs[0];
  void* const z = t.outputs[0];
  const int64_t floats = kernels.pinv_scratch(p);
  BatchMaxima maxima = kOwnMaxima;
  if (batch_init_)
    maxima = batch_maxima(threads, p.matrices, floats, [&](auto... share) {
      return kernels.pinv_maxima(p, t.type, a, share...);
    });
  threads.parallel(p.matrices, floats, [&](int64_t first, int64_t last, float* scratch) {
    return kernels.pinv(p, t.type, a, maxima, z, first, last, scratch);
  });
}

}  // namespace nystra
