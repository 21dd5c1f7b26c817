#include "registration.h"

#include <mutex>

namespace nystra::ort {
namespace {

Api load(Table table, uint32_t version) {
  Api api;
#define NYSTRA_ORT_LOAD(position, name, result, parameters) \
  api.name = reinterpret_cast<result(*) parameters>(table[position]);
  NYSTRA_ORT_ENTRIES(NYSTRA_ORT_LOAD)
  if (version >= kDeviceApiVersion) {
    NYSTRA_ORT_DEVICE_ENTRIES(NYSTRA_ORT_LOAD)
  }
#undef NYSTRA_ORT_LOAD
  return api;
}

std::vector<std::unique_ptr<Registration>>* registrations = nullptr;

// onnxruntime unloads the library with the last session that uses it, and loads it again for the
// next. When a process ends this runs after the destructors of all objects that may hold a session.
__attribute__((destructor)) void release() { delete registrations; }

// The registration with the onnxruntime of this table. A process may hold more than one.
const Registration& registration(Table table, uint32_t version, void (*add)(Registration&)) {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  if (registrations == nullptr) registrations = new std::vector<std::unique_ptr<Registration>>;
  for (const auto& registered : *registrations)
    if (registered->table == table) return *registered;
  auto created = std::make_unique<Registration>(table, version);
  add(*created);
  return *registrations->emplace_back(std::move(created));
}

}  // namespace

Registration::Registration(Table functions, uint32_t version)
    : table(functions), api(load(functions, version)) {
  check(api, api.CreateCustomOpDomain("nystra", &domain), "create the operator domain");
}

Registration::~Registration() { api.ReleaseCustomOpDomain(domain); }

void Registration::add(std::shared_ptr<CustomOp> op) {
  operators.push_back(std::move(op));
  check(api, api.CustomOpDomain_Add(domain, operators.back().get()),
        "add an operator to the domain");
}

Status* register_operators(SessionOptions* options, const ApiBase* base, uint32_t version,
                           void (*add)(Registration&)) noexcept {
  const Table table = base->GetApi(version);
  // Version 1 of the API can create a status in any onnxruntime.
  const auto create =
      reinterpret_cast<Status* (*)(int, const char*)>((table ? table : base->GetApi(1))[0]);
  try {
    if (table == nullptr)
      throw std::runtime_error("the nystra operators of this library need onnxruntime 1." +
                               std::to_string(version) + " or newer; this is " +
                               base->GetVersionString());
    const Registration& registered = registration(table, version, add);
    return registered.api.AddCustomOpDomain(options, registered.domain);
  } catch (const Refusal& error) {
    return create(kInvalidArgument, error.what());
  } catch (const std::exception& error) {
    return create(kFail, error.what());
  } catch (...) {
    return create(kFail, "nystra: the operators could not be registered");
  }
}

}  // namespace nystra::ort
