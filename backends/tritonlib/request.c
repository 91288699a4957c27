#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "host.h"

// Events.

uint64_t *tl_event(const struct tl_ticket *t, uint64_t kind, uint64_t flags, size_t body) {
	uint64_t block = tl_alloc(TT_EVENT_BODY * sizeof(uint64_t) + body);
	if (block == 0) return NULL;
	uint64_t *e = tl_at(block);
	e[TT_EVENT_KIND] = kind;
	e[TT_EVENT_ROUND] = t->round;
	e[TT_EVENT_REQUEST] = t->index;
	e[TT_EVENT_FLAGS] = flags;
	e[TT_EVENT_SIZE] = body;
	return e;
}

// certain_event waits until there is memory for an event that must not be lost: the server frees blocks as it takes responses.
static uint64_t *certain_event(const struct tl_ticket *t, uint64_t kind, uint64_t flags) {
	for (;;) {
		uint64_t *e = tl_event(t, kind, flags, 0);
		if (e != NULL) return e;
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
}

static void futex_wake(void *at) { syscall(SYS_futex, at, FUTEX_WAKE, INT_MAX, NULL, NULL, 0); }

void tl_post(uint32_t slot, uint64_t *event, bool wait) {
	uint8_t *s = tl_slot(slot);
	_Atomic uint64_t *events = (void *)(s + TT_SLOT_EVENTS);
	_Atomic uint32_t *waiting = (void *)(s + TT_SLOT_WAITING), *pending = (void *)(s + TT_SLOT_PENDING), *taken = (void *)(s + TT_SLOT_TAKEN);
	_Atomic uint32_t *round = (void *)(s + TT_SLOT_ROUND);
	uint64_t offset = (uint64_t)((uint8_t *)event - tl_range.mem);
	while (wait && atomic_load(pending) >= TT_MOST_PENDING && atomic_load(round) == (uint32_t)event[TT_EVENT_ROUND]) {
		uint32_t before = atomic_load(taken);
		if (atomic_load(pending) < TT_MOST_PENDING) break;
		syscall(SYS_futex, taken, FUTEX_WAIT, before, &(struct timespec){.tv_nsec = 100000000}, NULL, 0);
	}
	atomic_fetch_add(pending, 1);
	uint64_t last = atomic_load(events);
	do {
		event[TT_EVENT_NEXT] = last;
	} while (!atomic_compare_exchange_weak(events, &last, offset));
	if (atomic_load(waiting) == 0 || atomic_exchange(waiting, 0) == 0) return;
	_Atomic uint32_t *notify = tl_at(TT_NOTIFY), *asleep = tl_at(TT_ASLEEP);
	atomic_fetch_add(notify, 1);
	if (atomic_exchange(asleep, 0) != 0) futex_wake(notify);
}

// Tickets.

struct tl_ticket *tl_keep(struct tl_ticket *t) {
	atomic_fetch_add(&t->users, 1);
	return t;
}

void tl_drop(struct tl_ticket *t) {
	if (atomic_fetch_sub(&t->users, 1) != 1) return;
	if (!atomic_load(&t->final)) tl_post(t->slot, certain_event(t, TT_EVENT_ABANDONED, 0), false);
	for (TRITONBACKEND_State *s = t->states; s != NULL;) {
		TRITONBACKEND_State *next = s->next;
		tl_free(s->out.block);
		free(s);
		s = next;
	}
	pthread_mutex_destroy(&t->lock);
	free(t);
}

bool tl_cancelled(const struct tl_ticket *t) {
	const _Atomic uint32_t *round = (void *)(tl_slot(t->slot) + TT_SLOT_ROUND);
	return atomic_load(round) != t->round || atomic_load(t->cancelled) != 0;
}

// Requests are read where the server has written them.

struct cursor {
	uint64_t *at, *end;
	bool over;
};

static uint64_t word(struct cursor *c) {
	if (c->at >= c->end) {
		c->over = true;
		return 0;
	}
	return *c->at++;
}

// text returns a text, which ends with 0, and its length.
static const char *text(struct cursor *c, uint64_t *size) {
	uint64_t n = word(c), words = n / 8 + 1;
	if (words > (uint64_t)(c->end - c->at)) {
		c->over = true;
		*size = 0;
		return "";
	}
	const char *s = (const char *)c->at;
	c->at += words;
	*size = n;
	return s;
}

// count returns a number of things of at least a word each.
static uint32_t count(struct cursor *c) {
	uint64_t n = word(c);
	if (n > (uint64_t)(c->end - c->at)) {
		c->over = true;
		return 0;
	}
	return (uint32_t)n;
}

static void *grown(void *list, uint32_t *room, uint32_t count, size_t size) {
	if (count <= *room) return list;
	uint32_t more = count < 8 ? 8 : count;
	list = realloc(list, more * size);
	if (list == NULL) abort();
	memset((char *)list + *room * size, 0, (more - *room) * size);
	*room = more;
	return list;
}

static TRITONBACKEND_Request *spare(TRITONBACKEND_ModelInstance *x) {
	pthread_mutex_lock(&x->spare_lock);
	TRITONBACKEND_Request *r = x->requests;
	if (r != NULL) x->requests = r->next;
	pthread_mutex_unlock(&x->spare_lock);
	if (r == NULL && (r = calloc(1, sizeof *r)) == NULL) abort();
	r->instance = x;
	return r;
}

void tl_recycle(TRITONBACKEND_Request *r) {
	for (uint32_t i = 0; i < r->param_count; i++) r->params[i].bytes = NULL; // the slot's
	r->param_count = 0;
	TRITONBACKEND_ModelInstance *x = r->instance;
	pthread_mutex_lock(&x->spare_lock);
	r->next = x->requests;
	x->requests = r;
	pthread_mutex_unlock(&x->spare_lock);
}

static void parse_params(struct cursor *c, TRITONBACKEND_Request *r) {
	uint64_t size;
	r->param_count = count(c);
	r->params = grown(r->params, &r->param_room, r->param_count, sizeof *r->params);
	for (uint32_t i = 0; i < r->param_count; i++) {
		TRITONSERVER_Parameter *p = &r->params[i];
		p->name = (char *)text(c, &size);
		p->type = (TRITONSERVER_ParameterType)word(c);
		if (p->type == TRITONSERVER_PARAMETER_STRING || p->type == TRITONSERVER_PARAMETER_BYTES) {
			p->bytes = (char *)text(c, &p->size);
		} else {
			uint64_t v = word(c);
			if (p->type == TRITONSERVER_PARAMETER_BOOL) p->truth = v != 0;
			else memcpy(&p->number, &v, sizeof v);
		}
	}
}

static void parse_inputs(struct cursor *c, TRITONBACKEND_Request *r) {
	TRITONBACKEND_Model *m = r->instance->model;
	r->input_count = count(c);
	r->inputs = grown(r->inputs, &r->input_room, r->input_count, sizeof *r->inputs);
	for (uint32_t i = 0; i < r->input_count; i++) {
		TRITONBACKEND_Input *in = &r->inputs[i];
		uint64_t port = word(c);
		if (port >= m->input_count) c->over = true;
		else in->name = m->inputs[port];
		in->type = (TRITONSERVER_DataType)word(c);
		in->data = tl_range.all + word(c);
		in->size = word(c);
		in->rank = count(c);
		in->shape = (const int64_t *)c->at;
		c->at += in->rank;
	}
}

static void parse(struct cursor *c, TRITONBACKEND_Request *r) {
	uint64_t size;
	r->ticket->cancelled = (const void *)c->at;
	word(c);
	uint64_t flags = word(c);
	r->flags = flags & 3;
	r->traced = (flags >> 8) & 1;
	r->trace.ticket = r->ticket;
	r->correlation_id = word(c);
	r->timeout = word(c);
	r->id = text(c, &size);
	r->correlation = text(c, &size);
	TRITONBACKEND_Model *m = r->instance->model;
	r->output_count = count(c);
	r->outputs = grown(r->outputs, &r->output_room, r->output_count, sizeof *r->outputs);
	for (uint32_t i = 0; i < r->output_count; i++) {
		uint64_t port = word(c);
		if (port >= m->output_count) c->over = true;
		else r->outputs[i] = m->outputs[port];
	}
	parse_inputs(c, r);
	parse_params(c, r);
}

TRITONBACKEND_Request **tl_parse(TRITONBACKEND_ModelInstance *x, uint32_t slot, uint32_t *n, const char **why) {
	uint8_t *s = tl_slot(slot);
	struct cursor c = {.at = (uint64_t *)(s + TT_SLOT_REQUEST), .end = (uint64_t *)(s + tl_range.slot_size)};
	const _Atomic uint32_t *round = (void *)(s + TT_SLOT_ROUND);
	*n = count(&c);
	x->batch = grown(x->batch, &x->batch_room, *n, sizeof *x->batch);
	for (uint32_t i = 0; i < *n; i++) {
		struct tl_ticket *t = calloc(1, sizeof *t);
		if (t == NULL) abort();
		atomic_init(&t->users, 1);
		t->slot = slot;
		t->round = atomic_load(round);
		t->index = i;
		t->model = x->model;
		pthread_mutex_init(&t->lock, NULL);
		x->batch[i] = spare(x);
		x->batch[i]->ticket = t;
		parse(&c, x->batch[i]);
	}
	if (!c.over) return x->batch;
	*why = "the description of a batch is not readable";
	return NULL;
}

// Properties of requests.

TRITONSERVER_Error *TRITONBACKEND_RequestId(TRITONBACKEND_Request *r, const char **id) {
	*id = r->id;
	return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_RequestIsCancelled(TRITONBACKEND_Request *r, bool *cancelled) {
	*cancelled = tl_cancelled(r->ticket);
	return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_RequestCorrelationId(TRITONBACKEND_Request *r, uint64_t *id) {
	if (r->correlation[0] != 0) {
		return tl_errorf(TRITONSERVER_ERROR_INVALID_ARG, "given request's correlation id is not an unsigned int");
	}
	*id = r->correlation_id;
	return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_RequestCorrelationIdString(TRITONBACKEND_Request *r, const char **id) {
	if (r->correlation[0] == 0) return tl_errorf(TRITONSERVER_ERROR_INVALID_ARG, "given request's correlation id is not a string");
	*id = r->correlation;
	return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_InferenceRequestTimeoutMicroseconds(TRITONBACKEND_Request *r, uint64_t *timeout) {
	*timeout = r->timeout;
	return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_RequestFlags(TRITONBACKEND_Request *r, uint32_t *flags) {
	*flags = r->flags;
	return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_RequestParameterCount(TRITONBACKEND_Request *r, uint32_t *n) {
	*n = r->param_count;
	return NULL;
}

static TRITONSERVER_Error *out_of_bounds(uint32_t index, uint32_t n, const char *what) {
	return tl_errorf(TRITONSERVER_ERROR_INVALID_ARG, "out of bounds index %u: request has %u %s", index, n, what);
}

TRITONSERVER_Error *TRITONBACKEND_RequestParameter(TRITONBACKEND_Request *r, uint32_t index, const char **key, TRITONSERVER_ParameterType *type, const void **value) {
	if (index >= r->param_count) return out_of_bounds(index, r->param_count, "parameters");
	TRITONSERVER_Parameter *p = &r->params[index];
	*key = p->name;
	*type = p->type;
	*value = p->type == TRITONSERVER_PARAMETER_STRING || p->type == TRITONSERVER_PARAMETER_BYTES ? (const void *)p->bytes : &p->number;
	return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_RequestInputCount(TRITONBACKEND_Request *r, uint32_t *n) {
	*n = r->input_count;
	return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_RequestInputName(TRITONBACKEND_Request *r, uint32_t index, const char **name) {
	*name = NULL;
	if (index >= r->input_count) return out_of_bounds(index, r->input_count, "inputs");
	*name = r->inputs[index].name;
	return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_RequestInput(TRITONBACKEND_Request *r, const char *name, TRITONBACKEND_Input **in) {
	for (uint32_t i = 0; i < r->input_count; i++) {
		if (strcmp(r->inputs[i].name, name) == 0) {
			*in = &r->inputs[i];
			return NULL;
		}
	}
	*in = NULL;
	return tl_errorf(TRITONSERVER_ERROR_INVALID_ARG, "unknown request input name %s", name);
}

TRITONSERVER_Error *TRITONBACKEND_RequestInputByIndex(TRITONBACKEND_Request *r, uint32_t index, TRITONBACKEND_Input **in) {
	*in = NULL;
	if (index >= r->input_count) return out_of_bounds(index, r->input_count, "inputs");
	*in = &r->inputs[index];
	return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_RequestOutputCount(TRITONBACKEND_Request *r, uint32_t *n) {
	*n = r->output_count;
	return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_RequestOutputName(TRITONBACKEND_Request *r, uint32_t index, const char **name) {
	*name = NULL;
	if (index >= r->output_count) return out_of_bounds(index, r->output_count, "requested outputs");
	*name = r->outputs[index];
	return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_RequestOutputBufferProperties(TRITONBACKEND_Request *r, const char *name, size_t *size, TT_MEM *type, int64_t *id) {
	(void)r, (void)name, (void)size; // the size is a hint for the server's choice, which is always memory of the host
	*type = TRITONSERVER_MEMORY_CPU;
	*id = 0;
	return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_RequestTrace(TRITONBACKEND_Request *r, TRITONSERVER_InferenceTrace **trace) {
	*trace = r->traced ? &r->trace : NULL;
	return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_RequestRelease(TRITONBACKEND_Request *r, uint32_t flags) {
	if (flags != TRITONSERVER_REQUEST_RELEASE_ALL && flags != TRITONSERVER_REQUEST_RELEASE_RESCHEDULE) {
		return tl_errorf(TRITONSERVER_ERROR_UNSUPPORTED, "unexpected release flags %u, expected TRITONSERVER_REQUEST_RELEASE_ALL or TRITONSERVER_REQUEST_RELEASE_RESCHEDULE", flags);
	}
	struct tl_ticket *t = r->ticket;
	tl_recycle(r);
	if (flags == TRITONSERVER_REQUEST_RELEASE_RESCHEDULE) atomic_store(&t->final, true); // its next execution responds
	tl_post(t->slot, certain_event(t, TT_EVENT_RELEASED, flags), false);
	tl_drop(t);
	return NULL;
}

TRITONSERVER_Error *TRITONSERVER_InferenceTraceReportActivity(TRITONSERVER_InferenceTrace *trace, uint64_t timestamp, const char *name) {
	if (name == NULL) return tl_errorf(TRITONSERVER_ERROR_INVALID_ARG, "expected the name of an activity");
	size_t n = strlen(name);
	uint64_t *e = tl_event(trace->ticket, TT_EVENT_ACTIVITY, timestamp, 8 + n / 8 * 8 + 8);
	if (e == NULL) return tl_errorf(TRITONSERVER_ERROR_UNAVAILABLE, "no memory for activity '%s'", name);
	e[TT_EVENT_BODY] = n;
	memcpy(&e[TT_EVENT_BODY + 1], name, n);
	tl_post(trace->ticket->slot, e, false);
	return NULL;
}

// Inputs are in one buffer, or in none if they have no bytes.

TRITONSERVER_Error *TRITONBACKEND_InputProperties(TRITONBACKEND_Input *in, const char **name, TRITONSERVER_DataType *type, const int64_t **shape, uint32_t *rank, uint64_t *size, uint32_t *buffers) {
	if (name != NULL) *name = in->name;
	if (type != NULL) *type = in->type;
	if (shape != NULL) *shape = in->shape;
	if (rank != NULL) *rank = in->rank;
	if (size != NULL) *size = in->size;
	if (buffers != NULL) *buffers = in->size > 0;
	return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_InputPropertiesForHostPolicy(TRITONBACKEND_Input *in, const char *policy, const char **name, TRITONSERVER_DataType *type, const int64_t **shape, uint32_t *rank, uint64_t *size, uint32_t *buffers) {
	(void)policy;
	return TRITONBACKEND_InputProperties(in, name, type, shape, rank, size, buffers);
}

TRITONSERVER_Error *TRITONBACKEND_InputBuffer(TRITONBACKEND_Input *in, uint32_t index, const void **buffer, uint64_t *size, TT_MEM *type, int64_t *id) {
	if (index > 0 || in->size == 0) {
		*buffer = NULL;
		*size = 0;
		return tl_errorf(TRITONSERVER_ERROR_INVALID_ARG, "out of bounds index %u: input '%s' has %u buffers", index, in->name, in->size > 0);
	}
	*buffer = in->data;
	*size = in->size;
	*type = TRITONSERVER_MEMORY_CPU;
	*id = 0;
	return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_InputBufferForHostPolicy(TRITONBACKEND_Input *in, const char *policy, uint32_t index, const void **buffer, uint64_t *size, TT_MEM *type, int64_t *id) {
	(void)policy;
	return TRITONBACKEND_InputBuffer(in, index, buffer, size, type, id);
}

TRITONSERVER_Error *TRITONBACKEND_InputBufferAttributes(TRITONBACKEND_Input *in, uint32_t index, const void **buffer, TRITONSERVER_BufferAttributes **a) {
	uint64_t size;
	TT_MEM type;
	int64_t id;
	TRITONSERVER_Error *e = TRITONBACKEND_InputBuffer(in, index, buffer, &size, &type, &id);
	if (e == NULL) {
		in->attributes = (TRITONSERVER_BufferAttributes){.size = size};
		*a = &in->attributes;
	}
	return e;
}
