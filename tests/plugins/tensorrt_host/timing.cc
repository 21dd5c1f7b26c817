#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <random>

#include "cases.h"
#include "device_memory.h"
#include "enqueue.h"

namespace nystra::host {
namespace {

using nvinfer1::DataType;
using nvinfer1::PluginTensorDesc;

constexpr size_t kRotated = size_t(256) << 20;  // bytes of all sets: more than a device's cache
constexpr size_t kMostSets = 16, kPattern = size_t(4) << 20;
constexpr int kMostSamples = 50, kLeastSamples = 3, kMostLaunches = 200;
constexpr double kSample = 2e-3;  // seconds that a sample should last

uint16_t bits_of_half(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  const uint32_t sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
  if (magnitude < 0x38800000u) return uint16_t(sign);  // below the smallest normal number: zero
  if (magnitude >= 0x477fe000u) return uint16_t(sign | 0x7bffu);
  return uint16_t(sign | (magnitude - 0x38000000u) >> 13);
}

uint16_t bits_of_bfloat16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return uint16_t(bits >> 16);
}

std::vector<char> encoded(const std::vector<float>& numbers, DataType type) {
  std::vector<char> result;
  const auto append = [&](auto value) {
    const char* const start = reinterpret_cast<const char*>(&value);
    result.insert(result.end(), start, start + sizeof value);
  };
  for (const float x : numbers) {
    if (type == DataType::kINT32)
      append(int32_t(x));
    else if (type == DataType::kHALF)
      append(bits_of_half(x));
    else if (type == DataType::kBF16)
      append(bits_of_bfloat16(x));
    else
      append(x);
  }
  return result;
}

// Some megabytes of what an input holds, which is repeated.
std::vector<char> pattern(const PluginTensorDesc& tensor, std::optional<float> fill) {
  const size_t element = tensor.type == DataType::kFLOAT || tensor.type == DataType::kINT32 ? 4 : 2;
  std::vector<float> numbers(std::min(bytes(tensor), kPattern) / element);
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (float& x : numbers) x = fill ? *fill : normal(random);
  return encoded(numbers, tensor.type);
}

void put(const Buffer& buffer, size_t size, const std::vector<char>& part) {
  for (size_t at = 0; at < size; at += part.size())
    check(cudaMemcpy(static_cast<char*>(buffer.get()) + at, part.data(),
                     std::min(part.size(), size - at), cudaMemcpyHostToDevice),
          "cudaMemcpy to the device");
}

// Inputs and outputs of one call.
struct Set {
  std::vector<std::unique_ptr<Buffer>> owned;
  std::vector<const void*> in;
  std::vector<void*> out;

  explicit Set(const Case& c) {
    for (size_t i = 0; i < c.in.size(); ++i) {
      owned.push_back(std::make_unique<Buffer>(bytes(c.in[i])));
      put(*owned.back(), bytes(c.in[i]), pattern(c.in[i], c.fill[i]));
      in.push_back(owned.back()->get());
    }
    for (const PluginTensorDesc& tensor : c.out) {
      owned.push_back(std::make_unique<Buffer>(bytes(tensor)));
      out.push_back(owned.back()->get());
    }
  }
};

struct Times {
  size_t bytes = 0, workspace = 0, sets = 0;
  int launches = 0;  // of a sample
  std::vector<float> milliseconds;
};

class Events {
 public:
  Events() {
    check(cudaEventCreate(&start_), "create an event");
    check(cudaEventCreate(&end_), "create an event");
  }
  ~Events() {
    cudaEventDestroy(start_);
    cudaEventDestroy(end_);
  }
  Events(const Events&) = delete;
  Events& operator=(const Events&) = delete;

  // Milliseconds between two points of the stream.
  template <class Work>
  float around(cudaStream_t stream, const Work& work) const {
    check(cudaEventRecord(start_, stream), "record an event");
    work();
    check(cudaEventRecord(end_, stream), "record an event");
    check(cudaEventSynchronize(end_), "the kernel");
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, start_, end_), "the time between events");
    return milliseconds;
  }

 private:
  cudaEvent_t start_ = nullptr, end_ = nullptr;
};

Times time_case(const Library& library, const Case& c, double seconds) {
  const Prepared ready = prepare(library, c);
  if (ready.plugin == nullptr) throw std::runtime_error("refused: " + ready.words);
  Times times;
  times.workspace = ready.workspace;
  for (const auto* tensors : {&c.in, &c.out})
    for (const PluginTensorDesc& tensor : *tensors) times.bytes += bytes(tensor);
  times.sets = std::clamp(kRotated / std::max(times.bytes, size_t(1)) + 1, size_t(1), kMostSets);
  std::vector<std::unique_ptr<Set>> sets;
  for (size_t i = 0; i < times.sets; ++i) sets.push_back(std::make_unique<Set>(c));
  const Buffer workspace(ready.workspace);
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "create a stream");
  check(cudaDeviceSynchronize(), "fill");
  size_t turn = 0;
  const auto launch = [&] {
    const Set& set = *sets[turn++ % sets.size()];
    if (runtime(*ready.plugin)
            ->enqueue(c.in.data(), c.out.data(), set.in.data(), set.out.data(), workspace.get(),
                      stream) != 0)
      throw std::runtime_error("enqueue failed");
  };
  const Events events;
  events.around(stream, launch);
  const float warm = events.around(stream, launch);
  times.launches = std::clamp(int(kSample * 1e3 / std::max(warm, 1e-3f)), 1, kMostLaunches);
  const auto begin = std::chrono::steady_clock::now();
  const auto spent = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  while (times.milliseconds.size() < kLeastSamples ||
         (times.milliseconds.size() < kMostSamples && spent() < seconds)) {
    const float sample = events.around(stream, [&] {
      for (int i = 0; i < times.launches; ++i) launch();
    });
    times.milliseconds.push_back(sample / float(times.launches));
  }
  cudaStreamDestroy(stream);
  return times;
}

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char letter : text) {
    if (letter == '"' || letter == '\\') result += '\\';
    result += static_cast<unsigned char>(letter) < 0x20 ? ' ' : letter;
  }
  return result + "\"";
}

std::string as_json(const Times& times) {
  std::string text = "\"bytes\": " + std::to_string(times.bytes) +
                     ", \"workspace\": " + std::to_string(times.workspace) +
                     ", \"sets\": " + std::to_string(times.sets) +
                     ", \"launches\": " + std::to_string(times.launches) + ", \"ms\": [";
  for (size_t i = 0; i < times.milliseconds.size(); ++i)
    text += (i > 0 ? ", " : "") + std::to_string(times.milliseconds[i]);
  return text + "]";
}

}  // namespace

int time_cases(const Library& library, const std::string& folder, const std::string& file,
               double seconds) {
  int failed = 0;
  const std::vector<Case> cases = read_cases(folder + "/cases.txt");
  std::vector<std::string> rows;
  for (const Case& row : cases) {
    std::string text = "{\"case\": " + quoted(row.name) + ", \"operator\": " + quoted(row.op);
    try {
      text += ", " + as_json(time_case(library, row, seconds));
    } catch (const std::exception& error) {
      ++failed;
      cudaGetLastError();
      text += ", \"reason\": " + quoted(error.what());
      std::printf("FAILED: case %s, %s: %s\n", row.name.c_str(), row.op.c_str(), error.what());
    }
    rows.push_back(text + "}");
    // After every case: what stops the next one leaves this one's times.
    std::string document = "[";
    for (size_t i = 0; i < rows.size(); ++i) document += (i > 0 ? ",\n " : "") + rows[i];
    document += "]\n";
    write(file, {document.begin(), document.end()});
  }
  std::printf("%zu cases timed, %d failed\n", cases.size(), failed);
  return failed;
}

}  // namespace nystra::host
