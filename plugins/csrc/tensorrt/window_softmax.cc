// NystraWindowSoftmax: qkv (B, H, W, h(2d+e)), bias_table -> (B, H, W, h e).
#include "kernels/cuda/kernels_cuda.h"
#include "operators.h"
#include "windows.h"

namespace nystra::trt {
namespace {

class WindowSoftmax final : public Operator {
 public:
  explicit WindowSoftmax(const Attributes& a)
      : shape_(window_attributes(a)), bias_(a.integer("bias") != 0) {}

  void check(const Dims* in) const override {
    check_map(shape_, in[0]);
    const Dims& table = in[1];
    if (!bias_) return;
    const Dims expected{2, {(2 * shape_.window_h - 1) * (2 * shape_.window_w - 1), shape_.heads}};
    bool fits = table.nbDims == 2;
    for (int32_t i = 0; fits && i < 2; ++i) fits = table.d[i] == -1 || table.d[i] == expected.d[i];
    if (!fits)
      throw Refusal("input bias_table is " + shape_text(table) + "; expected " +
                    shape_text(expected) + " = ((2 window_h - 1) (2 window_w - 1), heads)");
  }

  void output_shapes(const DimsExprs* in, const Sizes& sizes, DimsExprs* out) const override {
    window_output(shape_, in[0], sizes, &out[0]);
  }

  size_t workspace(const Dims* in) const override {
    return cuda::window_softmax_workspace(with_map(shape_, in[0]));
  }

  void run(const Call& c) const override {
    const void* const table = bias_ ? c.inputs[1] : nullptr;
    require_ok(cuda::window_softmax(with_map(shape_, c.shapes[0]), c.type, c.inputs[0], table,
                                    c.outputs[0], c.workspace, c.stream));
  }

 private:
  const WindowShape shape_;
  const bool bias_;
};

AttributeTable table() {
  AttributeTable result = window_table();
  result.push_back(integer_attribute("bias", 0, 1));
  return with_revision(result);
}

}  // namespace

const Description& window_softmax() {
  static const Description description{"NystraWindowSoftmax", "TT", "T", table(),
                                       [](const Attributes& a) -> std::unique_ptr<const Operator> {
                                         return std::make_unique<WindowSoftmax>(a);
                                       }};
  return description;
}

}  // namespace nystra::trt
