// NystraAttention: exact attention between lists of tokens.
#include "kernels/attention.h"

#include "softmax_launch.h"

namespace nystra::cuda {

size_t attention_workspace(const AttentionParams&, const LaunchLimits&) { return 0; }

Status attention(const AttentionParams& p, Type type, const AttentionTensors& t, void*,
                 Stream stream, const LaunchLimits& limits) {
  if (p.batch * p.heads * p.queries * p.value_dim == 0) return Status::kOk;
  if (std::max(p.queries, p.keys) > 0x7fffff00) return Status::kUnsupported;
  if (std::max({p.batch, p.heads, p.head_dim, p.value_dim}) > 0x7fffffff)
    return Status::kUnsupported;
  return with_type(type, [&](auto* element) {
    using T = std::remove_pointer_t<decltype(element)>;
    SoftmaxCall<T> call{{},
                        p.batch,
                        static_cast<const T*>(t.q),
                        static_cast<const T*>(t.k),
                        static_cast<const T*>(t.v),
                        p.biased ? static_cast<const T*>(t.bias) : nullptr,
                        static_cast<T*>(t.out)};
    Windows& s = call.job.shape;
    s.heads = int(p.heads);
    s.head_dim = int(p.head_dim);
    s.value_dim = int(p.value_dim);
    s.tokens = int(p.queries);
    s.keys = int(p.keys);
    s.window_w = s.window_h = s.down = s.across = 1;  // of a window, which is not read
    call.job.scale = p.scale * kLog2E;
    const auto steps = [&](int64_t tokens, int64_t channels) {
      return Steps{channels, tokens * channels, p.heads * tokens * channels};
    };
    call.job.q = steps(p.queries, p.head_dim);
    call.job.k = steps(p.keys, p.head_dim);
    call.job.v = steps(p.keys, p.value_dim);
    call.job.out = steps(p.queries, p.value_dim);
    for (int axis = 0; axis < 4; ++axis) call.job.bias[axis] = p.bias_steps[axis];
    return softmax<Area::kList>(call, static_cast<cudaStream_t>(stream), limits);
  });
}

}  // namespace nystra::cuda
