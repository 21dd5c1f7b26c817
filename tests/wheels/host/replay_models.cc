// Replays recorded rows in onnxruntime with the operator library registered:
//   replay_models ONNXRUNTIME LIBNYSTRA_ONNXRUNTIME FOLDER
#include <cstdio>
#include <cstring>
#include <memory>

#include "dynamic_library.h"
#include "onnxruntime/ort_abi.h"
#include "rows.h"

namespace {

using nystra::ort::ApiBase;
using nystra::ort::MemoryInfo;
using nystra::ort::SessionOptions;
using nystra::ort::Status;
using nystra::ort::Table;
using nystra::ort::TensorInfo;
using nystra::ort::Value;
struct Env;
struct Session;
struct RunOptions;

#if defined(_WIN32)
using Path = std::wstring;
#else
using Path = std::string;
#endif

// What a program that runs models calls, by its place in onnxruntime's table.
#define HOST_ENTRIES(X)                                                                         \
  X(2, GetErrorMessage, const char*, (const Status*))                                           \
  X(3, CreateEnv, Status*, (int level, const char* name, Env** out))                            \
  X(7, CreateSession, Status*,                                                                  \
    (const Env*, const Path::value_type* path, const SessionOptions*, Session** out))           \
  X(9, Run, Status*,                                                                            \
    (Session*, const RunOptions*, const char* const* inputs, const Value* const*, size_t count, \
     const char* const* outputs, size_t, Value** out))                                          \
  X(10, CreateSessionOptions, Status*, (SessionOptions * *out))                                 \
  X(24, SetIntraOpNumThreads, Status*, (SessionOptions*, int))                                  \
  X(29, RegisterCustomOpsLibrary, Status*, (SessionOptions*, const char* path, void** handle))  \
  X(49, CreateTensorWithDataAsOrtValue, Status*,                                                \
    (const MemoryInfo*, void* data, size_t bytes, const int64_t* shape, size_t rank, int type,  \
     Value** out))                                                                              \
  X(51, GetTensorMutableData, Status*, (Value*, void** out))                                    \
  X(61, GetDimensionsCount, Status*, (const TensorInfo*, size_t* out))                          \
  X(62, GetDimensions, Status*, (const TensorInfo*, int64_t* out, size_t count))                \
  X(65, GetTensorTypeAndShape, Status*, (const Value*, TensorInfo** out))                       \
  X(69, CreateCpuMemoryInfo, Status*, (int allocator, int memory, MemoryInfo** out))            \
  X(93, ReleaseStatus, void, (Status*))                                                         \
  X(95, ReleaseSession, void, (Session*))                                                       \
  X(96, ReleaseValue, void, (Value*))                                                           \
  X(99, ReleaseTensorTypeAndShapeInfo, void, (TensorInfo*))                                     \
  X(100, ReleaseSessionOptions, void, (SessionOptions*))

struct Api {
  explicit Api(Table table) {
#define HOST_ENTRY(place, name, result, parameters) \
  name = reinterpret_cast<result(*) parameters>(table[place]);
    HOST_ENTRIES(HOST_ENTRY)
  }
#define HOST_MEMBER(place, name, result, parameters) result(*name) parameters;
  HOST_ENTRIES(HOST_MEMBER)

  void check(Status* status) const {
    if (!status) return;
    const std::string message = GetErrorMessage(status);
    ReleaseStatus(status);
    throw std::runtime_error(message);
  }
};

int type_of(const std::string& kind) {
  return kind == "float32"   ? nystra::ort::kFloat
         : kind == "float16" ? nystra::ort::kFloat16
                             : nystra::ort::kInt32;
}

// Copies what a row's output became, whose shape must be the expected one.
void take(const Api& api, Value* value, Tensor& output) {
  TensorInfo* info = nullptr;
  api.check(api.GetTensorTypeAndShape(value, &info));
  size_t rank = 0;
  api.check(api.GetDimensionsCount(info, &rank));
  std::vector<int64_t> shape(rank);
  api.check(api.GetDimensions(info, shape.data(), rank));
  api.ReleaseTensorTypeAndShapeInfo(info);
  if (shape != output.shape) throw std::runtime_error(output.name + " has another shape");
  void* data = nullptr;
  api.check(api.GetTensorMutableData(value, &data));
  std::memcpy(output.bytes.data(), data, output.bytes.size());
}

void run(const Api& api, const Env* env, const char* library, Row& row) {
  const auto free_options = [&](SessionOptions* one) { api.ReleaseSessionOptions(one); };
  const auto free_session = [&](Session* one) { api.ReleaseSession(one); };
  const auto free_value = [&](Value* one) { api.ReleaseValue(one); };
  using Held = std::unique_ptr<Value, decltype(free_value)>;

  SessionOptions* made = nullptr;
  api.check(api.CreateSessionOptions(&made));
  const std::unique_ptr<SessionOptions, decltype(free_options)> options(made, free_options);
  api.check(api.SetIntraOpNumThreads(made, 2));
  void* handle = nullptr;
  api.check(api.RegisterCustomOpsLibrary(made, library, &handle));
  Session* opened = nullptr;
  api.check(
      api.CreateSession(env, Path(row.model.begin(), row.model.end()).c_str(), made, &opened));
  const std::unique_ptr<Session, decltype(free_session)> session(opened, free_session);

  static MemoryInfo* const memory = [&] {
    MemoryInfo* info = nullptr;
    api.check(api.CreateCpuMemoryInfo(1, 0, &info));
    return info;
  }();
  std::vector<const char*> names, output_names;
  std::vector<Value*> values;
  std::vector<Held> held;
  for (Tensor& input : row.inputs) {
    Value* value = nullptr;
    api.check(api.CreateTensorWithDataAsOrtValue(memory, input.bytes.data(), input.bytes.size(),
                                                 input.shape.data(), input.shape.size(),
                                                 type_of(input.kind), &value));
    held.emplace_back(value, free_value);
    values.push_back(value);
    names.push_back(input.name.c_str());
  }
  for (const Tensor& output : row.outputs) output_names.push_back(output.name.c_str());
  std::vector<Value*> results(row.outputs.size());
  api.check(api.Run(opened, nullptr, names.data(), values.data(), values.size(),
                    output_names.data(), results.size(), results.data()));
  for (Value* result : results) held.emplace_back(result, free_value);
  for (size_t i = 0; i < results.size(); ++i) take(api, results[i], row.outputs[i]);
}

}  // namespace

int main(int count, char** words) try {
  if (count != 4) {
    std::fputs("usage: replay_models ONNXRUNTIME LIBNYSTRA_ONNXRUNTIME FOLDER\n", stderr);
    return 2;
  }
  const DynamicLibrary onnxruntime(words[1]);
  const ApiBase* const base = onnxruntime.function<const ApiBase*()>("OrtGetApiBase")();
  const Api api(base->GetApi(nystra::ort::kApiVersion));
  std::printf("onnxruntime %s\n", base->GetVersionString());
  Env* env = nullptr;
  api.check(api.CreateEnv(4, "replay", &env));
  const int code = replay("onnxruntime", read_rows(words[3]), [&](Row& row, std::string& message) {
    try {
      run(api, env, words[2], row);
    } catch (const std::exception& failure) {
      message = failure.what();
      return false;
    }
    return true;
  });
  std::fflush(stdout);
  return code;
} catch (const std::exception& failure) {
  std::fprintf(stderr, "replay_models: %s\n", failure.what());
  return 1;
}
