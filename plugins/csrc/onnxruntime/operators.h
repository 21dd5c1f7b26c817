// The operators of domain nystra, as the binding registers them: attributes and shapes here, a
// compute() for each device; those for CUDA are in cuda/. Meaning: ../../operators.
#pragma once

#include "binding.h"

namespace nystra::ort {

class CudaCall;

class Pinv {
 public:
  static constexpr const char* kName = "NystraPinv";
  static constexpr size_t kInputs = 1;

  explicit Pinv(const Attributes&);
  void compute(const CpuCall&) const;
  void compute(const CudaCall&) const;

 private:
  PinvParams with_matrices(const Tensor& a) const;

  int64_t iterations_;
  bool batch_init_;
};

class WindowSoftmax {
 public:
  static constexpr const char* kName = "NystraWindowSoftmax";
  static constexpr size_t kInputs = 2;

  explicit WindowSoftmax(const Attributes&);
  void compute(const CpuCall&) const;
  void compute(const CudaCall&) const;

 private:
  WindowShape with_inputs(const Tensor& qkv, const Tensor& table) const;

  WindowShape shape_;
  bool bias_;
};

// What the two Nystrom forms share: they differ in their kernels and in two attributes.
class LandmarkWindows {
 public:
  static constexpr size_t kInputs = 1;

 protected:
  struct Kernels {
    int64_t (*scratch)(const LandmarkParams&);
    decltype(nystra::Kernels::window_nystrom_maxima) maxima;
    decltype(nystra::Kernels::window_nystrom) run;
  };
  struct CudaKernels;

  explicit LandmarkWindows(const Attributes&);
  void compute(const CpuCall&, const Kernels&) const;
  void compute(const CudaCall&, const CudaKernels&) const;
  LandmarkParams with_map(const Tensor& qkv) const;

  LandmarkParams params_;
  bool batch_init_;
};

class WindowNystrom : LandmarkWindows {
 public:
  static constexpr const char* kName = "NystraWindowNystrom";
  using LandmarkWindows::kInputs;

  explicit WindowNystrom(const Attributes&);
  void compute(const CpuCall&) const;
  void compute(const CudaCall&) const;
};

class WindowNystromformer : LandmarkWindows {
 public:
  static constexpr const char* kName = "NystraWindowNystromformer";
  using LandmarkWindows::kInputs;

  explicit WindowNystromformer(const Attributes& attributes) : LandmarkWindows(attributes) {}
  void compute(const CpuCall&) const;
  void compute(const CudaCall&) const;
};

class PatchMatch {
 public:
  static constexpr const char* kName = "NystraPatchMatch";
  static constexpr size_t kInputs = 5;

  explicit PatchMatch(const Attributes&);
  void compute(const CpuCall&) const;
  void compute(const CudaCall&) const;

 private:
  // The inputs of one call, checked. Steps are in elements, 0 where an input is broadcast.
  struct Search {
    Tensor query, key, query_mask, key_mask, start;
    PatchMatchParams params;
    std::vector<int64_t> query_mask_steps, key_mask_steps, start_steps;  // along every axis
    std::vector<int64_t> field;                                          // the shape of the outputs

    int64_t batch() const { return field[0]; }
    int64_t entries() const { return field[1] * field[2] * field[3]; }  // of an image
  };
  Search search(const Call&) const;

  PatchMatchParams params_;
};

template <>
struct Signature<PatchMatch> {
  static constexpr size_t kOutputs = 2;
  static constexpr int input(size_t i, int type) { return i == 4 ? kInt32 : type; }
  static constexpr int output(size_t i, int type) { return i == 0 ? kInt32 : type; }
};

}  // namespace nystra::ort
