// NystraAttention: exact attention between lists of tokens. A task is a chunk of the queries of one
// head; each reads all keys, in memory that does not depend on their number.
#include <type_traits>

#include "softmax_head.h"

namespace nystra::NYSTRA_ISA {
namespace {

HeadSize head_size(const AttentionParams& p) { return {p.head_dim, p.value_dim, p.keys, p.scale}; }

// The bias of a head, as softmax_head.h asks for it.
template <class T>
struct ListTerms {
  const T* bias;  // null: none
  int64_t queries, query_step, key_step;

  ListTerms(const AttentionParams& p, const void* tensor, int64_t image, int64_t head)
      : bias(p.biased
                 ? static_cast<const T*>(tensor) + image * p.bias_steps[0] + head * p.bias_steps[1]
                 : nullptr),
        queries(p.queries),
        query_step(p.bias_steps[2]),
        key_step(p.bias_steps[3]) {}

  static constexpr bool cut() { return false; }
  bool biased() const { return bias != nullptr; }
  bool by_row() const { return biased(); }
  static const float* pairs(int64_t, int64_t) { return nullptr; }
  static float region(int64_t) { return 0.0f; }
  static void regions(int64_t, int64_t, float*) {}

  // In powers of two, finite where the bias is.
  static Vec term(Vec v) { return v == splat(-INFINITY) ? v : max(splat(-3e38f), v * kLog2E); }
  void row(int64_t query, int64_t first, int64_t count, float* out) const {
    const T* const from = bias + (query < queries ? query : queries - 1) * query_step;
    if (key_step == 0) {
      const Vec same = term(splat(to_float(*from)));
      for (int64_t i = 0; i < count; i += kLanes) store(out + i, same);
    } else {
      for (int64_t i = 0; i < count; i += kLanes)
        store(out + i, term(load_part(from + first + i, lanes_left(count, i))));
    }
  }
  void bias_row(int64_t query, int64_t first, int64_t count, float* out) const {
    row(query, first, count, out);
  }
};

template <class T>
void run(const AttentionParams& p, const AttentionTensors& t, int64_t task, float* scratch) {
  const int64_t chunk = task % chunks_of(p.queries), list = task / chunks_of(p.queries);
  const int64_t query = chunk * kQueries;
  const int64_t queries = p.queries - query < kQueries ? p.queries - query : kQueries;
  const HeadSize size = head_size(p);
  Scratch memory(scratch);
  const typename BuffersOf<T>::Type b(size, memory);
  int64_t places[kQueries > kKeys ? kQueries : kKeys];
  for (int64_t i = 0; i < int64_t(sizeof places / sizeof *places); ++i) places[i] = i;

  const auto tokens = [&](auto* tensor, int64_t first, int64_t channels) {
    return Tokens<std::remove_pointer_t<decltype(tensor)>>{tensor + first * channels, channels,
                                                           places};
  };
  const T *const q = static_cast<const T*>(t.q), *const k = static_cast<const T*>(t.k);
  const T* const v = static_cast<const T*>(t.v);
  pack_queries(size, tokens(q, list * p.queries + query, p.head_dim), queries, b);
  const auto pack = [&](int64_t first, int64_t count) {
    const int64_t key = list * p.keys + first;
    pack_keys(size, tokens(k, key, p.head_dim), tokens(v, key, p.value_dim), count, b);
  };
  const ListTerms<T> terms(p, t.bias, list / p.heads, list % p.heads);
  const auto nothing = [] {};
  attend_to_all(size, b, terms, query, queries, pack, nothing);
  T* const out = static_cast<T*>(t.out);
  write(size, b, queries, tokens(out, list * p.queries + query, p.value_dim));
}

}  // namespace

int64_t attention_tasks(const AttentionParams& p) {
  return p.batch * p.heads * chunks_of(p.queries);
}

int64_t attention_scratch(const AttentionParams& p) { return head_scratch(head_size(p)); }

Status attention(const AttentionParams& p, Type type, const AttentionTensors& tensors,
                 int64_t first, int64_t last, float* scratch) {
  if (scratch == nullptr) return Status::kNoScratch;
  with_elements(type, [&](auto t) {
    using T = typename decltype(t)::Element;
    [[maybe_unused]] const TilesOf<T> tiles;
    for (int64_t task = first; task < last; ++task) run<T>(p, tensors, task, scratch);
  });
  return Status::kOk;
}

}  // namespace nystra::NYSTRA_ISA
