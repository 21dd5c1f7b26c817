#include <sys/mman.h>

#include "compute.h"

namespace nystra::cpu {
namespace {

constexpr int64_t kSmallWorkspace = 1 << 20;  // floats: so small that images are searched at once

const void* advance(const void* data, int64_t elements, Type type) {
  const int64_t size = type == Type::kFloat ? sizeof(float) : sizeof(Half);
  return static_cast<const char*>(data) + elements * size;
}

// The maps of one image of the batch. Inputs that are broadcast have a step of 0.
PatchMatchMaps maps_of(const PatchMatchParams& p, const Tensors& t, int64_t image) {
  const int64_t entries = p.neighbors * p.height * p.width;
  PatchMatchMaps m{};
  m.query = advance(t.inputs[0], image * p.channels * p.height * p.width, t.type);
  m.key = advance(t.inputs[1], image * p.channels * p.key_height * p.key_width, t.type);
  m.query_mask = advance(t.inputs[2], image * step(t.shapes[2], 0), t.type);
  m.key_mask = advance(t.inputs[3], image * step(t.shapes[3], 0), t.type);
  m.start = static_cast<const int32_t*>(t.inputs[4]) + image * step(t.shapes[4], 0);
  for (int i = 0; i < 2; ++i) m.query_mask_steps[i] = step(t.shapes[2], i + 2);
  for (int i = 0; i < 2; ++i) m.key_mask_steps[i] = step(t.shapes[3], i + 2);
  for (int i = 0; i < 3; ++i) m.start_steps[i] = step(t.shapes[4], i + 1);
  m.index = static_cast<int32_t*>(t.outputs[0]) + image * entries;
  m.score = const_cast<void*>(advance(t.outputs[1], image * entries, t.type));
  return m;
}

// Asks for large pages: the keys of a pixel lie far apart, and each row of a patch in a page of its
// own. Nothing is lost where the system has none.
void ask_large_pages(float* data, int64_t floats) {
  constexpr uintptr_t kPage = 1 << 21;
  const uintptr_t begin = reinterpret_cast<uintptr_t>(data);
  const uintptr_t first = (begin + kPage - 1) / kPage * kPage;
  const uintptr_t last = (begin + uintptr_t(floats) * sizeof(float)) / kPage * kPage;
  if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
}

}  // namespace

void compute(const PatchMatch& op, const Tensors& t, const Threads& threads) {
  const Kernels& k = *kernels();
  PatchMatchParams p = op.params(t.shapes);
  p.same_map = t.inputs[0] == t.inputs[1] && t.shapes[0] == t.shapes[1];
  const int64_t batch = t.shapes[0][0];
  const int64_t floats = k.patch_match_workspace(p), steps = k.patch_match_steps(p);
  if (batch > 1 && floats <= kSmallWorkspace) {
    threads.parallel(batch, floats, [&](int64_t first, int64_t last, float* workspace) {
      Status status = Status::kOk;
      for (int64_t image = first; image < last; ++image)
        for (int64_t step = 0; step < steps && status == Status::kOk; ++step)
          status = k.patch_match(p, t.type, maps_of(p, t, image), step, 0,
                                 k.patch_match_tasks(p, step), workspace);
      return status;
    });
    return;
  }
  const AlignedFloats workspace{size_t(floats)};
  ask_large_pages(workspace.get(), floats);
  for (int64_t image = 0; image < batch; ++image) {
    const PatchMatchMaps maps = maps_of(p, t, image);
    for (int64_t step = 0; step < steps; ++step)
      threads.parallel(k.patch_match_tasks(p, step), 0, [&](int64_t first, int64_t last, float*) {
        return k.patch_match(p, t.type, maps, step, first, last, workspace.get());
      });
  }
}

}  // namespace nystra::cpu
