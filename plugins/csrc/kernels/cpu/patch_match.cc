// NystraPatchMatch: the k nearest patches of every pixel, by propagation and random search.
//
// One element of the batch is searched in steps; the tasks of a step may run at the same time, a
// step needs all tasks of the one before. Every pass over the field reads the output of the
// previous pass, so that the result does not depend on the order of tasks.
#include "isa.h"
#include "patch_match_field.h"

namespace nystra::NYSTRA_ISA {
namespace {

// The steps before the first pass; after the last one, one more writes the outputs.
constexpr int64_t kPad = 0, kSurvey = 1, kStart = 2;

constexpr int64_t kTileHeight = 32, kTileWidth = 64;  // pixels of a task of a pass

int64_t last_pass(const PatchMatchParams& p) { return p.iterations * kPassesEach; }

int64_t tiles(int64_t size, int64_t tile) { return (size + tile - 1) / tile; }

template <class T>
bool on(const void* mask, const int64_t (&steps)[3], int64_t y, int64_t x) {
  return to_float(static_cast<const T*>(mask)[y * steps[1] + x * steps[2]]) > 0;
}

// Lists the keys that may be matched.
template <class T>
void list_keys(const PatchMatchParams& p, const PatchMatchMaps& maps, const SearchMemory& m) {
  int64_t& count = *m.allowed_count;
  if (!p.masked) {
    count = on<T>(maps.key_mask, maps.key_mask_steps, 0, 0) ? p.key_height * p.key_width : 0;
    return;
  }
  count = 0;
  for (int64_t y = 0; y < p.key_height; ++y) {
    for (int64_t x = 0; x < p.key_width; ++x) {
      const int64_t key = y * p.key_width + x;
      m.may_match[key] = on<T>(maps.key_mask, maps.key_mask_steps, y, x);
      if (m.may_match[key]) m.allowed[count++] = int32_t(key);
    }
  }
}

void norms_of_row(const Search& search, const PaddedMap& map, int64_t y) {
  for (int64_t x = 0; x < map.width; ++x) map.norms[y * map.width + x] = search.norm(map, y, x);
}

template <class T>
void write_row(const PatchMatchParams& p, const PatchMatchMaps& maps, const Search& search,
               int64_t y) {
  const uint32_t* const entries = search.field(last_pass(p)) + y * p.width * p.neighbors;
  const float* const scores = search.memory().scores + y * p.width * p.neighbors;
  for (int64_t i = 0; i < p.neighbors; ++i) {
    const int64_t first = (i * p.height + y) * p.width;
    for (int64_t x = 0; x < p.width; ++x) {
      const uint32_t entry = entries[x * p.neighbors + i];
      maps.index[first + x] = entry == kNobody ? -1 : int32_t(entry & kIndexBits);
      store_part(static_cast<T*>(maps.score) + first + x, splat(scores[x * p.neighbors + i]), 1);
    }
  }
}

// Runs a step's task over a tile: work(y, first x, last x).
template <class Work>
void tile(const PatchMatchParams& p, int64_t task, const Work& work) {
  const int64_t across = tiles(p.width, kTileWidth);
  const int64_t top = task / across * kTileHeight, left = task % across * kTileWidth;
  const int64_t right = left + kTileWidth < p.width ? left + kTileWidth : p.width;
  for (int64_t y = top; y < top + kTileHeight && y < p.height; ++y) work(y, left, right);
}

template <class T>
void run(Elements<T>, const PatchMatchParams& p, const PatchMatchMaps& maps, int64_t step,
         int64_t task, const Search& search) {
  const SearchMemory& m = search.memory();
  if (step == kPad) {
    if (task < m.query.rows())
      pad_row(static_cast<const T*>(maps.query), task, m.query);
    else
      pad_row(static_cast<const T*>(maps.key), task - m.query.rows(), m.key);
  } else if (step == kSurvey) {
    if (task == 0)
      list_keys<T>(p, maps, m);
    else if (task <= p.height)
      norms_of_row(search, m.query, task - 1);
    else
      norms_of_row(search, m.key, task - 1 - p.height);
  } else if (step == kStart) {
    tile(p, task, [&](int64_t y, int64_t left, int64_t right) {
      search.sweep(0, y, left, right, [&](int64_t x, Candidates& c) {
        search.clear(y, x);
        if (on<T>(maps.query_mask, maps.query_mask_steps, y, x)) search.offer_starts(maps, y, x, c);
      });
    });
  } else if (const int64_t number = step - kStart; number <= last_pass(p)) {
    tile(p, task, [&](int64_t y, int64_t left, int64_t right) {
      search.sweep(number, y, left, right,
                   [&](int64_t x, Candidates& c) { search.offer_pass(number, y, x, c); });
    });
  } else {
    write_row<T>(p, maps, search, task);
  }
}

}  // namespace

int64_t patch_match_workspace(const PatchMatchParams& p) {
  Scratch memory(nullptr);
  const SearchMemory m(p, memory);
  return memory.used();
}

int64_t patch_match_steps(const PatchMatchParams& p) { return kStart + 1 + last_pass(p) + 1; }

int64_t patch_match_tasks(const PatchMatchParams& p, int64_t step) {
  const int64_t keys = p.same_map ? 0 : p.key_height, padding = p.patch / 2 * 2;
  if (step == kPad) return p.height + padding + (p.same_map ? 0 : keys + padding);
  if (step == kSurvey) return 1 + (p.metric == kCosine ? p.height + keys : 0);
  if (step - kStart <= last_pass(p))
    return tiles(p.height, kTileHeight) * tiles(p.width, kTileWidth);
  return p.height;
}

Status patch_match(const PatchMatchParams& p, Type type, const PatchMatchMaps& maps, int64_t step,
                   int64_t first, int64_t last, float* workspace) {
  if (workspace == nullptr) return Status::kNoScratch;
  const Search search(p, workspace);
  with_elements(type, [&](auto t) {
    for (int64_t task = first; task < last; ++task) run(t, p, maps, step, task, search);
  });
  return Status::kOk;
}

}  // namespace nystra::NYSTRA_ISA
