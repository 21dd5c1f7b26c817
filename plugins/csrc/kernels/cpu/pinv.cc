// NystraPinv: the iterative pseudoinverse of each matrix of a batch.
#include "elements.h"
#include "isa.h"
#include "pseudoinverse.h"

namespace nystra::NYSTRA_ISA {
namespace {

template <class T>
void read(const PinvBuffers& p, const T* a) {
  for (int64_t i = 0; i < p.rows; ++i)
    for (int64_t j = 0; j < p.step; j += kLanes)
      store(p.a + i * p.step + j, i < p.size && j < p.size
                                      ? load_part(a + i * p.size + j, lanes_left(p.size, j))
                                      : Vec{});
}

template <class T>
void write(const PinvBuffers& p, T* z) {
  for (int64_t i = 0; i < p.size; ++i)
    for (int64_t j = 0; j < p.size; j += kLanes)
      store_part(z + i * p.size + j, load(p.z + i * p.step + j), lanes_left(p.size, j));
}

template <class T>
void invert(const PinvParams& params, const T* a, const BatchMaxima& batch, T* z, int64_t first,
            int64_t last, float* scratch) {
  const int64_t elements = params.size * params.size;
  for (int64_t i = first; i < last; ++i) {
    Scratch memory(scratch);
    PinvBuffers buffers(params.size, memory);
    read(buffers, a + i * elements);
    start_value(buffers, batch, nullptr);
    iterate(buffers, params.iterations);
    write(buffers, z + i * elements);
  }
}

template <class T>
void merge_maxima(const PinvParams& params, const T* a, int64_t first, int64_t last, float* scratch,
                  BatchMaxima* result) {
  for (int64_t i = first; i < last; ++i) {
    Scratch memory(scratch);
    const PinvBuffers buffers(params.size, memory);
    read(buffers, a + i * params.size * params.size);
    merge(maxima(buffers), result);
  }
}

}  // namespace

int64_t pinv_scratch(const PinvParams& params) {
  Scratch memory(nullptr);
  const PinvBuffers buffers(params.size, memory);
  return memory.used();
}

Status pinv_maxima(const PinvParams& params, Type type, const void* a, int64_t first, int64_t last,
                   float* scratch, BatchMaxima* result) {
  if (scratch == nullptr) return Status::kNoScratch;
  if (params.size < 1 || params.size > kMaxPinvSize) return Status::kUnsupported;
  with_elements(type, [&](auto t) { merge_maxima(params, t.of(a), first, last, scratch, result); });
  return Status::kOk;
}

Status pinv(const PinvParams& params, Type type, const void* a, const BatchMaxima& batch, void* z,
            int64_t first, int64_t last, float* scratch) {
  if (scratch == nullptr) return Status::kNoScratch;
  if (params.size < 1 || params.size > kMaxPinvSize) return Status::kUnsupported;
  with_elements(type,
                [&](auto t) { invert(params, t.of(a), batch, t.of(z), first, last, scratch); });
  return Status::kOk;
}

}  // namespace nystra::NYSTRA_ISA
