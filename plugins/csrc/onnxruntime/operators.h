// The operators of domain nystra, as the binding registers them. Meaning: ../../operators.
#pragma once

#include "binding.h"

namespace nystra::ort {

class Pinv {
 public:
  static constexpr const char* kName = "NystraPinv";
  static constexpr size_t kInputs = 1;

  explicit Pinv(const Attributes&);
  void compute(const Call&) const;

 private:
  int64_t iterations_;
  bool batch_init_;
};

class WindowSoftmax {
 public:
  static constexpr const char* kName = "NystraWindowSoftmax";
  static constexpr size_t kInputs = 2;

  explicit WindowSoftmax(const Attributes&);
  void compute(const Call&) const;

 private:
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

  explicit LandmarkWindows(const Attributes&);
  void compute(const Call&, const Kernels&) const;

  LandmarkParams params_;
  bool batch_init_;
};

class WindowNystrom : LandmarkWindows {
 public:
  static constexpr const char* kName = "NystraWindowNystrom";
  using LandmarkWindows::kInputs;

  explicit WindowNystrom(const Attributes&);
  void compute(const Call&) const;
};

class WindowNystromformer : LandmarkWindows {
 public:
  static constexpr const char* kName = "NystraWindowNystromformer";
  using LandmarkWindows::kInputs;

  explicit WindowNystromformer(const Attributes& attributes) : LandmarkWindows(attributes) {}
  void compute(const Call&) const;
};

class PatchMatch {
 public:
  static constexpr const char* kName = "NystraPatchMatch";
  static constexpr size_t kInputs = 5;

  explicit PatchMatch(const Attributes&);
  void compute(const Call&) const;

 private:
  PatchMatchParams params_;
};

template <>
struct Signature<PatchMatch> {
  static constexpr size_t kOutputs = 2;
  static constexpr int input(size_t i, int type) { return i == 4 ? kInt32 : type; }
  static constexpr int output(size_t i, int type) { return i == 0 ? kInt32 : type; }
};

}  // namespace nystra::ort
