// What the CPU and the CUDA kernels share: element types, parameters and the status of a call.
//
// Parameters are checked by the binding: heads * (2 * head_dim + value_dim) channels, maps a
// multiple of the window, shifts smaller than it.
#pragma once

#include <cstdint>

#include "limits.h"

namespace nystra {

enum class Type { kFloat, kHalf, kBfloat16 };

enum class Status {
  kOk,
  kNoScratch,    // the call needs scratch memory (CUDA: a workspace) and got none
  kUnsupported,  // sizes beyond what the kernel was made for
  kLaunch,       // CUDA refused a launch; no kernel image for the device, or no device
};

// What kernels over windows share. Letters as in the documentation: qkv (B, H, W, h(2d+e)).
struct WindowShape {
  int64_t batch, height, width;
  int64_t heads, head_dim, value_dim;
  int64_t window_h, window_w, shift_h, shift_w;
  int64_t mask;
  float scale;
  int64_t margin_h = 0, margin_w = 0;  // of the keys around a window

  int64_t channels() const { return heads * (2 * head_dim + value_dim); }
  int64_t tokens() const { return window_h * window_w; }
  int64_t key_h() const { return window_h + 2 * margin_h; }
  int64_t key_w() const { return window_w + 2 * margin_w; }
  int64_t keys() const { return key_h() * key_w(); }
  int64_t bias_rows() const { return (window_h + key_h() - 1) * (window_w + key_w() - 1); }
  int64_t windows() const { return batch * (height / window_h) * (width / window_w); }
};

struct PinvParams {
  int64_t matrices, size, iterations;
};

struct LandmarkParams {
  WindowShape shape;
  int64_t rows, cols, iterations;
  float threshold, guard;  // of the kernel form alone

  int64_t landmarks() const { return rows * cols; }
};

// Meaning and limits: ../../operators/window_cluster. bias_block is a multiple of block.
struct ClusterParams {
  WindowShape shape;
  int64_t rows, cols, rounds;  // of clusters; rounds beside the first
  int64_t block, bias_block;   // sides; the last block of a window may be smaller

  int64_t clusters() const { return rows * cols; }
};

// Meaning and limits: ../../operators/patch_match. Query (B, C, H, W), key (B, C, Hk, Wk).
struct PatchMatchParams {
  int64_t channels, height, width, key_height, key_width;
  int64_t patch, iterations, neighbors, metric, seed;
  bool masked;    // the key mask has more than one element a map
  bool same_map;  // the query map is the key map
};

constexpr int64_t kMaxPinvSize = 128;

}  // namespace nystra
