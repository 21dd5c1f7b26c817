// RegisterCustomOps: the entry point that onnxruntime looks for in a custom-op library.
#include <cstdlib>
#include <memory>
#include <mutex>

#include "operators.h"

namespace nystra::ort {
namespace {

// The operators as one onnxruntime knows them. It outlives every session of it.
struct Registration {
  const Table table;
  Api api;
  Domain* domain = nullptr;
  std::vector<std::shared_ptr<CustomOp>> operators;

  explicit Registration(Table given) : table(given) {
#define NYSTRA_ORT_LOAD(position, name, result, parameters) \
  api.name = reinterpret_cast<result(*) parameters>(given[position]);
    NYSTRA_ORT_ENTRIES(NYSTRA_ORT_LOAD)
#undef NYSTRA_ORT_LOAD
    check(api, api.CreateCustomOpDomain("nystra", &domain), "create the operator domain");
    add<Pinv>();
    add<WindowSoftmax>();
    add<WindowNystrom>();
    add<WindowNystromformer>();
    add<PatchMatch>();
  }
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;
  ~Registration() { api.ReleaseCustomOpDomain(domain); }

  template <class Operator>
  void add() {
    for (const Type type : {Type::kFloat, Type::kHalf}) {
      operators.push_back(std::make_shared<Registered<Operator>>(api, type));
      check(api, api.CustomOpDomain_Add(domain, operators.back().get()),
            "add an operator to the domain");
    }
  }
};

std::vector<std::unique_ptr<Registration>>* registrations = nullptr;

// onnxruntime unloads the library with the last session that uses it, and loads it again for the
// next. When a process ends this runs after the destructors of every object that may hold a session.
__attribute__((destructor)) void release() { delete registrations; }

// The registration with the onnxruntime of this table. A process may hold more than one.
const Registration& registration(Table table) {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  if (registrations == nullptr) registrations = new std::vector<std::unique_ptr<Registration>>;
  for (const auto& one : *registrations)
    if (one->table == table) return *one;
  return *registrations->emplace_back(std::make_unique<Registration>(table));
}

}  // namespace
}  // namespace nystra::ort

extern "C" __attribute__((visibility("default"))) nystra::ort::Status* RegisterCustomOps(
    nystra::ort::SessionOptions* options, const nystra::ort::ApiBase* base) {
  using namespace nystra::ort;
  const Table table = base->GetApi(kApiVersion);
  if (table == nullptr) {
    // An onnxruntime this old has no status of ours; version 1 of its API can make one.
    const Table oldest = base->GetApi(1);
    const auto create = reinterpret_cast<Status* (*)(int, const char*)>(oldest[0]);
    return create(kFail, "the nystra operators need onnxruntime 1.17 or newer");
  }
  const auto create = reinterpret_cast<Status* (*)(int, const char*)>(table[0]);
  try {
    if (nystra::kernels() == nullptr) {
      const std::string forced = std::getenv("NYSTRA_CPU_ISA");
      return create(kInvalidArgument, ("NYSTRA_CPU_ISA is '" + forced +
                                       "'; expected generic, avx2 "
                                       "or avx512, one that this CPU and this build have")
                                          .c_str());
    }
    const Registration& registered = registration(table);
    return registered.api.AddCustomOpDomain(options, registered.domain);
  } catch (const std::exception& error) {
    return create(kFail, error.what());
  } catch (...) {
    return create(kFail, "nystra: the operators could not be registered");
  }
}
