#include "window_cluster.h"

namespace nystra {
namespace {

// The region border of a shifted window must not lie inside a block.
void check_border(const char* what, int64_t window, int64_t shift, int64_t block) {
  if (shift > 0 && (window - shift) % block != 0)
    throw Refusal("with mask 1 the region border at " + std::to_string(window - shift) + " of " +
                  std::to_string(window) + " " + what + " cuts a block of bias_block " +
                  std::to_string(block) +
                  "; expected a border between blocks: use mask 0, smaller blocks or full "
                  "attention (NystraWindowSoftmax) here");
}

}  // namespace

WindowCluster::WindowCluster(const Attributes& a) : windows_(a), bias_(a.flag("bias")) {
  params_.shape = windows_.unplaced();
  params_.rows = a.integer("cluster_rows");
  params_.cols = a.integer("cluster_cols");
  params_.rounds = a.integer("rounds");
  params_.block = a.integer("block");
  params_.bias_block = a.integer("bias_block");
  if (params_.clusters() > kMaxClusters)
    throw Refusal("attributes cluster_rows and cluster_cols give " + std::to_string(params_.rows) +
                  " x " + std::to_string(params_.cols) + " clusters; expected at most " +
                  std::to_string(kMaxClusters));
  if (params_.bias_block % params_.block != 0)
    throw Refusal("attribute bias_block is " + std::to_string(params_.bias_block) +
                  "; expected a multiple of block, " + std::to_string(params_.block));
  const WindowShape& s = params_.shape;
  const int64_t side = params_.bias_block;
  const int64_t down = (s.window_h + side - 1) / side, across = (s.window_w + side - 1) / side;
  if (down * across > kMaxBiasBlocks)
    throw Refusal("attribute bias_block is " + std::to_string(side) + ", which makes " +
                  std::to_string(down) + " x " + std::to_string(across) +
                  " blocks of a window; expected at most " + std::to_string(kMaxBiasBlocks));
  if (!s.mask) return;
  check_border("rows", s.window_h, s.shift_h, side);
  check_border("columns", s.window_w, s.shift_w, side);
}

void WindowCluster::check(const Shape* in) const {
  windows_.check(in[0]);
  if (bias_) windows_.check_bias_table(in[1]);
}

ClusterParams WindowCluster::params(const Shape* in) const {
  ClusterParams result = params_;
  result.shape = windows_.shape(in[0]);
  return result;
}

void WindowCluster::compute(const Tensors& t, const Threads& threads,
                            const Kernels& kernels) const {
  const ClusterParams cluster = params(t.shapes);
  const AlignedFloats bias{size_t(kernels.window_cluster_bias_size(cluster))};
  kernels.window_cluster_bias(cluster, t.type, bias_ ? t.inputs[1] : nullptr, bias.get());
  const WindowClusterParams p{cluster, bias.get()};
  threads.parallel(
      cluster.shape.windows() * cluster.shape.heads, kernels.window_cluster_scratch(cluster),
      [&](int64_t first, int64_t last, float* scratch) {
        return kernels.window_cluster(p, t.type, t.inputs[0], t.outputs[0], first, last, scratch);
      });
}

}  // namespace nystra
