// The plugins of this library: one of each operator that has a CUDA kernel.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "operators/operators.h"
#include "plugin.h"
#include "test_limits.h"

namespace nystra::trt {

// An operator of nystra in the form of TensorRT.
template <class Work>
class Served final : public Operator {
 public:
  explicit Served(const Attributes& attributes) : work_(attributes.values()) {}

  void check(const Dims* in) const override { work_.check(Inputs(in).shapes); }

  // A size of an output is one of the inputs, or a number from the attributes. Here the sizes of
  // the inputs are negative numbers, each another.
  void output_shapes(const DimsExprs* in, const Sizes& sizes, DimsExprs* out) const override {
    const nvinfer1::IDimensionExpr* all[kInputs * kMaxRank];
    Inputs unknown;
    for (size_t i = 0; i < kInputs; ++i) {
      unknown.shapes[i].rank = in[i].nbDims;
      for (int axis = 0; axis < in[i].nbDims; ++axis) {
        const int64_t place = int64_t(i) * kMaxRank + axis;
        all[place] = in[i].d[axis];
        unknown.shapes[i][axis] = -1 - place;
      }
    }
    for (int i = 0; Work::kSchema.outputs[i] != '\0'; ++i) {
      const Shape shape = work_.output(i, unknown.shapes);
      out[i].nbDims = shape.rank;
      for (int axis = 0; axis < shape.rank; ++axis) {
        const int64_t size = shape[axis];
        out[i].d[axis] = size < 0 ? all[-1 - size] : sizes.constant(size);
      }
    }
  }

  size_t workspace(Type type, const Dims* in) const override {
    return work_.workspace(Inputs(in).shapes, type, test_limits());
  }

  void run(const Call& c) const override {
    const Inputs in(c.shapes);
    const Tensors tensors{c.type, in.shapes, c.inputs, c.outputs};
    require_ok(work_.launch(tensors, c.workspace, c.stream, test_limits()));
  }

 private:
  static constexpr size_t kInputs = std::char_traits<char>::length(Work::kSchema.inputs);

  struct Inputs {
    Inputs() = default;
    explicit Inputs(const Dims* in) {
      for (size_t i = 0; i < kInputs; ++i) shapes[i] = to_shape(in[i]);
    }

    Shape shapes[kInputs];
  };

  const Work work_;
};

template <class Work>
const Description& description() {
  static const Description result{Work::kSchema,
                                  [](const Attributes& a) -> std::unique_ptr<const Operator> {
                                    return std::make_unique<Served<Work>>(a);
                                  }};
  return result;
}

// One creator of class `Creator` for each of them, for the whole process; as getCreators returns
// them.
template <class Creator>
nvinfer1::IPluginCreatorInterface* const* creators_of(int32_t& count) {
  static const std::vector<std::unique_ptr<Creator>> owned = [] {
    std::vector<std::unique_ptr<Creator>> result;
#define NYSTRA_CREATE(Work) result.push_back(std::make_unique<Creator>(description<Work>()));
    NYSTRA_CUDA_OPERATORS(NYSTRA_CREATE)
#undef NYSTRA_CREATE
    return result;
  }();
  static const std::vector<nvinfer1::IPluginCreatorInterface*> list = [] {
    std::vector<nvinfer1::IPluginCreatorInterface*> result;
    for (const auto& creator : owned) result.push_back(creator.get());
    return result;
  }();
  count = static_cast<int32_t>(list.size());
  return list.data();
}

}  // namespace nystra::trt
