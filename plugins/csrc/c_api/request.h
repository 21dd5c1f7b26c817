// The common part of the C interfaces of the CPU and CUDA kernels: a caller's request and its
// checks. It is included once in each library.
#pragma once

#include <cmath>
#include <cstring>
#include <limits>
#include <new>
#include <string>
#include <system_error>

#include "nystra_cpu.h"
#include "operators/operators.h"

namespace nystra::c_api {
namespace {

static_assert(kMaxRank == NYSTRA_CPU_MAX_RANK);

thread_local std::string last_error;

// The request of a caller: an operator, with its attributes and tensors. Nothing is checked yet.
struct Request {
  const char* name;
  const nystra_cpu_attribute* attributes;
  size_t attribute_count;
  const nystra_cpu_tensor* inputs;
  size_t input_count;
  size_t output_count;
};

Value read(const Attribute& wanted, const Request& request) {
  const nystra_cpu_attribute* found = nullptr;
  for (size_t i = 0; i < request.attribute_count; ++i) {
    const nystra_cpu_attribute& attribute = request.attributes[i];
    if (attribute.name == nullptr || std::strcmp(attribute.name, wanted.name) != 0) continue;
    if (found != nullptr)
      throw Refusal(std::string("attribute ") + wanted.name + " is given twice");
    found = &attribute;
  }
  if (found == nullptr && std::isnan(wanted.fallback))
    throw Refusal(std::string("attribute ") + wanted.name + " is missing");
  if (found == nullptr) return {int64_t(wanted.fallback), float(wanted.fallback)};
  if (wanted.integer == (found->is_number != 0))
    throw Refusal(
        std::string("attribute ") + wanted.name + " is " +
        (wanted.integer ? "a number; expected an integer" : "an integer; expected a number"));
  return {found->integer, float(found->number)};
}

Attributes attributes_of(const Schema& schema, const Request& request) {
  for (size_t i = 0; i < request.attribute_count; ++i) {
    const char* const name = request.attributes[i].name;
    check_known(schema, name != nullptr ? name : "without a name");
  }
  return Attributes(schema, [&](const Attribute& wanted) { return read(wanted, request); });
}

template <class T>
void check_list(const char* what, const T* list, size_t count) {
  if (list == nullptr && count > 0)
    throw Refusal(std::string(what) + " is null; expected " + std::to_string(count) + " of them");
}

void check_lists(const Request& request, const nystra_cpu_tensor* outputs) {
  check_list("attributes", request.attributes, request.attribute_count);
  check_list("inputs", request.inputs, request.input_count);
  check_list("outputs", outputs, request.output_count);
}

const char* type_name(int32_t type) {
  switch (type) {
    case NYSTRA_CPU_FLOAT32: return "float32";
    case NYSTRA_CPU_FLOAT16: return "float16";
    case NYSTRA_CPU_BFLOAT16: return "bfloat16";
    case NYSTRA_CPU_INT32: return "int32";
    default: return "of an unknown type";
  }
}

void check_counts(const Schema& schema, const Request& request) {
  const size_t inputs = std::strlen(schema.inputs), outputs = std::strlen(schema.outputs);
  if (request.input_count != inputs || request.output_count != outputs)
    throw Refusal(std::to_string(request.input_count) + " inputs and " +
                  std::to_string(request.output_count) + " outputs; expected " +
                  std::to_string(inputs) + " and " + std::to_string(outputs));
}

// The type of a tensor of the schema's `kind`; tensors of kind T have the type of input 0.
int32_t expected_type(char kind, const Request& request) {
  return kind == 'I' ? int32_t(NYSTRA_CPU_INT32) : request.inputs[0].type;
}

void check_type(const std::string& what, int32_t got, int32_t expected) {
  if (got != expected)
    throw Refusal(what + " is " + type_name(got) + "; expected " + type_name(expected));
}

void check_types(const Schema& schema, const Request& request) {
  const int32_t first = request.inputs[0].type;
  if (first != NYSTRA_CPU_FLOAT32 && first != NYSTRA_CPU_FLOAT16 && first != NYSTRA_CPU_BFLOAT16)
    throw Refusal(std::string("input 0 is ") + type_name(first) +
                  "; expected float32, float16 or bfloat16");
  for (size_t i = 0; i < request.input_count; ++i)
    check_type("input " + std::to_string(i), request.inputs[i].type,
               expected_type(schema.inputs[i], request));
}

// The bytes of a tensor fit into 64 bits; a size of 0 counts as 1, so that products of some of the
// axes are covered too.
void check_size(const std::string& what, const Shape& shape) {
  int64_t left = std::numeric_limits<int64_t>::max() / int64_t(sizeof(float));
  for (int axis = 0; axis < shape.rank; ++axis) {
    left /= std::max<int64_t>(shape[axis], 1);
    if (left == 0) throw Refusal(what + " is " + text(shape) + "; expected less than 2^63 bytes");
  }
}

Shape shape_of(const std::string& what, const nystra_cpu_tensor& tensor) {
  if (tensor.rank < 0 || tensor.rank > kMaxRank)
    throw Refusal(what + " has rank " + std::to_string(tensor.rank) + "; expected 0 to " +
                  std::to_string(kMaxRank));
  Shape shape;
  for (shape.rank = 0; shape.rank < tensor.rank; ++shape.rank)
    shape[shape.rank] = tensor.shape[shape.rank];
  for (int axis = 0; axis < shape.rank; ++axis)
    if (shape[axis] < 0) throw Refusal(what + " is " + text(shape) + "; expected no negative size");
  check_size(what, shape);
  return shape;
}

// One call of an operator: attributes and inputs are checked.
template <class Op>
class Job {
 public:
  using Operator = Op;

  explicit Job(const Request& request) : op_(attributes_of(kSchema, request)), request_(request) {
    check_counts(kSchema, request);
    check_types(kSchema, request);
    for (size_t i = 0; i < request.input_count; ++i)
      shapes_[i] = shape_of("input " + std::to_string(i), request.inputs[i]);
    op_.check(shapes_);
  }

  void describe(nystra_cpu_tensor* outputs) const {
    for (size_t i = 0; i < request_.output_count; ++i) {
      const Shape shape = op_.output(int(i), shapes_);
      check_size("output " + std::to_string(i), shape);
      outputs[i].type = expected_type(kSchema.outputs[i], request_);
      outputs[i].rank = shape.rank;
      for (int axis = 0; axis < shape.rank; ++axis) outputs[i].shape[axis] = shape[axis];
    }
  }

  // Calls work(operator, tensors) with tensors that have data, unless the outputs are empty.
  template <class Work>
  void run(const nystra_cpu_tensor* outputs, const Work& work) const {
    const void* from[kMaxTensors];
    void* into[kMaxTensors];
    for (size_t i = 0; i < request_.input_count; ++i)
      from[i] = data_of("input " + std::to_string(i), request_.inputs[i], shapes_[i]);
    for (size_t i = 0; i < request_.output_count; ++i) {
      const std::string what = "output " + std::to_string(i);
      const Shape got = shape_of(what, outputs[i]), expected = op_.output(int(i), shapes_);
      check_type(what, outputs[i].type, expected_type(kSchema.outputs[i], request_));
      if (!(got == expected))
        throw Refusal(what + " is " + text(got) + "; expected " + text(expected));
      into[i] = data_of(what, outputs[i], got);
    }
    if (!empty()) work(op_, Tensors{element_type(), shapes_, from, into});
  }

  bool empty() const { return op_.output(0, shapes_).empty(); }
  const Op& op() const { return op_; }
  const Shape* shapes() const { return shapes_; }
  Type element_type() const {
    switch (request_.inputs[0].type) {
      case NYSTRA_CPU_FLOAT32: return Type::kFloat;
      case NYSTRA_CPU_FLOAT16: return Type::kHalf;
      default: return Type::kBfloat16;
    }
  }

 private:
  static constexpr const Schema& kSchema = Op::kSchema;

  static void* data_of(const std::string& what, const nystra_cpu_tensor& tensor,
                       const Shape& shape) {
    if (tensor.data == nullptr && !shape.empty()) throw Refusal(what + " has no data");
    return tensor.data;
  }

  const Op op_;
  const Request& request_;
  Shape shapes_[kMaxTensors];
};

// Calls work(job) with the job of the operator that the request names.
template <class Work>
void with_job(const Request& request, const Work& work) {
  const std::string name = request.name != nullptr ? request.name : "";
  std::string known;
#define NYSTRA_TRY(Operator)                                               \
  if (name == Operator::kSchema.name) return work(Job<Operator>(request)); \
  known += (known.empty() ? "" : ", ") + std::string(Operator::kSchema.name);
  NYSTRA_OPERATORS(NYSTRA_TRY)
#undef NYSTRA_TRY
  throw Refusal("unknown operator; expected " + known);
}

// The status of `work`; its exception becomes the error of the thread.
template <class Work>
int32_t guarded(const char* name, const Work& work) noexcept {
  int32_t status = NYSTRA_CPU_FAILED;
  try {
    const std::string owner = std::string(name != nullptr ? name : "nystra") + ": ";
    try {
      work();
      return NYSTRA_CPU_OK;
    } catch (const Refusal& error) {
      status = NYSTRA_CPU_REFUSED;
      last_error = owner + error.what();
    } catch (const std::bad_alloc&) {
      last_error = owner + "out of memory";
    } catch (const std::system_error& error) {
      last_error = owner + "no thread could be started: " + error.what();
    } catch (const std::exception& error) {
      last_error = owner + error.what();
    }
  } catch (...) {
    last_error.clear();
  }
  return status;
}

}  // namespace
}  // namespace nystra::c_api
