#include "binding.h"
#include "onnxruntime/operators.h"

namespace nystra::ort {

void PatchMatch::compute(const CudaCall& call) const {
  const Search s = search(call);
  void* const index = call.output(0, s.field);
  void* const score = call.output(1, s.field);
  if (s.batch() * s.entries() == 0) return;

  cuda::PatchMatchMaps maps{};
  maps.batch = s.batch();
  maps.query = s.query.data;
  maps.key = s.key.data;
  maps.query_mask = s.query_mask.data;
  maps.key_mask = s.key_mask.data;
  maps.start = static_cast<const int32_t*>(s.start.data);
  constexpr size_t kMaskAxes[3] = {0, 2, 3};
  for (size_t i = 0; i < 3; ++i) maps.query_mask_steps[i] = s.query_mask_steps[kMaskAxes[i]];
  for (size_t i = 0; i < 3; ++i) maps.key_mask_steps[i] = s.key_mask_steps[kMaskAxes[i]];
  for (size_t i = 0; i < 4; ++i) maps.start_steps[i] = s.start_steps[i];
  maps.index = static_cast<int32_t*>(index);
  maps.score = score;
  const size_t bytes = cuda::patch_match_workspace(s.params, s.batch());
  call.launch(bytes, [&](void* workspace, cuda::Stream stream) {
    return cuda::patch_match(s.params, call.type, maps, workspace, stream);
  });
}

}  // namespace nystra::ort
