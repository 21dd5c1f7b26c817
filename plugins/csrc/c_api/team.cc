#include "team.h"

#if defined(_WIN32)
#include <windows.h>
#else
#include <dlfcn.h>
#include <pthread.h>
#endif

namespace nystra::c_api {
namespace {

// Teams that no call uses.
struct Idle {
  std::mutex mutex;
  std::vector<std::unique_ptr<Team>> teams;
  size_t helpers = 0;  // of them all
  size_t created = 0;  // these and those that calls have; there is room for all
};

Idle& idle();

// Keeps this library loaded until the process ends, since idle helpers run its code. On ELF the
// file has this flag (-z nodelete).
void stay_loaded() {
#if defined(_WIN32)
  HMODULE self = nullptr;
  GetModuleHandleExA(GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_PIN,
                     reinterpret_cast<const char*>(&stay_loaded), &self);
#elif defined(__APPLE__)
  Dl_info self;
  if (dladdr(reinterpret_cast<const void*>(&stay_loaded), &self) != 0)
    (void)dlopen(self.dli_fname, RTLD_LAZY | RTLD_NODELETE);
#endif
}

// The helpers of a process do not exist in a forked process.
void forget_helpers_in_forks() {
#if !defined(_WIN32)
  pthread_atfork([] { idle().mutex.lock(); }, [] { idle().mutex.unlock(); },
                 [] {
                   for (std::unique_ptr<Team>& team : idle().teams) (void)team.release();
                   idle().teams.clear();
                   idle().helpers = 0;
                   idle().mutex.unlock();
                 });
#endif
}

// It is never destroyed, since other threads may call while a process ends.
Idle& idle() {
  static Idle* const kept = [] {
    forget_helpers_in_forks();
    stay_loaded();
    return new Idle;
  }();
  return *kept;
}

}  // namespace

Team::~Team() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  for (std::thread& helper : helpers_) helper.join();
}

void Team::run(int64_t workers, Work work, void* user) {
  while (int64_t(helpers_.size()) < workers - 1)
    helpers_.emplace_back(&Team::serve, this, helpers_.size() + 1);
  if (workers > 1) {
    const std::lock_guard<std::mutex> lock(mutex_);
    work_ = work;
    user_ = user;
    std::fegetenv(&modes_);
    workers_ = workers;
    running_ = workers - 1;
    ++round_;
  }
  if (workers > 1) changed_.notify_all();
  work(user, 0);
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return running_ == 0; });
}

void Team::serve(size_t worker) {
  std::unique_lock<std::mutex> lock(mutex_);
  for (int64_t seen = 0;;) {
    changed_.wait(lock, [&] { return over_ || round_ != seen; });
    if (over_) return;
    seen = round_;
    if (int64_t(worker) >= workers_) continue;
    std::fesetenv(&modes_);
    lock.unlock();
    work_(user_, worker);
    lock.lock();
    if (--running_ == 0) changed_.notify_all();
  }
}

Call::Call(int64_t threads) : threads_(threads) {
  Idle& kept = idle();
  const std::lock_guard<std::mutex> lock(kept.mutex);
  if (kept.teams.empty()) {
    kept.teams.reserve(kept.created + 1);
    team_ = std::make_unique<Team>();
    ++kept.created;
    return;
  }
  team_ = std::move(kept.teams.back());
  kept.teams.pop_back();
  kept.helpers -= team_->helpers();
}

Call::~Call() {
  static const size_t max_helpers = std::thread::hardware_concurrency();
  Idle& kept = idle();
  const std::lock_guard<std::mutex> lock(kept.mutex);
  if (kept.helpers + team_->helpers() > max_helpers) {  // these end here
    --kept.created;
    return;
  }
  kept.helpers += team_->helpers();
  kept.teams.push_back(std::move(team_));
}

}  // namespace nystra::c_api
