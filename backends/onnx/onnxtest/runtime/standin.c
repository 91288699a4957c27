#define _GNU_SOURCE
#include "standin.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FAULTS = 50 };

OrtFunctions real;
driver cuda;
pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
OrtAllocator *allocators[16];
struct counts counts;

static char faults[MAX_FAULTS][256], notes[32 << 10];
static int fault_count;
static options *all_options;
static run_options *all_runs;
static session *sessions;
static void *table[TABLE];
static OrtApiBase base;

void fault(const char *format, ...) {
	va_list args;
	va_start(args, format);
	pthread_mutex_lock(&mu);
	if (fault_count < MAX_FAULTS) vsnprintf(faults[fault_count++], sizeof faults[0], format, args);
	pthread_mutex_unlock(&mu);
	va_end(args);
}

void note(const char *format, ...) {
	va_list args;
	va_start(args, format);
	pthread_mutex_lock(&mu);
	size_t at = strlen(notes);
	vsnprintf(notes + at, sizeof notes - at, format, args);
	pthread_mutex_unlock(&mu);
	va_end(args);
}

OrtStatus *failed(const char *call, int result) {
	char text[128];
	snprintf(text, sizeof text, "CUDA failure %d: %s ; GPU=0 ; expr=%s", result, result == 2 ? "out of memory" : "an error", call);
	return real.CreateStatus(11, text);
}

void count_arena(size_t n, int sign) { __atomic_fetch_add(&counts.arena, (uint64_t)sign * ((n + 4095) / 4096 * 4096), __ATOMIC_SEQ_CST); }

int move(way w, cu_ptr to, cu_ptr from, size_t n, void *stream) {
	__atomic_fetch_add(&counts.moves[w], 1, __ATOMIC_SEQ_CST);
	__atomic_fetch_add(&counts.bytes[w], n, __ATOMIC_SEQ_CST);
	return cuda.cuMemcpyAsync(to, from, n, stream);
}

bool at_device(const OrtMemoryInfo *info, int *id) {
	int kind = 0;
	if (info != NULL) real.MemoryInfoGetDeviceType(info, &kind);
	if (kind == 0) return false;
	((OrtStatus * (*)(const OrtMemoryInfo *, int *)) table[72])(info, id);
	return true;
}

bool on_host(const session *s, const char *name) {
	size_t n = strlen(name);
	for (const char *p = s->o.host; *p != 0; p += strcspn(p, ","), p += *p == ',')
		if (strcspn(p, ",") == n && memcmp(p, name, n) == 0) return true;
	return false;
}

// options_of returns what the options hold. Callers hold mu.
static options *options_of(OrtSessionOptions *key) {
	for (options *o = all_options; o != NULL; o = o->next)
		if (o->key == key) return o;
	options *o = calloc(1, sizeof *o);
	o->key = key, o->weights = WEIGHTS, o->next = all_options;
	return all_options = o;
}

session *session_of(const OrtSession *key) {
	pthread_mutex_lock(&mu);
	session *s = sessions;
	while (s != NULL && s->key != key) s = s->next;
	pthread_mutex_unlock(&mu);
	return s;
}

run_options run_options_of(const OrtRunOptions *key) {
	run_options found = {0};
	found.graph = 0;
	pthread_mutex_lock(&mu);
	for (run_options *r = all_runs; r != NULL; r = r->next)
		if (r->key == key) found = *r;
	pthread_mutex_unlock(&mu);
	return found;
}

static OrtStatus *add_run_entry(OrtRunOptions *key, const char *name, const char *v) {
	pthread_mutex_lock(&mu);
	run_options *r = all_runs;
	while (r != NULL && r->key != key) r = r->next;
	if (r == NULL) {
		r = calloc(1, sizeof *r);
		r->key = key, r->next = all_runs, all_runs = r;
	}
	if (strcmp(name, "disable_synchronize_execution_providers") == 0) r->unsynchronized = strcmp(v, "1") == 0;
	if (strcmp(name, "gpu_graph_id") == 0) r->graph = strtol(v, NULL, 10);
	pthread_mutex_unlock(&mu);
	return real.AddRunConfigEntry(key, name, v);
}

static void release_run_options(OrtRunOptions *key) {
	pthread_mutex_lock(&mu);
	for (run_options **at = &all_runs; *at != NULL; at = &(*at)->next)
		if ((*at)->key == key) {
			run_options *gone = *at;
			*at = gone->next;
			free(gone);
			break;
		}
	pthread_mutex_unlock(&mu);
	real.ReleaseRunOptions(key);
}

static OrtStatus *providers(char ***names, int *n) {
	static const char *list[] = {"TensorrtExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider"};
	*names = (char **)list, *n = 3;
	return NULL;
}

static OrtStatus *providers_free(char **names, int n) {
	(void)names, (void)n;
	return NULL;
}

// Options of a provider are a list of pairs.
typedef struct { char *keys[64], *values[64]; size_t n; } pairs;

static OrtStatus *pairs_new(void **out) { return *out = calloc(1, sizeof(pairs)), NULL; }

static void pairs_free(void *v) {
	pairs *p = v;
	for (size_t i = 0; p != NULL && i < p->n; i++) free(p->keys[i]), free(p->values[i]);
	free(p);
}

// Options that the real providers know, besides those with the prefix trt_ of the second.
static const char *known[] = {
	"device_id", "has_user_compute_stream", "user_compute_stream", "gpu_mem_limit", "arena_extend_strategy", "cudnn_conv_algo_search",
	"do_copy_in_default_stream", "cudnn_conv_use_max_workspace", "enable_cuda_graph", "cudnn_conv1d_pad_to_nc1d", "use_tf32", "prefer_nhwc",
	"use_ep_level_unified_stream", "tunable_op_enable", "enable_cudnn", "fuse_conv_bias", "sdpa_kernel",
};

static OrtStatus *pairs_set(void *v, const char *const *keys, const char *const *values, size_t n) {
	pairs *p = v;
	for (size_t i = 0; i < n; i++) {
		bool ok = strncmp(keys[i], "trt_", 4) == 0;
		for (size_t k = 0; !ok && k < sizeof known / sizeof *known; k++) ok = strcmp(known[k], keys[i]) == 0;
		for (size_t k = 0; k < p->n; k++)
			if (strcmp(p->keys[k], keys[i]) == 0) fault("provider option %s is set twice", keys[i]);
		if (!ok || p->n == 64) {
			char text[200];
			snprintf(text, sizeof text, "Unknown provider option: \"%s\".", keys[i]);
			return real.CreateStatus(2, text);
		}
		p->keys[p->n] = strdup(keys[i]), p->values[p->n++] = strdup(values[i]);
	}
	return NULL;
}

static OrtStatus *append(OrtSessionOptions *key, const pairs *p, const char *name) {
	pthread_mutex_lock(&mu);
	options *o = options_of(key);
	o->cuda = true;
	for (size_t i = 0; i < p->n; i++) {
		if (strcmp(p->keys[i], "device_id") == 0) o->device = atoi(p->values[i]);
		if (strcmp(p->keys[i], "user_compute_stream") == 0) o->stream = strtoull(p->values[i], NULL, 10);
		if (strstr(p->keys[i], "cuda_graph") != NULL) o->graphs = o->graphs || strcmp(p->values[i], "1") == 0;
	}
	pthread_mutex_unlock(&mu);
	for (size_t i = 0; i < p->n; i++) note("%s %s=%s\n", name, p->keys[i], p->values[i]);
	return NULL;
}

static OrtStatus *append_cuda(OrtSessionOptions *o, const pairs *p) { return append(o, p, "cuda"); }
static OrtStatus *append_trt(OrtSessionOptions *o, const pairs *p) { return append(o, p, "tensorrt"); }

static OrtStatus *add_entry(OrtSessionOptions *key, const char *name, const char *v) {
	pthread_mutex_lock(&mu);
	options *o = options_of(key);
	if (strcmp(name, "session.use_env_allocators") == 0) o->env = strcmp(v, "1") == 0;
	if (strcmp(name, "session.standin_host") == 0) snprintf(o->host, sizeof o->host, "%s", v);
	if (strcmp(name, "session.standin_weights") == 0) o->weights = strtoull(v, NULL, 10) + WEIGHTS;
	pthread_mutex_unlock(&mu);
	return real.AddSessionConfigEntry(key, name, v);
}

static void release_options(OrtSessionOptions *key) {
	pthread_mutex_lock(&mu);
	for (options **at = &all_options; *at != NULL; at = &(*at)->next)
		if ((*at)->key == key) {
			options *gone = *at;
			*at = gone->next;
			free(gone);
			break;
		}
	pthread_mutex_unlock(&mu);
	real.ReleaseSessionOptions(key);
}

// connect finds the driver's functions in the library that the tests name, which the process has open.
static OrtStatus *connect(void) {
	if (cuda.cuMemcpyAsync != NULL) return NULL;
	const char *path = getenv("TUTTI_TEST_CUDA_DRIVER");
	void *lib = path != NULL ? dlopen(path, RTLD_NOW) : NULL;
	if (lib == NULL) return real.CreateStatus(11, "Failed to load library libonnxruntime_providers_cuda.so with error: libcuda.so.1: cannot open shared object file");
#define F(name) cuda.name = dlsym(lib, #name)
	F(cuDevicePrimaryCtxRetain), F(cuDevicePrimaryCtxRelease_v2), F(cuCtxSetCurrent), F(cuMemcpyAsync), F(cuMemsetD8Async);
	F(cuStreamSynchronize), F(cuMemAlloc_v2), F(cuMemFree_v2);
#undef F
	return NULL;
}

static OrtStatus *load_weights(session *s) {
	static unsigned char content[WEIGHTS] = {1, 2, 3};
	ownership own;
	OrtStatus *st = take_memory(s, s->o.weights, &s->weights, &own);
	if (st != NULL) return st;
	int r = move(UP, s->weights, (cu_ptr)(uintptr_t)content, WEIGHTS, (void *)(uintptr_t)s->o.stream);
	return r != 0 ? failed("cudaMemcpyAsync", r) : NULL;
}

static void release_session(OrtSession *key) {
	session *s = session_of(key);
	if (s == NULL) {
		real.ReleaseSession(key);
		return;
	}
	cuda.cuCtxSetCurrent(s->context);
	pthread_mutex_lock(&mu);
	for (session **at = &sessions; *at != NULL; at = &(*at)->next)
		if (*at == s) {
			*at = s->next;
			break;
		}
	OrtAllocator *from = s->o.env ? allocators[s->o.device] : NULL;
	pthread_mutex_unlock(&mu);
	for (size_t i = 0; i < s->lates; i++) real.ReleaseValue(s->late[i]);
	if (from != NULL) {
		if (s->weights != 0) from->Free(from, (void *)s->weights);
	} else if (s->weights != 0) {
		cuda.cuMemFree_v2(s->weights);
		count_arena(s->o.weights, -1);
	}
	for (chunk *c = s->free; c != NULL;) {
		chunk *gone = c;
		cuda.cuMemFree_v2(c->p);
		count_arena(c->n, -1);
		c = c->next;
		free(gone);
	}
	cuda.cuDevicePrimaryCtxRelease_v2(s->o.device);
	__atomic_fetch_sub(&counts.sessions, 1, __ATOMIC_SEQ_CST);
	if (s->key != NULL) real.ReleaseSession(s->key);
	free(s);
}

static OrtStatus *create_session(const OrtEnv *env, const char *path, const OrtSessionOptions *o, OrtSession **out) {
	OrtStatus *st = real.CreateSession(env, path, o, out);
	pthread_mutex_lock(&mu);
	options found = *options_of((OrtSessionOptions *)o);
	pthread_mutex_unlock(&mu);
	if (st != NULL || !found.cuda) return st;
	if ((st = connect()) != NULL) return st;
	if (found.stream == 0) fault("a session with the CUDA provider has no user_compute_stream");
	session *s = calloc(1, sizeof *s);
	s->key = *out, s->o = found;
	int r = cuda.cuDevicePrimaryCtxRetain(&s->context, found.device);
	if (r == 0) r = cuda.cuCtxSetCurrent(s->context);
	pthread_mutex_lock(&mu);
	s->next = sessions, sessions = s;
	pthread_mutex_unlock(&mu);
	__atomic_fetch_add(&counts.sessions, 1, __ATOMIC_SEQ_CST);
	st = r != 0 ? failed("cudaSetDevice", r) : load_weights(s);
	if (st != NULL) {
		release_session(*out);
		*out = NULL;
	}
	return st;
}

static OrtStatus *sides(const OrtSession *key, const OrtMemoryInfo **infos, size_t n, int output) {
	static OrtMemoryInfo *device, *host;
	session *s = session_of(key);
	if (s == NULL) return output ? real.SessionGetMemoryInfoForOutputs(key, infos, n) : real.SessionGetMemoryInfoForInputs(key, infos, n);
	if (device == NULL) real.CreateMemoryInfo("Cuda", 0, 0, 0, &device), real.CreateCpuMemoryInfo(0, 0, &host);
	OrtAllocator *heap;
	real.GetAllocatorWithDefaultOptions(&heap);
	for (size_t i = 0; i < n; i++) {
		char *name = NULL;
		OrtStatus *st = output ? real.SessionGetOutputName(key, i, heap, &name) : real.SessionGetInputName(key, i, heap, &name);
		if (st != NULL) return st;
		infos[i] = on_host(s, name) ? host : device;
		real.AllocatorFree(heap, name);
	}
	return NULL;
}

static OrtStatus *input_sides(const OrtSession *s, const OrtMemoryInfo **infos, size_t n) { return sides(s, infos, n, 0); }
static OrtStatus *output_sides(const OrtSession *s, const OrtMemoryInfo **infos, size_t n) { return sides(s, infos, n, 1); }

static OrtStatus *register_allocator(OrtEnv *env, OrtAllocator *a) {
	int id = 0;
	if (!at_device(a->Info(a), &id)) return real.RegisterAllocator(env, a);
	pthread_mutex_lock(&mu);
	bool taken = allocators[id] != NULL;
	allocators[id] = a;
	pthread_mutex_unlock(&mu);
	if (taken) fault("device %d has an allocator already", id);
	return NULL;
}

static OrtStatus *unregister_allocator(OrtEnv *env, const OrtMemoryInfo *info) {
	int id = 0;
	if (!at_device(info, &id)) return real.UnregisterAllocator(env, info);
	pthread_mutex_lock(&mu);
	allocators[id] = NULL;
	pthread_mutex_unlock(&mu);
	return NULL;
}

static void *stream_handle(OrtSyncStream *s) { return (void *)(uintptr_t)((session *)s)->o.stream; }

static void *const *get_api(uint32_t v) {
	(void)v;
	return table;
}

static void open_real(void) {
	const char *path = getenv("TUTTI_ONNX_STANDIN_RUNTIME");
	char beside[4096];
	Dl_info self;
	if (path == NULL && dladdr(&table, &self) != 0) {
		const char *slash = strrchr(self.dli_fname, '/');
		snprintf(beside, sizeof beside, "%.*sruntime", slash != NULL ? (int)(slash + 1 - self.dli_fname) : 0, self.dli_fname);
		path = beside;
	}
	void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (lib == NULL) {
		fprintf(stderr, "stand-in of ONNX Runtime: %s\n", dlerror());
		abort();
	}
	const OrtApiBase *(*get)(void) = (const OrtApiBase *(*)(void))dlsym(lib, "OrtGetApiBase");
	base = *get();
	void *const *from = base.GetApi(ORT_MIN_API);
	memcpy(table, from, 414 * sizeof *table);
#define X(position, result, name, args) real.name = (result(*) args)table[position];
	ORT_FUNCTIONS(X)
#undef X
	base.GetApi = get_api;
	void *ours[][2] = {
		{(void *)7, create_session}, {(void *)95, release_session}, {(void *)100, release_options}, {(void *)130, add_entry},
		{(void *)125, providers}, {(void *)126, providers_free}, {(void *)204, append_cuda}, {(void *)205, pairs_new},
		{(void *)206, pairs_set}, {(void *)208, pairs_free}, {(void *)170, append_trt}, {(void *)171, pairs_new}, {(void *)172, pairs_set},
		{(void *)174, pairs_free}, {(void *)165, add_run_entry}, {(void *)97, release_run_options}, {(void *)176, register_allocator},
		{(void *)177, unregister_allocator}, {(void *)380, input_sides}, {(void *)381, output_sides}, {(void *)384, stream_handle},
		{(void *)49, new_value}, {(void *)96, release_value},
	};
	for (size_t i = 0; i < sizeof ours / sizeof *ours; i++) table[(uintptr_t)ours[i][0]] = ours[i][1];
	install_runs(table);
}

const OrtApiBase *OrtGetApiBase(void) {
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, open_real);
	return &base;
}

// tutti_ort_report writes the faults, the counters and the options of providers so far, and returns the number of faults.
int tutti_ort_report(char *text, size_t n) {
	pthread_mutex_lock(&mu);
	size_t at = 0;
	for (int i = 0; i < fault_count && at < n; i++) at += (size_t)snprintf(text + at, n - at, "fault: %s\n", faults[i]);
	if (at < n)
		snprintf(text + at, n - at, "runs %lu\nsynchronized %lu\ncaptures %lu\nreplays %lu\nsessions %lu\nvalues %lu\narena %lu\n"
			"up %lu\nup_bytes %lu\ndown %lu\ndown_bytes %lu\nwithin %lu\nwithin_bytes %lu\n%s", counts.runs, counts.synchronized, counts.captures,
			counts.replays, counts.sessions, counts.values, counts.arena, counts.moves[UP], counts.bytes[UP], counts.moves[DOWN], counts.bytes[DOWN],
			counts.moves[WITHIN], counts.bytes[WITHIN], notes);
	pthread_mutex_unlock(&mu);
	return fault_count;
}
