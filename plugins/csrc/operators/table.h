// The schemas of all operators. Made by write_tables.py from
// ../../operators/*/schema.py: change those, and run it.
// clang-format off
#pragma once

#include "schema.h"

namespace nystra {

// In relations.cc.
void check_relations_of_WindowSoftmax(const Attributes&);
void check_relations_of_WindowNystrom(const Attributes&);
void check_relations_of_WindowNystromformer(const Attributes&);
void check_relations_of_WindowCluster(const Attributes&);
void check_relations_of_PatchMatch(const Attributes&);

inline constexpr Attribute kPinvAttributes[] = {
    {"iterations", true, 1, 8, 6},
    {"batch_init", true, 0, 1, 0},
    {"revision", true, 1, 1, 1},
};
inline constexpr Schema kPinvSchema = {
    "NystraPinv", "T", "T",
    kPinvAttributes, 3, nullptr,
};

inline constexpr Attribute kWindowSoftmaxAttributes[] = {
    {"heads", true, 1, 1024, kNoDefault},
    {"head_dim", true, 1, 1024, kNoDefault},
    {"value_dim", true, 1, 1024, kNoDefault},
    {"window_h", true, 1, 1024, kNoDefault},
    {"window_w", true, 1, 1024, kNoDefault},
    {"shift_h", true, 0, 1023, 0},
    {"shift_w", true, 0, 1023, 0},
    {"mask", true, 0, 1, 0},
    {"bias", true, 0, 1, 0},
    {"scale", false, 0.0, 1000000.0, kNoDefault},
    {"revision", true, 1, 1, 1},
};
inline constexpr Schema kWindowSoftmaxSchema = {
    "NystraWindowSoftmax", "TT", "T",
    kWindowSoftmaxAttributes, 11, check_relations_of_WindowSoftmax,
};

inline constexpr Attribute kWindowOverlapAttributes[] = {
    {"heads", true, 1, 1024, kNoDefault},
    {"head_dim", true, 1, 1024, kNoDefault},
    {"value_dim", true, 1, 1024, kNoDefault},
    {"window_h", true, 1, 1024, kNoDefault},
    {"window_w", true, 1, 1024, kNoDefault},
    {"margin_h", true, 0, 1024, kNoDefault},
    {"margin_w", true, 0, 1024, kNoDefault},
    {"bias", true, 0, 1, 0},
    {"scale", false, 0.0, 1000000.0, kNoDefault},
    {"revision", true, 1, 1, 1},
};
inline constexpr Schema kWindowOverlapSchema = {
    "NystraWindowOverlap", "TT", "T",
    kWindowOverlapAttributes, 10, nullptr,
};

inline constexpr Attribute kWindowNystromAttributes[] = {
    {"heads", true, 1, 1024, kNoDefault},
    {"head_dim", true, 1, 1024, kNoDefault},
    {"value_dim", true, 1, 1024, kNoDefault},
    {"window_h", true, 1, 1024, kNoDefault},
    {"window_w", true, 1, 1024, kNoDefault},
    {"shift_h", true, 0, 1023, 0},
    {"shift_w", true, 0, 1023, 0},
    {"mask", true, 0, 1, 0},
    {"scale", false, 0.0, 1000000.0, kNoDefault},
    {"landmark_rows", true, 1, 64, 4},
    {"landmark_cols", true, 1, 64, 4},
    {"iterations", true, 1, 8, 6},
    {"batch_init", true, 0, 1, 0},
    {"threshold", false, -30.0, 30.0, 5.0},
    {"guard", false, 0.0, 0.5, 0.02},
    {"revision", true, 1, 1, 1},
};
inline constexpr Schema kWindowNystromSchema = {
    "NystraWindowNystrom", "T", "T",
    kWindowNystromAttributes, 16, check_relations_of_WindowNystrom,
};

inline constexpr Attribute kWindowNystromformerAttributes[] = {
    {"heads", true, 1, 1024, kNoDefault},
    {"head_dim", true, 1, 1024, kNoDefault},
    {"value_dim", true, 1, 1024, kNoDefault},
    {"window_h", true, 1, 1024, kNoDefault},
    {"window_w", true, 1, 1024, kNoDefault},
    {"shift_h", true, 0, 1023, 0},
    {"shift_w", true, 0, 1023, 0},
    {"mask", true, 0, 1, 0},
    {"scale", false, 0.0, 1000000.0, kNoDefault},
    {"landmark_rows", true, 1, 64, 4},
    {"landmark_cols", true, 1, 64, 4},
    {"iterations", true, 1, 8, 6},
    {"batch_init", true, 0, 1, 0},
    {"revision", true, 1, 1, 1},
};
inline constexpr Schema kWindowNystromformerSchema = {
    "NystraWindowNystromformer", "T", "T",
    kWindowNystromformerAttributes, 14, check_relations_of_WindowNystromformer,
};

inline constexpr Attribute kWindowClusterAttributes[] = {
    {"heads", true, 1, 1024, kNoDefault},
    {"head_dim", true, 1, 1024, kNoDefault},
    {"value_dim", true, 1, 1024, kNoDefault},
    {"window_h", true, 1, 1024, kNoDefault},
    {"window_w", true, 1, 1024, kNoDefault},
    {"shift_h", true, 0, 1023, 0},
    {"shift_w", true, 0, 1023, 0},
    {"mask", true, 0, 1, 0},
    {"bias", true, 0, 1, 0},
    {"scale", false, 0.0, 1000000.0, kNoDefault},
    {"cluster_rows", true, 1, 64, 4},
    {"cluster_cols", true, 1, 64, 4},
    {"rounds", true, 0, 2, 0},
    {"block", true, 2, 8, 4},
    {"bias_block", true, 2, 1024, 4},
    {"revision", true, 1, 1, 1},
};
inline constexpr Schema kWindowClusterSchema = {
    "NystraWindowCluster", "TT", "T",
    kWindowClusterAttributes, 16, check_relations_of_WindowCluster,
};

inline constexpr Attribute kPatchMatchAttributes[] = {
    {"patch_size", true, 1, 23, 7},
    {"iterations", true, 1, 16, 5},
    {"neighbors", true, 1, 32, 3},
    {"metric", true, 0, 2, 0},
    {"seed", true, 0, 4095, 0},
    {"revision", true, 1, 1, 1},
};
inline constexpr Schema kPatchMatchSchema = {
    "NystraPatchMatch", "TTTTI", "IT",
    kPatchMatchAttributes, 6, check_relations_of_PatchMatch,
};

}  // namespace nystra

// X(class) of every operator.
#define NYSTRA_OPERATORS(X) X(Pinv) X(WindowSoftmax) X(WindowOverlap) X(WindowNystrom) X(WindowNystromformer) X(WindowCluster) X(PatchMatch)
