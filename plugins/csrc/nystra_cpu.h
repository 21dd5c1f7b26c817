/* The operators of nystra on the CPU, for any program: libnystra_cpu.so. Plain C.
 *
 * An operator is named by its node type ("NystraPinv") and runs on contiguous tensors, all of its
 * kind T of one type. What it takes and means: plugins/operators/<name>/schema.py. Every function
 * may be called from several threads at once; a list may be null where its count is 0. Threads are
 * kept from one call to the next, so the library stays in memory once it was loaded; a forked
 * process starts with none.
 */
#ifndef NYSTRA_CPU_H
#define NYSTRA_CPU_H

#include <stddef.h>
#include <stdint.h>

#if !defined(NYSTRA_CPU_API)
#define NYSTRA_CPU_API /* what the library itself declares its functions with */
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this interface; nystra_cpu_interface() says which one a library has. */
#define NYSTRA_CPU_INTERFACE 2
#define NYSTRA_CPU_MAX_RANK 8

enum nystra_cpu_status {
  NYSTRA_CPU_OK = 0,
  NYSTRA_CPU_REFUSED = 1, /* bad input: nystra_cpu_error() says what was got and expected */
  NYSTRA_CPU_FAILED = 2   /* no memory, or no thread: nystra_cpu_error() says which */
};

enum nystra_cpu_type {
  NYSTRA_CPU_FLOAT32 = 0,
  NYSTRA_CPU_FLOAT16 = 1,
  NYSTRA_CPU_BFLOAT16 = 2, /* sums are float32 */
  NYSTRA_CPU_INT32 = 3
};

/* An attribute: `integer` of an INT, `number` of a FLOAT. */
typedef struct nystra_cpu_attribute {
  const char* name;
  int32_t is_number;
  int64_t integer;
  double number;
} nystra_cpu_attribute;

typedef struct nystra_cpu_tensor {
  void* data; /* contiguous, aligned to its elements; inputs are only read */
  int32_t type;
  int32_t rank;
  int64_t shape[NYSTRA_CPU_MAX_RANK];
} nystra_cpu_tensor;

/* The interface of this library, and the version of the nystra it belongs to. */
NYSTRA_CPU_API int32_t nystra_cpu_interface(void);
NYSTRA_CPU_API const char* nystra_cpu_version(void);

/* The instruction set in use; null where the one that NYSTRA_CPU_ISA names cannot run here. */
const char* nystra_isa(void);

/* What was wrong with the last call of this thread that did not return NYSTRA_CPU_OK. */
NYSTRA_CPU_API const char* nystra_cpu_error(void);

/* Fills in type, rank and shape of the outputs of an operator on these inputs, whose data are not
 * read. Attributes that are left out take their defaults. */
NYSTRA_CPU_API int32_t nystra_cpu_outputs(const char* name, const nystra_cpu_attribute* attributes,
                                          size_t attribute_count, const nystra_cpu_tensor* inputs,
                                          size_t input_count, nystra_cpu_tensor* outputs,
                                          size_t output_count);

/* Runs an operator on up to `threads` threads, the caller's among them.
 * The outputs are of the types and shapes that nystra_cpu_outputs says, and overlap nothing. */
NYSTRA_CPU_API int32_t nystra_cpu_run(const char* name, const nystra_cpu_attribute* attributes,
                                      size_t attribute_count, const nystra_cpu_tensor* inputs,
                                      size_t input_count, const nystra_cpu_tensor* outputs,
                                      size_t output_count, int32_t threads);

#ifdef __cplusplus
}
#endif

#endif
