#include "driver.h"

#include <dlfcn.h>
#include <string.h>

const char *tutti_cuda_open(tutti_cuda *t, const char *path, const char **missing) {
	*missing = NULL;
	void *lib = dlopen(path, RTLD_NOW | RTLD_NODELETE | RTLD_LOCAL);
	if (lib == NULL) {
		const char *why = dlerror();
		return why != NULL ? why : "the library cannot be opened";
	}
#define F(name, symbol, args) \
	if ((t->name = (cu_result(*) args)dlsym(lib, symbol)) == NULL) { \
		*missing = symbol; \
		return "a function is missing"; \
	}
	TUTTI_CUDA_FUNCTIONS(F)
#undef F
	t->capture_mode = (cu_result(*)(int *))dlsym(lib, "cuThreadExchangeStreamCaptureMode");
	t->event_elapsed = (cu_result(*)(float *, cu_event, cu_event))dlsym(lib, "cuEventElapsedTime");
	return NULL;
}

#define TRY(call) \
	do { \
		cu_result r_ = (call); \
		if (r_ != 0) return r_; \
	} while (0)

// enter makes the context current. It also lets the thread call the driver while another one captures a CUDA graph: a runtime may do so
// in the mode in which an allocation, or a query of an event, of any thread ends the capture and fails itself.
static cu_result enter(tutti_cuda *t, cu_context c) {
	static __thread int mine;
	enum { THREAD_LOCAL = 1 };
	if (!mine && t->capture_mode != NULL) {
		int mode = THREAD_LOCAL;
		mine = t->capture_mode(&mode) == 0;
	}
	return t->context_set(c);
}

#define C(name, args, pass) \
	cu_result tutti_cuda_##name args { return t->name pass; }
TUTTI_CUDA_CALLS(C)
#undef C

#define C(name, args, pass) \
	cu_result tutti_cuda_##name args { \
		TRY(enter(t, c)); \
		return t->name pass; \
	}
TUTTI_CUDA_CONTEXT_CALLS(C)
#undef C

cu_result tutti_cuda_init(tutti_cuda *t, int *version, int *devices) {
	TRY(t->driver_version(version));
	TRY(t->init(0));
	return t->device_count(devices);
}

void tutti_cuda_error(tutti_cuda *t, cu_result r, const char **name, const char **text) {
	*name = *text = NULL;
	t->error_name(r, name);
	t->error_string(r, text);
}

// Attributes by their number in the driver's interface.
enum { CAPABILITY_MAJOR = 75, CAPABILITY_MINOR = 76, MEMORY_POOLS = 115 };

cu_result tutti_cuda_device(tutti_cuda *t, int ordinal, cu_device *d, char name[256], cu_uuid *id, size_t *memory, int *major, int *minor, int *pools) {
	TRY(t->device_get(d, ordinal));
	TRY(t->device_name(name, 256, *d));
	TRY(t->device_uuid(id, *d));
	TRY(t->device_memory(memory, *d));
	TRY(t->device_attribute(major, CAPABILITY_MAJOR, *d));
	TRY(t->device_attribute(minor, CAPABILITY_MINOR, *d));
	return t->device_attribute(pools, MEMORY_POOLS, *d);
}

cu_result tutti_cuda_retain(tutti_cuda *t, cu_device d, cu_context *c) { return t->context_retain(c, d); }

enum { POOL_RELEASE_THRESHOLD = 4, POOL_RESERVED = 5, POOL_USED = 7 };

// The pool's memory is the device's own and stays with the process up to keep bytes.
cu_result tutti_cuda_pool(tutti_cuda *t, cu_context c, int ordinal, uint64_t keep, cu_mempool *p) {
	TRY(enter(t, c));
	cu_pool_props props;
	memset(&props, 0, sizeof props);
	props.alloc_type = 1;    // pinned, the only kind
	props.location.type = 1; // a device
	props.location.id = ordinal;
	TRY(t->pool_create(p, &props));
	return t->pool_set(*p, POOL_RELEASE_THRESHOLD, &keep);
}

cu_result tutti_cuda_pool_usage(tutti_cuda *t, cu_mempool p, uint64_t *reserved, uint64_t *used) {
	TRY(t->pool_get(p, POOL_RESERVED, reserved));
	return t->pool_get(p, POOL_USED, used);
}

// Streams do not synchronise with the legacy default stream, which other libraries of the process may use.
cu_result tutti_cuda_stream(tutti_cuda *t, cu_context c, int priority, cu_stream *s) {
	TRY(enter(t, c));
	int least = 0, greatest = 0;
	TRY(t->priority_range(&least, &greatest));
	if (priority > least) priority = least;
	if (priority < greatest) priority = greatest;
	return t->stream_create(s, 1, priority);
}

// R defines a call that returns its results by value.
#define R(type, name, args, call) \
	type tutti_cuda_##name args { \
		type a; \
		memset(&a, 0, sizeof a); \
		if ((a.result = enter(t, c)) == 0) a.result = t->call; \
		return a; \
	}
R(cu_allocated, alloc_async, (tutti_cuda *t, cu_context c, size_t n, cu_mempool from, cu_stream s), alloc_async(&a.p, n, from, s))
R(cu_allocated, alloc, (tutti_cuda *t, cu_context c, size_t n), alloc(&a.p, n))
R(cu_pinned, host_alloc, (tutti_cuda *t, cu_context c, size_t n, unsigned flags), host_alloc(&a.p, n, flags))
R(cu_allocated, ipc_open, (tutti_cuda *t, cu_context c, const cu_ipc_handle *h), ipc_open(&a.p, *h, 1))
R(cu_range, address_range, (tutti_cuda *t, cu_context c, cu_ptr p), address_range(&a.base, &a.n, p))
R(cu_loaded, module_load, (tutti_cuda *t, cu_context c, const void *image), module_load(&a.module, image, 0, NULL, NULL))
R(cu_elapsed, event_elapsed, (tutti_cuda *t, cu_context c, cu_event start, cu_event end), event_elapsed(&a.ms, start, end))
R(cu_created, event_new, (tutti_cuda *t, cu_context c, unsigned flags), event_create(&a.event, flags))
R(cu_found, module_function, (tutti_cuda *t, cu_context c, cu_module m, const char *name), module_function(&a.function, m, name))

cu_result tutti_cuda_launch(tutti_cuda *t, cu_context c, cu_function f, const unsigned *grid, const unsigned *block, cu_stream s, const uint64_t *values, int n) {
	TRY(enter(t, c));
	void *params[32];
	for (int i = 0; i < n && i < 32; i++) params[i] = (void *)&values[i];
	return t->launch(f, grid[0], grid[1], grid[2], block[0], block[1], block[2], 0, s, params, NULL);
}

cu_result tutti_cuda_fill(tutti_cuda *t, cu_context c, cu_ptr dst, size_t n, const void *elem, int width, cu_stream s) {
	TRY(enter(t, c));
	uint16_t half;
	uint32_t words[2];
	switch (width) {
	case 1:
		return t->set8(dst, *(const unsigned char *)elem, n, s);
	case 2:
		memcpy(&half, elem, 2);
		return t->set16(dst, half, n / 2, s);
	case 4:
		memcpy(words, elem, 4);
		return t->set32(dst, words[0], n / 4, s);
	default: // 8: two columns of words
		memcpy(words, elem, 8);
		if (words[0] == words[1]) return t->set32(dst, words[0], n / 4, s);
		TRY(t->set2d32(dst, 8, words[0], 1, n / 8, s));
		return t->set2d32(dst + 4, 8, words[1], 1, n / 8, s);
	}
}
