#include "binding.h"

#include <algorithm>
#include <memory>
#include <new>
#include <thread>

namespace nystra::ort {
namespace {

// The value of a call of the runtime; throws Refusal if it fails.
template <class T>
T value(const Api& api, Status* (*get)(const KernelInfo*, const char*, T*), const KernelInfo* info,
        const Attribute& attribute) {
  T result{};
  if (Status* const status = get(info, attribute.name, &result)) {
    api.ReleaseStatus(status);
    throw Refusal(std::string("attribute ") + attribute.name + " is missing or not " +
                  (attribute.integer ? "an INT" : "a FLOAT"));
  }
  return result;
}

}  // namespace

void check(const Api& api, Status* status, const char* what) {
  if (status == nullptr) return;
  const std::string reason = api.GetErrorMessage(status);
  api.ReleaseStatus(status);
  throw std::runtime_error(std::string("onnxruntime failed to ") + what + ": " + reason);
}

Attributes attributes(const Schema& schema, const Api& api, const KernelInfo* info) {
  return Attributes(schema, [&](const Attribute& attribute) -> nystra::Value {
    if (attribute.integer)
      return {value(api, api.KernelInfoGetAttribute_int64, info, attribute), 0.0f};
    return {0, value(api, api.KernelInfoGetAttribute_float, info, attribute)};
  });
}

Input input(const Api& api, KernelContext* context, size_t index) {
  const ort::Value* value = nullptr;
  check(api, api.KernelContext_GetInput(context, index, &value), "give an input");
  TensorInfo* info = nullptr;
  check(api, api.GetTensorTypeAndShape(value, &info), "describe an input");
  const std::unique_ptr<TensorInfo, void (*)(TensorInfo*)> owner(info,
                                                                 api.ReleaseTensorTypeAndShapeInfo);
  size_t rank = 0;
  check(api, api.GetDimensionsCount(info, &rank), "give a rank");
  if (rank > size_t(kMaxRank))
    throw Refusal("input " + std::to_string(index) + " has rank " + std::to_string(rank) +
                  "; expected at most " + std::to_string(kMaxRank));
  Input result{};
  result.shape.rank = int(rank);
  check(api, api.GetDimensions(info, result.shape.sizes, rank), "give a shape");
  void* data = nullptr;
  check(api, api.GetTensorMutableData(const_cast<ort::Value*>(value), &data), "give data");
  result.data = data;
  return result;
}

void* output(const Api& api, KernelContext* context, size_t index, const Shape& shape) {
  ort::Value* value = nullptr;
  check(api, api.KernelContext_GetOutput(context, index, shape.sizes, size_t(shape.rank), &value),
        "allocate an output");
  void* data = nullptr;
  check(api, api.GetTensorMutableData(value, &data), "return output memory");
  return data;
}

int64_t CpuDevice::SessionThreads::count() const {
  return std::max<int64_t>(1, std::thread::hardware_concurrency());
}

void CpuDevice::SessionThreads::run(int64_t workers, void (*work)(void*, size_t),
                                    void* user) const {
  check(api_, api_.KernelContext_ParallelFor(context_, work, size_t(workers), 0, user),
        "run tasks in parallel");
}

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
