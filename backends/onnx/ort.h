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

// The first thing a library exports, through OrtGetApiBase.
typedef struct {
	void *const *(*GetApi)(uint32_t version);
	const char *(*GetVersionString)(void);
} OrtApiBase;

typedef void (*OrtLogFn)(void *param, int severity, const char *category, const char *id, const char *where,
                         const char *message);

// X(position, result, name, arguments)
#define ORT_FUNCTIONS(X) \
	X(1, int, GetErrorCode, (const OrtStatus *)) /* error class */ \
	X(2, const char *, GetErrorMessage, (const OrtStatus *)) /* text, owned by the status */ \
	X(4, OrtStatus *, CreateEnvWithCustomLogger, (OrtLogFn, void *, int, const char *, OrtEnv **)) /* start */ \
	X(7, OrtStatus *, CreateSession, (const OrtEnv *, const char *, const OrtSessionOptions *, OrtSession **)) /* load a model file */ \
	X(9, OrtStatus *, Run, (OrtSession *, const OrtRunOptions *, const char *const *, const OrtValue *const *, size_t, \
	                        const char *const *, size_t, OrtValue **)) /* inputs, output names, outputs */ \
	X(10, OrtStatus *, CreateSessionOptions, (OrtSessionOptions **)) /* all defaults */ \
	X(13, OrtStatus *, SetSessionExecutionMode, (OrtSessionOptions *, int)) /* 0 sequential, 1 parallel */ \
	X(16, OrtStatus *, EnableMemPattern, (OrtSessionOptions *)) /* plan memory by shape */ \
	X(17, OrtStatus *, DisableMemPattern, (OrtSessionOptions *)) /* allocate as it goes */ \
	X(18, OrtStatus *, EnableCpuMemArena, (OrtSessionOptions *)) /* keep freed memory */ \
	X(19, OrtStatus *, DisableCpuMemArena, (OrtSessionOptions *)) /* free at once */ \
	X(22, OrtStatus *, SetSessionLogSeverityLevel, (OrtSessionOptions *, int)) /* 0 verbose to 4 fatal */ \
	X(23, OrtStatus *, SetSessionGraphOptimizationLevel, (OrtSessionOptions *, int)) /* 0, 1, 2, 3, 99 all */ \
	X(24, OrtStatus *, SetIntraOpNumThreads, (OrtSessionOptions *, int)) /* threads within an operator */ \
	X(25, OrtStatus *, SetInterOpNumThreads, (OrtSessionOptions *, int)) /* threads over operators */ \
	X(30, OrtStatus *, SessionGetInputCount, (const OrtSession *, size_t *)) /* of required inputs */ \
	X(31, OrtStatus *, SessionGetOutputCount, (const OrtSession *, size_t *)) /* of outputs */ \
	X(33, OrtStatus *, SessionGetInputTypeInfo, (const OrtSession *, size_t, OrtTypeInfo **)) /* of input i, caller releases */ \
	X(34, OrtStatus *, SessionGetOutputTypeInfo, (const OrtSession *, size_t, OrtTypeInfo **)) /* of output i, caller releases */ \
	X(36, OrtStatus *, SessionGetInputName, (const OrtSession *, size_t, OrtAllocator *, char **)) /* caller frees */ \
	X(37, OrtStatus *, SessionGetOutputName, (const OrtSession *, size_t, OrtAllocator *, char **)) /* caller frees */ \
	X(39, OrtStatus *, CreateRunOptions, (OrtRunOptions **)) /* all defaults */ \
	X(49, OrtStatus *, CreateTensorWithDataAsOrtValue, \
	  (const OrtMemoryInfo *, void *, size_t, const int64_t *, size_t, int, OrtValue **)) /* over caller memory */ \
	X(51, OrtStatus *, GetTensorMutableData, (OrtValue *, void **)) /* address of the elements */ \
	X(55, OrtStatus *, CastTypeInfoToTensorInfo, (const OrtTypeInfo *, const OrtTensorInfo **)) /* view, NULL if not */ \
	X(56, OrtStatus *, GetOnnxTypeFromTypeInfo, (const OrtTypeInfo *, int *)) /* 1 is tensor */ \
	X(60, OrtStatus *, GetTensorElementType, (const OrtTensorInfo *, int *)) /* number, see types.go */ \
	X(61, OrtStatus *, GetDimensionsCount, (const OrtTensorInfo *, size_t *)) /* rank */ \
	X(62, OrtStatus *, GetDimensions, (const OrtTensorInfo *, int64_t *, size_t)) /* -1 where variable */ \
	X(63, OrtStatus *, GetSymbolicDimensions, (const OrtTensorInfo *, const char **, size_t)) /* "" where unnamed */ \
	X(65, OrtStatus *, GetTensorTypeAndShape, (const OrtValue *, OrtTensorInfo **)) /* of a value */ \
	X(69, OrtStatus *, CreateCpuMemoryInfo, (int, int, OrtMemoryInfo **)) /* allocator, memory */ \
	X(76, OrtStatus *, AllocatorFree, (OrtAllocator *, void *)) /* what the runtime handed out */ \
	X(78, OrtStatus *, GetAllocatorWithDefaultOptions, (OrtAllocator **)) /* shared, never released */ \
	X(92, void, ReleaseEnv, (OrtEnv *)) /* the last one ends the runtime */ \
	X(93, void, ReleaseStatus, (OrtStatus *)) /* with its text */ \
	X(94, void, ReleaseMemoryInfo, (OrtMemoryInfo *)) /* caller's */ \
	X(95, void, ReleaseSession, (OrtSession *)) /* unload */ \
	X(96, void, ReleaseValue, (OrtValue *)) /* and the memory it owns */ \
	X(97, void, ReleaseRunOptions, (OrtRunOptions *)) /* caller's */ \
	X(98, void, ReleaseTypeInfo, (OrtTypeInfo *)) /* with the views into it */ \
	X(99, void, ReleaseTensorInfo, (OrtTensorInfo *)) /* ReleaseTensorTypeAndShapeInfo */ \
	X(100, void, ReleaseSessionOptions, (OrtSessionOptions *)) /* caller's */ \
	X(130, OrtStatus *, AddSessionConfigEntry, (OrtSessionOptions *, const char *, const char *)) /* key, value */ \
	X(165, OrtStatus *, AddRunConfigEntry, (OrtRunOptions *, const char *, const char *)) /* key, value */

// The functions above, taken out of the table once.
typedef struct {
#define X(position, result, name, args) result(*name) args;
	ORT_FUNCTIONS(X)
#undef X
} OrtFunctions;

#endif
