# ---- TensorRT, where the CUDA kernels are built and the headers are (TENSORRT_ROOT).
#
#   libnystra_trt.so              the plugins, for IPluginRegistry::loadLibrary and trtexec --dynamicPlugins
#   libnystra_trt_register10.so   registers them in TensorRT 10 when loaded, for programs that only dlopen
#   libnystra_trt_register11.so   the same for TensorRT 11
#
# Nothing is linked against TensorRT: one binary serves 10.13 to 11 and TensorRT-RTX.
set(NYSTRA_TENSORRT AUTO CACHE STRING "TensorRT plugins: AUTO (where CUDA and the headers are), ON (else an error) or OFF")
set_property(CACHE NYSTRA_TENSORRT PROPERTY STRINGS AUTO ON OFF)
option(NYSTRA_TENSORRT_TESTS "Build the conformance host of the TensorRT plugins, for ctest" OFF)

if(NYSTRA_TENSORRT STREQUAL OFF)
  return()
endif()
if(NOT TARGET nystra_cuda_kernels)
  if(NYSTRA_TENSORRT STREQUAL ON)
    message(FATAL_ERROR "NYSTRA_TENSORRT=ON, but the CUDA kernels are not built: nvcc is needed, see NYSTRA_CUDA")
  endif()
  return()  # the message about CUDA is enough
endif()
find_path(NYSTRA_TENSORRT_INCLUDE NvInferRuntime.h HINTS ${TENSORRT_ROOT} ENV TENSORRT_ROOT PATH_SUFFIXES include)
if(NOT NYSTRA_TENSORRT_INCLUDE)
  if(NYSTRA_TENSORRT STREQUAL ON)
    message(FATAL_ERROR "NYSTRA_TENSORRT=ON, but there is no NvInferRuntime.h: set TENSORRT_ROOT")
  endif()
  message(STATUS "nystra: no NvInferRuntime.h, so no TensorRT plugins (set TENSORRT_ROOT; NYSTRA_TENSORRT=ON makes this an error)")
  return()
endif()

set(tensorrt_exports ${CMAKE_CURRENT_SOURCE_DIR}/cmake/tensorrt_exports.map)

# Adds a library of plugins: exports two functions, needs nothing of TensorRT or CUDA.
function(nystra_tensorrt_library name)
  add_library(${name} SHARED ${ARGN})
  target_link_libraries(${name} PRIVATE nystra_tensorrt nystra_operators nystra_cuda_kernels CUDA::cudart_static)
  target_link_options(${name} PRIVATE -Wl,--version-script=${tensorrt_exports})
  if(NOT NYSTRA_SANITIZE)
    target_link_options(${name} PRIVATE -Wl,--no-undefined)
  endif()
endfunction()

add_library(nystra_tensorrt OBJECT csrc/tensorrt/attributes.cc csrc/tensorrt/plugin.cc csrc/tensorrt/test_limits.cc)
target_link_libraries(nystra_tensorrt PUBLIC nystra_operators)
target_include_directories(nystra_tensorrt SYSTEM PUBLIC ${NYSTRA_TENSORRT_INCLUDE} ${CUDAToolkit_INCLUDE_DIRS})
nystra_tensorrt_library(nystra_trt csrc/tensorrt/creators.cc)
install(TARGETS nystra_trt LIBRARY DESTINATION nystra/plugins)

foreach(major 10 11)
  set(name nystra_trt_register${major})
  add_library(${name} SHARED csrc/tensorrt/register.cc)
  target_compile_definitions(${name} PRIVATE NYSTRA_TENSORRT_MAJOR=${major})
  target_include_directories(${name} SYSTEM PRIVATE ${NYSTRA_TENSORRT_INCLUDE} ${CUDAToolkit_INCLUDE_DIRS})
  target_link_libraries(${name} PRIVATE nystra_trt ${CMAKE_DL_LIBS})
  set_target_properties(${name} PROPERTIES INSTALL_RPATH "\$ORIGIN" BUILD_WITH_INSTALL_RPATH ON)
  install(TARGETS ${name} LIBRARY DESTINATION nystra/plugins)
endforeach()

# ---- The conformance host, and a library with planted faults that shows it can fail.
if(NOT NYSTRA_TENSORRT_TESTS)
  return()
endif()
enable_testing()
set(sources main library examples check_creator check_build check_runtime cases enqueue timing)
set(host ${CMAKE_CURRENT_SOURCE_DIR}/../tests/plugins/tensorrt_host)
list(TRANSFORM sources REPLACE "(.+)" "${host}/\\1.cc")
add_executable(nystra_trt_host ${sources})
target_include_directories(nystra_trt_host SYSTEM PRIVATE ${NYSTRA_TENSORRT_INCLUDE})
target_link_libraries(nystra_trt_host PRIVATE nystra_operators CUDA::cudart_static ${CMAKE_DL_LIBS})
nystra_tensorrt_library(nystra_trt_faulty ${host}/faulty.cc)

add_test(NAME tensorrt_plugins COMMAND nystra_trt_host $<TARGET_FILE:nystra_trt>)
add_test(NAME tensorrt_no_fault COMMAND nystra_trt_host $<TARGET_FILE:nystra_trt_faulty>)
foreach(fault capability clone configure enqueue field format name namespace null outputs serialize shape shape_error
        timing type)
  add_test(NAME tensorrt_fault_${fault} COMMAND nystra_trt_host $<TARGET_FILE:nystra_trt_faulty>)
  # A crash is no failed check: the host must say how many failed.
  set_tests_properties(tensorrt_fault_${fault} PROPERTIES ENVIRONMENT NYSTRA_FAULT=${fault}
    PASS_REGULAR_EXPRESSION "checks of [0-9]+ plugins, [1-9][0-9]* failed")
endforeach()
