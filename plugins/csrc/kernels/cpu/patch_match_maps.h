// The maps of one search in the kernel's layout, and the memory of the maps and the field.
//
// Both maps are copied once: channels last, float, borders repeated by the radius of a patch. A
// row of a patch is then one run of patch * channels floats, inside the map at every pixel.
#pragma once

#include "elements.h"
#include "scratch.h"

namespace nystra::NYSTRA_ISA {
namespace {

struct PaddedMap {
  int64_t height, width;  // of the map itself
  int64_t radius, channels;
  float* data;   // (height + 2 radius, width + 2 radius, channels), and slack for a whole vector
  float* norms;  // (height, width), of the patches; cosine alone

  PaddedMap(int64_t h, int64_t w, const PatchMatchParams& p, Scratch& memory)
      : height(h), width(w), radius(p.patch / 2), channels(p.channels) {
    data = memory.take(rows() * step() + kLanes);
    norms = memory.take(p.metric == kCosine ? h * w : 0);
  }

  int64_t rows() const { return height + 2 * radius; }
  int64_t step() const { return (width + 2 * radius) * channels; }  // floats from row to row

  // The upper left corner of the patch around (y, x).
  const float* patch(int64_t y, int64_t x) const { return data + y * step() + x * channels; }
};

// Copies one row, of rows().
template <class T>
void pad_row(const T* map, int64_t row, const PaddedMap& padded) {
  constexpr int64_t kPixels = 64;  // at a time, so that what is written stays in the cache
  const int64_t width = padded.width, channels = padded.channels, below = row - padded.radius;
  const int64_t y = below < 0 ? 0 : below < padded.height ? below : padded.height - 1;
  float* const left = padded.data + row * padded.step();
  float* const first = left + padded.radius * channels;
  for (int64_t x = 0; x < width; x += kPixels) {
    const int64_t end = x + kPixels < width ? x + kPixels : width;
    for (int64_t c = 0; c < channels; ++c) {
      const T* const source = map + (c * padded.height + y) * width;
      for (int64_t i = x; i < end; ++i) first[i * channels + c] = to_float(source[i]);
    }
  }
  float* const last = first + (width - 1) * channels;
  for (int64_t i = 0; i < padded.radius * channels; ++i) {
    left[i] = first[i % channels];
    last[channels + i] = last[i % channels];
  }
}

// All memory of a search. An entry of the field has the key's index in its low 24 bits and, above
// them, the number of the pass that found it; kNobody is an empty one.
constexpr uint32_t kIndexBits = 0xffffffu, kNobody = 0xffffffffu;

struct SearchMemory {
  PaddedMap query, key;
  uint32_t* fields[2];  // (height, width, neighbors) each: a pass reads one and writes the other
  float* scores;        // (height, width, neighbors)
  int32_t* allowed;     // the indices of the keys that may be matched, ascending; masked alone
  uint8_t* may_match;   // (key_height, key_width); masked alone
  int64_t* allowed_count;

  SearchMemory(const PatchMatchParams& p, Scratch& memory)
      : query(p.height, p.width, p, memory),
        key(p.same_map ? query : PaddedMap(p.key_height, p.key_width, p, memory)) {
    const int64_t entries = p.height * p.width * p.neighbors, keys = p.key_height * p.key_width;
    for (uint32_t*& field : fields) field = reinterpret_cast<uint32_t*>(memory.take(entries));
    scores = memory.take(entries);
    allowed = reinterpret_cast<int32_t*>(memory.take(p.masked ? keys : 0));
    may_match = reinterpret_cast<uint8_t*>(memory.take(p.masked ? (keys + 3) / 4 : 0));
    allowed_count = reinterpret_cast<int64_t*>(memory.take(2));
  }
};

}  // namespace
}  // namespace nystra::NYSTRA_ISA
