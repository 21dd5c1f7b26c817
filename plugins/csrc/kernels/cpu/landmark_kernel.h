// The common algorithm of both Nystrom forms, from landmarks to output.
//
// A form has its own Buffers, a LandmarkBuffers, and four steps on them: fill_core (the landmarks
// against each other), pass_keys, combine (the result of the keys with the pseudoinverse) and
// pass_queries.
#pragma once

#include "landmark_window.h"
#include "tiles.h"

namespace nystra::NYSTRA_ISA {
namespace {

template <class Buffers, class Params, class T>
void attend(const Params& params, const T* qkv, const BatchMaxima& batch, T* out, int64_t task,
            float* scratch) {
  const int64_t head = task % params.shape.heads;
  const Place p = place(params.shape, task / params.shape.heads);
  const Head<T> in(params.shape, qkv, head);
  Scratch memory(scratch);
  Buffers b(params, memory);
  find_landmarks(params, p, in, b);
  fill_core(params, p, b);
  start_value(b.pinv, batch, p.cut ? b.regions : nullptr);
  iterate(b.pinv, params.iterations);
  Ahead<T> ahead(params.shape, qkv, out, task);
  pass_keys(params, p, in, b, ahead);
  combine(b);
  pass_queries(params, p, in, head, b, out, ahead);
}

template <class Buffers, class Params, class T>
void merge_maxima(const Params& params, const T* qkv, int64_t task, float* scratch,
                  BatchMaxima* result) {
  const Place p = place(params.shape, task / params.shape.heads);
  Scratch memory(scratch);
  Buffers b(params, memory);
  find_landmarks(params, p, Head<T>(params.shape, qkv, task % params.shape.heads), b);
  fill_core(params, p, b);
  merge(maxima(b.pinv), result);
}

template <class Buffers, class Params>
int64_t landmark_scratch(const Params& params) {
  Scratch memory(nullptr);
  const Buffers buffers(params, memory);
  return memory.used();
}

template <class Buffers, class Params>
Status landmark_maxima(const Params& params, Type type, const void* qkv, int64_t first,
                       int64_t last, float* scratch, BatchMaxima* result) {
  if (scratch == nullptr) return Status::kNoScratch;
  if (params.landmarks() > kMaxLandmarks) return Status::kUnsupported;
  with_elements(type, [&](auto t) {
    for (int64_t task = first; task < last; ++task)
      merge_maxima<Buffers>(params, t.of(qkv), task, scratch, result);
  });
  return Status::kOk;
}

template <class Buffers, class Params>
Status landmark_attention(const Params& params, Type type, const void* qkv,
                          const BatchMaxima& batch, void* out, int64_t first, int64_t last,
                          float* scratch) {
  if (scratch == nullptr) return Status::kNoScratch;
  if (params.landmarks() > kMaxLandmarks) return Status::kUnsupported;
  with_elements(type, [&](auto t) {
    [[maybe_unused]] const TilesOf<typename decltype(t)::Element> tiles;
    for (int64_t task = first; task < last; ++task)
      attend<Buffers>(params, t.of(qkv), batch, t.of(out), task, scratch);
  });
  return Status::kOk;
}

}  // namespace
}  // namespace nystra::NYSTRA_ISA
