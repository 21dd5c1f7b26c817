// Threads for one call: they start with the first work that needs them, and end with the team.
#pragma once

#include <condition_variable>
#include <thread>
#include <vector>

#include "operators/cpu/threads.h"

namespace nystra::host {

class Team final : public cpu::Threads {
 public:
  // At most `threads`, the caller's among them.
  explicit Team(int64_t threads) : threads_(threads) {}
  ~Team() override;

 private:
  using Work = void (*)(void* user, size_t worker);

  int64_t count() const override { return threads_; }
  void run(int64_t workers, Work work, void* user) const override;
  void serve(size_t worker) const;

  const int64_t threads_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  mutable std::vector<std::thread> helpers_;  // worker i + 1 is helpers_[i]
  mutable Work work_ = nullptr;               // of the round
  mutable void* user_ = nullptr;
  mutable int64_t round_ = 0, workers_ = 0, running_ = 0;
  mutable bool over_ = false;
};

}  // namespace nystra::host
