#include "team.h"

namespace nystra::host {

Team::~Team() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  for (std::thread& helper : helpers_) helper.join();
}

void Team::run(int64_t workers, Work work, void* user) const {
  while (int64_t(helpers_.size()) < workers - 1)
    helpers_.emplace_back(&Team::serve, this, helpers_.size() + 1);
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
