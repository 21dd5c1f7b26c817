#include "thread_pool.h"

#if defined(_WIN32)
#include <windows.h>
#else
#include <dlfcn.h>
#include <pthread.h>
#endif

namespace nystra::c_api {
namespace {

// Thread pools that no call uses.
struct Idle {
  std::mutex mutex;
  std::vector<std::unique_ptr<ThreadPool>> pools;
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
                   for (std::unique_ptr<ThreadPool>& pool : idle().pools) (void)pool.release();
                   idle().pools.clear();
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

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  for (std::thread& helper : helpers_) helper.join();
}

void ThreadPool::run(int64_t workers, Work work, void* user) {
  while (int64_t(helpers_.size()) < workers - 1)
    helpers_.emplace_back(&ThreadPool::serve, this, helpers_.size() + 1);
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

void ThreadPool::serve(size_t worker) {
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
  if (kept.pools.empty()) {
    kept.pools.reserve(kept.created + 1);
    pool_ = std::make_unique<ThreadPool>();
    ++kept.created;
    return;
  }
  pool_ = std::move(kept.pools.back());
  kept.pools.pop_back();
  kept.helpers -= pool_->helpers();
}

Call::~Call() {
  static const size_t max_helpers = std::thread::hardware_concurrency();
  Idle& kept = idle();
  const std::lock_guard<std::mutex> lock(kept.mutex);
  if (kept.helpers + pool_->helpers() > max_helpers) {  // these end here
    --kept.created;
    return;
  }
  kept.helpers += pool_->helpers();
  kept.pools.push_back(std::move(pool_));
}

}  // namespace nystra::c_api
