// The part of ONNX Runtime's C interface that this package uses. A function is named by its position in the OrtApi
// table: positions are the binary interface and never change, entries are only ever appended.
#ifndef TUTTI_ORT_H
#define TUTTI_ORT_H

#include <stddef.h>
#include <stdint.h>

#define ORT_MIN_API 24  // requested interface version; a runtime supports every older one

typedef struct OrtStatus OrtStatus;                  // an error; NULL is success
typedef struct OrtEnv OrtEnv;                        // the process-wide state
typedef struct OrtSession OrtSession;                // one loaded model
typedef struct OrtSessionOptions OrtSessionOptions;  // how a model is loaded
typedef struct OrtRunOptions OrtRunOptions;          // how one run behaves
typedef struct OrtValue OrtValue;                    // one tensor
typedef struct OrtTypeInfo OrtTypeInfo;              // the declared type of an input or output
typedef struct OrtTensorInfo OrtTensorInfo;          // element type and shape
typedef struct OrtMemoryInfo OrtMemoryInfo;          // where memory is
typedef struct OrtAllocator OrtAllocator;            // allocates, and frees what the runtime hands out
typedef struct OrtArenaCfg OrtArenaCfg;              // how an arena grows
typedef struct OrtThreads OrtThreads;                // the size of pools that all sessions share
typedef struct OrtBinding OrtBinding;                // inputs and outputs of a session, at places
typedef struct OrtCuda OrtCuda;                      // settings of the CUDA provider
typedef struct OrtTensorRT OrtTensorRT;              // settings of the TensorRT provider
typedef struct OrtSyncStream OrtSyncStream;          // a stream of a device

// An allocator that the runtime calls. Its members are those of interface version 23.
struct OrtAllocator {
	uint32_t version;
	void *(*Alloc)(OrtAllocator *, size_t);
	void (*Free)(OrtAllocator *, void *);
	const OrtMemoryInfo *(*Info)(const OrtAllocator *);
	void *(*Reserve)(OrtAllocator *, size_t);                       // for memory of the session's life; may be NULL
	OrtStatus *(*GetStats)(const OrtAllocator *, void **);          // may be NULL
	void *(*AllocOnStream)(OrtAllocator *, size_t, OrtSyncStream *);  // for work on the stream; may be NULL
};

// The first thing a library exports, through OrtGetApiBase.
typedef struct {
	void *const *(*GetApi)(uint32_t version);
	const char *(*GetVersionString)(void);
} OrtApiBase;

typedef void (*OrtLogFn)(void *param, int severity, const char *category, const char *id, const char *where,
                         const char *message);

// X(position, result, name, arguments)
#define ORT_FUNCTIONS(X) \
	X(0, OrtStatus *, CreateStatus, (int, const char *)) /* an error of our own */ \
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
	X(46, OrtStatus *, RunOptionsSetTerminate, (OrtRunOptions *)) /* stops runs that use it, from any thread */ \
	X(47, OrtStatus *, RunOptionsUnsetTerminate, (OrtRunOptions *)) /* usable again */ \
	X(48, OrtStatus *, CreateTensorAsOrtValue, (OrtAllocator *, const int64_t *, size_t, int, OrtValue **)) /* own memory */ \
	X(49, OrtStatus *, CreateTensorWithDataAsOrtValue, \
	  (const OrtMemoryInfo *, void *, size_t, const int64_t *, size_t, int, OrtValue **)) /* over caller memory */ \
	X(51, OrtStatus *, GetTensorMutableData, (OrtValue *, void **)) /* address of the elements */ \
	X(53, OrtStatus *, GetStringTensorDataLength, (const OrtValue *, size_t *)) /* of all strings together */ \
	X(54, OrtStatus *, GetStringTensorContent, (const OrtValue *, void *, size_t, size_t *, size_t)) /* strings, starts */ \
	X(55, OrtStatus *, CastTypeInfoToTensorInfo, (const OrtTypeInfo *, const OrtTensorInfo **)) /* view, NULL if not */ \
	X(56, OrtStatus *, GetOnnxTypeFromTypeInfo, (const OrtTypeInfo *, int *)) /* 1 is tensor */ \
	X(60, OrtStatus *, GetTensorElementType, (const OrtTensorInfo *, int *)) /* number, see types.go */ \
	X(61, OrtStatus *, GetDimensionsCount, (const OrtTensorInfo *, size_t *)) /* rank */ \
	X(62, OrtStatus *, GetDimensions, (const OrtTensorInfo *, int64_t *, size_t)) /* -1 where variable */ \
	X(63, OrtStatus *, GetSymbolicDimensions, (const OrtTensorInfo *, const char **, size_t)) /* "" where unnamed */ \
	X(65, OrtStatus *, GetTensorTypeAndShape, (const OrtValue *, OrtTensorInfo **)) /* of a value */ \
	X(68, OrtStatus *, CreateMemoryInfo, (const char *, int, int, int, OrtMemoryInfo **)) /* name, allocator, device, memory */ \
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
	X(120, OrtStatus *, DisablePerSessionThreads, (OrtSessionOptions *)) /* use the shared pools */ \
	X(121, OrtStatus *, CreateThreadingOptions, (OrtThreads **)) /* all defaults */ \
	X(122, void, ReleaseThreadingOptions, (OrtThreads *)) /* caller's */ \
	X(125, OrtStatus *, GetAvailableProviders, (char ***, int *)) /* names this library was built with */ \
	X(126, OrtStatus *, ReleaseAvailableProviders, (char **, int)) /* caller's */ \
	X(130, OrtStatus *, AddSessionConfigEntry, (OrtSessionOptions *, const char *, const char *)) /* key, value */ \
	X(133, OrtStatus *, RunWithBinding, (OrtSession *, const OrtRunOptions *, const OrtBinding *)) /* over what is bound */ \
	X(134, OrtStatus *, CreateIoBinding, (OrtSession *, OrtBinding **)) /* empty */ \
	X(135, void, ReleaseIoBinding, (OrtBinding *)) /* caller's */ \
	X(136, OrtStatus *, BindInput, (OrtBinding *, const char *, const OrtValue *)) /* shares the tensor */ \
	X(137, OrtStatus *, BindOutput, (OrtBinding *, const char *, const OrtValue *)) /* shares the tensor */ \
	X(138, OrtStatus *, BindOutputToDevice, (OrtBinding *, const char *, const OrtMemoryInfo *)) /* runtime allocates there */ \
	X(140, OrtStatus *, GetBoundOutputValues, (const OrtBinding *, OrtAllocator *, OrtValue ***, size_t *)) /* in bound order */ \
	X(141, void, ClearBoundInputs, (OrtBinding *)) /* lets the tensors go */ \
	X(142, void, ClearBoundOutputs, (OrtBinding *)) /* lets the tensors go */ \
	X(144, OrtStatus *, CreateAndRegisterAllocator, (OrtEnv *, const OrtMemoryInfo *, const OrtArenaCfg *)) /* one for all sessions */ \
	X(147, OrtStatus *, SetGlobalIntraOpNumThreads, (OrtThreads *, int)) /* threads within an operator */ \
	X(148, OrtStatus *, SetGlobalInterOpNumThreads, (OrtThreads *, int)) /* threads over operators */ \
	X(149, OrtStatus *, SetGlobalSpinControl, (OrtThreads *, int)) /* 0: threads sleep when idle */ \
	X(151, OrtStatus *, CreateEnvWithCustomLoggerAndGlobalThreadPools, \
	  (OrtLogFn, void *, int, const char *, const OrtThreads *, OrtEnv **)) /* start with shared pools */ \
	X(157, void, ReleaseArenaCfg, (OrtArenaCfg *)) /* caller's */ \
	X(164, OrtStatus *, CreateArenaCfgV2, (const char *const *, const size_t *, size_t, OrtArenaCfg **)) /* keys, values */ \
	X(165, OrtStatus *, AddRunConfigEntry, (OrtRunOptions *, const char *, const char *)) /* key, value */ \
	X(170, OrtStatus *, SessionOptionsAppendExecutionProvider_TensorRT_V2, (OrtSessionOptions *, const OrtTensorRT *)) /* try it next */ \
	X(171, OrtStatus *, CreateTensorRTProviderOptions, (OrtTensorRT **)) /* all defaults */ \
	X(172, OrtStatus *, UpdateTensorRTProviderOptions, (OrtTensorRT *, const char *const *, const char *const *, size_t)) /* keys, values */ \
	X(174, void, ReleaseTensorRTProviderOptions, (OrtTensorRT *)) /* caller's */ \
	X(176, OrtStatus *, RegisterAllocator, (OrtEnv *, OrtAllocator *)) /* ours, for all sessions that use the environment's */ \
	X(177, OrtStatus *, UnregisterAllocator, (OrtEnv *, const OrtMemoryInfo *)) /* sessions and tensors keep it until they end */ \
	X(204, OrtStatus *, SessionOptionsAppendExecutionProvider_CUDA_V2, (OrtSessionOptions *, const OrtCuda *)) /* try it next */ \
	X(205, OrtStatus *, CreateCUDAProviderOptions, (OrtCuda **)) /* all defaults */ \
	X(206, OrtStatus *, UpdateCUDAProviderOptions, (OrtCuda *, const char *const *, const char *const *, size_t)) /* keys, values */ \
	X(208, void, ReleaseCUDAProviderOptions, (OrtCuda *)) /* caller's */ \
	X(216, OrtStatus *, SessionOptionsAppendExecutionProvider, \
	  (OrtSessionOptions *, const char *, const char *const *, const char *const *, size_t)) /* by name: keys, values */ \
	X(225, void, MemoryInfoGetDeviceType, (const OrtMemoryInfo *, int *)) /* 0 is the host */ \
	X(228, OrtStatus *, RegisterCustomOpsLibrary_V2, (OrtSessionOptions *, const char *)) /* stays open with the session */ \
	X(252, OrtStatus *, GetResizedStringTensorElementBuffer, (OrtValue *, size_t, size_t, char **)) /* string i, length, memory */ \
	X(275, OrtStatus *, SessionOptionsAppendExecutionProvider_OpenVINO_V2, \
	  (OrtSessionOptions *, const char *const *, const char *const *, size_t)) /* keys, values */ \
	X(293, OrtStatus *, SessionOptionsSetLoadCancellationFlag, (OrtSessionOptions *, _Bool)) /* stops loading, from any thread */ \
	X(380, OrtStatus *, SessionGetMemoryInfoForInputs, (const OrtSession *, const OrtMemoryInfo **, size_t)) /* where each is read */ \
	X(381, OrtStatus *, SessionGetMemoryInfoForOutputs, (const OrtSession *, const OrtMemoryInfo **, size_t)) /* where each is made */ \
	X(384, void *, SyncStream_GetHandle, (OrtSyncStream *)) /* the CUstream */

// The functions above, taken out of the table once.
typedef struct {
#define X(position, result, name, args) result(*name) args;
	ORT_FUNCTIONS(X)
#undef X
} OrtFunctions;

#endif
