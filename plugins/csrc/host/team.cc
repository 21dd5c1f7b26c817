#include "team.h"

#include <sched.h>
#include <unistd.h>

namespace nystra::host {

namespace {

// The CPUs of the process when the library was loaded.
class Cpus {
 public:
  Cpus() { sched_getaffinity(getpid(), sizeof all_, &all_); }

  // Moves a new thread of the caller's off the caller's CPUs where these are too few for all
  // workers: it inherited them, and OpenVINO keeps the thread that calls us on one. Told later
  // that it may go, it would wait there for its turn.
  void part(std::thread& helper, int64_t workers) const {
    cpu_set_t own, others;
    CPU_ZERO(&own);
    if (sched_getaffinity(0, sizeof own, &own) != 0 || CPU_COUNT(&own) >= workers) return;
    CPU_AND(&own, &own, &all_);
    CPU_XOR(&others, &all_, &own);
    if (CPU_COUNT(&others) > 0)
      pthread_setaffinity_np(helper.native_handle(), sizeof others, &others);
  }

 private:
  cpu_set_t all_ = {};
};

const Cpus kCpus;

}  // namespace

Team::~Team() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  for (std::thread& helper : helpers_) helper.join();
}

void Team::run(int64_t workers, Work work, void* user) const {
  while (int64_t(helpers_.size()) < workers - 1) {
    helpers_.emplace_back(&Team::serve, this, helpers_.size() + 1);
    kCpus.part(helpers_.back(), workers);
  }
  if (workers > 1) {
    const std::lock_guard<std::mutex> lock(mutex_);
    work_ = work;
    user_ = user;
    workers_ = workers;
    running_ = workers - 1;
    ++round_;
  }
  if (workers > 1) changed_.notify_all();
  work(user, 0);
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return running_ == 0; });
}

void Team::serve(size_t worker) const {
  std::unique_lock<std::mutex> lock(mutex_);
  for (int64_t seen = 0;;) {
    changed_.wait(lock, [&] { return over_ || round_ != seen; });
    if (over_) return;
    seen = round_;
    if (int64_t(worker) >= workers_) continue;
    lock.unlock();
    work_(user_, worker);
    lock.lock();
    if (--running_ == 0) changed_.notify_all();
  }
}

}  // namespace nystra::host
