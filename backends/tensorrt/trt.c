#include "trt.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "_cgo_export.h"

static const struct { const char *class, *name; int16_t slot[2]; } functions[] = {
#define X(class, function, ten, eleven) {#class, #function, {ten, eleven}},
	TT_TRT_SLOTS(X)
#undef X
};

int tttrt_slot(int major, int function, const char **class, const char **name) {
	if (function < 0 || function >= TT_TRT_FUNCTIONS) return -2;
	*class = functions[function].class, *name = functions[function].name;
	return functions[function].slot[major - 10];
}

const char *tttrt_open(tt_trt_library *l) {
	int32_t n = l->version();
	l->number = n;
	// Until TensorRT 9 a version was major * 1000 + minor * 100 + patch.
	l->major = n >= 100000 ? n / 10000 : n / 1000;
	l->minor = n >= 100000 ? n / 100 % 100 : n / 100 % 10;
	if ((l->major == 10 && l->minor >= 1) || l->major == 11) return NULL;
	return "expected TensorRT 10.1 to 11";
}

enum { MESSAGES = 64 };

// TensorRT keeps the logger's address as an object of its class ILogger.
typedef struct {
	const void *table;
	pthread_mutex_t mu;
	int first, count;
	int dropped;
	struct { int severity; char text[TT_TRT_TEXT]; } messages[MESSAGES];
} logger;

struct tt_trt_runtime {
	const tt_trt_library *library;
	tt_trt_device device;
	int major; // an index of slots
	void *object;
	logger log;
};

// Where errors that TensorRT logs in this thread go, while a call of this file runs.
static __thread char *current_why;

static void note_error(const char *text) {
	char *why = current_why;
	if (why == NULL) return;
	size_t n = strlen(why);
	snprintf(why + n, TT_TRT_TEXT - n, "%s%s", n > 0 ? "; " : "", text);
}

static void logger_log(void *self, int32_t severity, const char *text) {
	logger *l = self;
	if (severity <= TT_TRT_ERROR) note_error(text);
	if (severity >= TT_TRT_VERBOSE) return;
	pthread_mutex_lock(&l->mu);
	if (l->count == MESSAGES) { // the oldest goes
		l->first = (l->first + 1) % MESSAGES;
		l->count--;
		l->dropped++;
	}
	int i = (l->first + l->count++) % MESSAGES;
	l->messages[i].severity = severity;
	snprintf(l->messages[i].text, TT_TRT_TEXT, "%s", text);
	pthread_mutex_unlock(&l->mu);
}

int tttrt_log(tt_trt_runtime *r, char *text, int *severity) {
	logger *l = &r->log;
	pthread_mutex_lock(&l->mu);
	int some = l->count > 0;
	if (some) {
		*severity = l->messages[l->first].severity;
		memcpy(text, l->messages[l->first].text, TT_TRT_TEXT);
		l->first = (l->first + 1) % MESSAGES;
		l->count--;
	}
	pthread_mutex_unlock(&l->mu);
	return some;
}

// Functions of TensorRT's interfaces that this file implements.
typedef struct { const char *kind; int32_t major, minor; } interface_info;

static int32_t language(const void *self) {
	(void)self;
	return 0;
}
static interface_info logger_info(const void *self) { (void)self; return (interface_info){"ILogger", 1, 0}; }
static interface_info allocator_info(const void *self) { (void)self; return (interface_info){"IOutputAllocator", 1, 0}; }
static void destroy(void *self) { (void)self; } // this file owns the object

static void *allocate(void *self, const char *name, void *present, uint64_t n, uint64_t alignment) {
	(void)name, (void)present, (void)alignment; // the pool's alignment is at least what TensorRT asks for
	tt_trt_allocator *a = self;
	return (void *)tttrtAllocate(a->run->owner, a->index, n);
}

static void *allocate_async(void *self, const char *name, void *present, uint64_t n, uint64_t alignment, void *stream) {
	(void)stream; // the run's
	return allocate(self, name, present, n, alignment);
}

static void notify_shape(void *self, const char *name, const tt_trt_dims *dims) {
	(void)name;
	tt_trt_allocator *a = self;
	a->run->out[a->index].dims = *dims;
}

// The tables. TensorRT 11 has its logger derive from IVersionedInterface, as the allocator does in both.
static const void *const logger_10[] = {(void *)logger_log, (void *)destroy, (void *)destroy};
static const void *const logger_11[] = {(void *)language, (void *)logger_info, (void *)destroy, (void *)destroy, (void *)logger_log};
static const void *const allocator_table[] = {(void *)language, (void *)allocator_info, (void *)destroy, (void *)destroy,
                                              (void *)allocate, (void *)allocate_async, (void *)notify_shape};

int tttrt_register(const tt_trt_library *l, void *init_plugins) {
	static logger log = {.mu = PTHREAD_MUTEX_INITIALIZER}; // TensorRT keeps it
	log.table = l->major == 10 ? logger_10 : logger_11;
	return ((_Bool(*)(void *, const char *))init_plugins)(&log, "");
}

#define SELF(object) (((void **)(object))[1])

// The function of an object's implementation.
static void *function(const tt_trt_runtime *r, void *object, int f) {
	return (*(void ***)SELF(object))[functions[f].slot[r->major]];
}

// CALL(r, object, f, result, (types), arguments) calls a function; the first of the types is the implementation's.
#define CALL(r, object, f, result, types, ...) (((result(*) types)function(r, object, f))(SELF(object), ##__VA_ARGS__))

static void delete_object(void *object) { (*(void (***)(void *))object)[1](object); }

// Makes the device's context the thread's, and has errors written to why.
static int enter(const tt_trt_runtime *r, char *why) {
	current_why = why;
	if (why != NULL) why[0] = 0;
	int failed = r->device.set(r->device.context);
	if (failed != 0 && why != NULL) snprintf(why, TT_TRT_TEXT, "cuCtxSetCurrent returned %d", failed);
	return failed;
}

static void leave(void) { current_why = NULL; }

tt_trt_runtime *tttrt_runtime(const tt_trt_library *l, const tt_trt_device *d, char *why) {
	tt_trt_runtime *r = calloc(1, sizeof *r);
	if (r == NULL) {
		snprintf(why, TT_TRT_TEXT, "no memory");
		return NULL;
	}
	r->library = l, r->device = *d, r->major = l->major - 10;
	r->log.table = l->major == 10 ? logger_10 : logger_11;
	pthread_mutex_init(&r->log.mu, NULL);
	if (enter(r, why) == 0) {
		r->object = l->create(&r->log, l->number);
		// Without a working device some versions log an error and return no usable object.
		if (why[0] != 0 || (uintptr_t)r->object < 4096) r->object = NULL;
	}
	leave();
	if (r->object != NULL) return r;
	tttrt_runtime_free(r);
	return NULL;
}

void tttrt_runtime_free(tt_trt_runtime *r) {
	if (r == NULL) return;
	if (r->object != NULL) {
		enter(r, NULL);
		delete_object(r->object);
	}
	pthread_mutex_destroy(&r->log.mu);
	free(r);
}

void *tttrt_engine(tt_trt_runtime *r, const void *plan, size_t n, int host_code, char *why) {
	void *engine = NULL;
	if (enter(r, why) == 0) {
		if (host_code) CALL(r, r->object, TT_VRuntime_setEngineHostCodeAllowed, void, (void *, _Bool), 1);
		engine = CALL(r, r->object, TT_VRuntime_deserializeCudaEngine, void *, (void *, const void *, size_t), plan, n);
	}
	leave();
	return engine;
}

void tttrt_engine_free(tt_trt_runtime *r, void *engine) {
	enter(r, NULL);
	delete_object(engine);
}

void tttrt_engine_counts(tt_trt_runtime *r, void *engine, int32_t *tensors, int32_t *profiles, int32_t *implicit) {
	*tensors = CALL(r, engine, TT_VCudaEngine_getNbIOTensors, int32_t, (void *));
	*profiles = CALL(r, engine, TT_VCudaEngine_getNbOptimizationProfiles, int32_t, (void *));
	*implicit = 0;
	if (r->library->major == 10) *implicit = CALL(r, engine, TT_VCudaEngine_hasImplicitBatchDimension, _Bool, (void *));
}

void tttrt_tensor(tt_trt_runtime *r, void *engine, int32_t i, tt_trt_tensor *t) {
	const tt_trt_library *l = r->library;
	memset(t, 0, sizeof *t);
	const char *name = t->name = CALL(r, engine, TT_VCudaEngine_getIOTensorName, const char *, (void *, int32_t), i);
	t->output = CALL(r, engine, TT_VCudaEngine_getTensorIOMode, int32_t, (void *, const char *), name) != TT_TRT_INPUT;
	t->type = CALL(r, engine, TT_VCudaEngine_getTensorDataType, int32_t, (void *, const char *), name);
	t->host = CALL(r, engine, TT_VCudaEngine_getTensorLocation, int32_t, (void *, const char *), name) == TT_TRT_ON_HOST;
	t->shape = CALL(r, engine, TT_VCudaEngine_isShapeInferenceIO, _Bool, (void *, const char *), name);
	t->linear = CALL(r, engine, TT_VCudaEngine_getTensorFormatV2, int32_t, (void *, const char *, int32_t), name, 0) == TT_TRT_LINEAR;
	t->format = CALL(r, engine, TT_VCudaEngine_getTensorFormatDescV2, const char *, (void *, const char *, int32_t), name, 0);
	t->dims = CALL(r, engine, TT_VCudaEngine_getTensorShape, tt_trt_dims, (void *, const char *), name);
	if (t->output && (l->major == 11 || l->minor >= 15)) {
		t->alias = CALL(r, engine, TT_VCudaEngine_getAliasedInputTensor, const char *, (void *, const char *), name);
	}
}

void tttrt_profile(tt_trt_runtime *r, void *engine, const char *name, int32_t profile, tt_trt_dims shapes[3]) {
	for (int32_t select = 0; select < 3; select++) {
		shapes[select] = CALL(r, engine, TT_VCudaEngine_getProfileShape, tt_trt_dims, (void *, const char *, int32_t, int32_t), name, profile, select);
	}
}

int tttrt_profile_values(tt_trt_runtime *r, void *engine, const char *name, int32_t profile, int32_t n, int64_t *values) {
	const tt_trt_library *l = r->library;
	for (int32_t select = 0; select < 3; select++) {
		int64_t *to = values + (size_t)select * (size_t)n;
		if (l->major == 11 || l->minor >= 11) {
			const int64_t *v = CALL(r, engine, TT_VCudaEngine_getProfileTensorValuesV2, const int64_t *, (void *, const char *, int32_t, int32_t), name, profile, select);
			if (v == NULL) return 1;
			memcpy(to, v, (size_t)n * sizeof *to);
			continue;
		}
		const int32_t *v = CALL(r, engine, TT_VCudaEngine_getProfileTensorValues, const int32_t *, (void *, const char *, int32_t, int32_t), name, profile, select);
		if (v == NULL) return 1;
		for (int32_t i = 0; i < n; i++) to[i] = v[i];
	}
	return 0;
}

int64_t tttrt_memory(tt_trt_runtime *r, void *engine, int32_t profile) {
	return CALL(r, engine, TT_VCudaEngine_getDeviceMemorySizeForProfileV2, int64_t, (void *, int32_t), profile);
}

tt_trt_run *tttrt_run_new(tt_trt_runtime *r, void *engine, int32_t profile, int32_t ins, int32_t outs, void *stream, char *why) {
	tt_trt_run *c = calloc(1, sizeof *c);
	if (c != NULL) {
		c->in = calloc((size_t)ins + 1, sizeof *c->in);
		c->out = calloc((size_t)outs + 1, sizeof *c->out);
		c->allocators = calloc((size_t)outs + 1, sizeof *c->allocators);
	}
	if (c == NULL || c->in == NULL || c->out == NULL || c->allocators == NULL) {
		tttrt_run_free(c);
		snprintf(why, TT_TRT_TEXT, "no memory");
		return NULL;
	}
	c->runtime = r, c->ins = ins, c->outs = outs, c->stream = stream;
	for (int32_t i = 0; i < outs; i++) c->allocators[i] = (tt_trt_allocator){allocator_table, c, i};
	int ok = enter(r, why) == 0;
	if (ok) {
		c->context = CALL(r, engine, TT_VCudaEngine_createExecutionContext, void *, (void *, int32_t), TT_TRT_USER_MANAGED);
		ok = c->context != NULL;
	}
	if (ok) { // also for profile 0, which another context may have
		ok = CALL(r, c->context, TT_VExecutionContext_setOptimizationProfileAsync, _Bool, (void *, int32_t, void *), profile, stream);
	}
	leave();
	if (ok) return c;
	tttrt_run_free(c);
	return NULL;
}

void tttrt_run_free(tt_trt_run *c) {
	if (c == NULL) return;
	if (c->context != NULL) {
		enter(c->runtime, NULL);
		delete_object(c->context);
	}
	free(c->in), free(c->out), free(c->allocators);
	free(c);
}

// Ends a call of a run: a failure has a text.
static int end(tt_trt_run *c, int ok, const char *what) {
	if (!ok && c->why[0] == 0) snprintf(c->why, TT_TRT_TEXT, "%s", what);
	leave();
	pthread_mutex_lock(&c->runtime->log.mu);
	c->logged = c->runtime->log.count > 0;
	pthread_mutex_unlock(&c->runtime->log.mu);
	return !ok;
}

static int set_address(tt_trt_run *c, const char *name, void *data) {
	return CALL(c->runtime, c->context, TT_VExecutionContext_setTensorAddress, _Bool, (void *, const char *, void *), name, data);
}

int tttrt_shapes(tt_trt_run *c) {
	const tt_trt_runtime *r = c->runtime;
	if (enter(r, c->why) != 0) return end(c, 0, "");
	if (c->memory) {
		CALL(r, c->context, TT_VExecutionContext_setDeviceMemoryV2, void, (void *, void *, int64_t), c->scratch, c->bytes);
		c->memory = 0;
	}
	for (int32_t i = 0; i < c->ins; i++) {
		tt_trt_value *v = &c->in[i];
		if (!set_address(c, v->name, v->data)) return end(c, 0, "setTensorAddress failed for an input");
		if (v->changed && !CALL(r, c->context, TT_VExecutionContext_setInputShape, _Bool, (void *, const char *, const tt_trt_dims *), v->name, &v->dims)) {
			return end(c, 0, "setInputShape failed");
		}
		v->changed = 0;
	}
	if (c->infer && CALL(r, c->context, TT_VExecutionContext_inferShapes, int32_t, (void *, int32_t, const char **), 0, NULL) != 0) {
		return end(c, 0, "failed to specify the dimensions of all input tensors or values of all input shape tensors");
	}
	for (int32_t i = 0; i < c->outs; i++) {
		tt_trt_value *v = &c->out[i];
		v->dims = CALL(r, c->context, TT_VExecutionContext_getTensorShape, tt_trt_dims, (void *, const char *), v->name);
		if (v->dims.rank < 0) return end(c, 0, "the shape of an output cannot be found");
		v->allocates = 0;
		for (int32_t k = 0; k < v->dims.rank; k++) v->allocates |= v->dims.d[k] < 0;
	}
	return end(c, 1, "");
}

int tttrt_enqueue(tt_trt_run *c) {
	const tt_trt_runtime *r = c->runtime;
	if (enter(r, c->why) != 0) return end(c, 0, "");
	for (int32_t i = 0; i < c->outs; i++) {
		tt_trt_value *v = &c->out[i];
		int ok = v->allocates
		             ? CALL(r, c->context, TT_VExecutionContext_setOutputAllocator, _Bool, (void *, const char *, void *), v->name, &c->allocators[i])
		             : set_address(c, v->name, v->data);
		if (!ok) return end(c, 0, "setTensorAddress failed for an output");
	}
	int ok = CALL(r, c->context, TT_VExecutionContext_enqueueV3, _Bool, (void *, void *), c->stream);
	return end(c, ok, "enqueueV3 failed");
}
