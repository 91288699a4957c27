#include <stdlib.h>
#include <string.h>

#include "shim.h"

tov_error tov_failed(const ov_functions *f, int code);

tov_error tov_call_new(const ov_functions *f, ov_compiled_model *compiled, size_t ins, size_t outs, tov_call **call) {
	tov_call *c = calloc(1, sizeof *c);
	if (c == NULL) return (tov_error){-17, strdup("no memory")};
	c->f = f, c->ins = ins, c->outs = outs;
	c->in = calloc(ins + 1, sizeof *c->in);
	c->out = calloc(outs + 1, sizeof *c->out);
	tov_error e = {-17, NULL};
	if (c->in == NULL || c->out == NULL) {
		e.text = strdup("no memory");
	} else {
		e = tov_failed(f, f->ov_compiled_model_create_infer_request(compiled, &c->request));
	}
	if (e.text != NULL) {
		tov_call_free(c);
		c = NULL;
	}
	*call = c;
	return e;
}

static void drop(const ov_functions *f, ov_tensor **t) {
	if (*t != NULL) f->ov_tensor_free(*t);
	*t = NULL;
}

void tov_call_free(tov_call *c) {
	if (c == NULL) return;
	if (c->request != NULL) c->f->ov_infer_request_free(c->request);
	for (size_t i = 0; c->in != NULL && i < c->ins; i++) drop(c->f, &c->in[i].held);
	for (size_t i = 0; c->out != NULL && i < c->outs; i++) {
		drop(c->f, &c->out[i].held);
		drop(c->f, &c->out[i].tensor);
	}
	free(c->in), free(c->out), free(c);
}

// The address of an empty tensor without memory: the runtime does not accept NULL.
static _Alignas(64) char no_memory[64];

static int same(const tov_value *v) {
	return v->held != NULL && v->held_data == v->data && v->held_rank == v->rank &&
	       memcmp(v->held_dims, v->dims, (size_t)v->rank * sizeof *v->dims) == 0;
}

// Passes the caller's memory to the request, unless the request already has it.
static int give(tov_call *c, tov_value *v) {
	ov_tensor *t = NULL;
	ov_shape shape = {v->rank, v->dims};
	int st;
	if (v->type == TOV_STRING) {
		st = c->f->ov_tensor_create_from_string_array(v->text, v->elements, shape, &t);
	} else {
		if (same(v)) return 0;
		st = c->f->ov_tensor_create_from_host_ptr(v->type, shape, v->data != NULL ? v->data : no_memory, &t);
	}
	if (st == 0) st = c->f->ov_infer_request_set_tensor_by_const_port(c->request, v->port, t);
	if (st != 0) {
		drop(c->f, &t);
		return st;
	}
	drop(c->f, &v->held);
	v->held = t, v->held_data = v->data, v->held_rank = v->rank;
	memcpy(v->held_dims, v->dims, (size_t)v->rank * sizeof *v->dims);
	return 0;
}

// Passes the request a tensor that it may resize, and that the call owns.
static int offer(tov_call *c, tov_value *v) {
	ov_shape shape = {v->rank, v->dims};
	drop(c->f, &v->held);
	if (v->lent) return 0;
	int st = c->f->ov_tensor_create(v->type, shape, &v->tensor);
	return st != 0 ? st : c->f->ov_infer_request_set_tensor_by_const_port(c->request, v->port, v->tensor);
}

#define INVALID_C_PARAM (-14)

// Reads the shape and memory of an output. If the rank exceeds TOV_MAX_RANK, only v->rank is set.
static int take(tov_call *c, tov_value *v) {
	const ov_functions *f = c->f;
	ov_shape shape = {0, NULL};
	int st = 0;
	if (v->lent) st = f->ov_infer_request_get_tensor_by_const_port(c->request, v->port, &v->tensor);
	if (st != 0) return st;
	ov_tensor *t = v->given ? v->held : v->tensor;
	st = f->ov_tensor_get_shape(t, &shape);
	if (st == INVALID_C_PARAM) st = 0, shape = (ov_shape){0, NULL};  // its status for a tensor without dimensions
	if (st != 0) return st;
	if (v->given) {
		v->moved = shape.rank != v->rank ||
		           memcmp(shape.dims, v->dims, (size_t)v->rank * sizeof *v->dims) != 0;
	} else {
		v->rank = (int)shape.rank, v->elements = 1;
		for (int64_t i = 0; i < shape.rank && i < TOV_MAX_RANK; i++) {
			v->dims[i] = shape.dims[i];
			v->elements *= (size_t)shape.dims[i];
		}
		st = f->ov_tensor_data(t, &v->data);
		if (v->elements == 0) st = 0, v->data = no_memory;
	}
	if (shape.dims != NULL) f->ov_shape_free(&shape);
	return st;
}

tov_error tov_run(tov_call *c) {
	const ov_functions *f = c->f;
	int st = 0;
	for (size_t i = 0; st == 0 && i < c->ins; i++) st = give(c, &c->in[i]);
	for (size_t i = 0; st == 0 && i < c->outs; i++) {
		c->out[i].moved = 0;
		st = c->out[i].given ? give(c, &c->out[i]) : offer(c, &c->out[i]);
	}
	if (st == 0) st = f->ov_infer_request_infer(c->request);
	tov_error e = tov_failed(f, st);
	for (size_t i = 0; st == 0 && i < c->outs; i++) {
		st = take(c, &c->out[i]);
		if (st != 0) e = tov_failed(f, st);
	}
	// After a failure no tensor is reused: one may be partly resized.
	for (size_t i = 0; i < c->outs; i++) {
		if (st != 0) drop(f, &c->out[i].tensor);
		if (st != 0 || c->out[i].moved) drop(f, &c->out[i].held);
	}
	return e;
}

void tov_cancel(tov_call *c) { c->f->ov_infer_request_cancel(c->request); }

// The layout of a string in the runtime's C++ library. The C interface has no function to read one.
typedef struct {
	const char *text;
	size_t len;
	char local[16];
} string;

int64_t tov_strings_len(const ov_functions *f, const tov_value *v, size_t count) {
	size_t bytes = 0;
	if (v->elements == 0) return 0;
	if (f->ov_tensor_get_byte_size(v->tensor, &bytes) != 0 || bytes != v->elements * sizeof(string)) return -1;
	const string *s = v->data;
	int64_t n = 0;
	for (size_t i = 0; i < count && i < v->elements; i++) {
		if (s[i].len > INT32_MAX || s[i].text == NULL) return -1;
		n += 4 + (int64_t)s[i].len;
	}
	return n;
}

void tov_strings(const tov_value *v, unsigned char *to) {
	const string *s = v->data;
	for (size_t i = 0; i < v->elements; i++) {
		for (int k = 0; k < 4; k++) *to++ = (unsigned char)(s[i].len >> (8 * k));
		memcpy(to, s[i].text, s[i].len);
		to += s[i].len;
	}
}
