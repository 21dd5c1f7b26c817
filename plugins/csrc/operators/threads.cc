#include "threads.h"

#include <algorithm>
#include <atomic>
#include <new>

#include "attributes.h"

namespace nystra {
namespace {

// The tasks of one parallel call. Workers take a few at a time until none is left. Each allocates
// its scratch when it has a task: a host may run all workers in one thread, and then one has them.
struct Queue {
  Status (*run)(const void*, int64_t, int64_t, float*);
  const void* work;
  int64_t floats, tasks, grain;
  std::atomic<int64_t> next{0};
  std::atomic<Status> failure{Status::kOk};

  void drain() noexcept {
    int64_t first = next.fetch_add(grain);
    if (first >= tasks) return;
    try {
      const AlignedFloats scratch(static_cast<size_t>(floats));
      for (; first < tasks; first = next.fetch_add(grain)) {
        const Status status = run(work, first, std::min(first + grain, tasks), scratch.get());
        if (status != Status::kOk) failure = status;
      }
    } catch (const std::bad_alloc&) {
      failure = Status::kNoScratch;
    }
  }
};

}  // namespace

AlignedFloats::AlignedFloats(size_t floats)
    : data_(static_cast<float*>(::operator new(floats * sizeof(float), std::align_val_t(64)))) {}

AlignedFloats::~AlignedFloats() { ::operator delete(data_, std::align_val_t(64)); }

void Threads::parallel_tasks(int64_t tasks, int64_t floats, Run task, const void* work) const {
  if (tasks == 0) return;
  const int64_t workers = std::min(tasks, count());
  const int64_t grain = std::max<int64_t>(1, std::min<int64_t>(8, tasks / (8 * workers)));
  Queue queue{task, work, floats, tasks, grain};
  const auto drain = [](void* user, size_t) { static_cast<Queue*>(user)->drain(); };
  run(workers, drain, &queue);
  if (queue.failure == Status::kNoScratch) throw std::bad_alloc();
  if (queue.failure == Status::kUnsupported)
    throw Refusal("sizes that the kernel does not support");
}

}  // namespace nystra
