#include "patch_match.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace nystra {
namespace {

constexpr int64_t kSmallWorkspace = 1 << 20;  // floats: so small that images are searched at once

// Checks that a map has rank 4 and fewer pixels than the kernels can name.
void check_map(const char* name, const Shape& map, const char* axes) {
  if (map.rank != 4)
    throw Refusal(std::string("input ") + name + " is " + text(map) + "; expected rank 4: " + axes);
  if (map[2] > 0 && map[3] > 0 && map[2] > (kMaxPixels - 1) / map[3])
    throw Refusal(std::string("input ") + name + " is " + text(map) + "; expected fewer than " +
                  std::to_string(kMaxPixels) + " pixels per map");
}

const void* advance(const void* data, int64_t elements, Type type) {
  return static_cast<const char*>(data) + elements * element_bytes(type);
}

// The maps of one image of a batch.
PatchMatchMaps image_of(const PatchMatchMaps& batch, const PatchMatchParams& p, Type type,
                        int64_t image) {
  const int64_t entries = p.neighbors * p.height * p.width;
  PatchMatchMaps m = batch;
  m.batch = 1;
  m.query = advance(m.query, image * p.channels * p.height * p.width, type);
  m.key = advance(m.key, image * p.channels * p.key_height * p.key_width, type);
  m.query_mask = advance(m.query_mask, image * m.query_mask_steps[0], type);
  m.key_mask = advance(m.key_mask, image * m.key_mask_steps[0], type);
  m.start += image * m.start_steps[0];
  m.index += image * entries;
  m.score = const_cast<void*>(advance(m.score, image * entries, type));
  return m;
}

// Requests large pages: the keys of a pixel are far apart, and each row of a patch is in a page of
// its own. A system without large pages ignores this.
void request_large_pages([[maybe_unused]] float* data, [[maybe_unused]] int64_t floats) {
#if defined(__linux__)
  constexpr uintptr_t kPage = 1 << 21;
  const uintptr_t begin = reinterpret_cast<uintptr_t>(data);
  const uintptr_t first = (begin + kPage - 1) / kPage * kPage;
  const uintptr_t last = (begin + uintptr_t(floats) * sizeof(float)) / kPage * kPage;
  if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
#endif
}

}  // namespace

PatchMatch::PatchMatch(const Attributes& a) {
  params_.patch = a.integer("patch_size");
  params_.iterations = a.integer("iterations");
  params_.neighbors = a.integer("neighbors");
  params_.metric = a.integer("metric");
  params_.seed = a.integer("seed");
}

void PatchMatch::check(const Shape* in) const {
  const Shape &query = in[0], &key = in[1];
  check_map("query", query, "(batch, channels, height, width)");
  check_map("key", key, "(batch, channels, key height, key width)");
  if (!agree(key[0], query[0]) || !agree(key[1], query[1]))
    throw Refusal("input key is " + text(key) + "; expected the batch and channels of query, " +
                  text(query));
  check_broadcast("query_mask", in[2], {query[0], 1, query[2], query[3]});
  check_broadcast("key_mask", in[3], {query[0], 1, key[2], key[3]});
  check_broadcast("start", in[4], output(0, in));
  if ((key[2] == 0 || key[3] == 0) && !output(0, in).empty())
    throw Refusal("input key is " + text(key) + "; expected at least one key");
}

Shape PatchMatch::output(int, const Shape* in) const {
  return {in[0][0], params_.neighbors, in[0][2], in[0][3]};
}

PatchMatchParams PatchMatch::params(const Shape* in) const {
  const Shape &query = in[0], &key = in[1], &key_mask = in[3];
  PatchMatchParams result = params_;
  result.channels = query[1];
  result.height = query[2];
  result.width = query[3];
  result.key_height = key[2];
  result.key_width = key[3];
  result.masked = key_mask[2] != 1 || key_mask[3] != 1;
  return result;
}

PatchMatchMaps PatchMatch::maps_of(const Tensors& t) {
  PatchMatchMaps maps{};
  maps.batch = t.shapes[0][0];
  maps.query = t.inputs[0];
  maps.key = t.inputs[1];
  maps.query_mask = t.inputs[2];
  maps.key_mask = t.inputs[3];
  maps.start = static_cast<const int32_t*>(t.inputs[4]);
  constexpr int kMaskAxes[3] = {0, 2, 3};
  for (int i = 0; i < 3; ++i) maps.query_mask_steps[i] = step(t.shapes[2], kMaskAxes[i]);
  for (int i = 0; i < 3; ++i) maps.key_mask_steps[i] = step(t.shapes[3], kMaskAxes[i]);
  for (int i = 0; i < 4; ++i) maps.start_steps[i] = step(t.shapes[4], i);
  maps.index = static_cast<int32_t*>(t.outputs[0]);
  maps.score = t.outputs[1];
  return maps;
}

void PatchMatch::compute(const Tensors& t, const Threads& threads, const Kernels& kernels) const {
  PatchMatchParams p = params(t.shapes);
  p.same_map = t.inputs[0] == t.inputs[1] && t.shapes[0] == t.shapes[1];
  const PatchMatchMaps maps = maps_of(t);
  const int64_t floats = kernels.patch_match_workspace(p), steps = kernels.patch_match_steps(p);
  if (maps.batch > 1 && floats <= kSmallWorkspace) {
    threads.parallel(maps.batch, floats, [&](int64_t first, int64_t last, float* workspace) {
      Status status = Status::kOk;
      for (int64_t image = first; image < last; ++image)
        for (int64_t step = 0; step < steps && status == Status::kOk; ++step)
          status = kernels.patch_match(p, t.type, image_of(maps, p, t.type, image), step, 0,
                                       kernels.patch_match_tasks(p, step), workspace);
      return status;
    });
    return;
  }
  const AlignedFloats workspace{size_t(floats)};
  request_large_pages(workspace.get(), floats);
  for (int64_t image = 0; image < maps.batch; ++image) {
    const PatchMatchMaps of_image = image_of(maps, p, t.type, image);
    for (int64_t step = 0; step < steps; ++step)
      threads.parallel(
          kernels.patch_match_tasks(p, step), 0, [&](int64_t first, int64_t last, float*) {
            return kernels.patch_match(p, t.type, of_image, step, first, last, workspace.get());
          });
  }
}

void PatchMatch::refuse_sizes(const Shape* in) {
  throw Refusal("input query is " + text(in[0]) + ", key " + text(in[1]) +
                "; expected fewer than " + std::to_string(kMaxPixels) +
                " pixels per map, 2^31 in all, and at least one key");
}

}  // namespace nystra
