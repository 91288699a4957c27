// Calls of TensorRT's runtime library. Its objects are C++ with virtual functions; their binary interface is declared
// here by hand, as slots of the tables of virtual functions, so that a build needs no TensorRT header and a program no
// C++ compiler. The slots are those of a major version: see docs/decisions/029-tensorrt-interface.md.
//
// An object (IRuntime, ICudaEngine, IExecutionContext) is two pointers: the table with its destructors, and its
// implementation. The implementation's first word is its table: two slots of destructors, then the functions in the
// order of the class VRuntime, VCudaEngine or VExecutionContext.
#ifndef TUTTI_TENSORRT_H
#define TUTTI_TENSORRT_H

#include <stddef.h>
#include <stdint.h>

#define TT_TRT_TEXT 1024
#define TT_TRT_RANK 8

// X(class, function, slot in TensorRT 10, slot in TensorRT 11). -1: the major version has no such function.
#define TT_TRT_SLOTS(X) \
	X(VRuntime, deserializeCudaEngine, 3, 3) \
	X(VRuntime, setEngineHostCodeAllowed, 21, 20) \
	X(VCudaEngine, createExecutionContext, 5, 5) \
	X(VCudaEngine, getNbOptimizationProfiles, 10, 8) \
	X(VCudaEngine, getProfileTensorValues, 11, -1) \
	X(VCudaEngine, hasImplicitBatchDimension, 15, -1) \
	X(VCudaEngine, getTensorShape, 19, 15) \
	X(VCudaEngine, getTensorDataType, 20, 16) \
	X(VCudaEngine, getTensorLocation, 21, 17) \
	X(VCudaEngine, isShapeInferenceIO, 22, 18) \
	X(VCudaEngine, getTensorIOMode, 23, 19) \
	X(VCudaEngine, getProfileShape, 29, 25) \
	X(VCudaEngine, getNbIOTensors, 30, 26) \
	X(VCudaEngine, getIOTensorName, 31, 27) \
	X(VCudaEngine, getTensorFormatV2, 36, 32) \
	X(VCudaEngine, getTensorFormatDescV2, 37, 33) \
	X(VCudaEngine, getDeviceMemorySizeForProfileV2, 53, 45) \
	X(VCudaEngine, getProfileTensorValuesV2, 54, 46) \
	X(VCudaEngine, getAliasedInputTensor, 58, 50) \
	X(VExecutionContext, setOptimizationProfileAsync, 17, 16) \
	X(VExecutionContext, setInputShape, 21, 20) \
	X(VExecutionContext, getTensorShape, 22, 21) \
	X(VExecutionContext, setTensorAddress, 24, 23) \
	X(VExecutionContext, inferShapes, 28, 27) \
	X(VExecutionContext, setOutputAllocator, 32, 31) \
	X(VExecutionContext, enqueueV3, 37, 36) \
	X(VExecutionContext, setDeviceMemoryV2, 49, 48)

enum {
#define X(class, function, ten, eleven) TT_##class##_##function,
	TT_TRT_SLOTS(X)
#undef X
	TT_TRT_FUNCTIONS
};

// The values of TensorRT's enumerations that the package uses.
enum { TT_TRT_INPUT = 1, TT_TRT_ON_HOST = 1, TT_TRT_LINEAR = 0, TT_TRT_USER_MANAGED = 2 };
enum { TT_TRT_INTERNAL_ERROR, TT_TRT_ERROR, TT_TRT_WARNING, TT_TRT_INFO, TT_TRT_VERBOSE };

// Dims64 of TensorRT.
typedef struct {
	int32_t rank;
	int64_t d[TT_TRT_RANK];
} tt_trt_dims;

// The library's exported functions.
typedef struct {
	int32_t (*version)(void);                        // getInferLibVersion
	void *(*create)(void *logger, int32_t version);  // createInferRuntime_INTERNAL
	int32_t number;                                  // what version returned
	int32_t major, minor;
} tt_trt_library;

// How a thread gets the CUDA context in which a runtime works. set is the driver's cuCtxSetCurrent.
typedef struct {
	int (*set)(void *context);
	void *context;
} tt_trt_device;

// A runtime at a device with its log. It is safe for many threads.
typedef struct tt_trt_runtime tt_trt_runtime;

// What a plan says of a tensor. The texts belong to the engine.
typedef struct {
	const char *name, *format, *alias;
	int32_t output, type, host, shape, linear;
	tt_trt_dims dims;
} tt_trt_tensor;

// One tensor of a run.
typedef struct {
	const char *name;
	void *data;       // its address in this run; outputs may have none, then TensorRT asks for memory
	tt_trt_dims dims; // inputs: of this run; outputs: what TensorRT says
	int32_t changed;  // inputs: dims differ from those of the run before
	int32_t allocates; // outputs: TensorRT asks for memory, see tt_trt_run.owner
} tt_trt_value;

// An output allocator of TensorRT's, and where it belongs.
typedef struct {
	const void *table;
	struct tt_trt_run *run;
	int32_t index;
} tt_trt_allocator;

// The scratch of one execution context, in C memory, reused by every run.
typedef struct tt_trt_run {
	tt_trt_runtime *runtime;
	void *context;
	tt_trt_value *in, *out;
	tt_trt_allocator *allocators;
	int32_t ins, outs;
	int32_t infer;    // shape tensors need inferShapes
	int32_t memory;   // setDeviceMemoryV2 follows
	void *scratch;
	int64_t bytes;
	void *stream;
	uintptr_t owner;  // what tttrtAllocate gets
	int32_t logged;   // messages wait in the runtime's log
	char why[TT_TRT_TEXT];
} tt_trt_run;

// Opens the library's functions; a NULL result is success, else the reason.
const char *tttrt_open(tt_trt_library *l);
// Calls initLibNvInferPlugins, which registers TensorRT's own plugins.
int tttrt_register(const tt_trt_library *l, void *init_plugins);
// What a failed call says is written to why, of TT_TRT_TEXT bytes.
tt_trt_runtime *tttrt_runtime(const tt_trt_library *l, const tt_trt_device *d, char *why);
void tttrt_runtime_free(tt_trt_runtime *r);
// Takes the oldest message of the runtime's log; 0 when there is none. The severity is TensorRT's.
int tttrt_log(tt_trt_runtime *r, char *text, int *severity);

void *tttrt_engine(tt_trt_runtime *r, const void *plan, size_t n, int host_code, char *why);
void tttrt_engine_free(tt_trt_runtime *r, void *engine);
void tttrt_engine_counts(tt_trt_runtime *r, void *engine, int32_t *tensors, int32_t *profiles, int32_t *implicit);
void tttrt_tensor(tt_trt_runtime *r, void *engine, int32_t i, tt_trt_tensor *t);
// The smallest, best and largest shape of an input in a profile.
void tttrt_profile(tt_trt_runtime *r, void *engine, const char *name, int32_t profile, tt_trt_dims shapes[3]);
// The same of the n values of a shape tensor, in that order. Nonzero when the plan has none.
int tttrt_profile_values(tt_trt_runtime *r, void *engine, const char *name, int32_t profile, int32_t n, int64_t *values);
int64_t tttrt_memory(tt_trt_runtime *r, void *engine, int32_t profile);

// Makes an execution context of a profile, whose memory the caller gives.
tt_trt_run *tttrt_run_new(tt_trt_runtime *r, void *engine, int32_t profile, int32_t ins, int32_t outs, void *stream, char *why);
void tttrt_run_free(tt_trt_run *c);
// Sets addresses and shapes of the inputs and finds the shapes of the outputs.
int tttrt_shapes(tt_trt_run *c);
// Sets the addresses of the outputs and puts the run into the stream.
int tttrt_enqueue(tt_trt_run *c);

// The slot of a function: for the test that compares it with TensorRT's header.
int tttrt_slot(int major, int function, const char **class, const char **name);

#endif
