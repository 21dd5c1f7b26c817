#include "patch_match.h"

namespace nystra {
namespace {

// Checks that a map has rank 4 and fewer pixels than the kernels can name.
void check_map(const char* name, const Shape& map, const char* axes) {
  if (map.rank != 4)
    throw Refusal(std::string("input ") + name + " is " + text(map) + "; expected rank 4: " + axes);
  if (map[2] > 0 && map[3] > 0 && map[2] > (kMaxPixels - 1) / map[3])
    throw Refusal(std::string("input ") + name + " is " + text(map) + "; expected fewer than " +
                  std::to_string(kMaxPixels) + " pixels a map");
}

}  // namespace

PatchMatch::PatchMatch(const Attributes& a) {
  params_.patch = a.integer("patch_size");
  params_.iterations = a.integer("iterations");
  params_.neighbors = a.integer("neighbors");
  params_.metric = a.integer("metric");
  params_.seed = a.integer("seed");
  if (params_.patch % 2 == 0)
    throw Refusal("attribute patch_size is " + std::to_string(params_.patch) +
                  "; expected an odd number");
}

void PatchMatch::check(const Shape* in) const {
  const Shape &query = in[0], &key = in[1];
  check_map("query", query, "(batch, channels, height, width)");
  check_map("key", key, "(batch, channels, key height, key width)");
  if (!agree(key[0], query[0]) || !agree(key[1], query[1]))
    throw Refusal("input key is " + text(key) + "; expected the batch and channels of query, " +
                  text(query));
  check_broadcast("query_mask", in[2], {query[0], 1, query[2], query[3]});
  check_broadcast("key_mask", in[3], {query[0], 1, key[2], key[3]});
  check_broadcast("start", in[4], output(0, in));
  if ((key[2] == 0 || key[3] == 0) && !output(0, in).empty())
    throw Refusal("input key is " + text(key) + "; expected at least one key");
}

Shape PatchMatch::output(int, const Shape* in) const {
  return {in[0][0], params_.neighbors, in[0][2], in[0][3]};
}

PatchMatchParams PatchMatch::params(const Shape* in) const {
  const Shape &query = in[0], &key = in[1], &key_mask = in[3];
  PatchMatchParams result = params_;
  result.channels = query[1];
  result.height = query[2];
  result.width = query[3];
  result.key_height = key[2];
  result.key_width = key[3];
  result.masked = key_mask[2] != 1 || key_mask[3] != 1;
  return result;
}

}  // namespace nystra
