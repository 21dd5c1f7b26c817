#include "launch.h"

namespace nystra::cuda {

size_t workspace(const PatchMatch& op, const Shape* in) {
  const Shape &query = in[0], &key = in[1];
  const size_t bytes = patch_match_workspace(op.params(in), query[0]);
  if (bytes == 0 && !query.empty())
    throw Refusal("input query is " + text(query) + ", key " + text(key) +
                  "; expected fewer than " + std::to_string(kMaxPixels) +
                  " pixels a map, 2^31 in all, and at least one key");
  return bytes;
}

Status launch(const PatchMatch& op, const Tensors& t, void* workspace, Stream stream) {
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
  return patch_match(op.params(t.shapes), t.type, maps, workspace, stream);
}

}  // namespace nystra::cuda
