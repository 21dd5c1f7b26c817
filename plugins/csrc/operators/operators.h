// The classes of all operators. Made by write_tables.py from
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
