// The part of ONNX Runtime's C interface that this package uses. A function is named by its position in the OrtApi
// table: positions are the binary interface and never change, entries are only ever appended.
#ifndef TUTTI_ORT_H
#define TUTTI_ORT_H

#include <stddef.h>
#include <stdint.h>

#define ORT_MIN_API 24  // interface version asked for; a runtime serves every older version

typedef struct OrtStatus OrtStatus;                  // an error; NULL is success
typedef struct OrtEnv OrtEnv;                        // the process-wide state
typedef struct OrtSession OrtSession;                // one loaded model
typedef struct OrtSessionOptions OrtSessionOptions;  // how a model is loaded
typedef struct OrtRunOptions OrtRunOptions;          // how one run behaves
typedef struct OrtValue OrtValue;                    // one tensor
typedef struct OrtTypeInfo OrtTypeInfo;              // the declared type of an input or output
typedef struct OrtTensorInfo OrtTensorInfo;          // element type and shape
typedef struct OrtMemoryInfo OrtMemoryInfo;          // where memory is
typedef struct OrtAllocator OrtAllocator;            // frees what the runtime hands out
typedef struct OrtArenaCfg OrtArenaCfg;              // how an arena grows

// The first thing a library exports, through OrtGetApiBase.
typedef struct {
	void *const *(*GetApi)(uint32_t version);
	const char *(*GetVersionString)(void);
} OrtApiBase;

typedef void (*OrtLogFn)(void *param, int severity, const char *category, const char *id, const char *where,
                         const char *message);

// X(position, result, name, arguments)
#define ORT_FUNCTIONS(X)                                                                                              \
	X(1, int, GetErrorCode, (const OrtStatus *))                         /* error class */                             \
	X(2, const char *, GetErrorMessage, (const OrtStatus *))             /* text, owned by the status */               \
	X(4, OrtStatus *, CreateEnvWithCustomLogger, (OrtLogFn, void *, int, const char *, OrtEnv **)) /* start */         \
	X(7, OrtStatus *, CreateSession, (const OrtEnv *, const char *, const OrtSessionOptions *, OrtSession **))         \
	X(9, OrtStatus *, Run, (OrtSession *, const OrtRunOptions *, const char *const *, const OrtValue *const *, size_t, \
	                        const char *const *, size_t, OrtValue **)) /* inputs, output names, outputs */             \
	X(10, OrtStatus *, CreateSessionOptions, (OrtSessionOptions **))                                                   \
	X(13, OrtStatus *, SetSessionExecutionMode, (OrtSessionOptions *, int)) /* 0 sequential, 1 parallel */             \
	X(16, OrtStatus *, EnableMemPattern, (OrtSessionOptions *))             /* plan memory by shape */                 \
	X(17, OrtStatus *, DisableMemPattern, (OrtSessionOptions *))                                                       \
	X(18, OrtStatus *, EnableCpuMemArena, (OrtSessionOptions *)) /* keep freed memory */                               \
	X(19, OrtStatus *, DisableCpuMemArena, (OrtSessionOptions *))                                                      \
	X(22, OrtStatus *, SetSessionLogSeverityLevel, (OrtSessionOptions *, int)) /* 0 verbose to 4 fatal */              \
	X(23, OrtStatus *, SetSessionGraphOptimizationLevel, (OrtSessionOptions *, int)) /* 0, 1, 2, 3, 99 all */          \
	X(24, OrtStatus *, SetIntraOpNumThreads, (OrtSessionOptions *, int))             /* threads within an operator */  \
	X(25, OrtStatus *, SetInterOpNumThreads, (OrtSessionOptions *, int))             /* threads over operators */      \
	X(30, OrtStatus *, SessionGetInputCount, (const OrtSession *, size_t *))                                           \
	X(31, OrtStatus *, SessionGetOutputCount, (const OrtSession *, size_t *))                                          \
	X(33, OrtStatus *, SessionGetInputTypeInfo, (const OrtSession *, size_t, OrtTypeInfo **))                          \
	X(34, OrtStatus *, SessionGetOutputTypeInfo, (const OrtSession *, size_t, OrtTypeInfo **))                         \
	X(36, OrtStatus *, SessionGetInputName, (const OrtSession *, size_t, OrtAllocator *, char **))                     \
	X(37, OrtStatus *, SessionGetOutputName, (const OrtSession *, size_t, OrtAllocator *, char **))                    \
	X(39, OrtStatus *, CreateRunOptions, (OrtRunOptions **))                                                           \
	X(49, OrtStatus *, CreateTensorWithDataAsOrtValue,                                                                 \
	  (const OrtMemoryInfo *, void *, size_t, const int64_t *, size_t, int, OrtValue **)) /* over caller memory */     \
	X(51, OrtStatus *, GetTensorMutableData, (OrtValue *, void **))                                                    \
	X(55, OrtStatus *, CastTypeInfoToTensorInfo, (const OrtTypeInfo *, const OrtTensorInfo **)) /* view, NULL if not */ \
	X(56, OrtStatus *, GetOnnxTypeFromTypeInfo, (const OrtTypeInfo *, int *))                   /* 1 is tensor */       \
	X(60, OrtStatus *, GetTensorElementType, (const OrtTensorInfo *, int *))                                           \
	X(61, OrtStatus *, GetDimensionsCount, (const OrtTensorInfo *, size_t *))                                          \
	X(62, OrtStatus *, GetDimensions, (const OrtTensorInfo *, int64_t *, size_t))                                      \
	X(63, OrtStatus *, GetSymbolicDimensions, (const OrtTensorInfo *, const char **, size_t)) /* "" where unnamed */    \
	X(65, OrtStatus *, GetTensorTypeAndShape, (const OrtValue *, OrtTensorInfo **))           /* of a value */          \
	X(69, OrtStatus *, CreateCpuMemoryInfo, (int, int, OrtMemoryInfo **))                     /* allocator, memory */   \
	X(76, OrtStatus *, AllocatorFree, (OrtAllocator *, void *))                                                        \
	X(78, OrtStatus *, GetAllocatorWithDefaultOptions, (OrtAllocator **)) /* shared, never released */                 \
	X(92, void, ReleaseEnv, (OrtEnv *))                                                                                \
	X(93, void, ReleaseStatus, (OrtStatus *))                                                                          \
	X(94, void, ReleaseMemoryInfo, (OrtMemoryInfo *))                                                                  \
	X(95, void, ReleaseSession, (OrtSession *))                                                                        \
	X(96, void, ReleaseValue, (OrtValue *))                                                                            \
	X(97, void, ReleaseRunOptions, (OrtRunOptions *))                                                                  \
	X(98, void, ReleaseTypeInfo, (OrtTypeInfo *))                                                                      \
	X(99, void, ReleaseTensorInfo, (OrtTensorInfo *)) /* ReleaseTensorTypeAndShapeInfo */                              \
	X(100, void, ReleaseSessionOptions, (OrtSessionOptions *))                                                         \
	X(130, OrtStatus *, AddSessionConfigEntry, (OrtSessionOptions *, const char *, const char *))                      \
	X(144, OrtStatus *, CreateAndRegisterAllocator, (OrtEnv *, const OrtMemoryInfo *, const OrtArenaCfg *))            \
	X(157, void, ReleaseArenaCfg, (OrtArenaCfg *))                                                                     \
	X(164, OrtStatus *, CreateArenaCfgV2, (const char *const *, const size_t *, size_t, OrtArenaCfg **))               \
	X(165, OrtStatus *, AddRunConfigEntry, (OrtRunOptions *, const char *, const char *))

// The functions above, taken out of the table once.
typedef struct {
#define X(position, result, name, args) result(*name) args;
	ORT_FUNCTIONS(X)
#undef X
} OrtFunctions;

#endif
