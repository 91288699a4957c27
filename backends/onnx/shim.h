// What Go calls: the runtime's function table hidden behind plain C functions. A function that can fail returns NULL or
// an OrtStatus, which ort_text turns into words.
#ifndef TUTTI_SHIM_H
#define TUTTI_SHIM_H

#include "ort.h"

#define TT_MAX_RANK 16
#define TT_NAME_ROOM 128  // room for the name of a dimension; a longer one counts as unnamed

// One opened runtime.
typedef struct {
	OrtFunctions f;
	OrtEnv *env;
	OrtMemoryInfo *cpu;
	OrtAllocator *heap;
} tt_runtime;

// How the runtime is started.
typedef struct {
	int shared_threads, intra_threads, inter_threads;  // one pool of each kind for all sessions
	size_t memory_limit;                               // of the arena of all sessions, 0 for none
} tt_start_settings;

// How a model is loaded.
typedef struct {
	int intra_threads, inter_threads, parallel, graph_level, arena, pattern, shared_threads;
} tt_settings;

// Settings of an execution provider.
typedef struct {
	const char **keys, **values;
	size_t n;
} tt_pairs;

// Execution providers: the first have functions of their own, any other is added by its name.
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
	int device;  // data is memory of the call's device
	int rank;
	int64_t dims[TT_MAX_RANK];
} tt_value;

#define TT_STRING 8  // the type whose elements are of any length

// The scratch of one instance, reused by every run. One goroutine at a time.
typedef struct {
	tt_runtime *rt;
	OrtSession *session;
	OrtRunOptions *options;
	OrtBinding *binding;    // NULL: tensors are passed with each run
	OrtMemoryInfo *device;  // where outputs of a binding go, NULL for the host
	size_t ins, outs;
	tt_value *in, *out;
	char **in_names, **out_names;       // owned
	const char **in_used, **out_used;   // this run's names
	OrtValue **in_values, **out_values; // this run's tensors
	size_t *starts, starts_room;        // where each string of an output begins
} tt_call;

// Reads the table of an opened library. Returns 0, or 1 when the library is older than ORT_MIN_API; version is its own text.
int tt_open(void *get_base, tt_runtime *rt, const char **version);
OrtStatus *tt_start(tt_runtime *rt, const tt_start_settings *s);
void tt_stop(tt_runtime *rt);

const char *tt_text(tt_runtime *rt, OrtStatus *st, int *code);
void tt_forget(tt_runtime *rt, OrtStatus *st);

// The names of the execution providers that the library was built with.
OrtStatus *tt_providers(tt_runtime *rt, char ***names, int *n);
void tt_providers_free(tt_runtime *rt, char **names, int n);

// Options may be set even after tt_options_new fails; the caller frees them.
OrtStatus *tt_options_new(tt_runtime *rt, const tt_settings *s, OrtSessionOptions **out);
OrtStatus *tt_options_entry(tt_runtime *rt, OrtSessionOptions *o, const char *key, const char *value);
OrtStatus *tt_options_library(tt_runtime *rt, OrtSessionOptions *o, const char *path);
OrtStatus *tt_options_provider(tt_runtime *rt, OrtSessionOptions *o, tt_provider which, const char *name, const tt_pairs *p);
// Stops a load that uses the options, from any thread.
void tt_options_cancel(tt_runtime *rt, OrtSessionOptions *o);
void tt_options_free(tt_runtime *rt, OrtSessionOptions *o);

OrtStatus *tt_load(tt_runtime *rt, const char *path, const OrtSessionOptions *o, OrtSession **out);
void tt_unload(tt_runtime *rt, OrtSession *s);
OrtStatus *tt_count(tt_runtime *rt, OrtSession *s, int output, size_t *n);
OrtStatus *tt_declared(tt_runtime *rt, OrtSession *s, int output, size_t i, tt_port *p);

// Makes the scratch; *out is to be freed even after a failure, and NULL when there is no memory.
OrtStatus *tt_call_new(tt_runtime *rt, OrtSession *s, size_t ins, size_t outs, tt_call **out);
int tt_call_name(tt_call *c, int output, size_t i, const char *name);
OrtStatus *tt_call_option(tt_call *c, const char *key, const char *value);
// Has the runs go through a binding; id is that of a CUDA device, negative for the host.
OrtStatus *tt_call_bind(tt_call *c, int id);
void tt_call_free(tt_call *c);

// Stops the run that is under way, or the next one, until tt_resume. From any thread.
void tt_stop_run(tt_call *c);
void tt_resume(tt_call *c);

// Runs the model over c->in and c->out: the one crossing per execution.
OrtStatus *tt_run(tt_call *c);

// Writes the n strings of output i, which the runtime allocated, to dst as BYTES: their bytes and 4 for each length.
OrtStatus *tt_take_strings(tt_call *c, size_t i, size_t n, char *dst);

// What the files of one run share: a tensor made for v, and what a finished output is.
OrtStatus *tt_make(tt_call *c, tt_value *v, OrtValue **out);
OrtStatus *tt_make_strings(tt_call *c, tt_value *v, OrtValue **out);
OrtStatus *tt_run_binding(tt_call *c, size_t ni, size_t no);

void tt_release(tt_runtime *rt, OrtValue *v);

#endif
