#include "binding.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <new>
#include <thread>

namespace nystra::ort {
namespace {

constexpr int64_t kRevision = 1;

std::string text(float x) {
  std::string s = std::to_string(x);
  return s.substr(0, s.find_last_not_of('0') + (s[s.find_last_not_of('0')] == '.' ? 0 : 1));
}

// The tasks of one parallel call. Workers take a few at a time until none is left.
struct Queue {
  nystra::Status (*run)(const void*, int64_t, int64_t, float*);
  const void* work;
  float* scratch;
  int64_t floats, tasks, grain;
  std::atomic<int64_t> next{0};
  std::atomic<nystra::Status> failure{nystra::Status::kOk};

  void drain(int64_t worker) {
    for (int64_t first; (first = next.fetch_add(grain)) < tasks;) {
      const nystra::Status status =
          run(work, first, std::min(first + grain, tasks), scratch + worker * floats);
      if (status != nystra::Status::kOk) failure = status;
    }
  }
};

}  // namespace

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string result = "(";
  for (size_t i = 0; i < shape.size(); ++i)
    result += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return result + ")";
}

void check(const Api& api, Status* status, const char* what) {
  if (status == nullptr) return;
  const std::string reason = api.GetErrorMessage(status);
  api.ReleaseStatus(status);
  throw std::runtime_error(std::string("onnxruntime failed to ") + what + ": " + reason);
}

int64_t Attributes::integer(const char* name, int64_t minimum, int64_t maximum) const {
  int64_t value = 0;
  if (Status* const status = api_.KernelInfoGetAttribute_int64(info_, name, &value)) {
    api_.ReleaseStatus(status);
    throw Refusal(std::string("attribute ") + name + " is missing or not an INT");
  }
  if (value < minimum || value > maximum)
    throw Refusal(std::string("attribute ") + name + " is " + std::to_string(value) +
                  "; expected " + std::to_string(minimum) + " to " + std::to_string(maximum));
  return value;
}

float Attributes::number(const char* name, float minimum, float maximum) const {
  float value = 0;
  if (Status* const status = api_.KernelInfoGetAttribute_float(info_, name, &value)) {
    api_.ReleaseStatus(status);
    throw Refusal(std::string("attribute ") + name + " is missing or not a FLOAT");
  }
  if (!(value >= minimum && value <= maximum))
    throw Refusal(std::string("attribute ") + name + " is " + text(value) + "; expected " +
                  text(minimum) + " to " + text(maximum));
  return value;
}

void Attributes::check_revision() const {
  int64_t value = 0;
  if (Status* const status = api_.KernelInfoGetAttribute_int64(info_, "revision", &value)) {
    api_.ReleaseStatus(status);
    throw Refusal("attribute revision is missing or not an INT");
  }
  if (value != kRevision)
    throw Refusal("the node is of revision " + std::to_string(value) + ", this library of nystra " +
                  NYSTRA_VERSION + " knows revision " + std::to_string(kRevision) +
                  "; use the library of the nystra that exported the model, or one as new as it");
}

Tensor Call::input(size_t index) const {
  const Value* value = nullptr;
  check(api_, api_.KernelContext_GetInput(context_, index, &value), "give an input");
  TensorInfo* info = nullptr;
  check(api_, api_.GetTensorTypeAndShape(value, &info), "describe an input");
  const std::unique_ptr<TensorInfo, void (*)(TensorInfo*)> owner(
      info, api_.ReleaseTensorTypeAndShapeInfo);
  size_t rank = 0;
  check(api_, api_.GetDimensionsCount(info, &rank), "give a rank");
  Tensor tensor{nullptr, std::vector<int64_t>(rank)};
  check(api_, api_.GetDimensions(info, tensor.shape.data(), rank), "give a shape");
  void* data = nullptr;
  check(api_, api_.GetTensorMutableData(const_cast<Value*>(value), &data), "give data");
  tensor.data = data;
  return tensor;
}

void* Call::output(size_t index, const std::vector<int64_t>& shape) const {
  Value* value = nullptr;
  check(api_, api_.KernelContext_GetOutput(context_, index, shape.data(), shape.size(), &value),
        "give an output");
  void* data = nullptr;
  check(api_, api_.GetTensorMutableData(value, &data), "give output memory");
  return data;
}

void CpuCall::parallel_tasks(int64_t tasks, int64_t floats, Run run, const void* work) const {
  if (tasks == 0) return;
  const int64_t cores = std::max<int64_t>(1, std::thread::hardware_concurrency());
  const int64_t workers = std::min(tasks, cores);
  const AlignedFloats scratch(static_cast<size_t>(workers) * static_cast<size_t>(floats));
  Queue queue{run,    work,  scratch.get(),
              floats, tasks, std::max<int64_t>(1, std::min<int64_t>(8, tasks / (8 * workers)))};
  const auto drain = [](void* user, size_t worker) {
    static_cast<Queue*>(user)->drain(static_cast<int64_t>(worker));
  };
  check(api_,
        api_.KernelContext_ParallelFor(context_, drain, static_cast<size_t>(workers), 0, &queue),
        "run tasks in parallel");
  if (queue.failure == nystra::Status::kNoScratch) throw std::bad_alloc();
  if (queue.failure == nystra::Status::kUnsupported)
    throw Refusal("sizes beyond what the kernel was made for");
}

AlignedFloats::AlignedFloats(size_t floats)
    : data_(static_cast<float*>(::operator new(floats * sizeof(float), std::align_val_t(64)))) {}

AlignedFloats::~AlignedFloats() { ::operator delete(data_, std::align_val_t(64)); }

Status* caught(const Api& api, const char* name) {
  try {
    try {
      throw;
    } catch (const Refusal& error) {
      return api.CreateStatus(kInvalidArgument, (std::string(name) + ": " + error.what()).c_str());
    } catch (const std::bad_alloc&) {
      return api.CreateStatus(kFail, (std::string(name) + ": out of memory").c_str());
    } catch (const std::exception& error) {
      return api.CreateStatus(kFail, (std::string(name) + ": " + error.what()).c_str());
    }
  } catch (...) {
    return api.CreateStatus(kFail, name);
  }
}

}  // namespace nystra::ort
