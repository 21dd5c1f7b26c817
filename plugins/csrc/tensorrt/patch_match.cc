// NystraPatchMatch: query (B, C, H, W), key (B, C, Hk, Wk), masks and starts that broadcast
// -> index (B, k, H, W) int32, score (B, k, H, W).
#include "kernels/cuda/kernels_cuda.h"
#include "operators.h"

namespace nystra::trt {
namespace {

constexpr int64_t kMaxPixels = 1 << 24;  // of a map: fewer

// Checks that a map has rank 4 and fewer pixels than the kernel can name.
void check_map(const char* name, const Dims& map, const char* axes) {
  if (map.nbDims != 4)
    throw Refusal(std::string("input ") + name + " is " + shape_text(map) +
                  "; expected rank 4: " + axes);
  if (map.d[2] > 0 && map.d[3] > 0 && map.d[2] > (kMaxPixels - 1) / map.d[3])
    throw Refusal(std::string("input ") + name + " is " + shape_text(map) +
                  "; expected fewer than " + std::to_string(kMaxPixels) + " pixels a map");
}

// Sizes of which one is not known yet agree.
bool agree(int64_t a, int64_t b) { return a == -1 || b == -1 || a == b; }

// Checks that an input broadcasts to `full`.
void check_broadcast(const char* name, const Dims& given, const Dims& full) {
  bool fits = given.nbDims == full.nbDims;
  for (int32_t i = 0; fits && i < full.nbDims; ++i)
    fits = given.d[i] == 1 || agree(given.d[i], full.d[i]);
  if (!fits)
    throw Refusal(std::string("input ") + name + " is " + shape_text(given) + "; expected " +
                  shape_text(full) + ", or 1 for any of its sizes");
}

// The step in elements from one place to the next along an axis of a map that may broadcast.
int64_t step(const Dims& map, int32_t axis) {
  int64_t result = 1;
  for (int32_t i = axis + 1; i < map.nbDims; ++i) result *= map.d[i];
  return map.d[axis] == 1 ? 0 : result;
}

class PatchMatch final : public Operator {
 public:
  explicit PatchMatch(const Attributes& a) : params_{} {
    params_.patch = a.integer("patch_size");
    params_.iterations = a.integer("iterations");
    params_.neighbors = a.integer("neighbors");
    params_.metric = a.integer("metric");
    params_.seed = a.integer("seed");
    if (params_.patch % 2 == 0)
      throw Refusal("attribute patch_size is " + std::to_string(params_.patch) +
                    "; expected an odd number");
  }

  void check(const Dims* in) const override {
    const Dims &query = in[0], &key = in[1];
    check_map("query", query, "(batch, channels, height, width)");
    check_map("key", key, "(batch, channels, key height, key width)");
    if (!agree(key.d[0], query.d[0]) || !agree(key.d[1], query.d[1]))
      throw Refusal("input key is " + shape_text(key) +
                    "; expected the batch and channels of query, " + shape_text(query));
    check_broadcast("query_mask", in[2], {4, {query.d[0], 1, query.d[2], query.d[3]}});
    check_broadcast("key_mask", in[3], {4, {query.d[0], 1, key.d[2], key.d[3]}});
    check_broadcast("start", in[4], {4, {query.d[0], params_.neighbors, query.d[2], query.d[3]}});
    const bool empty = query.d[0] == 0 || query.d[2] == 0 || query.d[3] == 0;
    if ((key.d[2] == 0 || key.d[3] == 0) && !empty)
      throw Refusal("input key is " + shape_text(key) + "; expected at least one key");
  }

  void output_shapes(const DimsExprs* in, const Sizes& sizes, DimsExprs* out) const override {
    for (int i = 0; i < 2; ++i) {
      out[i] = in[0];
      out[i].d[1] = sizes.constant(params_.neighbors);
    }
  }

  size_t workspace(const Dims* in) const override {
    return cuda::patch_match_workspace(params(in), in[0].d[0]);
  }

  void run(const Call& c) const override {
    const Dims &query_mask = c.shapes[2], &key_mask = c.shapes[3], &start = c.shapes[4];
    cuda::PatchMatchMaps maps{};
    maps.batch = c.shapes[0].d[0];
    maps.query = c.inputs[0];
    maps.key = c.inputs[1];
    maps.query_mask = c.inputs[2];
    maps.key_mask = c.inputs[3];
    maps.start = static_cast<const int32_t*>(c.inputs[4]);
    constexpr int32_t kMaskAxes[3] = {0, 2, 3};
    for (int i = 0; i < 3; ++i) maps.query_mask_steps[i] = step(query_mask, kMaskAxes[i]);
    for (int i = 0; i < 3; ++i) maps.key_mask_steps[i] = step(key_mask, kMaskAxes[i]);
    for (int i = 0; i < 4; ++i) maps.start_steps[i] = step(start, i);
    maps.index = static_cast<int32_t*>(c.outputs[0]);
    maps.score = c.outputs[1];
    require_ok(cuda::patch_match(params(c.shapes), c.type, maps, c.workspace, c.stream));
  }

 private:
  PatchMatchParams params(const Dims* in) const {
    PatchMatchParams p = params_;
    p.channels = in[0].d[1];
    p.height = in[0].d[2];
    p.width = in[0].d[3];
    p.key_height = in[1].d[2];
    p.key_width = in[1].d[3];
    p.masked = in[3].d[2] != 1 || in[3].d[3] != 1;
    return p;
  }

  PatchMatchParams params_;
};

}  // namespace

const Description& patch_match() {
  static const Description description{
      "NystraPatchMatch", "TTTTI", "IT",
      with_revision({integer_attribute("patch_size", 1, 23), integer_attribute("iterations", 1, 16),
                     integer_attribute("neighbors", 1, 32),
                     integer_attribute("metric", kL2, kCosine),
                     integer_attribute("seed", 0, 4095)}),
      [](const Attributes& a) -> std::unique_ptr<const Operator> {
        return std::make_unique<PatchMatch>(a);
      }};
  return description;
}

}  // namespace nystra::trt
