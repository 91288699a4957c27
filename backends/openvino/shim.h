// What Go calls. A function that can fail returns a tov_error, whose text is NULL when it went well.
#ifndef TUTTI_OPENVINO_SHIM_H
#define TUTTI_OPENVINO_SHIM_H

#include "ov.h"

#define TOV_MAX_RANK 16
#define TOV_STRING 23  // the element type of strings

// A failure: the runtime's status and its words, to be freed.
typedef struct {
	int code;
	char *text;
} tov_error;

// The declaration of one input or output. rank is -1 where it is not known.
typedef struct {
	char *name;  // free(); NULL where it has none
	int type;
	int64_t rank;
	int64_t dims[TOV_MAX_RANK];  // -1 for any extent
} tov_port;

// One tensor of a run.
typedef struct {
	const ov_port *port;
	void *data;         // inputs, given outputs: the caller's; afterwards that of an output that the runtime allocated
	const char **text;  // inputs of strings: an element each
	size_t elements;    // how many there are
	ov_tensor *tensor;  // after a run, holds data of an output that the runtime allocated
	int given;          // outputs: data is the caller's memory; else the runtime allocates
	int moved;          // outputs: the given shape proved wrong
	int lent;           // outputs: what the runtime allocates is the request's, to be copied
	int type;
	int rank;
	int64_t dims[TOV_MAX_RANK];
	// What the request holds from the run before: the same memory need not be handed over again.
	ov_tensor *held;
	void *held_data;
	int held_rank;
	int64_t held_dims[TOV_MAX_RANK];
} tov_value;

// One instance: a request and its tensors. One goroutine at a time, but for tov_cancel.
typedef struct {
	const ov_functions *f;
	ov_infer_request *request;
	size_t ins, outs;
	tov_value *in, *out;
} tov_call;

size_t tov_functions(void);
const char *tov_function(size_t i);
void tov_bind(ov_functions *f, size_t i, void *address);
char *tov_version(const ov_functions *f);

tov_error tov_core(const ov_functions *f, ov_core **core);
void tov_load_plugin(const ov_functions *f, ov_core *core, const char *device);
void tov_core_free(const ov_functions *f, ov_core *core);
tov_error tov_extend(const ov_functions *f, ov_core *core, const char *path);
tov_error tov_read(const ov_functions *f, ov_core *core, const char *path, ov_model **model);
void tov_model_free(const ov_functions *f, ov_model *model);
tov_error tov_count(const ov_functions *f, ov_model *model, int output, size_t *n);
tov_error tov_declared(const ov_functions *f, ov_model *model, int output, size_t i, tov_port *p);
tov_error tov_alias(const ov_functions *f, ov_model *model, int output, const char *name, tov_port *p);
// Gives the n inputs these shapes, one after another in dims; -1 is any extent.
tov_error tov_reshape(const ov_functions *f, ov_model *model, size_t n, const int64_t *ranks, const int64_t *dims);
tov_error tov_compile(const ov_functions *f, ov_core *core, ov_model *model, const char *device, size_t n,
                      const char **keys, const char **values, ov_compiled_model **compiled);
char *tov_property(const ov_functions *f, ov_compiled_model *compiled, const char *key);
// The port of a compiled model by its name, or by its position where name is NULL.
tov_error tov_find(const ov_functions *f, ov_compiled_model *compiled, int output, size_t i, const char *name, ov_port **port);
void tov_port_free(const ov_functions *f, ov_port *port);
void tov_compiled_free(const ov_functions *f, ov_compiled_model *compiled);

tov_error tov_call_new(const ov_functions *f, ov_compiled_model *compiled, size_t ins, size_t outs, tov_call **call);
void tov_call_free(tov_call *c);
// Runs the model over c->in and c->out: the one crossing per execution.
tov_error tov_run(tov_call *c);
void tov_cancel(tov_call *c);
void tov_release(const ov_functions *f, ov_tensor *t);

// Of an output of strings: how many bytes the first n elements take with their lengths before them, -1 when they cannot
// be read.
int64_t tov_strings_len(const ov_functions *f, const tov_value *v, size_t n);
void tov_strings(const tov_value *v, unsigned char *to);

#endif
