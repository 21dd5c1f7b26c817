// What TensorRT hands a plugin while a network is built, without TensorRT: symbolic sizes.
#pragma once

#include <NvInferRuntime.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace nystra::host {

// A size: a number, or -1 for one that depends on the network's input.
class Size final : public nvinfer1::IDimensionExpr {
 public:
  explicit Size(int64_t value) : impl_(value) { mImpl = &impl_; }

 private:
  class Impl final : public nvinfer1::apiv::VDimensionExpr {
   public:
    explicit Impl(int64_t value) : value_(value) {}
    bool isConstant() const override { return value_ >= 0; }
    int64_t getConstantValue() const override { return value_; }
    bool isSizeTensor() const override { return false; }

   private:
    int64_t value_;
  };

  Impl impl_;
};

// Makes sizes and keeps them. An operation on a size that is not known gives one that is not.
class SizeBuilder final : public nvinfer1::IExprBuilder {
 public:
  SizeBuilder() : impl_(*this) { mImpl = &impl_; }

  const nvinfer1::IDimensionExpr* size(int64_t value) {
    sizes_.push_back(std::make_unique<Size>(value));
    return sizes_.back().get();
  }

  nvinfer1::DimsExprs shape(const std::vector<int64_t>& sizes) {
    nvinfer1::DimsExprs result{};
    result.nbDims = static_cast<int32_t>(sizes.size());
    for (size_t i = 0; i < sizes.size(); ++i) result.d[i] = size(sizes[i]);
    return result;
  }

 private:
  class Impl final : public nvinfer1::apiv::VExprBuilder {
   public:
    explicit Impl(SizeBuilder& owner) : owner_(owner) {}
    const nvinfer1::IDimensionExpr* constant(int64_t value) override { return owner_.size(value); }
    const nvinfer1::IDimensionExpr* operation(nvinfer1::DimensionOperation,
                                              const nvinfer1::IDimensionExpr&,
                                              const nvinfer1::IDimensionExpr&) override {
      return owner_.size(-1);
    }
    const nvinfer1::IDimensionExpr* declareSizeTensor(int32_t, const nvinfer1::IDimensionExpr&,
                                                      const nvinfer1::IDimensionExpr&) override {
      return nullptr;
    }

   private:
    SizeBuilder& owner_;
  };

  Impl impl_;
  std::vector<std::unique_ptr<Size>> sizes_;
};

}  // namespace nystra::host
