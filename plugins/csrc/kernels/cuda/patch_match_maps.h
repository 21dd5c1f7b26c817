// The inputs of a search: channels-last maps with repeated borders, flags, and lists of keys.
#pragma once

#include "elements.h"
#include "kernels/patch_match.h"

namespace nystra::cuda {
namespace {

constexpr int kMapThreads = 128, kListThreads = 256;
constexpr int kThreadKeys = 16, kChunkKeys = kThreadKeys * kListThreads;  // per thread, per chunk

// A map of the inputs' type, channels last (padded with zeros to a multiple of 4), borders repeated
// `radius` times; so the patch at a pixel is a box of the padded map that begins at the same
// coordinates.
template <class T>
struct PaddedMap {
  T* data;
  int height, width, channels, step, radius;  // step: elements of a pixel

  __host__ __device__ int padded_height() const { return height + 2 * radius; }
  __host__ __device__ int padded_width() const { return width + 2 * radius; }
  __host__ __device__ int64_t row() const { return int64_t(padded_width()) * step; }
  __host__ __device__ int64_t image() const { return padded_height() * row(); }

  // Returns the address of the first element of the patch at a pixel of an image.
  __device__ const T* patch(int image_number, int y, int x) const {
    return data + image_number * image() + y * row() + int64_t(x) * step;
  }
};

// Each thread copies a pixel of the padded map.
template <class T>
__global__ void __launch_bounds__(kMapThreads)
    patch_match_pad_kernel(PaddedMap<T> map, int batch, const T* source) {
  const int64_t pixels = int64_t(map.padded_height()) * map.padded_width();
  const int64_t at = int64_t(blockIdx.x) * kMapThreads + threadIdx.x;
  if (at >= pixels * batch) return;
  const int pixel = int(at % pixels), padded_width = map.padded_width();
  const int y = min(max(pixel / padded_width - map.radius, 0), map.height - 1);
  const int x = min(max(pixel % padded_width - map.radius, 0), map.width - 1);
  const int64_t plane = int64_t(map.height) * map.width;
  const T* const from = source + at / pixels * map.channels * plane + int64_t(y) * map.width + x;
  T* const to = map.data + at * map.step;
  for (int c = 0; c < map.step; c += 4) {
    Pack<T, 4> pack;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      pack.values[i] = c + i < map.channels ? from[(c + i) * plane] : from_float<T>(0.0f);
    *reinterpret_cast<Pack<T, 4>*>(to + c) = pack;
  }
}

struct Steps {
  int64_t image, row, column;
};

// Sets flags to 1 where a mask is above 0; NaN counts as 0.
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

// Returns the sum of the values of the threads before this one; `total` is that of the whole block.
__device__ __forceinline__ int block_scan(int value, int* warps, int& total) {
  constexpr int kWarps = kListThreads / kWarp;
  const int thread = int(threadIdx.x), lane = thread % kWarp, warp = thread / kWarp;
  int sum = value;
#pragma unroll
  for (int by = 1; by < kWarp; by *= 2) {
    const int other = __shfl_up_sync(kAllLanes, sum, by);
    if (lane >= by) sum += other;
  }
  if (lane == kWarp - 1) warps[warp] = sum;
  __syncthreads();
  int before = sum - value;
  total = 0;
  for (int i = 0; i < kWarps; ++i) {
    if (i < warp) before += warps[i];
    total += warps[i];
  }
  __syncthreads();  // the sums are no longer read
  return before;
}

// The part of a chunk of an image's keys that belongs to a thread.
struct KeyPart {
  int64_t first_of_image;
  int first;
  unsigned allowed;  // one bit per key

  __device__ KeyPart(const uint8_t* flags, int keys, int chunks) {
    first_of_image = int64_t(blockIdx.x) / chunks * keys;
    first = int(blockIdx.x) % chunks * kChunkKeys + int(threadIdx.x) * kThreadKeys;
    allowed = 0;
#pragma unroll
    for (int i = 0; i < kThreadKeys; ++i)
      if (first + i < keys && flags[first_of_image + first + i] != 0) allowed |= 1u << i;
  }
};

// Counts the allowed keys of each chunk, one chunk per block.
__global__ void __launch_bounds__(kListThreads)
    patch_match_chunk_kernel(const uint8_t* flags, int keys, int chunks, int* counts) {
  DYNAMIC_SHARED(memory);
  SharedMemory shared(memory);
  int* const warps = shared.take<int>(kListThreads / kWarp);
  int total;
  block_scan(__popc(KeyPart(flags, keys, chunks).allowed), warps, total);
  if (threadIdx.x == 0) counts[blockIdx.x] = total;
}

// Turns the counts of an image's chunks into exclusive prefix sums, and stores their total. One
// image per block.
__global__ void __launch_bounds__(kListThreads)
    patch_match_scan_kernel(int* counts, int chunks, int* count) {
  DYNAMIC_SHARED(memory);
  SharedMemory shared(memory);
  int* const warps = shared.take<int>(kListThreads / kWarp);
  counts += int64_t(blockIdx.x) * chunks;
  int before = 0;
  for (int first = 0; first < chunks; first += kListThreads) {
    const int chunk = first + int(threadIdx.x);
    int total;
    const int place = block_scan(chunk < chunks ? counts[chunk] : 0, warps, total);
    if (chunk < chunks) counts[chunk] = before + place;
    before += total;
  }
  if (threadIdx.x == 0) count[blockIdx.x] = before;
}

// Writes the allowed keys of each image in ascending order, one chunk per block.
__global__ void __launch_bounds__(kListThreads)
    patch_match_list_kernel(const uint8_t* flags, int keys, int chunks, const int* before,
                            int* list) {
  DYNAMIC_SHARED(memory);
  SharedMemory shared(memory);
  int* const warps = shared.take<int>(kListThreads / kWarp);
  const KeyPart part(flags, keys, chunks);
  int total;
  int place = before[blockIdx.x] + block_scan(__popc(part.allowed), warps, total);
#pragma unroll
  for (int i = 0; i < kThreadKeys; ++i)
    if (part.allowed >> i & 1u) list[part.first_of_image + place++] = part.first + i;
}

// Stores the number of allowed keys if all keys of an image are allowed or none is.
__global__ void __launch_bounds__(kMapThreads)
    patch_match_count_kernel(const uint8_t* flags, int keys, int batch, int* count) {
  const int image = int(blockIdx.x) * kMapThreads + int(threadIdx.x);
  if (image < batch) count[image] = flags[int64_t(image) * keys] != 0 ? keys : 0;
}

// Computes the norms of patches, at least 1e-6.
template <class T>
__global__ void __launch_bounds__(kMapThreads)
    patch_match_norm_kernel(PaddedMap<T> map, int batch, float* norms) {
  const int64_t pixels = int64_t(map.height) * map.width;
  const int64_t at = int64_t(blockIdx.x) * kMapThreads + threadIdx.x;
  if (at >= pixels * batch) return;
  const int pixel = int(at % pixels), side = 2 * map.radius + 1;
  const T* const patch = map.patch(int(at / pixels), pixel / map.width, pixel % map.width);
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
