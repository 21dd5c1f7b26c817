#include "rows.h"

#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>

namespace {

size_t size_of(const std::string& kind) {
  if (kind == "float16") return 2;
  if (kind == "float32" || kind == "int32") return 4;
  throw std::runtime_error("rows.txt: type " + kind);
}

std::vector<std::string> words_of(const std::string& line) {
  std::vector<std::string> words;
  std::istringstream stream(line);
  for (std::string word; std::getline(stream, word, '\t');) words.push_back(word);
  return words;
}

size_t elements(const Tensor& tensor) {
  size_t count = 1;
  for (int64_t size : tensor.shape) count *= size_t(size);
  return count;
}

double half(uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  double value = exponent == 0    ? std::ldexp(fraction, -24)
                 : exponent == 31 ? (fraction ? NAN : INFINITY)
                                  : std::ldexp(1024 + fraction, exponent - 25);
  return bits >> 15 ? -value : value;
}

double element(const Tensor& tensor, size_t place) {
  const char* at = tensor.bytes.data() + place * size_of(tensor.kind);
  if (tensor.kind == "float16") {
    uint16_t bits;
    std::memcpy(&bits, at, sizeof bits);
    return half(bits);
  }
  if (tensor.kind == "int32") {
    int32_t value;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  float value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

std::string difference(const Tensor& output) {
  double largest = 0;
  for (size_t i = 0; i < output.expected.size(); ++i) {
    const double got = element(output, i), want = output.expected[i];
    if (std::isnan(got) != std::isnan(want)) return "NaN in other positions";
    if (got != want && !std::isnan(want)) largest = std::max(largest, std::abs(got - want));
  }
  if (largest <= output.bound) return "";
  return "off by " + std::to_string(largest) + "; allowed is " + std::to_string(output.bound);
}

std::string fault(Row& row, const Run& run) {
  for (Tensor& output : row.outputs) {  // whatever is not written is seen
    output.bytes.assign(elements(output) * size_of(output.kind), char(0xff));
  }
  std::string message;
  if (!run(row, message)) {
    return row.refused && message.find(row.op) != std::string::npos ? "" : message + " ";
  }
  if (row.refused) return "was not refused";
  for (const Tensor& output : row.outputs) {
    const std::string reason = difference(output);
    if (!reason.empty()) return output.name + ": " + reason;
  }
  return "";
}

}  // namespace

std::vector<Row> read_rows(const std::string& folder) {
  std::ifstream list(folder + "/rows.txt"), file(folder + "/rows.bin", std::ios::binary);
  if (!list || !file) throw std::runtime_error("no rows.txt and rows.bin in " + folder);
  const std::vector<char> numbers{std::istreambuf_iterator<char>(file), {}};
  std::vector<Row> rows;
  for (std::string line; std::getline(list, line);) {
    const std::vector<std::string> words = words_of(line);
    const std::string& what = words.at(0);
    if (what == "row") {
      rows.push_back({words.at(1), folder + "/" + words.at(2), words.at(4), words[3] == "1"});
    } else if (what == "integer") {
      rows.back().attributes.push_back({words.at(1), false, std::stoll(words.at(2)), 0});
    } else if (what == "number") {
      rows.back().attributes.push_back({words.at(1), true, 0, std::stod(words.at(2))});
    } else {
      const bool is_input = what == "input";
      Tensor tensor{words.at(1), words.at(2)};
      for (size_t i = is_input ? 4 : 5; i < words.size(); ++i)
        tensor.shape.push_back(std::stoll(words[i]));
      const char* const begin = numbers.data() + std::stoull(words.at(3));
      const size_t count = elements(tensor), bytes = count * (is_input ? size_of(tensor.kind) : 8);
      if (begin + bytes > numbers.data() + numbers.size())
        throw std::runtime_error("rows.bin ends early");
      if (is_input) {
        tensor.bytes.assign(begin, begin + bytes);
        rows.back().inputs.push_back(std::move(tensor));
      } else {
        tensor.bound = std::stod(words.at(4));
        tensor.expected.resize(count);
        std::memcpy(tensor.expected.data(), begin, bytes);
        rows.back().outputs.push_back(std::move(tensor));
      }
    }
  }
  return rows;
}

int replay(const char* way, std::vector<Row> rows, const Run& run) {
  size_t wrong = 0;
  std::string reasons;
  for (Row& row : rows) {
    const std::string reason = fault(row, run);
    if (reason.empty()) continue;
    ++wrong;
    reasons += "  " + row.name + ": " + reason + "\n";
  }
  std::printf("%s: %zu of %zu rows agree\n%s", way, rows.size() - wrong, rows.size(),
              reasons.c_str());
  return wrong != 0 || rows.empty();
}
