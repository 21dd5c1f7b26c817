/* The operators of nystra on CUDA devices, for any program: libnystra_cuda.so. Plain C.
 *
 * As nystra_cpu.h, whose tensors and attributes it takes: data are addresses in the memory of the
 * thread's current device. No function waits for the device or allocates memory there, and all may
 * be captured into a CUDA graph. The library needs a driver, but no other library of CUDA.
 */
#ifndef NYSTRA_CUDA_H
#define NYSTRA_CUDA_H

#include "nystra_cpu.h"

#if !defined(NYSTRA_CUDA_API)
#define NYSTRA_CUDA_API /* what the library itself declares its functions with */
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this interface; nystra_cuda_interface() says which one a library has. */
#define NYSTRA_CUDA_INTERFACE 1

/* The interface of this library, and the version of the nystra it belongs to. */
NYSTRA_CUDA_API int32_t nystra_cuda_interface(void);
NYSTRA_CUDA_API const char* nystra_cuda_version(void);

/* What was wrong with the last call of this thread that did not return NYSTRA_CPU_OK. */
NYSTRA_CUDA_API const char* nystra_cuda_error(void);

/* How many bytes of device memory an operator needs beside its tensors, whose data are not read.
 * Attributes that are left out take their defaults. */
NYSTRA_CUDA_API int32_t nystra_cuda_workspace(const char* name,
                                              const nystra_cpu_attribute* attributes,
                                              size_t attribute_count,
                                              const nystra_cpu_tensor* inputs, size_t input_count,
                                              size_t output_count, size_t* bytes);

/* Puts an operator on a stream (a cudaStream_t; null: the default one) and returns. The outputs
 * are of the types and shapes that the operator has for these inputs, and overlap nothing. The
 * workspace, aligned to 256 bytes, belongs to the call until its work is done; null where the
 * operator needs none. */
NYSTRA_CUDA_API int32_t nystra_cuda_run(const char* name, const nystra_cpu_attribute* attributes,
                                        size_t attribute_count, const nystra_cpu_tensor* inputs,
                                        size_t input_count, const nystra_cpu_tensor* outputs,
                                        size_t output_count, void* workspace, void* stream);

#ifdef __cplusplus
}
#endif

#endif
