// The threads of calls. A new thread may begin a millisecond after it was started, so threads are
// kept for the next call.
#pragma once

#include <cfenv>
#include <condition_variable>
#include <memory>
#include <thread>
#include <vector>

#include "operators/threads.h"

namespace nystra::c_api {

// The calling thread, and helpers that start with the first work that needs them.
class ThreadPool {
 public:
  using Work = void (*)(void* user, size_t worker);

  ThreadPool() = default;
  ~ThreadPool();

  // Runs work(user, 0) .. work(user, workers - 1) in parallel; the first in the caller, whose
  // rounding and denormal modes apply to all.
  void run(int64_t workers, Work work, void* user);
  size_t helpers() const { return helpers_.size(); }

 private:
  void serve(size_t worker);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::thread> helpers_;  // worker i + 1 is helpers_[i]
  Work work_ = nullptr;               // of the round
  void* user_ = nullptr;
  std::fenv_t modes_{};
  int64_t round_ = 0, workers_ = 0, running_ = 0;
  bool over_ = false;
};

// A call with a thread pool of its own, which is kept afterwards.
class Call final : public Threads {
 public:
  // At most `threads`, the caller's among them.
  explicit Call(int64_t threads);
  ~Call() override;

 private:
  int64_t count() const override { return threads_; }
  void run(int64_t workers, ThreadPool::Work work, void* user) const override {
    pool_->run(workers, work, user);
  }

  const int64_t threads_;
  std::unique_ptr<ThreadPool> pool_;
};

}  // namespace nystra::c_api
