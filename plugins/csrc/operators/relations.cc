// What an operator's attributes must fulfil together. Made by write_tables.py from
// ../../operators/*/schema.py: change those, and run it.
// clang-format off
#include "attributes.h"
#include "table.h"

namespace nystra {

void check_relations_of_WindowSoftmax(const Attributes& a) {
  const int64_t window_h = a.integer("window_h");
  const int64_t window_w = a.integer("window_w");
  const int64_t shift_h = a.integer("shift_h");
  const int64_t shift_w = a.integer("shift_w");
  if (shift_h >= window_h)
    throw Refusal(std::string("attribute shift_h is ") + std::to_string(shift_h) + "; expected less than window_h, " + std::to_string(window_h));
  if (shift_w >= window_w)
    throw Refusal(std::string("attribute shift_w is ") + std::to_string(shift_w) + "; expected less than window_w, " + std::to_string(window_w));
}

void check_relations_of_WindowNystrom(const Attributes& a) {
  const int64_t window_h = a.integer("window_h");
  const int64_t window_w = a.integer("window_w");
  const int64_t shift_h = a.integer("shift_h");
  const int64_t shift_w = a.integer("shift_w");
  const int64_t mask = a.integer("mask");
  const int64_t landmark_rows = a.integer("landmark_rows");
  const int64_t landmark_cols = a.integer("landmark_cols");
  if (shift_h >= window_h)
    throw Refusal(std::string("attribute shift_h is ") + std::to_string(shift_h) + "; expected less than window_h, " + std::to_string(window_h));
  if (shift_w >= window_w)
    throw Refusal(std::string("attribute shift_w is ") + std::to_string(shift_w) + "; expected less than window_w, " + std::to_string(window_w));
  if ((landmark_rows * landmark_cols) > 64)
    throw Refusal(std::string("attributes landmark_rows and landmark_cols give ") + std::to_string(landmark_rows) + " x " + std::to_string(landmark_cols) + " landmarks; expected at most 64 in a window");
  if (mask && (((shift_h * landmark_rows) % window_h) != 0))
    throw Refusal(std::string("with mask 1 the region border at ") + std::to_string((window_h - shift_h)) + " of " + std::to_string(window_h) + " rows cuts a landmark's cell (" + std::to_string(landmark_rows) + " cells); expected a border between cells: use mask 0, other landmarks or full attention (NystraWindowSoftmax) here");
  if (mask && (((shift_w * landmark_cols) % window_w) != 0))
    throw Refusal(std::string("with mask 1 the region border at ") + std::to_string((window_w - shift_w)) + " of " + std::to_string(window_w) + " columns cuts a landmark's cell (" + std::to_string(landmark_cols) + " cells); expected a border between cells: use mask 0, other landmarks or full attention (NystraWindowSoftmax) here");
}

void check_relations_of_WindowNystromformer(const Attributes& a) {
  const int64_t window_h = a.integer("window_h");
  const int64_t window_w = a.integer("window_w");
  const int64_t shift_h = a.integer("shift_h");
  const int64_t shift_w = a.integer("shift_w");
  const int64_t mask = a.integer("mask");
  const int64_t landmark_rows = a.integer("landmark_rows");
  const int64_t landmark_cols = a.integer("landmark_cols");
  if (shift_h >= window_h)
    throw Refusal(std::string("attribute shift_h is ") + std::to_string(shift_h) + "; expected less than window_h, " + std::to_string(window_h));
  if (shift_w >= window_w)
    throw Refusal(std::string("attribute shift_w is ") + std::to_string(shift_w) + "; expected less than window_w, " + std::to_string(window_w));
  if ((landmark_rows * landmark_cols) > 64)
    throw Refusal(std::string("attributes landmark_rows and landmark_cols give ") + std::to_string(landmark_rows) + " x " + std::to_string(landmark_cols) + " landmarks; expected at most 64 in a window");
  if (mask && (((shift_h * landmark_rows) % window_h) != 0))
    throw Refusal(std::string("with mask 1 the region border at ") + std::to_string((window_h - shift_h)) + " of " + std::to_string(window_h) + " rows cuts a landmark's cell (" + std::to_string(landmark_rows) + " cells); expected a border between cells: use mask 0, other landmarks or full attention (NystraWindowSoftmax) here");
  if (mask && (((shift_w * landmark_cols) % window_w) != 0))
    throw Refusal(std::string("with mask 1 the region border at ") + std::to_string((window_w - shift_w)) + " of " + std::to_string(window_w) + " columns cuts a landmark's cell (" + std::to_string(landmark_cols) + " cells); expected a border between cells: use mask 0, other landmarks or full attention (NystraWindowSoftmax) here");
}

void check_relations_of_WindowCluster(const Attributes& a) {
  const int64_t window_h = a.integer("window_h");
  const int64_t window_w = a.integer("window_w");
  const int64_t shift_h = a.integer("shift_h");
  const int64_t shift_w = a.integer("shift_w");
  const int64_t mask = a.integer("mask");
  const int64_t cluster_rows = a.integer("cluster_rows");
  const int64_t cluster_cols = a.integer("cluster_cols");
  const int64_t block = a.integer("block");
  const int64_t bias_block = a.integer("bias_block");
  if (shift_h >= window_h)
    throw Refusal(std::string("attribute shift_h is ") + std::to_string(shift_h) + "; expected less than window_h, " + std::to_string(window_h));
  if (shift_w >= window_w)
    throw Refusal(std::string("attribute shift_w is ") + std::to_string(shift_w) + "; expected less than window_w, " + std::to_string(window_w));
  if ((cluster_rows * cluster_cols) > 64)
    throw Refusal(std::string("attributes cluster_rows and cluster_cols give ") + std::to_string(cluster_rows) + " x " + std::to_string(cluster_cols) + " clusters; expected at most 64 in a window");
  if ((bias_block % block) != 0)
    throw Refusal(std::string("attribute bias_block is ") + std::to_string(bias_block) + "; expected a multiple of block, " + std::to_string(block));
  if (((((window_h + bias_block) - 1) / bias_block) * (((window_w + bias_block) - 1) / bias_block)) > 1024)
    throw Refusal(std::string("attribute bias_block is ") + std::to_string(bias_block) + ", which cuts a window into " + std::to_string((((window_h + bias_block) - 1) / bias_block)) + " x " + std::to_string((((window_w + bias_block) - 1) / bias_block)) + " blocks; expected at most 1024: take a larger bias_block");
  if (mask && ((shift_h > 0) && (((window_h - shift_h) % bias_block) != 0)))
    throw Refusal(std::string("with mask 1 the region border at ") + std::to_string((window_h - shift_h)) + " of " + std::to_string(window_h) + " rows cuts a block of bias_block " + std::to_string(bias_block) + "; expected a border between blocks: use mask 0, smaller blocks or full attention (NystraWindowSoftmax) here");
  if (mask && ((shift_w > 0) && (((window_w - shift_w) % bias_block) != 0)))
    throw Refusal(std::string("with mask 1 the region border at ") + std::to_string((window_w - shift_w)) + " of " + std::to_string(window_w) + " columns cuts a block of bias_block " + std::to_string(bias_block) + "; expected a border between blocks: use mask 0, smaller blocks or full attention (NystraWindowSoftmax) here");
}

void check_relations_of_PatchMatch(const Attributes& a) {
  const int64_t patch_size = a.integer("patch_size");
  if ((patch_size % 2) == 0)
    throw Refusal(std::string("attribute patch_size is ") + std::to_string(patch_size) + "; expected an odd number");
}

}  // namespace nystra
