// The kernels of all operators. Made by write_tables.py from
// ../../operators/*/schema.py: change those, and run it.
// clang-format off
#pragma once

#include "pinv.h"
#include "window_softmax.h"
#include "window_overlap.h"
#include "window_nystrom.h"
#include "window_nystromformer.h"
#include "window_cluster.h"
#include "patch_match.h"

// X(result, name, parameters) of every function of an instruction set.
#define NYSTRA_CPU_KERNELS(X) NYSTRA_PINV_CPU(X) NYSTRA_WINDOW_SOFTMAX_CPU(X) NYSTRA_WINDOW_OVERLAP_CPU(X) NYSTRA_WINDOW_NYSTROM_CPU(X) NYSTRA_WINDOW_NYSTROMFORMER_CPU(X) NYSTRA_WINDOW_CLUSTER_CPU(X) NYSTRA_PATCH_MATCH_CPU(X)
