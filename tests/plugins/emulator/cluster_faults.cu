// One call of NystraWindowCluster's kernels in half precision, for
// tests/plugins/test_emulator_cluster.py, which plants faults in them.
#include <memory>

#include "block_emulator.h"
#include "kernels/window_cluster.h"
#include "races.h"

#define EMULATED extern "C" __attribute__((visibility("default")))

// The number of the fault that runs; 0: none.
extern "C" {
__attribute__((visibility("default"))) int planted_fault = 0;
}

EMULATED const char* emulator_error() { return emu::state.error.c_str(); }

// sizes: batch, height, width, heads, head_dim, value_dim, window_h, window_w, shift_h, shift_w,
// mask; then rows and columns of clusters, rounds, block, bias_block. bias may be null.
EMULATED int emulated_cluster(unsigned seed, const int64_t* sizes, float scale, const uint16_t* qkv,
                              const uint16_t* bias, uint16_t* out) {
  nystra::ClusterParams params{{sizes[0], sizes[1], sizes[2], sizes[3], sizes[4], sizes[5],
                                sizes[6], sizes[7], sizes[8], sizes[9], sizes[10], scale},
                               sizes[11],
                               sizes[12],
                               sizes[13],
                               sizes[14],
                               sizes[15]};
  const size_t bytes = nystra::cuda::window_cluster_workspace(params, bias != nullptr);
  const std::unique_ptr<unsigned char[]> workspace(new unsigned char[bytes + 1]);
  std::memset(workspace.get(), 0xff, bytes);
  emu::state.seed = seed;
  emu::state.error.clear();
  emu::watch(0, out, size_t(sizes[0] * sizes[1] * sizes[2] * sizes[3] * sizes[5]) * 2);
  return int(nystra::cuda::window_cluster(params, nystra::Type::kHalf, qkv, bias, out,
                                          workspace.get(), nullptr));
}
