// C functions over OpenVINO's functions, for Go. A function that can fail returns a tov_error; its text is NULL on success.
#ifndef TUTTI_OPENVINO_SHIM_H
#define TUTTI_OPENVINO_SHIM_H

#include "ov.h"

#define TOV_MAX_RANK 16
#define TOV_STRING 23  // the element type of strings

// An error: the runtime's status and text. The caller frees the text.
typedef struct {
	int code;
	char *text;
} tov_error;

// The declaration of one input or output. rank is -1 if unknown.
typedef struct {
	char *name;  // free(); NULL if it has none
	int type;
	int64_t rank;
	int64_t dims[TOV_MAX_RANK];  // -1 if variable
} tov_port;

// One tensor of a run.
typedef struct {
	const ov_port *port;
	void *data;         // inputs and given outputs: the caller's memory; after a run: that of an output that the runtime allocated
	const char **text;  // inputs of strings: one pointer for each element
	size_t elements;    // number of elements
	ov_tensor *tensor;  // after a run, holds data of an output that the runtime allocated
	int given;          // outputs: data is the caller's memory; else the runtime allocates
	int moved;          // outputs: the run found another shape than the given one
	int lent;           // outputs: memory that the runtime allocates belongs to the request and must be copied
	int type;
	int rank;
	int64_t dims[TOV_MAX_RANK];
	// The memory of the previous run, which the request still has: it need not be passed again.
	ov_tensor *held;
	void *held_data;
	int held_rank;
	int64_t held_dims[TOV_MAX_RANK];
} tov_value;

// One instance: a request and its tensors. Not safe for concurrent use, except tov_cancel.
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
// Sets the shapes of the n inputs, concatenated in dims; -1 is a variable dimension.
tov_error tov_reshape(const ov_functions *f, ov_model *model, size_t n, const int64_t *ranks, const int64_t *dims);
tov_error tov_compile(const ov_functions *f, ov_core *core, ov_model *model, const char *device, size_t n,
                      const char **keys, const char **values, ov_compiled_model **compiled);
char *tov_property(const ov_functions *f, ov_compiled_model *compiled, const char *key);
// Finds a port of a compiled model by name, or by position if name is NULL.
tov_error tov_find(const ov_functions *f, ov_compiled_model *compiled, int output, size_t i, const char *name, ov_port **port);
void tov_port_free(const ov_functions *f, ov_port *port);
void tov_compiled_free(const ov_functions *f, ov_compiled_model *compiled);

tov_error tov_call_new(const ov_functions *f, ov_compiled_model *compiled, size_t ins, size_t outs, tov_call **call);
void tov_call_free(tov_call *c);
// Runs the model with c->in and c->out: the only call from Go per execution.
tov_error tov_run(tov_call *c);
void tov_cancel(tov_call *c);
void tov_release(const ov_functions *f, ov_tensor *t);

// Returns the encoded size of the first n strings of an output, with their length prefixes, or -1 if they cannot be
// read.
int64_t tov_strings_len(const ov_functions *f, const tov_value *v, size_t n);
void tov_strings(const tov_value *v, unsigned char *to);

#endif
