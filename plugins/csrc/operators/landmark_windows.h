// What the two Nystrom forms share: they differ in their kernels and in two attributes.
#pragma once

#include "windows.h"

namespace nystra {

class LandmarkWindows {
 public:
  void check(const Shape* in) const { windows_.check(in[0]); }
  Shape output(int, const Shape* in) const { return windows_.output(in[0]); }
  LandmarkParams params(const Shape* in) const;
  bool batch_init() const { return batch_init_; }

 protected:
  // Throws Refusal where there are too many landmarks, or where a masked region border cuts a
  // landmark's cell.
  explicit LandmarkWindows(const Attributes&);

  LandmarkParams params_{};

 private:
  Windows windows_;
  bool batch_init_;
};

}  // namespace nystra
