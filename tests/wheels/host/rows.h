// Recorded rows of the conformance table (tests/wheels/recorded_rows.py), for programs without
// Python.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

struct Attribute {
  std::string name;
  bool is_number;
  int64_t integer;
  double number;
};

struct Tensor {
  std::string name, kind;
  std::vector<int64_t> shape = {};
  std::vector<char> bytes = {};       // of its type: an input, or what was computed
  std::vector<double> expected = {};  // of an output
  double bound = 0;                   // how far an output may be off
};

struct Row {
  std::string op;  // "-": a whole model
  std::string model, name;
  bool refused;
  std::vector<Attribute> attributes = {};
  std::vector<Tensor> inputs = {}, outputs = {};
};

std::vector<Row> read_rows(const std::string& folder);

// Computes the outputs of a row; false where the row was refused, with a message that names why.
using Run = std::function<bool(Row& row, std::string& message)>;

// Runs the rows and prints how many agree and what does not; the exit code of a program.
int replay(const char* way, std::vector<Row> rows, const Run& run);
