// Rows of the field: the k best keys of a pixel so far, and the passes that improve them.
#pragma once

#include "kernels/patch_match_random.h"
#include "patch_match_score.h"

#include <cmath>

namespace nystra::NYSTRA_ISA {
namespace {

constexpr int64_t kPassesEach = 5;  // of an iteration: steps 8, 4, 2, 1, and the random search

// The random table, which is read faster than it is computed.
struct StoredTable {
  uint32_t entries[kRandomEntries];

  constexpr StoredTable() : entries() {
    for (uint32_t i = 0; i < kRandomEntries; ++i) entries[i] = ComputedTable()[i];
  }
  constexpr uint32_t operator[](uint32_t i) const { return entries[i % kRandomEntries]; }
};

constexpr StoredTable kRandom;

// Entries best first: higher score, then smaller index; empty ones last.
struct Row {
  uint32_t* entries;
  float* scores;
  int64_t k;

  bool empty() const { return entries[0] == kNobody; }

  bool has(int32_t key) const {
    bool found = false;
    for (int64_t i = 0; i < k; ++i) found |= (entries[i] & kIndexBits) == uint32_t(key);
    return found;
  }

  bool before(float score, uint32_t key, int64_t i) const {
    return score > scores[i] || (score == scores[i] && key < (entries[i] & kIndexBits));
  }

  void insert(float score, int32_t key, int64_t pass) const {
    int64_t i = k - 1;
    if (!before(score, uint32_t(key), i)) return;
    for (; i > 0 && before(score, uint32_t(key), i - 1); --i) {
      entries[i] = entries[i - 1];
      scores[i] = scores[i - 1];
    }
    entries[i] = uint32_t(key) | uint32_t(pass) << 24;
    scores[i] = score;
  }
};

constexpr int kMaxCandidates = 4 * kMaxNeighbors;  // the entries of four neighbors

// Candidates for a pixel's row: keys that are not in it, without duplicates.
struct Candidates {
  int count = 0;
  int32_t key[kMaxCandidates];
  const float* corner[kMaxCandidates];  // of the key's patch

  bool has(int32_t candidate) const {
    bool found = false;
    for (int i = 0; i < count; ++i) found |= key[i] == candidate;
    return found;
  }
};

class Search {
 public:
  Search(const PatchMatchParams& params, float* workspace)
      : p_(params),
        memory_(workspace),
        m_(params, memory_),
        patch_row_(params),
        sum_(choose_sum(params, params.metric == kL2)) {
    for (int64_t r = largest_radius(); r >= 1; r /= 2) ++radii_;
  }

  const SearchMemory& memory() const { return m_; }

  uint32_t* field(int64_t pass) const { return m_.fields[pass % 2]; }

  // The norm of the patch around a pixel, at least 1e-6.
  float norm(const PaddedMap& map, int64_t y, int64_t x) const {
    const Patch own = {map.patch(y, x), map.step()};
    const float length = std::sqrt(sum_(patch_row_, own, own, 0, own.corner));
    return length < 1e-6f ? 1e-6f : length;
  }

  // Merges the candidates of offer(x, candidates), which also sets up the rows, into the rows.
  template <class Offer>
  void sweep(int64_t number, int64_t y, int64_t first, int64_t last, const Offer& offer) const {
    Candidates c[2];
    offer(first, c[first % 2]);
    for (int64_t x = first; x < last; ++x) {
      Candidates &now = c[x % 2], &next = c[(x + 1) % 2];
      next.count = 0;
      if (x + 1 < last) offer(x + 1, next);
      merge(number, y, x, now, next);
    }
  }

  // Lists the starts and one key out of each of k equal parts of the allowed ones.
  void offer_starts(const PatchMatchMaps& maps, int64_t y, int64_t x, Candidates& c) const {
    const Row row = row_of(y, x, 0);
    const int64_t keys = p_.key_height * p_.key_width, allowed = *m_.allowed_count;
    if (allowed == 0) return;
    for (int64_t j = 0; j < p_.neighbors; ++j) {
      const int32_t start =
          maps.start[j * maps.start_steps[1] + y * maps.start_steps[2] + x * maps.start_steps[3]];
      if (start >= 0 && start < keys) offer(start, row, c);
    }
    for (int64_t j = 0; j < p_.neighbors; ++j) {
      const int64_t low = j * allowed / p_.neighbors, high = (j + 1) * allowed / p_.neighbors;
      if (low == high) continue;
      const int64_t place = low + draw(kRandom, y, x, j, p_.seed) % uint32_t(high - low);
      offer(p_.masked ? m_.allowed[place] : int32_t(place), row, c);
    }
  }

  // Copies the row of a pixel from the previous field, and lists the candidates of pass 1, 2, ...
  void offer_pass(int64_t number, int64_t y, int64_t x, Candidates& c) const {
    const Row row = row_of(y, x, number);
    const uint32_t* const before = field(number - 1) + (y * p_.width + x) * p_.neighbors;
    for (int64_t i = 0; i < row.k; ++i) row.entries[i] = before[i];
    if (row.empty()) return;
    const int64_t iteration = (number - 1) / kPassesEach, part = (number - 1) % kPassesEach;
    if (part < kPassesEach - 1)
      propagate(number, 8 >> part, y, x, row, c);
    else
      draw_around(iteration, y, x, row, c);
  }

  // Sets up an empty row.
  void clear(int64_t y, int64_t x) const {
    const Row row = row_of(y, x, 0);
    for (int64_t i = 0; i < row.k; ++i) {
      row.entries[i] = kNobody;
      row.scores[i] = -INFINITY;
    }
  }

 private:
  int64_t largest_radius() const {
    return p_.key_height > p_.key_width ? p_.key_height : p_.key_width;
  }

  Row row_of(int64_t y, int64_t x, int64_t pass) const {
    const int64_t first = (y * p_.width + x) * p_.neighbors;
    return {field(pass) + first, m_.scores + first, p_.neighbors};
  }

  void offer(int32_t key, const Row& row, Candidates& c) const {
    if (!row.has(key) && !c.has(key)) add(key, c);
  }

  void add(int32_t key, Candidates& c) const {
    if (p_.masked && !m_.may_match[key]) return;
    const int32_t width = int32_t(p_.key_width);
    c.key[c.count] = key;
    c.corner[c.count++] = m_.key.patch(key / width, key % width);
  }

  // The matches of four neighbors, shifted back. An entry that the same neighbor had at this step
  // of the previous iteration was merged then: it is in the row, or was not good enough.
  void propagate(int64_t number, int64_t step, int64_t y, int64_t x, const Row& row,
                 Candidates& c) const {
    const int64_t seen = number - 1 - kPassesEach;
    const int64_t moves[4][2] = {{-step, 0}, {step, 0}, {0, -step}, {0, step}};
    for (const auto& [dy, dx] : moves) {
      if (y + dy < 0 || y + dy >= p_.height || x + dx < 0 || x + dx >= p_.width) continue;
      const uint32_t* const entries =
          field(number - 1) + ((y + dy) * p_.width + x + dx) * p_.neighbors;
      for (int64_t i = 0; i < p_.neighbors && entries[i] != kNobody; ++i) {
        if (int64_t(entries[i] >> 24) <= seen) continue;
        const int32_t from = int32_t(entries[i] & kIndexBits);
        const int32_t key = from - int32_t(dy * p_.key_width + dx);
        if (row.has(key) || c.has(key)) continue;
        const int32_t width = int32_t(p_.key_width), v = from / width, u = from % width;
        if (v - dy >= 0 && v - dy < p_.key_height && u - dx >= 0 && u - dx < width) add(key, c);
      }
    }
  }

  // Keys from windows around the row's entries, each half as large as the one before.
  void draw_around(int64_t iteration, int64_t y, int64_t x, const Row& row, Candidates& c) const {
    int64_t radius = largest_radius();
    for (int64_t z = 0; z < radii_; ++z, radius /= 2) {
      uint32_t center = row.entries[(z + iteration) % p_.neighbors];
      if (center == kNobody) center = row.entries[0];
      const uint32_t from = center & kIndexBits, width = uint32_t(p_.key_width);
      const int64_t n = p_.neighbors + 2 * (iteration * radii_ + z);
      const int64_t v = near(from / width, radius, p_.key_height, draw(kRandom, y, x, n, p_.seed));
      const int64_t u =
          near(from % width, radius, p_.key_width, draw(kRandom, y, x, n + 1, p_.seed));
      offer(int32_t(v * p_.key_width + u), row, c);
    }
  }

  // A coordinate within the radius of one, and of the map.
  static int64_t near(int64_t at, int64_t radius, int64_t size, uint32_t drawn) {
    const int64_t low = at > radius ? at - radius : 0;
    const int64_t high = at + radius < size ? at + radius : size - 1;
    return low + drawn % uint32_t(high - low + 1);
  }

  // Keeps the k best of the pixel's row and the candidates; `next` are those of the next pixel.
  void merge(int64_t number, int64_t y, int64_t x, const Candidates& c,
             const Candidates& next) const {
    const Row row = row_of(y, x, number);
    const Patch query = {m_.query.patch(y, x), m_.query.step()};
    for (int i = 0; i < c.count; ++i) {
      const Patch key = {c.corner[i], m_.key.step()};
      const float* const ahead = i < next.count ? next.corner[i] : key.corner;
      float score = sum_(patch_row_, query, key, -row.scores[row.k - 1], ahead);
      if (p_.metric == kL2) score = -score;
      if (p_.metric == kCosine) score /= m_.query.norms[y * p_.width + x] * m_.key.norms[c.key[i]];
      row.insert(score == score ? score : -INFINITY, c.key[i], number);
    }
  }

  const PatchMatchParams& p_;
  Scratch memory_;
  SearchMemory m_;
  const PatchRow patch_row_;
  const SumPatch sum_;
  int64_t radii_ = 0;
};

}  // namespace
}  // namespace nystra::NYSTRA_ISA
