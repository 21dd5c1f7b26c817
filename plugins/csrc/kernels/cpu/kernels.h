// The CPU kernels: their parameters, and the table of one instruction set.
//
// A kernel takes raw pointers, a range of tasks and scratch memory, and returns a status. A task
// is one matrix, or one head of one window; tasks of a call touch disjoint parts of the output
// and may run at the same time, each with scratch of its own. Parameters are checked by the
// binding: heads * (2 * head_dim + value_dim) channels, maps a multiple of the window, shifts
// smaller than it.
#pragma once

#include <cstdint>

namespace nystra {

struct Half {
  uint16_t bits;
};

enum class Type { kFloat, kHalf };

enum class Status {
  kOk,
  kNoScratch,    // the call needs scratch memory and got none
  kUnsupported,  // sizes beyond what the kernel was made for
};

// What kernels over windows share. Letters as in the documentation: qkv (B, H, W, h(2d+e)).
struct WindowShape {
  int64_t batch, height, width;
  int64_t heads, head_dim, value_dim;
  int64_t window_h, window_w, shift_h, shift_w;
  int64_t mask;
  float scale;

  int64_t channels() const { return heads * (2 * head_dim + value_dim); }
  int64_t tokens() const { return window_h * window_w; }
  int64_t windows() const { return batch * (height / window_h) * (width / window_w); }
};

struct PinvParams {
  int64_t matrices, size, iterations;
};

// Maxima of row and column sums of abs A over a whole batch; negative: take those of each matrix.
struct BatchMaxima {
  float row, column;
};

constexpr BatchMaxima kOwnMaxima = {-1.0f, -1.0f};

// Merges maxima; NaN stays NaN.
static inline void merge(const BatchMaxima& from, BatchMaxima* into) {
  const auto larger = [](float a, float b) { return b > a || b != b ? b : a; };
  into->row = larger(into->row, from.row);
  into->column = larger(into->column, from.column);
}

struct WindowSoftmaxParams {
  WindowShape shape;
  const float* bias;  // made by window_softmax_bias; null: none
};

struct LandmarkParams {
  WindowShape shape;
  int64_t rows, cols, iterations;
  float threshold, guard;  // of the kernel form alone

  int64_t landmarks() const { return rows * cols; }
};

constexpr int64_t kMaxPinvSize = 128;
constexpr int64_t kMaxLandmarks = 64;

// The kernels of one instruction set. `scratch` functions return the floats that one running
// task needs, aligned to 64 bytes. `maxima` functions merge into `result`.
struct Kernels {
  const char* isa;

  int64_t (*pinv_scratch)(const PinvParams&);
  Status (*pinv_maxima)(const PinvParams&, Type, const void* a, int64_t first, int64_t last,
                        float* scratch, BatchMaxima* result);
  Status (*pinv)(const PinvParams&, Type, const void* a, const BatchMaxima&, void* z, int64_t first,
                 int64_t last, float* scratch);

  int64_t (*window_softmax_tasks)(const WindowShape&);
  int64_t (*window_softmax_scratch)(const WindowShape&);
  int64_t (*window_softmax_bias_size)(const WindowShape&);
  void (*window_softmax_bias)(const WindowShape&, Type, const void* table, float* bias);
  Status (*window_softmax)(const WindowSoftmaxParams&, Type, const void* qkv, void* out,
                           int64_t first, int64_t last, float* scratch);

  int64_t (*window_nystrom_scratch)(const LandmarkParams&);
  Status (*window_nystrom_maxima)(const LandmarkParams&, Type, const void* qkv, int64_t first,
                                  int64_t last, float* scratch, BatchMaxima* result);
  Status (*window_nystrom)(const LandmarkParams&, Type, const void* qkv, const BatchMaxima&,
                           void* out, int64_t first, int64_t last, float* scratch);

  int64_t (*window_nystromformer_scratch)(const LandmarkParams&);
  Status (*window_nystromformer_maxima)(const LandmarkParams&, Type, const void* qkv, int64_t first,
                                        int64_t last, float* scratch, BatchMaxima* result);
  Status (*window_nystromformer)(const LandmarkParams&, Type, const void* qkv, const BatchMaxima&,
                                 void* out, int64_t first, int64_t last, float* scratch);
};

// The table in use: the best this CPU has, or the one NYSTRA_CPU_ISA names; null where that one
// is unknown or cannot run here.
const Kernels* kernels();

}  // namespace nystra
