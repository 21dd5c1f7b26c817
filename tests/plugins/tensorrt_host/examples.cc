#include "examples.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <sstream>
#include <stdexcept>

#include "kernels/limits.h"
#include "operators/table.h"

namespace nystra::host {
namespace {

const std::vector<std::string> kWindowed = {"NystraWindowSoftmax", "NystraWindowNystrom",
                                            "NystraWindowNystromformer", "NystraWindowCluster"};
const std::vector<std::string> kBiased = {"NystraWindowSoftmax", "NystraWindowCluster"};
const std::vector<std::string> kLandmarks = {"NystraWindowNystrom", "NystraWindowNystromformer"};
#define NYSTRA_NAME(owner) k##owner##Schema.name,
const std::vector<std::string> kAll = {NYSTRA_OPERATORS(NYSTRA_NAME)};
#undef NYSTRA_NAME

Fields with(Fields fields, const Fields& more) {
  for (const auto& [name, value] : more) fields[name] = value;
  return fields;
}

std::vector<Example> make_examples() {
  const Fields window = {{"heads", 2},    {"head_dim", 5}, {"value_dim", 3}, {"window_h", 8},
                         {"window_w", 4}, {"shift_h", 4},  {"shift_w", 2},   {"mask", 1},
                         {"scale", 0.4f}, {"revision", 1}};
  const Fields landmarks = with(
      window, {{"landmark_rows", 2}, {"landmark_cols", 2}, {"iterations", 3}, {"batch_init", 0}});
  const Shape qkv = {2, 16, 8, 26}, out = {2, 16, 8, 6};
  const std::vector<bool> open = {true, true, true, false}, list = {true, false, true, false};
  const Fields overlap = {{"heads", 2},    {"head_dim", 5}, {"value_dim", 3}, {"window_h", 8},
                          {"window_w", 4}, {"margin_h", 2}, {"margin_w", 1},  {"bias", 1},
                          {"scale", 0.4f}, {"revision", 1}};
  const Fields search = {{"patch_size", 3}, {"iterations", 2}, {"neighbors", 3},
                         {"metric", 0},     {"seed", 7},       {"revision", 1}};
  const std::vector<bool> all = {true, true, true, true}, map = {true, false, true, true};
  const Example patch_match = {
      "NystraPatchMatch",
      "TTTTI",
      "IT",
      search,
      {{2, 4, 6, 5}, {2, 4, 7, 3}, {2, 1, 6, 5}, {1, 1, 1, 1}, {1, 1, 1, 1}},
      {map, map, all, all, all},
      {{2, 3, 6, 5}, {2, 3, 6, 5}}};
  return {
      {"NystraPinv",
       "T",
       "T",
       {{"iterations", 3}, {"batch_init", 1}, {"revision", 1}},
       {{3, 6, 6}},
       {{true, true, true}},
       {{3, 6, 6}}},
      {"NystraAttention",
       "TTTT",
       "T",
       {{"bias", 1}, {"scale", 0.4f}, {"revision", 1}},
       {{2, 3, 6, 5}, {2, 3, 7, 5}, {2, 3, 7, 4}, {1, 3, 1, 7}},
       {list, list, list, {false, false, false, true}},
       {{2, 3, 6, 4}}},
      {"NystraWindowSoftmax",
       "TT",
       "T",
       with(window, {{"bias", 1}}),
       {qkv, {105, 2}},
       {open, {false, false}},
       {out}},
      {"NystraWindowOverlap", "TT", "T", overlap, {qkv, {171, 2}}, {open, {false, false}}, {out}},
      {"NystraWindowCosine",
       "TTT",
       "T",
       with(window, {{"bias", 1}, {"epsilon", 1e-12f}}),
       {qkv, {105, 2}, {2}},
       {open, {false, false}, {false}},
       {out}},
      {"NystraWindowNystrom",
       "T",
       "T",
       with(landmarks, {{"threshold", 5.0f}, {"guard", 0.02f}}),
       {qkv},
       {open},
       {out}},
      {"NystraWindowNystromformer", "T", "T", landmarks, {qkv}, {open}, {out}},
      {"NystraWindowCluster",
       "TT",
       "T",
       with(window, {{"bias", 1},
                     {"cluster_rows", 2},
                     {"cluster_cols", 2},
                     {"rounds", 1},
                     {"block", 2},
                     {"bias_block", 2}}),
       {qkv, {105, 2}},
       {open, {false, false}},
       {out}},
      patch_match,
  };
}

// A row for each attribute of the schemas below and above its range.
std::vector<BadFields> out_of_range() {
  std::vector<BadFields> rows;
  const auto text = [](double value) {
    std::ostringstream out;
    out << std::setprecision(9) << value;
    return out.str();
  };
  const auto add = [&](const Schema& schema) {
    for (const Attribute& attribute : schema) {
      if (attribute.name == std::string("revision")) continue;
      for (const double value : {attribute.minimum - 1, attribute.maximum + 1}) {
        const FieldValue field = attribute.integer ? FieldValue(static_cast<int32_t>(value))
                                                   : FieldValue(static_cast<float>(value));
        const std::string message = std::string("attribute ") + attribute.name + " is " +
                                    text(value) + "; expected " + text(attribute.minimum) + " to " +
                                    text(attribute.maximum);
        rows.push_back({schema.name, {{attribute.name, field}}, {}, message});
      }
    }
  };
#define NYSTRA_ROWS(owner) add(k##owner##Schema);
  NYSTRA_OPERATORS(NYSTRA_ROWS)
#undef NYSTRA_ROWS
  return rows;
}

std::vector<BadFields> make_bad_fields() {
  std::vector<BadFields> rows = out_of_range();
  const auto add = [&](const std::vector<std::string>& names, const Fields& changes,
                       const std::string& expected) {
    for (const std::string& name : names) rows.push_back({name, changes, {}, expected});
  };
  add(kAll, {{"revision", 2}}, "the node has revision 2, this library of nystra");
  add(kAll, {{"revision", "1"}}, "attribute revision is not a single INT (kINT32)");
  add(kAll, {{"bogus", 1}}, "unknown attribute bogus; expected ");
  for (const std::string& name : kAll)
    rows.push_back({name, {}, {"revision"}, "attribute revision is missing"});
  add(kWindowed, {{"heads", 2.0f}}, "attribute heads is not a single INT");
  add(kWindowed, {{"shift_w", 4}}, "attribute shift_w is 4; expected less than window_w, 4");
  add(kWindowed, {{"scale", 1}}, "attribute scale is not a single FLOAT (kFLOAT32)");
  add(kWindowed, {{"scale", NAN}}, "attribute scale is ");
  add(kWindowed, {{"scale", INFINITY}}, "attribute scale is inf; expected 0 to 1000000");
  for (const std::string& name : kWindowed)
    rows.push_back({name, {}, {"head_dim"}, "attribute head_dim is missing"});
  add(kLandmarks, {{"landmark_rows", int32_t(kMaxLandmarks)}}, " x 2 landmarks; expected at most ");
  add(kLandmarks, {{"landmark_cols", 1}}, "cuts a landmark's cell (1 cells)");
  add({"NystraWindowCluster"}, {{"cluster_rows", 64}, {"cluster_cols", 2}},
      "attributes cluster_rows and cluster_cols give 64 x 2 clusters; expected at most 64");
  add({"NystraWindowCluster"}, {{"block", 4}}, "attribute bias_block is 2; expected a multiple");
  add({"NystraWindowCluster"}, {{"bias_block", 8}},
      "the region border at 4 of 8 rows cuts a block");
  add({"NystraPatchMatch"}, {{"patch_size", 4}},
      "attribute patch_size is 4; expected an odd number");
  return rows;
}

std::vector<BadShapes> make_bad_shapes() {
  std::vector<BadShapes> rows = {
      {"NystraPinv", {{6}}, "input A is (6); expected square matrices"},
      {"NystraPinv", {{2, 6, 5}}, "input A is (2, 6, 5); expected square matrices"},
      {"NystraPinv", {{1, 129, 129}}, "input A is (1, 129, 129); expected m from 1 to 128"},
  };
  const std::vector<Shape> lists = example("NystraAttention").shapes;
  const auto attention = [&](size_t place, const Shape& shape, const std::string& expected) {
    std::vector<Shape> shapes = lists;
    shapes[place] = shape;
    rows.push_back({"NystraAttention", shapes, expected});
  };
  attention(0, {2, 6, 5}, "input q is (2, 6, 5); expected rank 4");
  attention(1, {2, 3, 7, 6}, "input k is (2, 3, 7, 6); expected (2, 3, 7, 5)");
  attention(2, {2, 3, 8, 4}, "input v is (2, 3, 8, 4); expected (2, 3, 7, 4)");
  attention(3, {1, 3, 2, 7}, "input attn_bias is (1, 3, 2, 7); expected (2, 3, 6, 7), or 1");
  for (const std::string& name : kBiased) {
    rows.push_back(
        {name, {{2, 16, 8, 26}, {104, 2}}, "input bias_table is (104, 2); expected (105, 2)"});
    rows.push_back({name, {{2, 16, 8, 26}, {1}}, "input bias_table is (1); expected (105, 2)"});
  }
  rows.push_back({"NystraWindowOverlap",
                  {{2, 16, 8, 26}, {105, 2}},
                  "input bias_table is (105, 2); expected (171, 2)"});
  rows.push_back({"NystraWindowCosine",
                  {{2, 16, 8, 26}, {105, 2}, {3}},
                  "input logit_scale is (3); expected (2) = (heads)"});
  rows.push_back({"NystraWindowOverlap",
                  {{2, 12, 8, 26}, {171, 2}},
                  "height 12; expected a multiple of the window's 8"});
  const std::vector<Shape> good = example("NystraPatchMatch").shapes;
  const auto search = [&](size_t place, const Shape& shape, const std::string& expected) {
    std::vector<Shape> shapes = good;
    shapes[place] = shape;
    rows.push_back({"NystraPatchMatch", shapes, expected});
  };
  search(0, {4, 6, 5}, "input query is (4, 6, 5); expected rank 4");
  search(1, {2, 5, 7, 3},
         "input key is (2, 5, 7, 3); expected the batch and channels of query, (2, 4, 6, 5)");
  search(1, {2, 4, 4096, kMaxPixels / 4096},
         "expected fewer than " + std::to_string(kMaxPixels) + " pixels per map");
  search(1, {2, 4, 0, 3}, "input key is (2, 4, 0, 3); expected at least one key");
  search(2, {2, 4, 6, 5}, "input query_mask is (2, 4, 6, 5); expected (2, 1, 6, 5), or 1");
  search(3, {2, 1, 6, 5}, "input key_mask is (2, 1, 6, 5); expected (2, 1, 7, 3), or 1");
  search(4, {2, 2, 6, 5}, "input start is (2, 2, 6, 5); expected (2, 3, 6, 5), or 1");
  for (const std::string& name : kWindowed) {
    const auto add = [&](const Shape& qkv, const std::string& expected) {
      std::vector<Shape> shapes = {qkv};
      if (std::count(kBiased.begin(), kBiased.end(), name)) shapes.push_back({105, 2});
      rows.push_back({name, shapes, expected});
    };
    add({16, 8, 26}, "input qkv is (16, 8, 26); expected rank 4");
    add({2, 16, 8, 27}, "27 channels; expected 26 = heads");
    add({2, 12, 8, 26}, "height 12; expected a multiple of the window's 8");
    add({2, 16, 6, 26}, "width 6; expected a multiple of the window's 4");
  }
  return rows;
}

std::vector<BadShapes> make_bad_largest() {
  const std::vector<Shape> good = example("NystraPatchMatch").shapes;
  std::vector<Shape> query = good, key = good, batch = good;
  query[0] = {2, 4, 4096, 4096};
  key[1] = {2, 4, 4096, 4096};
  batch[0] = {2000, 4, 1024, 1049};
  return {{"NystraPinv", {{3, 129, 129}}, "expected m from 1 to 128"},
          {"NystraPatchMatch", query, "input query is (2, 4, 4096, 4096), key"},
          {"NystraPatchMatch", key, "key (2, 4, 4096, 4096); expected fewer than 16777216"},
          {"NystraPatchMatch", batch, "2^31 in all"}};
}

}  // namespace

const std::vector<Example>& examples() {
  static const std::vector<Example> all = make_examples();
  return all;
}

const std::vector<BadFields>& bad_fields() {
  static const std::vector<BadFields> all = make_bad_fields();
  return all;
}

const std::vector<BadShapes>& bad_shapes() {
  static const std::vector<BadShapes> all = make_bad_shapes();
  return all;
}

const std::vector<BadShapes>& bad_largest() {
  static const std::vector<BadShapes> all = make_bad_largest();
  return all;
}

const Example& example(const std::string& name) {
  for (const Example& one : examples())
    if (one.name == name) return one;
  throw std::runtime_error("no example of " + name);
}

}  // namespace nystra::host
