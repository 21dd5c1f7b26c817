// What a search reads: maps with the channels last and their borders repeated, flags and lists.
#pragma once

#include "elements.h"
#include "kernels_cuda.h"

namespace nystra::cuda {
namespace {

constexpr int kMapThreads = 128, kListThreads = 256;

// A map: floats, channels last (padded with zeros to a multiple of 4), borders repeated `radius`
// times; so the patch at a pixel is a box of the padded map that begins at the same coordinates.
struct PaddedMap {
  float* data;
  int height, width, channels, step, radius;  // step: floats of a pixel

  __host__ __device__ int padded_height() const { return height + 2 * radius; }
  __host__ __device__ int padded_width() const { return width + 2 * radius; }
  __host__ __device__ int64_t row() const { return int64_t(padded_width()) * step; }
  __host__ __device__ int64_t image() const { return padded_height() * row(); }

  // The patch of a pixel of an image: its first float.
  __device__ const float* patch(int image_number, int y, int x) const {
    return data + image_number * image() + y * row() + int64_t(x) * step;
  }
};

// A thread does a pixel of the padded map.
template <class T>
__global__ void __launch_bounds__(kMapThreads)
    patch_match_pad_kernel(PaddedMap map, int batch, const T* source) {
  const int64_t pixels = int64_t(map.padded_height()) * map.padded_width();
  const int64_t at = int64_t(blockIdx.x) * kMapThreads + threadIdx.x;
  if (at >= pixels * batch) return;
  const int pixel = int(at % pixels), padded_width = map.padded_width();
  const int y = min(max(pixel / padded_width - map.radius, 0), map.height - 1);
  const int x = min(max(pixel % padded_width - map.radius, 0), map.width - 1);
  const int64_t plane = int64_t(map.height) * map.width;
  const T* const from = source + at / pixels * map.channels * plane + int64_t(y) * map.width + x;
  float* const to = map.data + at * map.step;
  for (int c = 0; c < map.step; c += 4) {
    float values[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      values[i] = c + i < map.channels ? to_float(from[(c + i) * plane]) : 0.0f;
    store<4>(to + c, values);
  }
}

struct Steps {
  int64_t image, row, column;
};

// flags = 1 where a mask is above 0 (NaN is not).
template <class T>
__global__ void __launch_bounds__(kMapThreads)
    patch_match_flag_kernel(const T* mask, Steps steps, int batch, int height, int width,
                            uint8_t* flags) {
  const int64_t pixels = int64_t(height) * width;
  const int64_t at = int64_t(blockIdx.x) * kMapThreads + threadIdx.x;
  if (at >= pixels * batch) return;
  const int pixel = int(at % pixels);
  const T value =
      mask[at / pixels * steps.image + pixel / width * steps.row + pixel % width * steps.column];
  flags[at] = to_float(value) > 0.0f ? 1 : 0;
}

// The allowed keys of an image in ascending order, and their number. A block does an image.
__global__ void __launch_bounds__(kListThreads)
    patch_match_list_kernel(const uint8_t* flags, int keys, int* list, int* count) {
  DYNAMIC_SHARED(memory);
  SharedMemory shared(memory);
  constexpr int kWarps = kListThreads / kWarp;
  int* const warps = shared.take<int>(kWarps);  // keys in each warp's part
  const int thread = int(threadIdx.x), lane = thread % kWarp, warp = thread / kWarp;
  flags += int64_t(blockIdx.x) * keys;
  list += int64_t(blockIdx.x) * keys;
  int before = 0;
  for (int first = 0; first < keys; first += kListThreads) {
    const int key = first + thread;
    const bool allowed = key < keys && flags[key] != 0;
    const unsigned lanes = __ballot_sync(kAllLanes, allowed);
    if (lane == 0) warps[warp] = __popc(lanes);
    __syncthreads();
    int place = before + __popc(lanes & ((1u << lane) - 1u));
    for (int i = 0; i < kWarps; ++i) {
      if (i < warp) place += warps[i];
      before += warps[i];
    }
    if (allowed) list[place] = key;
    __syncthreads();  // the counts are free
  }
  if (thread == 0) count[blockIdx.x] = before;
}

// The number of keys where all of an image's are allowed or none is.
__global__ void __launch_bounds__(kMapThreads)
    patch_match_count_kernel(const uint8_t* flags, int keys, int batch, int* count) {
  const int image = int(blockIdx.x) * kMapThreads + int(threadIdx.x);
  if (image < batch) count[image] = flags[int64_t(image) * keys] != 0 ? keys : 0;
}

// Norms of patches, at least 1e-6.
__global__ void __launch_bounds__(kMapThreads)
    patch_match_norm_kernel(PaddedMap map, int batch, float* norms) {
  const int64_t pixels = int64_t(map.height) * map.width;
  const int64_t at = int64_t(blockIdx.x) * kMapThreads + threadIdx.x;
  if (at >= pixels * batch) return;
  const int pixel = int(at % pixels), side = 2 * map.radius + 1;
  const float* const patch = map.patch(int(at / pixels), pixel / map.width, pixel % map.width);
  float sum = 0.0f;
  for (int i = 0; i < side; ++i) {
    float row = 0.0f;
    for (int j = 0; j < side * map.step; j += 4) {
      float values[4];
      load(patch + i * map.row() + j, values);
#pragma unroll
      for (int c = 0; c < 4; ++c) row = fmaf(values[c], values[c], row);
    }
    sum += row;
  }
  const float norm = sqrtf(sum);
  norms[at] = norm < 1e-6f ? 1e-6f : norm;
}

}  // namespace
}  // namespace nystra::cuda
