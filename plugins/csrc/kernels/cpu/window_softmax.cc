// NystraWindowSoftmax, NystraWindowOverlap and NystraWindowCosine: exact attention in the windows
// of a map, with the keys of the window, or those beyond it by margins too, where keys beyond the
// map are zeros; with factors of the heads, queries and keys are divided by their norms.
//
// A task is a chunk of the queries of one head in one window.
#include "softmax_head.h"
#include "softmax_scores.h"

namespace nystra::NYSTRA_ISA {
namespace {

HeadSize head_size(const WindowShape& s) {
  return {s.head_dim, s.value_dim, s.keys(), s.scale, s.epsilon, s.between_regions() * kLog2E};
}

// Packs a block of keys and values; those beyond the map are zeros.
template <class T, class AnyBuffers>
void pack_block(const WindowShape& s, const HeadSize& size, const Place& p, const Head<T>& in,
                int64_t first, int64_t count, const AnyBuffers& b) {
  int64_t pixels[kKeys];
  bool beyond[kKeys], any = false;
  if (s.margin_h > 0 || s.margin_w > 0)
    any = around_pixels(s, p, first, count, pixels, beyond);
  else
    token_pixels(p, first, count, pixels);
  const Tokens<const T> k = {in.k, s.channels(), pixels}, v = {in.v, s.channels(), pixels};
  pack_keys(size, k, v, count, b);
  for (int64_t i = 0; any && i < count; ++i)
    if (beyond[i]) clear_key(size, i, b);
}

template <class T>
void run(const WindowSoftmaxParams& params, const T* qkv, T* out, int64_t task, float* scratch,
         Ahead& ahead) {
  const WindowShape& s = params.shape;
  const int64_t chunk = task % chunks(s), head = task / chunks(s) % s.heads;
  HeadSize size = head_size(s);
  if (params.factors != nullptr) size.scale *= params.factors[head];
  const Place p = place(s, task / chunks(s) / s.heads);
  const Head<T> in(s, qkv, head);
  const float* const bias = params.bias == nullptr ? nullptr : params.bias + head * bias_step(s);
  Scratch memory(scratch);
  const typename BuffersOf<T>::Type b(size, memory);

  const int64_t query = chunk * kQueries;
  const int64_t queries = s.tokens() - query < kQueries ? s.tokens() - query : kQueries;
  int64_t pixels[kQueries];
  token_pixels(p, query, queries, pixels);
  pack_queries(size, Tokens<const T>{in.q, s.channels(), pixels}, queries, b);
  const auto pack = [&](int64_t first, int64_t count) {
    pack_block(s, size, p, in, first, count, b);
  };
  attend_to_all(size, b, WindowTerms{s, p, bias}, query, queries, pack, ahead);
  write(size, b, queries, Tokens<T>{out + head * s.value_dim, s.heads * s.value_dim, pixels});
}

template <class T>
void run_all(const WindowSoftmaxParams& params, const T* qkv, T* out, int64_t first, int64_t last,
             float* scratch) {
  const WindowShape& s = params.shape;
  [[maybe_unused]] const TilesOf<T> tiles;
  for (int64_t task = first; task < last; ++task) {
    // Of several chunks the next one reads what this one has in its cache.
    Ahead ahead = chunks(s) == 1 ? Ahead(s, qkv, out, task) : Ahead(s);
    run(params, qkv, out, task, scratch, ahead);
  }
}

}  // namespace

int64_t window_softmax_tasks(const WindowShape& s) { return s.windows() * s.heads * chunks(s); }

int64_t window_softmax_scratch(const WindowShape& s) { return head_scratch(head_size(s)); }

int64_t window_softmax_bias_size(const WindowShape& s) { return s.heads * bias_step(s) + kLanes; }

void window_softmax_bias(const WindowShape& s, Type type, const void* table, float* bias) {
  with_elements(type, [&](auto t) { fill_bias(s, t.of(table), bias); });
}

void window_softmax_factors(const WindowShape& s, Type type, const void* logit_scale,
                            float* factors) {
  with_elements(type, [&](auto t) {
    for (int64_t head = 0; head < s.heads; ++head)
      factors[head] = to_float(t.of(logit_scale)[head]);
  });
}

Status window_softmax(const WindowSoftmaxParams& params, Type type, const void* qkv, void* out,
                      int64_t first, int64_t last, float* scratch) {
  if (scratch == nullptr) return Status::kNoScratch;
  with_elements(type, [&](auto t) { run_all(params, t.of(qkv), t.of(out), first, last, scratch); });
  return Status::kOk;
}

}  // namespace nystra::NYSTRA_ISA
