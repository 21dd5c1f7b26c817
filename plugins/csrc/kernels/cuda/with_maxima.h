// Launches with the maxima of a batch, which a pass of its own leaves at the start of the
// workspace.
#pragma once

#include "elements.h"

namespace nystra::cuda {
namespace {

constexpr int64_t kMaximaBytes = 256;  // at the start of a workspace, for the maxima of the batch

// Runs a job, after a pass for the maxima of the batch if they are asked for. run(element) launches
// it for the type of the pointer, and returns whether that worked.
template <class Job, class Run>
Status run_with_maxima(bool batch_init, Job& job, Type type, void* workspace, cudaStream_t queue,
                       const Run& run) {
  if (batch_init) {
    job.maxima = static_cast<unsigned*>(workspace);
    job.only_maxima = true;
    if (cudaMemsetAsync(workspace, 0, 2 * sizeof(float), queue) != cudaSuccess)
      return Status::kLaunch;
    if (!with_type(type, run)) return Status::kLaunch;
    job.only_maxima = false;
  }
  return with_type(type, run) ? Status::kOk : Status::kLaunch;
}

}  // namespace
}  // namespace nystra::cuda
