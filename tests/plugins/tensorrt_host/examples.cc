#include "examples.h"

#include <iomanip>
#include <sstream>
#include <stdexcept>

#include "kernels/limits.h"
#include "operators/table.h"

namespace nystra::host {
namespace {

#define NYSTRA_NAME(owner) k##owner##Schema.name,
const std::vector<std::string> kAll = {NYSTRA_CUDA_OPERATORS(NYSTRA_NAME)};
#undef NYSTRA_NAME

std::vector<Example> make_examples() {
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
  NYSTRA_CUDA_OPERATORS(NYSTRA_ROWS)
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
