// Prints the bytes of scratch of one parallel call on a host of many CPUs that runs all workers in
// one thread, or in several at once; then the status of a call whose scratch cannot be allocated.
#include "operators/threads.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <thread>
#include <vector>

namespace {

std::atomic<size_t> bytes{0};
std::atomic<size_t> limit{size_t(1) << 40};

}  // namespace

void* operator new(size_t size, std::align_val_t) {
  if (size > limit) throw std::bad_alloc();
  bytes += size;
  return std::aligned_alloc(64, (size + 63) / 64 * 64);
}
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

namespace {

class Host : public nystra::Threads {
 public:
  explicit Host(bool in_turn) : in_turn_(in_turn) {}

 protected:
  int64_t count() const override { return 64; }
  void run(int64_t workers, void (*work)(void*, size_t), void* user) const override {
    std::vector<std::thread> threads;
    for (int64_t i = 0; i < workers; ++i) {
      if (in_turn_)
        work(user, size_t(i));
      else
        threads.emplace_back(work, user, size_t(i));
    }
    for (std::thread& thread : threads) thread.join();
  }

 private:
  bool in_turn_;
};

size_t scratch_of(const Host& host, std::atomic<int64_t>* tasks) {
  bytes = 0;
  host.parallel(1000, 4096, [&](int64_t first, int64_t last, float* scratch) {
    for (int i = 0; i < 4096; ++i) scratch[i] = 1.0f;
    *tasks += last - first;
    return nystra::Status::kOk;
  });
  return bytes;
}

}  // namespace

int main() {
  std::atomic<int64_t> tasks{0};
  std::printf("%zu\n", scratch_of(Host(true), &tasks) / sizeof(float));
  std::printf("%d\n", int(scratch_of(Host(false), &tasks) <= 64 * 4096 * sizeof(float)));
  limit = 1000;
  try {
    scratch_of(Host(false), &tasks);
    std::printf("computed\n");
  } catch (const std::bad_alloc&) {
    std::printf("bad_alloc\n");
  }
  std::printf("%lld\n", static_cast<long long>(tasks.load()));
}
