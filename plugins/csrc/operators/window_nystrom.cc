#include "window_nystrom.h"

namespace nystra {

WindowNystrom::WindowNystrom(const Attributes& a, float threshold, float guard)
    : windows_(a),
      params_{windows_.unplaced(),
              a.integer("landmark_rows"),
              a.integer("landmark_cols"),
              a.integer("iterations"),
              threshold,
              guard},
      batch_init_(a.flag("batch_init")) {}

WindowNystromParams WindowNystrom::params(const Shape* in) const {
  WindowNystromParams result = params_;
  result.shape = windows_.shape(in[0]);
  return result;
}

void WindowNystrom::compute(const Tensors& t, const Threads& threads, Scratch scratch_of,
                            Maxima find, Kernel kernel) const {
  const WindowNystromParams p = params(t.shapes);
  const int64_t tasks = p.shape.windows() * p.shape.heads, floats = scratch_of(p);
  BatchMaxima maxima = kOwnMaxima;
  if (batch_init_)
    maxima = batch_maxima(threads, tasks, floats,
                          [&](auto... share) { return find(p, t.type, t.inputs[0], share...); });
  threads.parallel(tasks, floats, [&](int64_t first, int64_t last, float* scratch) {
    return kernel(p, t.type, t.inputs[0], maxima, t.outputs[0], first, last, scratch);
  });
}

}  // namespace nystra
