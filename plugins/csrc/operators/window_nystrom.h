// NystraWindowNystrom: qkv (B, H, W, h(2d+e)) -> (B, H, W, h e).
#pragma once

#include "kernels/window_nystrom.h"
#include "windows.h"

namespace nystra {

class WindowNystrom {
 public:
  static constexpr const Schema& kSchema = kWindowNystromSchema;

  explicit WindowNystrom(const Attributes& a)
      : WindowNystrom(a, a.number("threshold"), a.number("guard")) {}

  void check(const Shape* in) const { windows_.check(in[0]); }
  Shape output(int, const Shape* in) const { return windows_.output(in[0]); }
  WindowNystromParams params(const Shape* in) const;

  void compute(const Tensors& t, const Threads& threads, const Kernels& kernels) const {
    compute(t, threads, kernels.window_nystrom_scratch, kernels.window_nystrom_maxima,
            kernels.window_nystrom);
  }

 protected:
  WindowNystrom(const Attributes&, float threshold, float guard);

  using Scratch = decltype(Kernels::window_nystrom_scratch);
  using Maxima = decltype(Kernels::window_nystrom_maxima);
  using Kernel = decltype(Kernels::window_nystrom);
  void compute(const Tensors&, const Threads&, Scratch, Maxima, Kernel) const;

  bool batch_init() const { return batch_init_; }

 private:
  Windows windows_;
  WindowNystromParams params_;
  bool batch_init_;
};

}  // namespace nystra
