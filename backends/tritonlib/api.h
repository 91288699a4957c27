// The parts of Triton's backend API that this server provides to backend libraries: names, signatures and values as documented in the
// repositories "core" and "backend" of triton-inference-server (API version 1.19 of backends, 1.34 of the server). A library that was
// compiled with NVIDIA's headers finds the same binary interface. The libraries under testdata are compiled with this file.
#ifndef TUTTI_TRITON_API_H
#define TUTTI_TRITON_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TRITONBACKEND_API_VERSION_MAJOR 1
#define TRITONBACKEND_API_VERSION_MINOR 19
#define TRITONSERVER_API_VERSION_MAJOR 1
#define TRITONSERVER_API_VERSION_MINOR 34

typedef struct TRITONSERVER_Error TRITONSERVER_Error;
typedef struct TRITONSERVER_Message TRITONSERVER_Message;
typedef struct TRITONSERVER_Parameter TRITONSERVER_Parameter;
typedef struct TRITONSERVER_BufferAttributes TRITONSERVER_BufferAttributes;
typedef struct TRITONSERVER_InferenceTrace TRITONSERVER_InferenceTrace;
typedef struct TRITONSERVER_Server TRITONSERVER_Server;
typedef struct TRITONSERVER_MetricFamily TRITONSERVER_MetricFamily;
typedef struct TRITONSERVER_Metric TRITONSERVER_Metric;
typedef struct TRITONSERVER_MetricArgs TRITONSERVER_MetricArgs;
typedef struct TRITONBACKEND_MemoryManager TRITONBACKEND_MemoryManager;
typedef struct TRITONBACKEND_Input TRITONBACKEND_Input;
typedef struct TRITONBACKEND_Output TRITONBACKEND_Output;
typedef struct TRITONBACKEND_State TRITONBACKEND_State;
typedef struct TRITONBACKEND_Request TRITONBACKEND_Request;
typedef struct TRITONBACKEND_ResponseFactory TRITONBACKEND_ResponseFactory;
typedef struct TRITONBACKEND_Response TRITONBACKEND_Response;
typedef struct TRITONBACKEND_Backend TRITONBACKEND_Backend;
typedef struct TRITONBACKEND_Model TRITONBACKEND_Model;
typedef struct TRITONBACKEND_ModelInstance TRITONBACKEND_ModelInstance;
typedef struct TRITONBACKEND_ModelInstanceResponseStatistics TRITONBACKEND_ModelInstanceResponseStatistics;
typedef struct TRITONBACKEND_BackendAttribute TRITONBACKEND_BackendAttribute;

typedef enum {
	TRITONSERVER_TYPE_INVALID, TRITONSERVER_TYPE_BOOL, TRITONSERVER_TYPE_UINT8, TRITONSERVER_TYPE_UINT16, TRITONSERVER_TYPE_UINT32,
	TRITONSERVER_TYPE_UINT64, TRITONSERVER_TYPE_INT8, TRITONSERVER_TYPE_INT16, TRITONSERVER_TYPE_INT32, TRITONSERVER_TYPE_INT64,
	TRITONSERVER_TYPE_FP16, TRITONSERVER_TYPE_FP32, TRITONSERVER_TYPE_FP64, TRITONSERVER_TYPE_BYTES, TRITONSERVER_TYPE_BF16
} TRITONSERVER_DataType;
typedef enum { TRITONSERVER_MEMORY_CPU, TRITONSERVER_MEMORY_CPU_PINNED, TRITONSERVER_MEMORY_GPU } TRITONSERVER_MemoryType;
typedef enum {
	TRITONSERVER_PARAMETER_STRING, TRITONSERVER_PARAMETER_INT, TRITONSERVER_PARAMETER_BOOL, TRITONSERVER_PARAMETER_DOUBLE, TRITONSERVER_PARAMETER_BYTES
} TRITONSERVER_ParameterType;
typedef enum {
	TRITONSERVER_INSTANCEGROUPKIND_AUTO, TRITONSERVER_INSTANCEGROUPKIND_CPU, TRITONSERVER_INSTANCEGROUPKIND_GPU, TRITONSERVER_INSTANCEGROUPKIND_MODEL
} TRITONSERVER_InstanceGroupKind;
typedef enum { TRITONSERVER_LOG_INFO, TRITONSERVER_LOG_WARN, TRITONSERVER_LOG_ERROR, TRITONSERVER_LOG_VERBOSE } TRITONSERVER_LogLevel;
typedef enum {
	TRITONSERVER_ERROR_UNKNOWN, TRITONSERVER_ERROR_INTERNAL, TRITONSERVER_ERROR_NOT_FOUND, TRITONSERVER_ERROR_INVALID_ARG,
	TRITONSERVER_ERROR_UNAVAILABLE, TRITONSERVER_ERROR_UNSUPPORTED, TRITONSERVER_ERROR_ALREADY_EXISTS, TRITONSERVER_ERROR_CANCELLED
} TRITONSERVER_Error_Code;
typedef enum { TRITONSERVER_METRIC_KIND_COUNTER, TRITONSERVER_METRIC_KIND_GAUGE, TRITONSERVER_METRIC_KIND_HISTOGRAM } TRITONSERVER_MetricKind;
typedef enum { TRITONBACKEND_ARTIFACT_FILESYSTEM } TRITONBACKEND_ArtifactType;
typedef enum { TRITONBACKEND_EXECUTION_BLOCKING, TRITONBACKEND_EXECUTION_DEVICE_BLOCKING } TRITONBACKEND_ExecutionPolicy;
enum { TRITONSERVER_REQUEST_FLAG_SEQUENCE_START = 1, TRITONSERVER_REQUEST_FLAG_SEQUENCE_END = 2 };
enum { TRITONSERVER_REQUEST_RELEASE_ALL = 1, TRITONSERVER_REQUEST_RELEASE_RESCHEDULE = 2 };
enum { TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1 };

// Short names of this file only.
#define TT_ERR TRITONSERVER_Error *
#define TT_MEM TRITONSERVER_MemoryType

TT_ERR TRITONSERVER_ApiVersion(uint32_t *major, uint32_t *minor);
const char *TRITONSERVER_DataTypeString(TRITONSERVER_DataType t);
TRITONSERVER_DataType TRITONSERVER_StringToDataType(const char *name);
uint32_t TRITONSERVER_DataTypeByteSize(TRITONSERVER_DataType t);
const char *TRITONSERVER_MemoryTypeString(TT_MEM t);
const char *TRITONSERVER_ParameterTypeString(TRITONSERVER_ParameterType t);
const char *TRITONSERVER_InstanceGroupKindString(TRITONSERVER_InstanceGroupKind k);
TRITONSERVER_Parameter *TRITONSERVER_ParameterNew(const char *name, TRITONSERVER_ParameterType type, const void *value);
TRITONSERVER_Parameter *TRITONSERVER_ParameterBytesNew(const char *name, const void *bytes, uint64_t size);
void TRITONSERVER_ParameterDelete(TRITONSERVER_Parameter *p);
bool TRITONSERVER_LogIsEnabled(TRITONSERVER_LogLevel level);
TT_ERR TRITONSERVER_LogMessage(TRITONSERVER_LogLevel level, const char *file, int line, const char *text);
TT_ERR TRITONSERVER_ErrorNew(TRITONSERVER_Error_Code code, const char *text);
void TRITONSERVER_ErrorDelete(TRITONSERVER_Error *e);
TRITONSERVER_Error_Code TRITONSERVER_ErrorCode(TRITONSERVER_Error *e);
const char *TRITONSERVER_ErrorCodeString(TRITONSERVER_Error *e);
const char *TRITONSERVER_ErrorMessage(TRITONSERVER_Error *e);
TT_ERR TRITONSERVER_MessageNewFromSerializedJson(TRITONSERVER_Message **m, const char *base, size_t size);
TT_ERR TRITONSERVER_MessageDelete(TRITONSERVER_Message *m);
TT_ERR TRITONSERVER_MessageSerializeToJson(TRITONSERVER_Message *m, const char **base, size_t *size);
TT_ERR TRITONSERVER_BufferAttributesNew(TRITONSERVER_BufferAttributes **a);
TT_ERR TRITONSERVER_BufferAttributesDelete(TRITONSERVER_BufferAttributes *a);
TT_ERR TRITONSERVER_BufferAttributesSetMemoryTypeId(TRITONSERVER_BufferAttributes *a, int64_t id);
TT_ERR TRITONSERVER_BufferAttributesSetMemoryType(TRITONSERVER_BufferAttributes *a, TT_MEM type);
TT_ERR TRITONSERVER_BufferAttributesSetCudaIpcHandle(TRITONSERVER_BufferAttributes *a, void *handle);
TT_ERR TRITONSERVER_BufferAttributesSetByteSize(TRITONSERVER_BufferAttributes *a, size_t size);
TT_ERR TRITONSERVER_BufferAttributesMemoryTypeId(TRITONSERVER_BufferAttributes *a, int64_t *id);
TT_ERR TRITONSERVER_BufferAttributesMemoryType(TRITONSERVER_BufferAttributes *a, TT_MEM *type);
TT_ERR TRITONSERVER_BufferAttributesCudaIpcHandle(TRITONSERVER_BufferAttributes *a, void **handle);
TT_ERR TRITONSERVER_BufferAttributesByteSize(TRITONSERVER_BufferAttributes *a, size_t *size);
TT_ERR TRITONSERVER_InferenceTraceReportActivity(TRITONSERVER_InferenceTrace *t, uint64_t timestamp, const char *name);
TT_ERR TRITONSERVER_MetricFamilyNew(TRITONSERVER_MetricFamily **f, TRITONSERVER_MetricKind kind, const char *name, const char *description);
TT_ERR TRITONSERVER_MetricFamilyDelete(TRITONSERVER_MetricFamily *f);
TT_ERR TRITONSERVER_GetMetricFamilyKind(TRITONSERVER_MetricFamily *f, TRITONSERVER_MetricKind *kind);
TT_ERR TRITONSERVER_MetricArgsNew(TRITONSERVER_MetricArgs **args);
TT_ERR TRITONSERVER_MetricArgsSetHistogram(TRITONSERVER_MetricArgs *args, const double *buckets, uint64_t count);
TT_ERR TRITONSERVER_MetricArgsDelete(TRITONSERVER_MetricArgs *args);
TT_ERR TRITONSERVER_MetricNew(TRITONSERVER_Metric **m, TRITONSERVER_MetricFamily *f, const TRITONSERVER_Parameter **labels, uint64_t count);
TT_ERR TRITONSERVER_MetricNewWithArgs(TRITONSERVER_Metric **m, TRITONSERVER_MetricFamily *f, const TRITONSERVER_Parameter **labels, uint64_t count, const TRITONSERVER_MetricArgs *args);
TT_ERR TRITONSERVER_MetricDelete(TRITONSERVER_Metric *m);
TT_ERR TRITONSERVER_MetricValue(TRITONSERVER_Metric *m, double *value);
TT_ERR TRITONSERVER_MetricIncrement(TRITONSERVER_Metric *m, double value);
TT_ERR TRITONSERVER_MetricSet(TRITONSERVER_Metric *m, double value);
TT_ERR TRITONSERVER_MetricObserve(TRITONSERVER_Metric *m, double value);
TT_ERR TRITONSERVER_GetMetricKind(TRITONSERVER_Metric *m, TRITONSERVER_MetricKind *kind);

TT_ERR TRITONBACKEND_ApiVersion(uint32_t *major, uint32_t *minor);
TT_ERR TRITONBACKEND_MemoryManagerAllocate(TRITONBACKEND_MemoryManager *m, void **buffer, TT_MEM type, int64_t id, uint64_t size);
TT_ERR TRITONBACKEND_MemoryManagerFree(TRITONBACKEND_MemoryManager *m, void *buffer, TT_MEM type, int64_t id);
TT_ERR TRITONBACKEND_InputProperties(TRITONBACKEND_Input *in, const char **name, TRITONSERVER_DataType *type, const int64_t **shape, uint32_t *rank, uint64_t *size, uint32_t *buffers);
TT_ERR TRITONBACKEND_InputPropertiesForHostPolicy(TRITONBACKEND_Input *in, const char *policy, const char **name, TRITONSERVER_DataType *type, const int64_t **shape, uint32_t *rank, uint64_t *size, uint32_t *buffers);
TT_ERR TRITONBACKEND_InputBuffer(TRITONBACKEND_Input *in, uint32_t index, const void **buffer, uint64_t *size, TT_MEM *type, int64_t *id);
TT_ERR TRITONBACKEND_InputBufferForHostPolicy(TRITONBACKEND_Input *in, const char *policy, uint32_t index, const void **buffer, uint64_t *size, TT_MEM *type, int64_t *id);
TT_ERR TRITONBACKEND_InputBufferAttributes(TRITONBACKEND_Input *in, uint32_t index, const void **buffer, TRITONSERVER_BufferAttributes **a);
TT_ERR TRITONBACKEND_OutputBuffer(TRITONBACKEND_Output *out, void **buffer, uint64_t size, TT_MEM *type, int64_t *id);
TT_ERR TRITONBACKEND_OutputBufferAttributes(TRITONBACKEND_Output *out, TRITONSERVER_BufferAttributes **a);
TT_ERR TRITONBACKEND_RequestId(TRITONBACKEND_Request *r, const char **id);
TT_ERR TRITONBACKEND_RequestIsCancelled(TRITONBACKEND_Request *r, bool *cancelled);
TT_ERR TRITONBACKEND_RequestCorrelationId(TRITONBACKEND_Request *r, uint64_t *id);
TT_ERR TRITONBACKEND_RequestCorrelationIdString(TRITONBACKEND_Request *r, const char **id);
TT_ERR TRITONBACKEND_InferenceRequestTimeoutMicroseconds(TRITONBACKEND_Request *r, uint64_t *timeout);
TT_ERR TRITONBACKEND_RequestFlags(TRITONBACKEND_Request *r, uint32_t *flags);
TT_ERR TRITONBACKEND_RequestParameterCount(TRITONBACKEND_Request *r, uint32_t *count);
TT_ERR TRITONBACKEND_RequestParameter(TRITONBACKEND_Request *r, uint32_t index, const char **key, TRITONSERVER_ParameterType *type, const void **value);
TT_ERR TRITONBACKEND_RequestInputCount(TRITONBACKEND_Request *r, uint32_t *count);
TT_ERR TRITONBACKEND_RequestInputName(TRITONBACKEND_Request *r, uint32_t index, const char **name);
TT_ERR TRITONBACKEND_RequestInput(TRITONBACKEND_Request *r, const char *name, TRITONBACKEND_Input **in);
TT_ERR TRITONBACKEND_RequestInputByIndex(TRITONBACKEND_Request *r, uint32_t index, TRITONBACKEND_Input **in);
TT_ERR TRITONBACKEND_RequestOutputCount(TRITONBACKEND_Request *r, uint32_t *count);
TT_ERR TRITONBACKEND_RequestOutputName(TRITONBACKEND_Request *r, uint32_t index, const char **name);
TT_ERR TRITONBACKEND_RequestOutputBufferProperties(TRITONBACKEND_Request *r, const char *name, size_t *size, TT_MEM *type, int64_t *id);
TT_ERR TRITONBACKEND_RequestRelease(TRITONBACKEND_Request *r, uint32_t flags);
TT_ERR TRITONBACKEND_RequestTrace(TRITONBACKEND_Request *r, TRITONSERVER_InferenceTrace **trace);
TT_ERR TRITONBACKEND_ResponseFactoryNew(TRITONBACKEND_ResponseFactory **f, TRITONBACKEND_Request *r);
TT_ERR TRITONBACKEND_ResponseFactoryDelete(TRITONBACKEND_ResponseFactory *f);
TT_ERR TRITONBACKEND_ResponseFactorySendFlags(TRITONBACKEND_ResponseFactory *f, uint32_t flags);
TT_ERR TRITONBACKEND_ResponseFactoryIsCancelled(TRITONBACKEND_ResponseFactory *f, bool *cancelled);
TT_ERR TRITONBACKEND_ResponseNew(TRITONBACKEND_Response **response, TRITONBACKEND_Request *r);
TT_ERR TRITONBACKEND_ResponseNewFromFactory(TRITONBACKEND_Response **response, TRITONBACKEND_ResponseFactory *f);
TT_ERR TRITONBACKEND_ResponseDelete(TRITONBACKEND_Response *response);
TT_ERR TRITONBACKEND_ResponseSetStringParameter(TRITONBACKEND_Response *response, const char *name, const char *value);
TT_ERR TRITONBACKEND_ResponseSetIntParameter(TRITONBACKEND_Response *response, const char *name, int64_t value);
TT_ERR TRITONBACKEND_ResponseSetBoolParameter(TRITONBACKEND_Response *response, const char *name, bool value);
TT_ERR TRITONBACKEND_ResponseSetDoubleParameter(TRITONBACKEND_Response *response, const char *name, double value);
TT_ERR TRITONBACKEND_ResponseOutput(TRITONBACKEND_Response *response, TRITONBACKEND_Output **out, const char *name, TRITONSERVER_DataType type, const int64_t *shape, uint32_t rank);
TT_ERR TRITONBACKEND_ResponseSend(TRITONBACKEND_Response *response, uint32_t flags, TRITONSERVER_Error *error);
TT_ERR TRITONBACKEND_InferenceResponseOutput(TRITONBACKEND_Response *response, uint32_t index, const char **name, TRITONSERVER_DataType *type, const int64_t **shape, uint64_t *rank);
TT_ERR TRITONBACKEND_InferenceResponseOutputByName(TRITONBACKEND_Response *response, const char *name, TRITONSERVER_DataType *type, const int64_t **shape, uint64_t *rank);
TT_ERR TRITONBACKEND_StateNew(TRITONBACKEND_State **state, TRITONBACKEND_Request *r, const char *name, TRITONSERVER_DataType type, const int64_t *shape, uint32_t rank);
TT_ERR TRITONBACKEND_StateUpdate(TRITONBACKEND_State *state);
TT_ERR TRITONBACKEND_StateBuffer(TRITONBACKEND_State *state, void **buffer, uint64_t size, TT_MEM *type, int64_t *id);
TT_ERR TRITONBACKEND_StateBufferAttributes(TRITONBACKEND_State *state, TRITONSERVER_BufferAttributes **a);
TT_ERR TRITONBACKEND_BackendName(TRITONBACKEND_Backend *b, const char **name);
TT_ERR TRITONBACKEND_BackendConfig(TRITONBACKEND_Backend *b, TRITONSERVER_Message **config);
TT_ERR TRITONBACKEND_BackendExecutionPolicy(TRITONBACKEND_Backend *b, TRITONBACKEND_ExecutionPolicy *policy);
TT_ERR TRITONBACKEND_BackendSetExecutionPolicy(TRITONBACKEND_Backend *b, TRITONBACKEND_ExecutionPolicy policy);
TT_ERR TRITONBACKEND_BackendArtifacts(TRITONBACKEND_Backend *b, TRITONBACKEND_ArtifactType *type, const char **location);
TT_ERR TRITONBACKEND_BackendMemoryManager(TRITONBACKEND_Backend *b, TRITONBACKEND_MemoryManager **m);
TT_ERR TRITONBACKEND_BackendState(TRITONBACKEND_Backend *b, void **state);
TT_ERR TRITONBACKEND_BackendSetState(TRITONBACKEND_Backend *b, void *state);
TT_ERR TRITONBACKEND_BackendAttributeAddPreferredInstanceGroup(TRITONBACKEND_BackendAttribute *a, TRITONSERVER_InstanceGroupKind kind, uint64_t count, const uint64_t *devices, uint64_t device_count);
TT_ERR TRITONBACKEND_BackendAttributeSetParallelModelInstanceLoading(TRITONBACKEND_BackendAttribute *a, bool enabled);
TT_ERR TRITONBACKEND_ModelName(TRITONBACKEND_Model *m, const char **name);
TT_ERR TRITONBACKEND_ModelVersion(TRITONBACKEND_Model *m, uint64_t *version);
TT_ERR TRITONBACKEND_ModelRepository(TRITONBACKEND_Model *m, TRITONBACKEND_ArtifactType *type, const char **location);
TT_ERR TRITONBACKEND_ModelConfig(TRITONBACKEND_Model *m, uint32_t version, TRITONSERVER_Message **config);
TT_ERR TRITONBACKEND_ModelAutoCompleteConfig(TRITONBACKEND_Model *m, bool *complete);
TT_ERR TRITONBACKEND_ModelSetConfig(TRITONBACKEND_Model *m, uint32_t version, TRITONSERVER_Message *config);
TT_ERR TRITONBACKEND_ModelServer(TRITONBACKEND_Model *m, TRITONSERVER_Server **server);
TT_ERR TRITONBACKEND_ModelBackend(TRITONBACKEND_Model *m, TRITONBACKEND_Backend **b);
TT_ERR TRITONBACKEND_ModelState(TRITONBACKEND_Model *m, void **state);
TT_ERR TRITONBACKEND_ModelSetState(TRITONBACKEND_Model *m, void *state);
TT_ERR TRITONBACKEND_ModelReportMemoryUsage(TRITONBACKEND_Model *m, TRITONSERVER_BufferAttributes **usage, uint32_t count);
TT_ERR TRITONBACKEND_ModelInstanceName(TRITONBACKEND_ModelInstance *x, const char **name);
TT_ERR TRITONBACKEND_ModelInstanceKind(TRITONBACKEND_ModelInstance *x, TRITONSERVER_InstanceGroupKind *kind);
TT_ERR TRITONBACKEND_ModelInstanceDeviceId(TRITONBACKEND_ModelInstance *x, int32_t *id);
TT_ERR TRITONBACKEND_ModelInstanceHostPolicy(TRITONBACKEND_ModelInstance *x, TRITONSERVER_Message **policy);
TT_ERR TRITONBACKEND_ModelInstanceIsPassive(TRITONBACKEND_ModelInstance *x, bool *passive);
TT_ERR TRITONBACKEND_ModelInstanceProfileCount(TRITONBACKEND_ModelInstance *x, uint32_t *count);
TT_ERR TRITONBACKEND_ModelInstanceProfileName(TRITONBACKEND_ModelInstance *x, uint32_t index, const char **name);
TT_ERR TRITONBACKEND_ModelInstanceSecondaryDeviceCount(TRITONBACKEND_ModelInstance *x, uint32_t *count);
TT_ERR TRITONBACKEND_ModelInstanceSecondaryDeviceProperties(TRITONBACKEND_ModelInstance *x, uint32_t index, const char **kind, int64_t *id);
TT_ERR TRITONBACKEND_ModelInstanceModel(TRITONBACKEND_ModelInstance *x, TRITONBACKEND_Model **m);
TT_ERR TRITONBACKEND_ModelInstanceState(TRITONBACKEND_ModelInstance *x, void **state);
TT_ERR TRITONBACKEND_ModelInstanceSetState(TRITONBACKEND_ModelInstance *x, void *state);
TT_ERR TRITONBACKEND_ModelInstanceReportMemoryUsage(TRITONBACKEND_ModelInstance *x, TRITONSERVER_BufferAttributes **usage, uint32_t count);
TT_ERR TRITONBACKEND_ModelInstanceReportStatistics(TRITONBACKEND_ModelInstance *x, TRITONBACKEND_Request *r, bool success, uint64_t start, uint64_t compute_start, uint64_t compute_end, uint64_t end);
TT_ERR TRITONBACKEND_ModelInstanceReportBatchStatistics(TRITONBACKEND_ModelInstance *x, uint64_t size, uint64_t start, uint64_t compute_start, uint64_t compute_end, uint64_t end);
TT_ERR TRITONBACKEND_ModelInstanceResponseStatisticsNew(TRITONBACKEND_ModelInstanceResponseStatistics **s);
TT_ERR TRITONBACKEND_ModelInstanceResponseStatisticsDelete(TRITONBACKEND_ModelInstanceResponseStatistics *s);
TT_ERR TRITONBACKEND_ModelInstanceResponseStatisticsSetModelInstance(TRITONBACKEND_ModelInstanceResponseStatistics *s, TRITONBACKEND_ModelInstance *x);
TT_ERR TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseFactory(TRITONBACKEND_ModelInstanceResponseStatistics *s, TRITONBACKEND_ResponseFactory *f);
TT_ERR TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseStart(TRITONBACKEND_ModelInstanceResponseStatistics *s, uint64_t ns);
TT_ERR TRITONBACKEND_ModelInstanceResponseStatisticsSetComputeOutputStart(TRITONBACKEND_ModelInstanceResponseStatistics *s, uint64_t ns);
TT_ERR TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseEnd(TRITONBACKEND_ModelInstanceResponseStatistics *s, uint64_t ns);
TT_ERR TRITONBACKEND_ModelInstanceResponseStatisticsSetError(TRITONBACKEND_ModelInstanceResponseStatistics *s, TRITONSERVER_Error *e);
TT_ERR TRITONBACKEND_ModelInstanceReportResponseStatistics(TRITONBACKEND_ModelInstanceResponseStatistics *s);

// The functions of a library. All but Execute are optional.
TT_ERR TRITONBACKEND_Initialize(TRITONBACKEND_Backend *b);
TT_ERR TRITONBACKEND_Finalize(TRITONBACKEND_Backend *b);
TT_ERR TRITONBACKEND_GetBackendAttribute(TRITONBACKEND_Backend *b, TRITONBACKEND_BackendAttribute *a);
TT_ERR TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model *m);
TT_ERR TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model *m);
TT_ERR TRITONBACKEND_ModelInstanceInitialize(TRITONBACKEND_ModelInstance *x);
TT_ERR TRITONBACKEND_ModelInstanceFinalize(TRITONBACKEND_ModelInstance *x);
TT_ERR TRITONBACKEND_ModelInstanceExecute(TRITONBACKEND_ModelInstance *x, TRITONBACKEND_Request **requests, uint32_t count);

#ifdef __cplusplus
}
#endif
#endif
