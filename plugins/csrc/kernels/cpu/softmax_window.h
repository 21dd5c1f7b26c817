// Exact attention in windows: NystraWindowSoftmax, NystraWindowOverlap and NystraWindowCosine.
//
// A task is a chunk of the queries of one head in one window.
#pragma once

#include "softmax_head.h"
#include "softmax_scores.h"

namespace nystra::NYSTRA_ISA {
namespace {

// What queries attend to: the keys of their window, or with kAround those beyond it by margins too,
// where keys beyond the map are zeros. With kCosine keys and queries are divided by their norms.
enum class Keys { kInside, kAround, kCosine };

HeadSize head_size(const WindowShape& s) {
  return {s.head_dim, s.value_dim, s.keys(), s.scale, s.epsilon};
}

// Packs a block of keys and values; those beyond the map are zeros.
template <Keys kWhich, class T, class AnyBuffers>
void pack_block(const WindowShape& s, const HeadSize& size, const Place& p, const Head<T>& in,
                int64_t first, int64_t count, const AnyBuffers& b) {
  int64_t pixels[kKeys];
  bool beyond[kKeys], any = false;
  if constexpr (kWhich == Keys::kAround)
    any = around_pixels(s, p, first, count, pixels, beyond);
  else
    token_pixels(p, first, count, pixels);
  const Tokens<const T> k = {in.k, s.channels(), pixels}, v = {in.v, s.channels(), pixels};
  pack_keys(size, k, v, count, b);
  for (int64_t i = 0; any && i < count; ++i)
    if (beyond[i]) clear_key(size, i, b);
}

template <Keys kWhich, class T, class Between>
void run(const WindowSoftmaxParams& params, const T* qkv, T* out, int64_t task, float* scratch,
         Between& between) {
  const WindowShape& s = params.shape;
  const int64_t chunk = task % chunks(s), head = task / chunks(s) % s.heads;
  HeadSize size = head_size(s);
  if constexpr (kWhich == Keys::kCosine)
    size.scale *= params.factors[head];
  else
    size.epsilon = 0;
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
    pack_block<kWhich>(s, size, p, in, first, count, b);
  };
  attend_to_all(size, b, WindowTerms{s, p, bias}, query, queries, pack, between);
  write(size, b, queries, Tokens<T>{out + head * s.value_dim, s.heads * s.value_dim, pixels});
}

template <Keys kWhich, class T>
void run_all(const WindowSoftmaxParams& params, const T* qkv, T* out, int64_t first, int64_t last,
             float* scratch) {
  const WindowShape& s = params.shape;
  [[maybe_unused]] const TilesOf<T> tiles;
  for (int64_t task = first; task < last; ++task) {
    if (chunks(s) == 1) {
      Ahead<T> ahead(s, qkv, out, task);
      run<kWhich>(params, qkv, out, task, scratch, ahead);
    } else {  // the next chunk reads what this one has in its cache
      const auto nothing = [] {};
      run<kWhich>(params, qkv, out, task, scratch, nothing);
    }
  }
}

template <Keys kWhich>
Status softmax_tasks(const WindowSoftmaxParams& params, Type type, const void* qkv, void* out,
                     int64_t first, int64_t last, float* scratch) {
  if (scratch == nullptr) return Status::kNoScratch;
  with_elements(
      type, [&](auto t) { run_all<kWhich>(params, t.of(qkv), t.of(out), first, last, scratch); });
  return Status::kOk;
}

}  // namespace
}  // namespace nystra::NYSTRA_ISA
