// A backend library with two inputs: SUM is INPUT0 + INPUT1, DIFFERENCE is INPUT0 - INPUT1, of type FP32. It shows the least that a library needs.
//
//	cc -O2 -shared -fPIC -Ibackends/tritonlib -o libtriton_addsub.so examples/backends/tritonlib/addsub.c
#include <stdlib.h>

#include "api.h"

// RETURN_IF returns an error, which the server then sends to the clients of the request.
#define RETURN_IF(call) \
	do { \
		TRITONSERVER_Error *failed = (call); \
		if (failed != NULL) return failed; \
	} while (0)

static TRITONSERVER_Error *read_input(TRITONBACKEND_Request *request, const char *name, const float **data, const int64_t **shape, uint32_t *rank, uint64_t *size) {
	TRITONBACKEND_Input *in;
	TRITONSERVER_DataType type;
	uint32_t buffers;
	RETURN_IF(TRITONBACKEND_RequestInput(request, name, &in));
	RETURN_IF(TRITONBACKEND_InputProperties(in, NULL, &type, shape, rank, size, &buffers));
	if (type != TRITONSERVER_TYPE_FP32) return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INVALID_ARG, "expected inputs of type FP32");
	*data = NULL;
	if (buffers == 0) return NULL; // no elements
	uint64_t part;
	TRITONSERVER_MemoryType memory;
	int64_t id;
	RETURN_IF(TRITONBACKEND_InputBuffer(in, 0, (const void **)data, &part, &memory, &id));
	if (buffers > 1) return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNSUPPORTED, "expected one buffer for an input");
	return NULL;
}

static TRITONSERVER_Error *write_output(TRITONBACKEND_Response *response, const char *name, const int64_t *shape, uint32_t rank, uint64_t size, float **data) {
	TRITONBACKEND_Output *out;
	TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
	int64_t id = 0;
	RETURN_IF(TRITONBACKEND_ResponseOutput(response, &out, name, TRITONSERVER_TYPE_FP32, shape, rank));
	return TRITONBACKEND_OutputBuffer(out, (void **)data, size, &memory, &id);
}

static TRITONSERVER_Error *compute(TRITONBACKEND_Request *request, TRITONBACKEND_Response *response) {
	const float *a, *b;
	const int64_t *shape, *other;
	uint32_t rank, other_rank;
	uint64_t size, other_size;
	RETURN_IF(read_input(request, "INPUT0", &a, &shape, &rank, &size));
	RETURN_IF(read_input(request, "INPUT1", &b, &other, &other_rank, &other_size));
	if (size != other_size) return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INVALID_ARG, "expected INPUT0 and INPUT1 of one size");
	float *sum, *difference;
	RETURN_IF(write_output(response, "SUM", shape, rank, size, &sum));
	RETURN_IF(write_output(response, "DIFFERENCE", shape, rank, size, &difference));
	for (uint64_t i = 0; i < size / sizeof(float); i++) {
		sum[i] = a[i] + b[i];
		difference[i] = a[i] - b[i];
	}
	return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceExecute(TRITONBACKEND_ModelInstance *instance, TRITONBACKEND_Request **requests, uint32_t count) {
	(void)instance;
	for (uint32_t i = 0; i < count; i++) {
		TRITONBACKEND_Response *response;
		RETURN_IF(TRITONBACKEND_ResponseNew(&response, requests[i]));
		TRITONSERVER_Error *e = compute(requests[i], response);
		RETURN_IF(TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, e));
		if (e != NULL) TRITONSERVER_ErrorDelete(e);
		RETURN_IF(TRITONBACKEND_RequestRelease(requests[i], TRITONSERVER_REQUEST_RELEASE_ALL));
	}
	return NULL;
}
