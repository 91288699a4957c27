#include <stdlib.h>
#include <string.h>

#include "host.h"

// Outputs and responses.

static TRITONBACKEND_Output *make_output(TRITONBACKEND_Output *out, const char *name, TRITONSERVER_DataType type, const int64_t *shape, uint32_t rank) {
	int64_t *dims = (int64_t *)(out + 1);
	if (rank > 0) memcpy(dims, shape, rank * sizeof *dims);
	char *own = (char *)(dims + rank);
	strcpy(own, name);
	out->name = own;
	out->type = type;
	out->shape = dims;
	out->rank = rank;
	return out;
}

static size_t tail(const char *name, uint32_t rank) { return rank * sizeof(int64_t) + strlen(name) + 1; }

static TRITONSERVER_Error *check_output(const char *what, const char *name, TRITONSERVER_DataType type, uint32_t rank) {
	if (name == NULL) return tl_errorf(TRITONSERVER_ERROR_INVALID_ARG, "%s has no name", what);
	if ((unsigned)type > TRITONSERVER_TYPE_BF16 || type == TRITONSERVER_TYPE_INVALID || rank > 64) {
		return tl_errorf(TRITONSERVER_ERROR_INVALID_ARG, "%s '%s' has the data type %d and %u dimensions, expected a type of TRITONSERVER_DataType and at most 64", what, name, (int)type, rank);
	}
	return NULL;
}

// buffer gives an output memory of the range, in place of what it has.
static TRITONSERVER_Error *buffer(TRITONBACKEND_Output *out, void **at, uint64_t size, TT_MEM *type, int64_t *id) {
	static char nothing[64];
	tl_free(out->block);
	out->block = size == 0 ? 0 : tl_alloc(size);
	out->size = size;
	*at = nothing;
	*type = TRITONSERVER_MEMORY_CPU;
	*id = 0;
	if (size == 0) return NULL;
	if (out->block == 0) {
		*at = NULL;
		return tl_errorf(TRITONSERVER_ERROR_UNAVAILABLE, "no memory for %llu bytes of output '%s': the outputs of a process share %zu bytes", (unsigned long long)size, out->name, tl_range.size - tl_range.heap);
	}
	*at = tl_at(out->block);
	return NULL;
}

static TRITONSERVER_Error *attributes(TRITONBACKEND_Output *out, TRITONSERVER_BufferAttributes **a) {
	out->attributes = (TRITONSERVER_BufferAttributes){.size = out->size};
	*a = &out->attributes;
	return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_OutputBuffer(TRITONBACKEND_Output *out, void **at, uint64_t size, TT_MEM *type, int64_t *id) {
	return buffer(out, at, size, type, id);
}

TRITONSERVER_Error *TRITONBACKEND_OutputBufferAttributes(TRITONBACKEND_Output *out, TRITONSERVER_BufferAttributes **a) { return attributes(out, a); }

TRITONSERVER_Error *TRITONBACKEND_ResponseFactoryNew(TRITONBACKEND_ResponseFactory **f, TRITONBACKEND_Request *r) {
	if ((*f = malloc(sizeof **f)) == NULL) abort();
	(*f)->ticket = tl_keep(r->ticket);
	return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ResponseFactoryDelete(TRITONBACKEND_ResponseFactory *f) {
	tl_drop(f->ticket);
	free(f);
	return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ResponseFactoryIsCancelled(TRITONBACKEND_ResponseFactory *f, bool *cancelled) {
	*cancelled = tl_cancelled(f->ticket);
	return NULL;
}

static TRITONSERVER_Error *new_response(TRITONBACKEND_Response **response, struct tl_ticket *t) {
	if ((*response = calloc(1, sizeof **response)) == NULL) abort();
	(*response)->ticket = tl_keep(t);
	(*response)->end = &(*response)->outputs;
	return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ResponseNew(TRITONBACKEND_Response **response, TRITONBACKEND_Request *r) { return new_response(response, r->ticket); }

TRITONSERVER_Error *TRITONBACKEND_ResponseNewFromFactory(TRITONBACKEND_Response **response, TRITONBACKEND_ResponseFactory *f) {
	return new_response(response, f->ticket);
}

static void free_response(TRITONBACKEND_Response *response) {
	for (TRITONBACKEND_Output *out = response->outputs; out != NULL;) {
		TRITONBACKEND_Output *next = out->next;
		tl_free(out->block);
		free(out);
		out = next;
	}
	for (uint32_t i = 0; i < response->param_count; i++) tl_parameter_clear(&response->params[i]);
	free(response->params);
	free(response);
}

TRITONSERVER_Error *TRITONBACKEND_ResponseDelete(TRITONBACKEND_Response *response) {
	struct tl_ticket *t = response->ticket;
	free_response(response);
	tl_drop(t);
	return NULL;
}

static TRITONSERVER_Error *add_param(TRITONBACKEND_Response *response, const char *name, TRITONSERVER_ParameterType type, const void *value, uint64_t size) {
	TRITONSERVER_Parameter *list = realloc(response->params, (response->param_count + 1) * sizeof *list);
	if (list == NULL) abort();
	response->params = list;
	TRITONSERVER_Parameter *p = &list[response->param_count++];
	memset(p, 0, sizeof *p);
	if ((p->name = strdup(name)) == NULL) abort();
	tl_parameter_set(p, type, value, size);
	return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ResponseSetStringParameter(TRITONBACKEND_Response *response, const char *name, const char *value) {
	return add_param(response, name, TRITONSERVER_PARAMETER_STRING, value, strlen(value));
}

TRITONSERVER_Error *TRITONBACKEND_ResponseSetIntParameter(TRITONBACKEND_Response *response, const char *name, int64_t value) {
	return add_param(response, name, TRITONSERVER_PARAMETER_INT, &value, 0);
}

TRITONSERVER_Error *TRITONBACKEND_ResponseSetBoolParameter(TRITONBACKEND_Response *response, const char *name, bool value) {
	return add_param(response, name, TRITONSERVER_PARAMETER_BOOL, &value, 0);
}

TRITONSERVER_Error *TRITONBACKEND_ResponseSetDoubleParameter(TRITONBACKEND_Response *response, const char *name, double value) {
	return add_param(response, name, TRITONSERVER_PARAMETER_DOUBLE, &value, 0);
}

TRITONSERVER_Error *TRITONBACKEND_ResponseOutput(TRITONBACKEND_Response *response, TRITONBACKEND_Output **out, const char *name, TRITONSERVER_DataType type, const int64_t *shape, uint32_t rank) {
	*out = NULL;
	TRITONSERVER_Error *e = check_output("output", name, type, rank);
	if (e != NULL) return e;
	TRITONBACKEND_Output *o = calloc(1, sizeof *o + tail(name, rank));
	if (o == NULL) abort();
	*response->end = make_output(o, name, type, shape, rank);
	response->end = &o->next;
	response->output_count++;
	*out = o;
	return NULL;
}

static TRITONSERVER_Error *describe(TRITONBACKEND_Output *out, const char **name, TRITONSERVER_DataType *type, const int64_t **shape, uint64_t *rank) {
	if (name != NULL) *name = out->name;
	*type = out->type;
	*shape = out->shape;
	*rank = out->rank;
	return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_InferenceResponseOutput(TRITONBACKEND_Response *response, uint32_t index, const char **name, TRITONSERVER_DataType *type, const int64_t **shape, uint64_t *rank) {
	if (index >= response->output_count) {
		return tl_errorf(TRITONSERVER_ERROR_INVALID_ARG, "out of bounds index %u: response has %u outputs", index, response->output_count);
	}
	TRITONBACKEND_Output *out = response->outputs;
	while (index-- > 0) out = out->next;
	return describe(out, name, type, shape, rank);
}

TRITONSERVER_Error *TRITONBACKEND_InferenceResponseOutputByName(TRITONBACKEND_Response *response, const char *name, TRITONSERVER_DataType *type, const int64_t **shape, uint64_t *rank) {
	for (TRITONBACKEND_Output *out = response->outputs; out != NULL; out = out->next) {
		if (strcmp(out->name, name) == 0) return describe(out, NULL, type, shape, rank);
	}
	return tl_errorf(TRITONSERVER_ERROR_INVALID_ARG, "unknown response output name '%s'", name);
}

// The form of a response in an event: see wire.go.

static size_t text_size(size_t n) { return 8 + n / 8 * 8 + 8; }

static uint64_t *put_text(uint64_t *w, const char *text, size_t n) {
	*w++ = n;
	memcpy(w, text, n);
	return w + n / 8 + 1;
}

static size_t output_size(const TRITONBACKEND_Output *out) { return text_size(strlen(out->name)) + (4 + out->rank) * 8; }

// put_output writes an output, whose block moves to the server.
static uint64_t *put_output(uint64_t *w, TRITONBACKEND_Output *out) {
	w = put_text(w, out->name, strlen(out->name));
	*w++ = out->type;
	*w++ = out->block;
	*w++ = out->size;
	*w++ = out->rank;
	if (out->rank > 0) memcpy(w, out->shape, out->rank * sizeof *w);
	out->block = 0;
	return w + out->rank;
}

static bool has_bytes(const TRITONSERVER_Parameter *p) { return p->type == TRITONSERVER_PARAMETER_STRING || p->type == TRITONSERVER_PARAMETER_BYTES; }

static size_t param_size(const TRITONSERVER_Parameter *p) {
	return text_size(strlen(p->name)) + 8 + (has_bytes(p) ? text_size(p->size) : 8);
}

static uint64_t *put_param(uint64_t *w, const TRITONSERVER_Parameter *p) {
	w = put_text(w, p->name, strlen(p->name));
	*w++ = p->type;
	if (has_bytes(p)) return put_text(w, p->bytes, p->size);
	if (p->type == TRITONSERVER_PARAMETER_BOOL) *w = p->truth;
	else memcpy(w, &p->number, sizeof *w);
	return w + 1;
}

// end notes the final response. It is an error if there was one.
static TRITONSERVER_Error *end(struct tl_ticket *t, uint32_t flags) {
	bool over = (flags & TRITONSERVER_RESPONSE_COMPLETE_FINAL) != 0 ? atomic_exchange(&t->final, true) : atomic_load(&t->final);
	if (!over) return NULL;
	TRITONSERVER_Error *e = tl_errorf(TRITONSERVER_ERROR_INTERNAL, "model '%s' sent a response after the final one of a request", t->model->name);
	TRITONSERVER_LogMessage(TRITONSERVER_LOG_ERROR, __FILE__, __LINE__, e->text);
	return e;
}

TRITONSERVER_Error *TRITONBACKEND_ResponseSend(TRITONBACKEND_Response *response, uint32_t flags, TRITONSERVER_Error *error) {
	if (response == NULL) return tl_errorf(TRITONSERVER_ERROR_INVALID_ARG, "response was nullptr");
	struct tl_ticket *t = response->ticket;
	TRITONSERVER_Error *e = end(t, flags);
	if (e != NULL) {
		TRITONBACKEND_ResponseDelete(response);
		return e;
	}
	const char *text = error == NULL ? "" : error->text;
	size_t size = 8 + text_size(strlen(text)) + 16;
	for (TRITONBACKEND_Output *out = response->outputs; out != NULL; out = out->next) size += output_size(out);
	for (uint32_t i = 0; i < response->param_count; i++) size += param_size(&response->params[i]);
	uint64_t *event = tl_event(t, TT_EVENT_RESPONSE, flags, size);
	if (event == NULL) { // as if it were not sent: the request ends with an error when the library gives it up
		atomic_store(&t->final, false);
		TRITONBACKEND_ResponseDelete(response);
		return tl_errorf(TRITONSERVER_ERROR_UNAVAILABLE, "no memory for a response of model '%s' with %zu bytes besides its outputs", t->model->name, size);
	}
	uint64_t *w = event + TT_EVENT_BODY;
	*w++ = error == NULL ? 0 : (uint64_t)error->code + 1;
	w = put_text(w, text, strlen(text));
	*w++ = response->output_count;
	for (TRITONBACKEND_Output *out = response->outputs; out != NULL; out = out->next) w = put_output(w, out);
	*w++ = response->param_count;
	for (uint32_t i = 0; i < response->param_count; i++) w = put_param(w, &response->params[i]);
	tl_post(t->slot, event, true);
	free_response(response);
	tl_drop(t);
	return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ResponseFactorySendFlags(TRITONBACKEND_ResponseFactory *f, uint32_t flags) {
	TRITONSERVER_Error *e = end(f->ticket, flags);
	if (e != NULL || (flags & TRITONSERVER_RESPONSE_COMPLETE_FINAL) == 0) return e;
	uint64_t *event = tl_event(f->ticket, TT_EVENT_RESPONSE, flags, 0); // without outputs
	if (event == NULL) {
		atomic_store(&f->ticket->final, false);
		return tl_errorf(TRITONSERVER_ERROR_UNAVAILABLE, "no memory for the flags of a response of model '%s'", f->ticket->model->name);
	}
	tl_post(f->ticket->slot, event, true);
	return NULL;
}

// States of sequences. The server keeps a state that is updated for the next request of the sequence.

TRITONSERVER_Error *TRITONBACKEND_StateNew(TRITONBACKEND_State **state, TRITONBACKEND_Request *r, const char *name, TRITONSERVER_DataType type, const int64_t *shape, uint32_t rank) {
	*state = NULL;
	TRITONBACKEND_Model *m = r->instance->model;
	TRITONSERVER_Error *e = check_output("state", name, type, rank);
	if (e != NULL) return e;
	bool known = false;
	for (uint32_t i = 0; i < m->state_count; i++) known = known || strcmp(m->states[i], name) == 0;
	if (!known) {
		return tl_errorf(TRITONSERVER_ERROR_INVALID_ARG, "unable to add state '%s'. State configuration is missing for model '%s'.", name, m->name);
	}
	TRITONBACKEND_State *s = calloc(1, sizeof *s + tail(name, rank));
	if (s == NULL) abort();
	make_output(&s->out, name, type, shape, rank);
	s->ticket = r->ticket;
	pthread_mutex_lock(&r->ticket->lock);
	s->next = r->ticket->states;
	r->ticket->states = s;
	pthread_mutex_unlock(&r->ticket->lock);
	*state = s;
	return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_StateBuffer(TRITONBACKEND_State *s, void **at, uint64_t size, TT_MEM *type, int64_t *id) {
	return buffer(&s->out, at, size, type, id);
}

TRITONSERVER_Error *TRITONBACKEND_StateBufferAttributes(TRITONBACKEND_State *s, TRITONSERVER_BufferAttributes **a) { return attributes(&s->out, a); }

TRITONSERVER_Error *TRITONBACKEND_StateUpdate(TRITONBACKEND_State *s) {
	uint64_t *event = tl_event(s->ticket, TT_EVENT_STATE, 0, output_size(&s->out));
	if (event == NULL) return tl_errorf(TRITONSERVER_ERROR_UNAVAILABLE, "no memory for state '%s' of model '%s'", s->out.name, s->ticket->model->name);
	put_output(event + TT_EVENT_BODY, &s->out);
	tl_post(s->ticket->slot, event, false);
	return NULL;
}
