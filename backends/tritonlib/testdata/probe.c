// A backend library for the tests of this package. It does what the string parameter "do" of a request says; without it OUT is IN, of any type.
// It completes the configuration of a model without inputs, and counts requests in a metric.
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api.h"

#define CHECK(call) \
	do { \
		TRITONSERVER_Error *failed = (call); \
		if (failed != NULL) { \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, TRITONSERVER_ErrorMessage(failed)); \
			TRITONSERVER_ErrorDelete(failed); \
		} \
	} while (0)

static TRITONSERVER_MetricFamily *family;
static TRITONSERVER_Metric *metric;

TRITONSERVER_Error *TRITONBACKEND_Initialize(TRITONBACKEND_Backend *b) {
	TRITONSERVER_Message *config;
	const char *json;
	size_t size;
	CHECK(TRITONBACKEND_BackendConfig(b, &config));
	CHECK(TRITONSERVER_MessageSerializeToJson(config, &json, &size));
	TRITONSERVER_LogMessage(TRITONSERVER_LOG_INFO, __FILE__, __LINE__, json);
	CHECK(TRITONSERVER_MetricFamilyNew(&family, TRITONSERVER_METRIC_KIND_COUNTER, "probe_requests_total", "Requests of the probe"));
	TRITONSERVER_Parameter *label = TRITONSERVER_ParameterNew("kind", TRITONSERVER_PARAMETER_STRING, "all");
	CHECK(TRITONSERVER_MetricNew(&metric, family, (const TRITONSERVER_Parameter **)&label, 1));
	TRITONSERVER_ParameterDelete(label);
	return strstr(json, "\"refuse\"") == NULL ? NULL : TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INVALID_ARG, "the setting 'refuse' is set");
}

TRITONSERVER_Error *TRITONBACKEND_Finalize(TRITONBACKEND_Backend *b) {
	(void)b;
	CHECK(TRITONSERVER_MetricDelete(metric));
	return TRITONSERVER_MetricFamilyDelete(family);
}

TRITONSERVER_Error *TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model *m) {
	TRITONSERVER_Message *config;
	const char *json, *name;
	size_t size;
	bool complete;
	CHECK(TRITONBACKEND_ModelName(m, &name));
	CHECK(TRITONBACKEND_ModelConfig(m, 1, &config));
	CHECK(TRITONSERVER_MessageSerializeToJson(config, &json, &size));
	CHECK(TRITONBACKEND_ModelAutoCompleteConfig(m, &complete));
	TRITONSERVER_LogMessage(TRITONSERVER_LOG_INFO, __FILE__, __LINE__, json);
	if (strstr(json, "crash_at_load") != NULL) abort();
	if (complete && strstr(json, "\"input\":[]") != NULL) {
		char full[1024];
		const char *type = strstr(json, "bad_completion") != NULL ? "TYPE_WRONG" : "TYPE_INT32";
		snprintf(full, sizeof full, "{\"name\":\"%s\",\"backend\":\"probe\",\"max_batch_size\":4,\"input\":[{\"name\":\"IN\",\"data_type\":\"%s\",\"dims\":[-1]}],"
			"\"output\":[{\"name\":\"OUT\",\"data_type\":\"TYPE_INT32\",\"dims\":[-1]}]}", name, type);
		TRITONSERVER_Message *set;
		CHECK(TRITONSERVER_MessageNewFromSerializedJson(&set, full, strlen(full)));
		TRITONSERVER_Error *refused = TRITONBACKEND_ModelSetConfig(m, 1, set);
		CHECK(TRITONSERVER_MessageDelete(set));
		if (refused != NULL) return refused;
	}
	CHECK(TRITONSERVER_MessageDelete(config));
	return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceInitialize(TRITONBACKEND_ModelInstance *x) {
	const char *name;
	CHECK(TRITONBACKEND_ModelInstanceName(x, &name));
	return strstr(name, "refused") == NULL ? NULL : TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNAVAILABLE, "the instance is refused");
}

// param returns a string parameter of a request, or "".
static const char *param(TRITONBACKEND_Request *r, const char *wanted) {
	uint32_t n;
	CHECK(TRITONBACKEND_RequestParameterCount(r, &n));
	for (uint32_t i = 0; i < n; i++) {
		const char *key;
		const void *value;
		TRITONSERVER_ParameterType type;
		CHECK(TRITONBACKEND_RequestParameter(r, i, &key, &type, &value));
		if (type == TRITONSERVER_PARAMETER_STRING && strcmp(key, wanted) == 0) return value;
	}
	return "";
}

struct in {
	TRITONSERVER_DataType type;
	const int64_t *shape;
	uint32_t rank, buffers;
	uint64_t size;
	const void *data;
};

static void read_in(TRITONBACKEND_Request *r, struct in *in) {
	TRITONBACKEND_Input *input;
	TRITONSERVER_MemoryType memory;
	int64_t id;
	CHECK(TRITONBACKEND_RequestInput(r, "IN", &input));
	CHECK(TRITONBACKEND_InputProperties(input, NULL, &in->type, &in->shape, &in->rank, &in->size, &in->buffers));
	in->data = NULL;
	if (in->buffers > 0) CHECK(TRITONBACKEND_InputBuffer(input, 0, &in->data, &in->size, &memory, &id));
}

static void add_out(TRITONBACKEND_Response *response, const char *name, const struct in *in, uint64_t size) {
	TRITONBACKEND_Output *out;
	TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_GPU;
	int64_t id = 3;
	void *to;
	CHECK(TRITONBACKEND_ResponseOutput(response, &out, name, in->type, in->shape, in->rank));
	CHECK(TRITONBACKEND_OutputBuffer(out, &to, size, &memory, &id));
	if (to != NULL && in->size > 0 && size >= in->size) memcpy(to, in->data, in->size);
}

static void respond(TRITONBACKEND_Request *r, uint32_t flags) {
	struct in in;
	TRITONBACKEND_Response *response;
	read_in(r, &in);
	CHECK(TRITONBACKEND_ResponseNew(&response, r));
	add_out(response, "OUT", &in, in.size);
	CHECK(TRITONBACKEND_ResponseSend(response, flags, NULL));
}

// describe responds with what the library knows of the request, as parameters.
static void describe(TRITONBACKEND_Request *r) {
	struct in in;
	TRITONBACKEND_Response *response;
	const char *id = "", *correlation = "", *output = "";
	uint64_t number = 0, timeout = 0;
	uint32_t flags = 0, outputs = 0;
	read_in(r, &in);
	CHECK(TRITONBACKEND_RequestId(r, &id));
	CHECK(TRITONBACKEND_RequestFlags(r, &flags));
	CHECK(TRITONBACKEND_InferenceRequestTimeoutMicroseconds(r, &timeout));
	TRITONSERVER_Error *e = TRITONBACKEND_RequestCorrelationId(r, &number);
	if (e != NULL) {
		TRITONSERVER_ErrorDelete(e);
		CHECK(TRITONBACKEND_RequestCorrelationIdString(r, &correlation));
	}
	CHECK(TRITONBACKEND_RequestOutputCount(r, &outputs));
	if (outputs > 0) CHECK(TRITONBACKEND_RequestOutputName(r, 0, &output));
	CHECK(TRITONBACKEND_ResponseNew(&response, r));
	add_out(response, "OUT", &in, in.size);
	CHECK(TRITONBACKEND_ResponseSetStringParameter(response, "id", id));
	CHECK(TRITONBACKEND_ResponseSetStringParameter(response, "correlation", correlation));
	CHECK(TRITONBACKEND_ResponseSetStringParameter(response, "output", output));
	CHECK(TRITONBACKEND_ResponseSetIntParameter(response, "number", (int64_t)number));
	CHECK(TRITONBACKEND_ResponseSetIntParameter(response, "timeout", (int64_t)timeout));
	CHECK(TRITONBACKEND_ResponseSetBoolParameter(response, "start", (flags & TRITONSERVER_REQUEST_FLAG_SEQUENCE_START) != 0));
	CHECK(TRITONBACKEND_ResponseSetDoubleParameter(response, "half", 0.5));
	CHECK(TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, NULL));
}

// sum adds IN to the state and responds with it. The state is updated before the response, or after it where late is true.
static void sum(TRITONBACKEND_Request *r, bool late) {
	TRITONBACKEND_Input *input;
	TRITONBACKEND_State *state;
	const int32_t *before;
	uint64_t size;
	TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
	int64_t id = 0;
	void *to;
	struct in in;
	read_in(r, &in);
	CHECK(TRITONBACKEND_RequestInput(r, "STATE_IN", &input));
	CHECK(TRITONBACKEND_InputBuffer(input, 0, (const void **)&before, &size, &memory, &id));
	int32_t total = *before + *(const int32_t *)in.data;
	CHECK(TRITONBACKEND_StateNew(&state, r, "STATE_OUT", in.type, in.shape, in.rank));
	CHECK(TRITONBACKEND_StateBuffer(state, &to, sizeof total, &memory, &id));
	memcpy(to, &total, sizeof total);
	if (!late) CHECK(TRITONBACKEND_StateUpdate(state));
	in.data = &total;
	TRITONBACKEND_Response *response;
	CHECK(TRITONBACKEND_ResponseNew(&response, r));
	add_out(response, "OUT", &in, sizeof total);
	CHECK(TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, NULL));
	if (late) CHECK(TRITONBACKEND_StateUpdate(state));
}

struct stream {
	TRITONBACKEND_ResponseFactory *factory;
	int32_t n;
	int fail;
};

// stream sends the numbers below n, one by one, after the request was released. A cancelled one ends early.
static void *stream(void *of) {
	struct stream *s = of;
	const int64_t shape[] = {1};
	for (int32_t i = 0; i < s->n; i++) {
		bool cancelled = false;
		CHECK(TRITONBACKEND_ResponseFactoryIsCancelled(s->factory, &cancelled));
		if (cancelled) break;
		TRITONBACKEND_Response *response;
		struct in in = {.type = TRITONSERVER_TYPE_INT32, .shape = shape, .rank = 1, .size = sizeof i, .data = &i};
		CHECK(TRITONBACKEND_ResponseNewFromFactory(&response, s->factory));
		add_out(response, "OUT", &in, sizeof i);
		CHECK(TRITONBACKEND_ResponseSend(response, 0, NULL));
	}
	if (s->fail) {
		TRITONBACKEND_Response *response;
		TRITONSERVER_Error *e = TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNAVAILABLE, "the stream is broken");
		CHECK(TRITONBACKEND_ResponseNewFromFactory(&response, s->factory));
		CHECK(TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, e));
		TRITONSERVER_ErrorDelete(e);
	} else {
		CHECK(TRITONBACKEND_ResponseFactorySendFlags(s->factory, TRITONSERVER_RESPONSE_COMPLETE_FINAL));
	}
	CHECK(TRITONBACKEND_ResponseFactoryDelete(s->factory));
	free(s);
	return NULL;
}

static void start_stream(TRITONBACKEND_Request *r, int fail) {
	struct stream *s = calloc(1, sizeof *s);
	struct in in;
	pthread_t thread;
	read_in(r, &in);
	s->n = *(const int32_t *)in.data;
	s->fail = fail;
	CHECK(TRITONBACKEND_ResponseFactoryNew(&s->factory, r));
	pthread_create(&thread, NULL, stream, s);
	pthread_detach(thread);
}

// late responds and releases the request some time after Execute has returned.
static void *late(void *r) {
	usleep(20000);
	respond(r, TRITONSERVER_RESPONSE_COMPLETE_FINAL);
	CHECK(TRITONBACKEND_RequestRelease(r, TRITONSERVER_REQUEST_RELEASE_ALL));
	return NULL;
}

static void wait_cancelled(TRITONBACKEND_Request *r) {
	TRITONSERVER_Error *e = TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_CANCELLED, "noticed");
	for (bool cancelled = false; !cancelled; usleep(1000)) CHECK(TRITONBACKEND_RequestIsCancelled(r, &cancelled));
	TRITONBACKEND_Response *response;
	CHECK(TRITONBACKEND_ResponseNew(&response, r));
	CHECK(TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, e));
	TRITONSERVER_ErrorDelete(e);
}

static void bad_output(TRITONBACKEND_Request *r, const char *what) {
	struct in in;
	TRITONBACKEND_Response *response;
	TRITONBACKEND_Output *out;
	read_in(r, &in);
	CHECK(TRITONBACKEND_ResponseNew(&response, r));
	if (strcmp(what, "unknown output") == 0) add_out(response, "ELSE", &in, in.size);
	if (strcmp(what, "short output") == 0) add_out(response, "OUT", &in, in.size - 1);
	if (strcmp(what, "huge output") == 0) add_out(response, "OUT", &in, (uint64_t)1 << 50);
	if (strcmp(what, "no buffer") == 0) CHECK(TRITONBACKEND_ResponseOutput(response, &out, "OUT", in.type, in.shape, in.rank));
	CHECK(TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, NULL));
}

// execute_one does what the request says. It returns true when it has not released the request.
static bool execute_one(TRITONBACKEND_Request *r) {
	const char *what = param(r, "do");
	CHECK(TRITONSERVER_MetricIncrement(metric, 1));
	if (strcmp(what, "") == 0) respond(r, TRITONSERVER_RESPONSE_COMPLETE_FINAL);
	else if (strcmp(what, "describe") == 0) describe(r);
	else if (strcmp(what, "sum") == 0) sum(r, false);
	else if (strcmp(what, "late sum") == 0) sum(r, true);
	else if (strcmp(what, "stream") == 0) start_stream(r, 0);
	else if (strcmp(what, "broken stream") == 0) start_stream(r, 1);
	else if (strcmp(what, "crash") == 0) raise(SIGSEGV);
	else if (strcmp(what, "exit") == 0) _exit(7);
	else if (strcmp(what, "hang") == 0) {
		TRITONSERVER_LogMessage(TRITONSERVER_LOG_WARN, __FILE__, __LINE__, "hanging");
		for (;;) pause();
	}
	else if (strcmp(what, "grow") == 0) {
		static char *volatile more;
		more = malloc((size_t)256 << 20);
		memset(more, 1, (size_t)256 << 20);
		respond(r, TRITONSERVER_RESPONSE_COMPLETE_FINAL);
	} else if (strcmp(what, "twice") == 0) {
		respond(r, 0);
		respond(r, TRITONSERVER_RESPONSE_COMPLETE_FINAL);
	} else if (strcmp(what, "after the end") == 0) {
		respond(r, TRITONSERVER_RESPONSE_COMPLETE_FINAL);
		respond(r, TRITONSERVER_RESPONSE_COMPLETE_FINAL);
	} else if (strcmp(what, "late") == 0) {
		pthread_t thread;
		pthread_create(&thread, NULL, late, r);
		pthread_detach(thread);
		return true;
	} else if (strcmp(what, "cancel") == 0) wait_cancelled(r);
	else if (strcmp(what, "nothing") != 0) bad_output(r, what);
	return false;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceExecute(TRITONBACKEND_ModelInstance *x, TRITONBACKEND_Request **requests, uint32_t count) {
	(void)x;
	for (uint32_t i = 0; i < count; i++) {
		if (strcmp(param(requests[i], "do"), "error") == 0) return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNAVAILABLE, "the batch is refused");
	}
	for (uint32_t i = 0; i < count; i++) {
		if (!execute_one(requests[i])) CHECK(TRITONBACKEND_RequestRelease(requests[i], TRITONSERVER_REQUEST_RELEASE_ALL));
	}
	return NULL;
}
