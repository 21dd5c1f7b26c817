#include "attention.h"

namespace nystra {
namespace {

void check_list(const char* name, const Shape& list, const Shape& expected, const char* axes) {
  if (!agree(list, expected))
    throw Refusal(std::string("input ") + name + " is " + text(list) + "; expected " +
                  text(expected) + ": " + axes);
}

}  // namespace

void Attention::check(const Shape* in) const {
  const Shape &q = in[0], &k = in[1], &v = in[2];
  for (int i = 0; i < 3; ++i)
    if (in[i].rank != 4)
      throw Refusal(std::string("input ") + "qkv"[i] + " is " + text(in[i]) +
                    "; expected rank 4: (batch, heads, tokens, channels)");
  check_list("k", k, {q[0], q[1], k[2], q[3]}, "batch, heads and channels of q");
  check_list("v", v, {q[0], q[1], k[2], v[3]}, "batch and heads of q, tokens of k");
  if (q[3] == 0) throw Refusal("input q is " + text(q) + "; expected at least one channel");
  if (k[2] == 0 && !output(0, in).empty())
    throw Refusal("input k is " + text(k) + "; expected at least one key");
  if (bias_) check_broadcast("attn_bias", in[3], {q[0], q[1], q[2], k[2]});
}

AttentionParams Attention::params(const Shape* in) const {
  const Shape &q = in[0], &k = in[1], &v = in[2];
  AttentionParams result{q[0], q[1], q[2], k[2], q[3], v[3], scale_, bias_, {}};
  for (int axis = 0; bias_ && axis < 4; ++axis) result.bias_steps[axis] = step(in[3], axis);
  return result;
}

void Attention::compute(const Tensors& t, const Threads& threads, const Kernels& kernels) const {
  const AttentionParams p = params(t.shapes);
  const AttentionTensors tensors = tensors_of(t);
  threads.parallel(kernels.attention_tasks(p), kernels.attention_scratch(p),
                   [&](int64_t first, int64_t last, float* scratch) {
                     return kernels.attention(p, t.type, tensors, first, last, scratch);
                   });
}

}  // namespace nystra
