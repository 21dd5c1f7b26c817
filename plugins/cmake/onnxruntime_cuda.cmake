# ---- libnystra_onnxruntime_cuda.so: ONNX Runtime custom ops on the CPU and on CUDA devices, where the
# ---- CUDA kernels are built. A session registers it in place of libnystra_onnxruntime.so.
#
# It needs no library of CUDA: the runtime is inside, and is initialized by the first kernel only.
if(NOT TARGET nystra_cuda_kernels)
  return()
endif()
nystra_library(nystra_onnxruntime_cuda exports.map
  csrc/onnxruntime/cuda/register.cc csrc/onnxruntime/cuda/binding.cc)
target_link_libraries(nystra_onnxruntime_cuda
  PRIVATE nystra_onnxruntime_binding nystra_cuda_kernels CUDA::cudart_static)
