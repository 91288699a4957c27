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

// How a model is loaded.
typedef struct {
	int intra_threads, inter_threads, parallel, graph_level, arena, pattern;
	const char **keys, **values;  // session config entries
	size_t entries;
} tt_settings;

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
	int rank;
	int64_t dims[TT_MAX_RANK];
} tt_value;

// The scratch of one instance, reused by every run. One goroutine at a time.
typedef struct {
	tt_runtime *rt;
	OrtSession *session;
	OrtRunOptions *options;  // may be NULL
	size_t ins, outs;
	tt_value *in, *out;
	char **in_names, **out_names;       // owned
	const char **in_used, **out_used;   // this run's names
	OrtValue **in_values, **out_values; // this run's tensors
} tt_call;

// Reads the table of an opened library. Returns 0, or 1 when the library is older than ORT_MIN_API; version is its own text.
int tt_open(void *get_base, tt_runtime *rt, const char **version);
OrtStatus *tt_start(tt_runtime *rt);
void tt_stop(tt_runtime *rt);

const char *tt_text(tt_runtime *rt, OrtStatus *st, int *code);
void tt_forget(tt_runtime *rt, OrtStatus *st);

OrtStatus *tt_load(tt_runtime *rt, const char *path, const tt_settings *s, OrtSession **out);
void tt_unload(tt_runtime *rt, OrtSession *s);
OrtStatus *tt_count(tt_runtime *rt, OrtSession *s, int output, size_t *n);
OrtStatus *tt_declared(tt_runtime *rt, OrtSession *s, int output, size_t i, tt_port *p);

tt_call *tt_call_new(tt_runtime *rt, OrtSession *s, size_t ins, size_t outs);
int tt_call_name(tt_call *c, int output, size_t i, const char *name);
OrtStatus *tt_call_option(tt_call *c, const char *key, const char *value);
void tt_call_free(tt_call *c);

// Runs the model over c->in and c->out: the one crossing per execution.
OrtStatus *tt_run(tt_call *c);

// The same in parts, for the benchmarks: every input and output must be in use and given.
OrtStatus *tt_wrap(tt_call *c);
OrtStatus *tt_run_wrapped(tt_call *c);
void tt_unwrap(tt_call *c);

void tt_release(tt_runtime *rt, OrtValue *v);

#endif
