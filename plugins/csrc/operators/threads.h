// The threads that run the tasks of an operator on the CPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>

#include "kernels/cpu/kernels.h"

namespace nystra {

// Memory for `floats` floats, aligned to 64 bytes. Throws std::bad_alloc.
class AlignedFloats {
 public:
  explicit AlignedFloats(size_t floats);
  ~AlignedFloats();
  AlignedFloats(const AlignedFloats&) = delete;
  AlignedFloats& operator=(const AlignedFloats&) = delete;

  float* get() const { return data_; }

 private:
  float* data_;
};

class Threads {
 public:
  virtual ~Threads() = default;

  // Runs tasks 0..tasks-1: work(first, last, scratch of `floats`) -> Status. Throws if one of them
  // fails.
  template <class Work>
  void parallel(int64_t tasks, int64_t floats, const Work& work) const {
    const auto run = [](const void* w, int64_t first, int64_t last, float* scratch) {
      return (*static_cast<const Work*>(w))(first, last, scratch);
    };
    parallel_tasks(tasks, floats, run, &work);
  }

 protected:
  // How many workers may run at once, one or more.
  virtual int64_t count() const = 0;

  // Runs work(user, 0) .. work(user, workers - 1), in parallel if possible, and waits for all.
  virtual void run(int64_t workers, void (*work)(void* user, size_t worker), void* user) const = 0;

 private:
  using Run = Status (*)(const void* work, int64_t first, int64_t last, float* scratch);
  void parallel_tasks(int64_t tasks, int64_t floats, Run run, const void* work) const;
};

// The maxima of all tasks: find(first, last, scratch, own) merges those of some into `own`.
template <class Find>
BatchMaxima batch_maxima(const Threads& threads, int64_t tasks, int64_t floats, const Find& find) {
  std::mutex mutex;
  BatchMaxima all = kOwnMaxima;
  threads.parallel(tasks, floats, [&](int64_t first, int64_t last, float* scratch) {
    BatchMaxima own = kOwnMaxima;
    const Status status = find(first, last, scratch, &own);
    const std::lock_guard<std::mutex> lock(mutex);
    merge(own, &all);
    return status;
  });
  return all;
}

}  // namespace nystra
