// NystraPinv: A (..., m, m) -> Z (..., m, m).
#include "kernels/cuda/kernels_cuda.h"
#include "operators.h"

namespace nystra::trt {
namespace {

class Pinv final : public Operator {
 public:
  explicit Pinv(const Attributes& a)
      : iterations_(a.integer("iterations")), batch_init_(a.integer("batch_init") != 0) {}

  void check(const Dims* in) const override {
    const Dims& a = in[0];
    const int64_t rows = a.nbDims < 2 ? 0 : a.d[a.nbDims - 2],
                  columns = a.nbDims < 2 ? 0 : a.d[a.nbDims - 1];
    if (a.nbDims < 2 || (rows != -1 && columns != -1 && rows != columns))
      throw Refusal("input A is " + shape_text(a) + "; expected square matrices (..., m, m)");
    if (rows != -1 && (rows < 1 || rows > kMaxPinvSize))
      throw Refusal("input A is " + shape_text(a) + "; expected m from 1 to " +
                    std::to_string(kMaxPinvSize));
  }

  void output_shapes(const DimsExprs* in, const Sizes&, DimsExprs* out) const override {
    out[0] = in[0];
  }

  size_t workspace(const Dims* in) const override {
    return cuda::pinv_workspace(params(in[0]), batch_init_);
  }

  void run(const Call& c) const override {
    require_ok(cuda::pinv(params(c.shapes[0]), batch_init_, c.type, c.inputs[0], c.outputs[0],
                          c.workspace, c.stream));
  }

 private:
  PinvParams params(const Dims& a) const {
    PinvParams result{1, a.d[a.nbDims - 1], iterations_};
    for (int32_t i = 0; i + 2 < a.nbDims; ++i) result.matrices *= a.d[i];
    return result;
  }

  const int64_t iterations_;
  const bool batch_init_;
};

}  // namespace

const Description& pinv() {
  static const Description description{
      "NystraPinv", "T", "T",
      with_revision({integer_attribute("iterations", 1, 8), integer_attribute("batch_init", 0, 1)}),
      [](const Attributes& a) -> std::unique_ptr<const Operator> {
        return std::make_unique<Pinv>(a);
      }};
  return description;
}

}  // namespace nystra::trt
