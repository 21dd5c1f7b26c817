// The common part of both Nystrom forms: they differ in their kernels and in two attributes.
#pragma once

#include "kernels/landmark_params.h"
#include "windows.h"

namespace nystra {

class LandmarkWindows {
 public:
  void check(const Shape* in) const { windows_.check(in[0]); }
  Shape output(int, const Shape* in) const { return windows_.output(in[0]); }

 protected:
  explicit LandmarkWindows(const Attributes&);

  LandmarkParams params(const Shape* in) const;
  bool batch_init() const { return batch_init_; }

  // Runs a form by its kernels' functions.
  template <class Params, class Maxima, class Run>
  void compute(const Params& p, int64_t floats, const Maxima& find, const Run& run,
               const Tensors& t, const Threads& threads) const {
    const int64_t tasks = p.shape.windows() * p.shape.heads;
    BatchMaxima maxima = kOwnMaxima;
    if (batch_init_)
      maxima = batch_maxima(threads, tasks, floats,
                            [&](auto... share) { return find(p, t.type, t.inputs[0], share...); });
    threads.parallel(tasks, floats, [&](int64_t first, int64_t last, float* scratch) {
      return run(p, t.type, t.inputs[0], maxima, t.outputs[0], first, last, scratch);
    });
  }

 private:
  Windows windows_;
  LandmarkParams params_{};
  bool batch_init_;
};

}  // namespace nystra
