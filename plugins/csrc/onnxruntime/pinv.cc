#include "operators.h"

namespace nystra::ort {

Pinv::Pinv(const Attributes& a)
    : iterations_(a.integer("iterations", 1, 8)), batch_init_(a.integer("batch_init", 0, 1) != 0) {}

PinvParams Pinv::with_matrices(const Tensor& a) const {
  const size_t rank = a.shape.size();
  if (rank < 2 || a.shape[rank - 1] != a.shape[rank - 2])
    throw Refusal("input A is " + shape_text(a.shape) + "; expected square matrices (..., m, m)");
  const int64_t size = a.shape[rank - 1];
  if (size < 1 || size > kMaxPinvSize)
    throw Refusal("input A is " + shape_text(a.shape) + "; expected m from 1 to " +
                  std::to_string(kMaxPinvSize));
  PinvParams params{1, size, iterations_};
  for (size_t i = 0; i + 2 < rank; ++i)
    if (a.shape[i] == 0) params.matrices = 0;
  for (size_t i = 0; i + 2 < rank && params.matrices != 0; ++i) params.matrices *= a.shape[i];
  return params;
}

void Pinv::compute(const CpuCall& call) const {
  const Tensor a = call.input(0);
  const PinvParams params = with_matrices(a);
  void* const z = call.output(0, a.shape);
  const Kernels& k = *kernels();
  const int64_t floats = k.pinv_scratch(params);
  BatchMaxima given = kOwnMaxima;
  if (batch_init_)
    given = batch_maxima(call, params.matrices, floats, [&](auto... share) {
      return k.pinv_maxima(params, call.type, a.data, share...);
    });
  call.parallel(params.matrices, floats, [&](int64_t first, int64_t last, float* scratch) {
    return k.pinv(params, call.type, a.data, given, z, first, last, scratch);
  });
}

}  // namespace nystra::ort
