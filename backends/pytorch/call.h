// Calls of the shim's functions, whose addresses are looked up at run time.
#ifndef TUTTI_TORCH_CALL_H
#define TUTTI_TORCH_CALL_H

#include "shim/shim.h"

// X(field, result, arguments with names, arguments): a function of the shim is tt_torch_ and the field's name.
#define TT_TORCH_FUNCTIONS(X) \
	X(source, const char *, (void), ()) \
	X(version, const char *, (void), ()) \
	X(threads, int, (void), ()) \
	X(setup, int, (const tt_torch_process *p, char *why), (p, why)) \
	X(memory, int, (const char *settings, char *why), (settings, why)) \
	X(devices, int, (const char *device), (device)) \
	X(empty, void, (const char *device), (device)) \
	X(load, tt_torch_model *, (const tt_torch_options *o, char *why), (o, why)) \
	X(clone, tt_torch_model *, (tt_torch_model *m, char *why), (m, why)) \
	X(unload, void, (tt_torch_model *m), (m)) \
	X(describe, char *, (tt_torch_model *m, char *why), (m, why)) \
	X(bind, int, (tt_torch_model *m, int ih, size_t ins, const int64_t *ia, const char *const *in, int oh, size_t outs, \
	              const int64_t *oa, const char *const *on, char *why), (m, ih, ins, ia, in, oh, outs, oa, on, why)) \
	X(attach, int, (tt_torch_call *c, void *stream, char *why), (c, stream, why)) \
	X(run, int, (tt_torch_call *c), (c)) \
	X(strings, void, (const tt_torch_value *v, void *to), (v, to)) \
	X(free, void, (void *handle), (handle))

typedef struct {
#define X(name, result, params, args) result(*name) params;
	TT_TORCH_FUNCTIONS(X)
#undef X
} tt_torch_api;

// The names in the order of the fields, after the last one NULL.
const char *ttpt_name(size_t i);
void ttpt_set(tt_torch_api *a, size_t i, void *address);

const char *ttpt_source(const tt_torch_api *a);
const char *ttpt_version(const tt_torch_api *a);
int ttpt_threads(const tt_torch_api *a);
int ttpt_setup(const tt_torch_api *a, const tt_torch_process *p, char *why);
int ttpt_memory(const tt_torch_api *a, const char *settings, char *why);
int ttpt_devices(const tt_torch_api *a, const char *device);
void ttpt_empty(const tt_torch_api *a, const char *device);
tt_torch_model *ttpt_load(const tt_torch_api *a, const tt_torch_options *o, char *why);
tt_torch_model *ttpt_clone(const tt_torch_api *a, tt_torch_model *m, char *why);
void ttpt_unload(const tt_torch_api *a, tt_torch_model *m);
char *ttpt_describe(const tt_torch_api *a, tt_torch_model *m, char *why);
// Names are the inputs', then the outputs', each ended by a zero byte.
int ttpt_bind(const tt_torch_api *a, tt_torch_model *m, int in_how, size_t ins, const int64_t *in_at, int out_how,
                size_t outs, const int64_t *out_at, const char *names, char *why);
int ttpt_attach(const tt_torch_api *a, tt_torch_call *c, void *stream, char *why);
int ttpt_run(const tt_torch_api *a, tt_torch_call *c);
void ttpt_strings(const tt_torch_api *a, const tt_torch_value *v, void *to);
void ttpt_free(const tt_torch_api *a, void *handle);

tt_torch_call *ttpt_call_new(tt_torch_model *m, size_t ins, size_t outs);
void ttpt_call_free(tt_torch_call *c);

#endif
