// RegisterCustomOps of libnystra_onnxruntime: the entry point that onnxruntime looks for.
#include "export.h"
#include "registration.h"

NYSTRA_EXPORT nystra::ort::Status* RegisterCustomOps(nystra::ort::SessionOptions* options,
                                                     const nystra::ort::ApiBase* base) {
  using namespace nystra::ort;
  return register_operators(options, base, kApiVersion, add_cpu_operators);
}
