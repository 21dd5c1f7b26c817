// The kernel table of each instruction set, made from functions of one name in its namespace.
#pragma once

#include "kernels.h"

#define NYSTRA_DECLARE_KERNELS(set)                                                                \
  namespace nystra::set {                                                                          \
  int64_t pinv_scratch(const PinvParams&);                                                         \
  Status pinv_maxima(const PinvParams&, Type, const void*, int64_t, int64_t, float*,               \
                     BatchMaxima*);                                                                \
  Status pinv(const PinvParams&, Type, const void*, const BatchMaxima&, void*, int64_t, int64_t,   \
              float*);                                                                             \
  int64_t window_softmax_tasks(const WindowShape&);                                                \
  int64_t window_softmax_scratch(const WindowShape&);                                              \
  int64_t window_softmax_bias_size(const WindowShape&);                                            \
  void window_softmax_bias(const WindowShape&, Type, const void*, float*);                         \
  Status window_softmax(const WindowSoftmaxParams&, Type, const void*, void*, int64_t, int64_t,    \
                        float*);                                                                   \
  int64_t window_nystrom_scratch(const LandmarkParams&);                                           \
  Status window_nystrom_maxima(const LandmarkParams&, Type, const void*, int64_t, int64_t, float*, \
                               BatchMaxima*);                                                      \
  Status window_nystrom(const LandmarkParams&, Type, const void*, const BatchMaxima&, void*,       \
                        int64_t, int64_t, float*);                                                 \
  int64_t window_nystromformer_scratch(const LandmarkParams&);                                     \
  Status window_nystromformer_maxima(const LandmarkParams&, Type, const void*, int64_t, int64_t,   \
                                     float*, BatchMaxima*);                                        \
  Status window_nystromformer(const LandmarkParams&, Type, const void*, const BatchMaxima&, void*, \
                              int64_t, int64_t, float*);                                           \
  int64_t patch_match_workspace(const PatchMatchParams&);                                          \
  int64_t patch_match_steps(const PatchMatchParams&);                                              \
  int64_t patch_match_tasks(const PatchMatchParams&, int64_t);                                     \
  Status patch_match(const PatchMatchParams&, Type, const PatchMatchMaps&, int64_t, int64_t,       \
                     int64_t, float*);                                                             \
  }

NYSTRA_DECLARE_KERNELS(generic)
NYSTRA_DECLARE_KERNELS(avx2)
NYSTRA_DECLARE_KERNELS(avx512)

#undef NYSTRA_DECLARE_KERNELS
