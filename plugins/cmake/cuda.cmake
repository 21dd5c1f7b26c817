# ---- CUDA. nystra_cuda_kernels: a static library of the kernels (csrc/kernels/cuda), where nvcc works.
#
# nvcc is that of CUDACXX or -DCMAKE_CUDA_COMPILER, else of CUDA_HOME or CUDA_PATH, else the one on
# PATH, else /usr/local/cuda. Nothing here needs a GPU.
set(NYSTRA_CUDA AUTO CACHE STRING "CUDA kernels: AUTO (where nvcc works), ON (else an error) or OFF")
set_property(CACHE NYSTRA_CUDA PROPERTY STRINGS AUTO ON OFF)
set(NYSTRA_CUDA_ARCHITECTURES 75-real 80-real 86-real 87-real 89-real 90-real 100-real 110-real 120
  CACHE STRING "GPU architectures the CUDA kernels are built for; the last also as PTX, for newer ones")

if(NYSTRA_CUDA STREQUAL OFF)
  return()
endif()
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(NYSTRA_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
  if(NYSTRA_NVCC)
    set(ENV{CUDACXX} ${NYSTRA_NVCC})
  endif()
endif()
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  if(NYSTRA_CUDA STREQUAL ON)
    message(FATAL_ERROR "NYSTRA_CUDA=ON, but no working nvcc was found: put nvcc on PATH or set CUDACXX")
  endif()
  message(STATUS "nystra: CUDA kernels skipped, no working nvcc (NYSTRA_CUDA=ON makes this an error)")
  return()
endif()
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES ${NYSTRA_CUDA_ARCHITECTURES})
endif()
enable_language(CUDA)
set(CMAKE_CUDA_STANDARD 17)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
find_package(CUDAToolkit REQUIRED)

list(TRANSFORM cuda_operators REPLACE "(.+)" "csrc/kernels/cuda/\\1.cu" OUTPUT_VARIABLE sources)
add_library(nystra_cuda_kernels STATIC ${sources})
# In place of the options for C++, which nvcc does not know.
set_target_properties(nystra_cuda_kernels PROPERTIES COMPILE_OPTIONS "-Xcompiler=-Wall,-Wextra")
if(NYSTRA_WERROR)
  target_compile_options(nystra_cuda_kernels PRIVATE "SHELL:-Werror all-warnings" -Xcompiler=-Werror)
endif()
target_link_libraries(nystra_cuda_kernels PUBLIC CUDA::cudart_static)
