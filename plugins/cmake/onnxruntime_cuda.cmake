# ---- libnystra_onnxruntime_cuda.so: ONNX Runtime custom ops on the CPU and on CUDA devices, where
# ---- the CUDA kernels are built. A session registers it in place of libnystra_onnxruntime.so.
#
# It needs no library of CUDA: the runtime is inside, and is initialised by the first kernel only.
if(NOT TARGET nystra_cuda)
  return()
endif()
set(sources register binding pinv window_softmax landmark_windows patch_match)
list(TRANSFORM sources REPLACE "(.+)" "csrc/onnxruntime/cuda/\\1.cc")
nystra_onnxruntime_library(nystra_onnxruntime_cuda ${sources})
target_link_libraries(nystra_onnxruntime_cuda PRIVATE nystra_cuda CUDA::cudart_static)
