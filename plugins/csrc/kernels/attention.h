// The kernels of NystraAttention, exact attention between lists of tokens: q (B, h, N, d),
// k (B, h, M, d), v (B, h, M, e), and a bias that broadcasts to (B, h, N, M), to (B, h, N, e).
//
// The bias is added to the logits. A key whose bias is -inf has no weight, and a query without any
// other key gets zeros.
#pragma once

#include "kernel.h"

namespace nystra {

struct AttentionParams {
  int64_t batch, heads, queries, keys, head_dim, value_dim;
  float scale;
  bool biased;
  int64_t bias_steps[4];  // in elements along its axes, 0 where it is broadcast
};

struct AttentionTensors {
  const void *q, *k, *v, *bias;
  void* out;
};

#define NYSTRA_ATTENTION_CPU(X)                                                          \
  X(int64_t, attention_tasks, (const AttentionParams&))                                  \
  X(int64_t, attention_scratch, (const AttentionParams&))                                \
  X(Status, attention,                                                                   \
    (const AttentionParams&, Type, const AttentionTensors&, int64_t first, int64_t last, \
     float* scratch))

}  // namespace nystra
