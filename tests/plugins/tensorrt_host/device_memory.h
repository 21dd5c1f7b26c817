// Memory of the device between guards.
#pragma once

#include <cuda_runtime_api.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace nystra::host {

constexpr size_t kGuard = 256;  // bytes on either side of a buffer

inline void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess)
    throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
}

// Device memory between guards, all bytes 0xFF: NaN in every element type.
class Buffer {
 public:
  explicit Buffer(size_t size) : size_(size) {
    check(cudaMalloc(&memory_, size_ + 2 * kGuard), "cudaMalloc");
    fill();
  }
  ~Buffer() { cudaFree(memory_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void fill() { check(cudaMemset(memory_, 0xFF, size_ + 2 * kGuard), "cudaMemset"); }
  void* get() const { return static_cast<char*>(memory_) + kGuard; }

  void copy_from(const std::vector<char>& data) {
    if (data.size() != size_)
      throw std::runtime_error("an input file has another size than its shape");
    check(cudaMemcpy(get(), data.data(), size_, cudaMemcpyHostToDevice),
          "cudaMemcpy to the device");
  }

  // The bytes; throws where a guard was written to.
  std::vector<char> contents() const {
    std::vector<char> all(size_ + 2 * kGuard);
    check(cudaMemcpy(all.data(), memory_, all.size(), cudaMemcpyDeviceToHost),
          "cudaMemcpy from the device");
    for (size_t i = 0; i < kGuard; ++i)
      if (all[i] != '\xFF' || all[all.size() - 1 - i] != '\xFF')
        throw std::runtime_error("bytes around a buffer were written");
    return {all.begin() + kGuard, all.end() - kGuard};
  }

 private:
  size_t size_;
  void* memory_ = nullptr;
};

}  // namespace nystra::host
