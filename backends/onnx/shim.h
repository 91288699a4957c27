// C functions over the runtime's function table, for Go. A function that can fail returns NULL or an OrtStatus; tt_text returns its
// message.
#ifndef TUTTI_SHIM_H
#define TUTTI_SHIM_H

#include "ort.h"

#define TT_MAX_RANK 16
#define TT_NAME_ROOM 128  // size of a symbolic dimension name; a longer one counts as unnamed

// One opened runtime.
typedef struct {
	OrtFunctions f;
	OrtEnv *env;
	OrtMemoryInfo *cpu;
	OrtAllocator *heap;
} tt_runtime;

// Settings of the environment.
typedef struct {
	int shared_threads, intra_threads, inter_threads;  // global thread pools
	size_t memory_limit;                               // of the arena of all sessions, 0 for none
} tt_start_settings;

// Settings of a session.
typedef struct {
	int intra_threads, inter_threads, parallel, graph_level, arena, pattern, shared_threads;
} tt_settings;

// Settings of an execution provider.
typedef struct {
	const char **keys, **values;
	size_t n;
} tt_pairs;

// Execution providers. TT_NAMED is any provider that is added by its name.
typedef enum { TT_NAMED, TT_CUDA, TT_TENSORRT, TT_OPENVINO } tt_provider;

// The declaration of one input or output.
typedef struct {
	char *name;  // free()
	int kind;    // 1 is a tensor
	int type;    // element type
	size_t rank;
	int64_t dims[TT_MAX_RANK];
	char symbols[TT_MAX_RANK][TT_NAME_ROOM];
} tt_port;

// One tensor of a run.
typedef struct {
	void *data;
	size_t bytes;
	OrtValue *value;  // after a run, holds data of an output that the runtime allocated
	int use;          // takes part in this run
	int given;        // outputs: data is the caller's memory; else the runtime allocates
	int type;
	int device;  // data is memory of the call's device, or an output is to be allocated there
	int rank;
	int64_t dims[TT_MAX_RANK];
} tt_value;

#define TT_STRING 8  // element type of strings

// The reusable memory of one instance. Not safe for concurrent use.
typedef struct {
	tt_runtime *rt;
	OrtSession *session;
	OrtRunOptions *options;
	OrtBinding *binding;    // NULL: tensors are passed with each run
	OrtMemoryInfo *device;  // memory of bound outputs, NULL for the host
	size_t ins, outs;
	tt_value *in, *out;
	char **in_names, **out_names;       // owned
	const char **in_used, **out_used;   // this run's names
	OrtValue **in_values, **out_values; // this run's tensors
	size_t *starts, starts_room;        // where each string of an output begins
} tt_call;

// Reads the function table of an opened library. Returns 1 when the library is older than ORT_MIN_API. Sets version in both cases.
int tt_open(void *get_base, tt_runtime *rt, const char **version);
OrtStatus *tt_start(tt_runtime *rt, const tt_start_settings *s);
void tt_stop(tt_runtime *rt);

const char *tt_text(tt_runtime *rt, OrtStatus *st, int *code);
void tt_forget(tt_runtime *rt, OrtStatus *st);

// The names of the execution providers that the library was built with.
OrtStatus *tt_providers(tt_runtime *rt, char ***names, int *n);
void tt_providers_free(tt_runtime *rt, char **names, int n);

// *out may be set even after tt_options_new fails. The caller frees it.
OrtStatus *tt_options_new(tt_runtime *rt, const tt_settings *s, OrtSessionOptions **out);
OrtStatus *tt_options_entry(tt_runtime *rt, OrtSessionOptions *o, const char *key, const char *value);
OrtStatus *tt_options_library(tt_runtime *rt, OrtSessionOptions *o, const char *path);
OrtStatus *tt_options_provider(tt_runtime *rt, OrtSessionOptions *o, tt_provider which, const char *name, const tt_pairs *p);
// Stops a load that uses the options. May be called from any thread.
void tt_options_cancel(tt_runtime *rt, OrtSessionOptions *o);
void tt_options_free(tt_runtime *rt, OrtSessionOptions *o);

OrtStatus *tt_load(tt_runtime *rt, const char *path, const OrtSessionOptions *o, OrtSession **out);
void tt_unload(tt_runtime *rt, OrtSession *s);
OrtStatus *tt_count(tt_runtime *rt, OrtSession *s, int output, size_t *n);
OrtStatus *tt_declared(tt_runtime *rt, OrtSession *s, int output, size_t i, tt_port *p);

// Sets host[i] for each of n inputs or outputs that the session reads or makes on the host, else clears it.
OrtStatus *tt_sides(tt_runtime *rt, OrtSession *s, int output, size_t n, unsigned char *host);

// Memory of the server's pool of one device, for the sessions of an environment.
typedef struct {
	OrtAllocator base;
	tt_runtime *rt;
	OrtMemoryInfo *info;
	int id;  // the pool's number in Go
} tt_pool;

// Creates the pool's allocator for a CUDA device and gives it to the environment. *out is NULL after a failure.
OrtStatus *tt_pool_new(tt_runtime *rt, int id, int device, tt_pool **out);
// Takes it from the environment. Tensors that it allocated may still be released until tt_pool_free.
void tt_pool_stop(tt_pool *p);
void tt_pool_free(tt_pool *p);

// Creates a call. The caller frees *out even after a failure; it is NULL when there is no memory.
OrtStatus *tt_call_new(tt_runtime *rt, OrtSession *s, size_t ins, size_t outs, tt_call **out);
int tt_call_name(tt_call *c, int output, size_t i, const char *name);
OrtStatus *tt_call_option(tt_call *c, const char *key, const char *value);
// Makes runs use an IoBinding. id is a CUDA device, or negative for the host. A run at a device returns before its work is done.
OrtStatus *tt_call_bind(tt_call *c, int id);
void tt_call_free(tt_call *c);

// Stops the current run and later ones, until tt_resume. May be called from any thread.
void tt_stop_run(tt_call *c);
void tt_resume(tt_call *c);

// Runs the model with c->in and c->out: the only call from Go per execution.
OrtStatus *tt_run(tt_call *c);
// Is tt_run for a call at a device, whose run may call tuttiOnnxAlloc and tuttiOnnxFree.
OrtStatus *tt_run_device(tt_call *c);

// Writes the n strings of output i to dst as BYTES: 4 bytes of length before each string.
OrtStatus *tt_take_strings(tt_call *c, size_t i, size_t n, char *dst);

// Shared by call.c, strings.c and bound.c.
OrtStatus *tt_make(tt_call *c, tt_value *v, OrtValue **out);
OrtStatus *tt_make_strings(tt_call *c, tt_value *v, OrtValue **out);
OrtStatus *tt_run_binding(tt_call *c, size_t ni, size_t no);

void tt_release(tt_runtime *rt, OrtValue *v);

#endif
