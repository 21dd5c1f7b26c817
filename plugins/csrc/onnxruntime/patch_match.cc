#include <sys/mman.h>

#include "operators.h"

namespace nystra::ort {
namespace {

constexpr int64_t kMaxPixels = 1 << 24;       // of a map: fewer
constexpr int64_t kSmallWorkspace = 1 << 20;  // floats: so small that images are searched at once

// Checks that a map has rank 4 and fewer pixels than the kernel can name.
void check_map(const char* name, const Tensor& map, const char* axes) {
  const std::vector<int64_t>& s = map.shape;
  if (s.size() != 4)
    throw Refusal(std::string("input ") + name + " is " + shape_text(s) +
                  "; expected rank 4: " + axes);
  if (s[2] != 0 && s[3] != 0 && s[2] > (kMaxPixels - 1) / s[3])
    throw Refusal(std::string("input ") + name + " is " + shape_text(s) + "; expected fewer than " +
                  std::to_string(kMaxPixels) + " pixels a map");
}

// The step from one element to the next along each axis of an input that broadcasts to `full`.
std::vector<int64_t> broadcast(const char* name, const Tensor& given,
                               const std::vector<int64_t>& full) {
  const std::vector<int64_t>& s = given.shape;
  bool fits = s.size() == full.size();
  for (size_t i = 0; fits && i < full.size(); ++i) fits = s[i] == 1 || s[i] == full[i];
  if (!fits)
    throw Refusal(std::string("input ") + name + " is " + shape_text(s) + "; expected " +
                  shape_text(full) + ", or 1 for any of its sizes");
  std::vector<int64_t> steps(full.size());
  int64_t step = 1;
  for (size_t i = full.size(); i-- > 0; step *= s[i]) steps[i] = s[i] == 1 ? 0 : step;
  return steps;
}

const void* advance(const void* data, int64_t elements, Type type) {
  const int64_t size = type == Type::kFloat ? sizeof(float) : sizeof(Half);
  return static_cast<const char*>(data) + elements * size;
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

PatchMatch::PatchMatch(const Attributes& a) : params_{} {
  params_.patch = a.integer("patch_size", 1, 23);
  params_.iterations = a.integer("iterations", 1, 16);
  params_.neighbors = a.integer("neighbors", 1, 32);
  params_.metric = a.integer("metric", kL2, kCosine);
  params_.seed = a.integer("seed", 0, 4095);
  if (params_.patch % 2 == 0)
    throw Refusal("attribute patch_size is " + std::to_string(params_.patch) +
                  "; expected an odd number");
}

PatchMatch::Search PatchMatch::search(const Call& call) const {
  Search s{call.input(0),
           call.input(1),
           call.input(2),
           call.input(3),
           call.input(4),
           params_,
           {},
           {},
           {},
           {}};
  check_map("query", s.query, "(batch, channels, height, width)");
  check_map("key", s.key, "(batch, channels, key height, key width)");
  const int64_t batch = s.query.shape[0];
  PatchMatchParams& p = s.params;
  p.channels = s.query.shape[1];
  p.height = s.query.shape[2];
  p.width = s.query.shape[3];
  p.key_height = s.key.shape[2];
  p.key_width = s.key.shape[3];
  if (s.key.shape[0] != batch || s.key.shape[1] != p.channels)
    throw Refusal("input key is " + shape_text(s.key.shape) +
                  "; expected the batch and channels of query, " + shape_text(s.query.shape));
  s.field = {batch, p.neighbors, p.height, p.width};
  s.query_mask_steps = broadcast("query_mask", s.query_mask, {batch, 1, p.height, p.width});
  s.key_mask_steps = broadcast("key_mask", s.key_mask, {batch, 1, p.key_height, p.key_width});
  s.start_steps = broadcast("start", s.start, s.field);
  if (batch * s.entries() != 0 && (p.key_height == 0 || p.key_width == 0))
    throw Refusal("input key is " + shape_text(s.key.shape) + "; expected at least one key");
  p.masked = s.key_mask_steps[2] != 0 || s.key_mask_steps[3] != 0;
  return s;
}

void PatchMatch::compute(const CpuCall& call) const {
  const Search s = search(call);
  const int64_t batch = s.batch(), entries = s.entries();
  PatchMatchParams p = s.params;
  p.same_map = s.query.data == s.key.data && s.query.shape == s.key.shape;
  auto* const index = static_cast<int32_t*>(call.output(0, s.field));
  void* const score = call.output(1, s.field);
  if (batch * entries == 0) return;

  const auto maps_of = [&](int64_t b) {
    PatchMatchMaps m{};
    m.query = advance(s.query.data, b * p.channels * p.height * p.width, call.type);
    m.key = advance(s.key.data, b * p.channels * p.key_height * p.key_width, call.type);
    m.query_mask = advance(s.query_mask.data, b * s.query_mask_steps[0], call.type);
    m.key_mask = advance(s.key_mask.data, b * s.key_mask_steps[0], call.type);
    m.start = static_cast<const int32_t*>(s.start.data) + b * s.start_steps[0];
    for (int i = 0; i < 2; ++i) m.query_mask_steps[i] = s.query_mask_steps[size_t(i) + 2];
    for (int i = 0; i < 2; ++i) m.key_mask_steps[i] = s.key_mask_steps[size_t(i) + 2];
    for (int i = 0; i < 3; ++i) m.start_steps[i] = s.start_steps[size_t(i) + 1];
    m.index = index + b * entries;
    m.score = const_cast<void*>(advance(score, b * entries, call.type));
    return m;
  };
  const Kernels& k = *kernels();
  const int64_t floats = k.patch_match_workspace(p), steps = k.patch_match_steps(p);
  if (batch > 1 && floats <= kSmallWorkspace) {
    call.parallel(batch, floats, [&](int64_t first, int64_t last, float* workspace) {
      nystra::Status status = nystra::Status::kOk;
      for (int64_t b = first; b < last; ++b)
        for (int64_t step = 0; step < steps && status == nystra::Status::kOk; ++step)
          status = k.patch_match(p, call.type, maps_of(b), step, 0, k.patch_match_tasks(p, step),
                                 workspace);
      return status;
    });
    return;
  }
  const AlignedFloats workspace{size_t(floats)};
  ask_large_pages(workspace.get(), floats);
  for (int64_t b = 0; b < batch; ++b) {
    const PatchMatchMaps maps = maps_of(b);
    for (int64_t step = 0; step < steps; ++step)
      call.parallel(k.patch_match_tasks(p, step), 0, [&](int64_t first, int64_t last, float*) {
        return k.patch_match(p, call.type, maps, step, first, last, workspace.get());
      });
  }
}

}  // namespace nystra::ort
