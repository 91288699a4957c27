#include <dlfcn.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "host.h"

// The life of the library in this process: loaded, then instances with a thread each, then unloaded. Go calls these functions from one
// goroutine, one at a time; executions need no calls: they are started and reported through shared memory.

struct tl_library tl_library;

static TRITONBACKEND_Backend backend;
static TRITONBACKEND_Model model;
static TRITONBACKEND_ModelInstance *instances[TT_INSTANCES];
static bool backend_ready, model_ready;

static char *copied(const char *s) {
	char *c = strdup(s);
	if (c == NULL) abort();
	return c;
}

TRITONSERVER_Error *tl_setup(uint8_t *mem, size_t size, const uint8_t *all, size_t slots, size_t slot_size) {
	if (size < TT_SLOTS + slots * slot_size) {
		return tl_errorf(TRITONSERVER_ERROR_UNAVAILABLE, "the shared memory of the process has %zu bytes, expected at least %zu", size, TT_SLOTS + slots * slot_size);
	}
	tl_range = (struct tl_range){mem, size, all, slots, slot_size, TT_SLOTS + slots * slot_size};
	return NULL;
}

// open_library opens the library and finds its functions.
static TRITONSERVER_Error *open_library(const char *path) {
	void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (lib == NULL) return tl_errorf(TRITONSERVER_ERROR_NOT_FOUND, "unable to load shared library: %s", dlerror());
#define FIND(field, name) *(void **)&tl_library.field = dlsym(lib, name)
	FIND(initialize, "TRITONBACKEND_Initialize");
	FIND(finalize, "TRITONBACKEND_Finalize");
	FIND(attributes, "TRITONBACKEND_GetBackendAttribute");
	FIND(model_initialize, "TRITONBACKEND_ModelInitialize");
	FIND(model_finalize, "TRITONBACKEND_ModelFinalize");
	FIND(instance_initialize, "TRITONBACKEND_ModelInstanceInitialize");
	FIND(instance_finalize, "TRITONBACKEND_ModelInstanceFinalize");
	FIND(execute, "TRITONBACKEND_ModelInstanceExecute");
	if (tl_library.execute == NULL) {
		return tl_errorf(TRITONSERVER_ERROR_NOT_FOUND, "unable to find required entrypoint 'TRITONBACKEND_ModelInstanceExecute' in backend library '%s'", path);
	}
	return NULL;
}

TRITONSERVER_Error *tl_load(const char *library, const char *name, const char *folder, const char *settings, const char *model_name, const char *model_folder, uint64_t version, const char *config, int complete) {
	TRITONSERVER_Error *e = open_library(library);
	if (e != NULL) return e;
	backend.name = copied(name);
	backend.folder = copied(folder);
	backend.config = (TRITONSERVER_Message){copied(settings), strlen(settings)};
	model.backend = &backend;
	model.name = copied(model_name);
	model.folder = copied(model_folder);
	model.version = version;
	model.complete = complete != 0;
	model.config = (TRITONSERVER_Message){copied(config), strlen(config)};
	pthread_mutex_init(&model.lock, NULL);
	if (tl_library.initialize != NULL && (e = tl_library.initialize(&backend)) != NULL) return e;
	backend_ready = true;
	if (tl_library.attributes != NULL) {
		if ((e = tl_library.attributes(&backend, (TRITONBACKEND_BackendAttribute *)&backend)) != NULL) return e;
	}
	if (tl_library.model_initialize != NULL && (e = tl_library.model_initialize(&model)) != NULL) return e;
	model_ready = true;
	return NULL;
}

// tl_completed returns the configuration that the library has set, to free, or NULL.
char *tl_completed(void) {
	pthread_mutex_lock(&model.lock);
	char *json = model.set ? copied(model.config.json) : NULL;
	pthread_mutex_unlock(&model.lock);
	return json;
}

// split returns the next count texts of a list of texts that each end with 0.
static char **split(const char **list, uint32_t count) {
	char **texts = calloc(count + 1, sizeof *texts);
	if (texts == NULL) abort();
	for (uint32_t i = 0; i < count; i++) {
		texts[i] = copied(*list);
		*list += strlen(*list) + 1;
	}
	return texts;
}

TRITONSERVER_Error *tl_bind(const char *names, uint32_t inputs, uint32_t outputs, uint32_t states) {
	pthread_mutex_lock(&model.lock);
	model.inputs = split(&names, model.input_count = inputs);
	model.outputs = split(&names, model.output_count = outputs);
	model.states = split(&names, model.state_count = states);
	pthread_mutex_unlock(&model.lock);
	return NULL;
}

static void futex(void *at, int operation, uint32_t value) { syscall(SYS_futex, at, operation, value, NULL, NULL, 0); }

static uint64_t now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline void relax(void) {
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

// await waits until the server starts another execution than the last one. It looks for some microseconds before it sleeps.
static uint32_t await(TRITONBACKEND_ModelInstance *x, uint32_t last) {
	enum { SPIN_NS = 20000 };
	uint8_t *box = tl_at(TT_MAILBOX + (size_t)x->index * TT_MAILBOX_SIZE);
	_Atomic uint32_t *started = (void *)box, *asleep = (void *)(box + 64);
	uint64_t until = 0;
	for (;;) {
		for (int i = 0; i < 64; i++) {
			uint32_t v = atomic_load(started);
			if (v != last) return v;
			relax();
		}
		uint64_t t = now();
		if (until == 0) until = t + SPIN_NS;
		if (t < until) continue;
		atomic_store(asleep, 1);
		if (atomic_load(started) == last) futex(started, FUTEX_WAIT, last);
		atomic_store(asleep, 0);
	}
}

// report says that Execute has returned. After an error the requests are the server's again, as in Triton.
static void report(uint32_t slot, TRITONBACKEND_Request **batch, uint32_t count, TRITONSERVER_Error *e, uint64_t *event) {
	if (e != NULL) {
		for (uint32_t i = 0; i < count; i++) {
			struct tl_ticket *t = batch[i]->ticket;
			atomic_store(&t->final, true);
			tl_recycle(batch[i]);
			tl_drop(t);
		}
		size_t n = strlen(e->text);
		event[TT_EVENT_FLAGS] = (uint64_t)e->code + 1;
		event[TT_EVENT_BODY] = n;
		memcpy(&event[TT_EVENT_BODY + 1], e->text, n);
		TRITONSERVER_ErrorDelete(e);
	}
	tl_post(slot, event, false);
}

// execute_slot executes the batch of a slot.
static void execute_slot(TRITONBACKEND_ModelInstance *x, uint32_t slot) {
	enum { TEXT = 4096 };
	const char *why = NULL;
	uint32_t count = 0;
	const _Atomic uint32_t *round = (void *)(tl_slot(slot) + TT_SLOT_ROUND);
	struct tl_ticket about = {.slot = slot, .round = atomic_load(round), .index = 0};
	uint64_t *event;
	while ((event = tl_event(&about, TT_EVENT_EXECUTED, 0, 8 + TEXT)) == NULL) {
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL); // until the server frees blocks
	}
	event[TT_EVENT_BODY] = 0;
	TRITONBACKEND_Request **batch = tl_parse(x, slot, &count, &why);
	TRITONSERVER_Error *e = batch == NULL ? TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, why) : tl_library.execute(x, batch, count);
	if (e != NULL && strlen(e->text) >= TEXT) e->text[TEXT - 1] = 0;
	report(slot, x->batch, count, e, event);
}

static void *run(void *of) {
	TRITONBACKEND_ModelInstance *x = of;
	TRITONSERVER_Error *e = tl_library.instance_initialize == NULL ? NULL : tl_library.instance_initialize(x);
	pthread_mutex_lock(&x->lock);
	x->error = e;
	x->ready = true;
	pthread_cond_signal(&x->changed);
	pthread_mutex_unlock(&x->lock);
	if (e != NULL) return NULL;
	const uint8_t *box = tl_at(TT_MAILBOX + (size_t)x->index * TT_MAILBOX_SIZE);
	for (uint32_t last = 0;;) {
		last = await(x, last);
		if (atomic_load(&x->stop)) break;
		execute_slot(x, *(const volatile uint32_t *)(box + 4));
	}
	if (tl_library.instance_finalize != NULL) {
		e = tl_library.instance_finalize(x);
		if (e != NULL) TRITONSERVER_LogMessage(TRITONSERVER_LOG_ERROR, __FILE__, __LINE__, e->text);
		TRITONSERVER_ErrorDelete(e);
	}
	return NULL;
}

TRITONSERVER_Error *tl_instance(uint32_t index, const char *name, int kind, int device, const char *profiles, uint32_t profile_count) {
	if (index >= TT_INSTANCES || instances[index] != NULL) {
		return tl_errorf(TRITONSERVER_ERROR_INTERNAL, "instance %u cannot be made: expected a free number below %d", index, TT_INSTANCES);
	}
	TRITONBACKEND_ModelInstance *x = calloc(1, sizeof *x);
	if (x == NULL) abort();
	x->model = &model;
	x->name = copied(name);
	x->kind = (TRITONSERVER_InstanceGroupKind)kind;
	x->device = device;
	x->index = index;
	static const char policy[] = "{\"cpu\":{}}";
	x->policy = (TRITONSERVER_Message){copied(policy), sizeof policy - 1};
	x->profiles = split(&profiles, x->profile_count = profile_count);
	pthread_mutex_init(&x->lock, NULL);
	pthread_mutex_init(&x->spare_lock, NULL);
	pthread_cond_init(&x->changed, NULL);
	memset(tl_at(TT_MAILBOX + (size_t)index * TT_MAILBOX_SIZE), 0, TT_MAILBOX_SIZE);
	if (pthread_create(&x->thread, NULL, run, x) != 0) {
		return tl_errorf(TRITONSERVER_ERROR_UNAVAILABLE, "cannot start a thread for instance '%s'", name);
	}
	pthread_mutex_lock(&x->lock);
	while (!x->ready) pthread_cond_wait(&x->changed, &x->lock);
	TRITONSERVER_Error *e = x->error;
	pthread_mutex_unlock(&x->lock);
	if (e != NULL) {
		pthread_join(x->thread, NULL);
		return e; // x stays: the library may have kept it
	}
	instances[index] = x;
	return NULL;
}

TRITONSERVER_Error *tl_close_instance(uint32_t index) {
	TRITONBACKEND_ModelInstance *x = index < TT_INSTANCES ? instances[index] : NULL;
	if (x == NULL) return tl_errorf(TRITONSERVER_ERROR_INTERNAL, "there is no instance %u", index);
	instances[index] = NULL;
	atomic_store(&x->stop, true);
	_Atomic uint32_t *started = tl_at(TT_MAILBOX + (size_t)index * TT_MAILBOX_SIZE);
	atomic_fetch_add(started, 1);
	futex(started, FUTEX_WAKE, INT_MAX);
	pthread_join(x->thread, NULL);
	return NULL; // x stays: requests that the library has not released refer to it
}

TRITONSERVER_Error *tl_unload(void) {
	for (uint32_t i = 0; i < TT_INSTANCES; i++) {
		if (instances[i] != NULL) TRITONSERVER_ErrorDelete(tl_close_instance(i));
	}
	TRITONSERVER_Error *e = NULL;
	if (model_ready && tl_library.model_finalize != NULL) e = tl_library.model_finalize(&model);
	model_ready = false;
	if (e == NULL && backend_ready && tl_library.finalize != NULL) e = tl_library.finalize(&backend);
	backend_ready = false;
	return e;
}
