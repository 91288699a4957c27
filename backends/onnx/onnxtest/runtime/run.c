#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "standin.h"

static OrtStatus *create_binding(OrtSession *s, OrtBinding **out) {
	if (session_of(s) == NULL) return real.CreateIoBinding(s, out);
	binding *b = calloc(1, sizeof *b);
	b->session = s;
	*out = (OrtBinding *)b;
	return NULL;
}

// Bindings of other sessions are the real library's.
static binding *bindings[256];

static binding *ours(const OrtBinding *b) {
	for (size_t i = 0; i < 256; i++)
		if (bindings[i] == (const binding *)b) return bindings[i];
	return NULL;
}

static OrtStatus *new_binding(OrtSession *s, OrtBinding **out) {
	OrtStatus *st = create_binding(s, out);
	if (st != NULL || session_of(s) == NULL) return st;
	pthread_mutex_lock(&mu);
	for (size_t i = 0; i < 256; i++)
		if (bindings[i] == NULL) {
			bindings[i] = (binding *)*out;
			break;
		}
	pthread_mutex_unlock(&mu);
	return NULL;
}

static void release_binding(OrtBinding *key) {
	binding *b = ours(key);
	if (b == NULL) {
		real.ReleaseIoBinding(key);
		return;
	}
	pthread_mutex_lock(&mu);
	for (size_t i = 0; i < 256; i++)
		if (bindings[i] == b) bindings[i] = NULL;
	pthread_mutex_unlock(&mu);
	free(b);
}

static bound *next(bound *list, size_t *n, const char *name) {
	bound *p = &list[(*n)++];
	memset(p, 0, sizeof *p);
	snprintf(p->name, sizeof p->name, "%s", name);
	return p;
}

static OrtStatus *bind_input(OrtBinding *key, const char *name, const OrtValue *v) {
	binding *b = ours(key);
	if (b == NULL) return real.BindInput(key, name, v);
	session *s = session_of(b->session);
	value *at = value_of(v);
	if (at != NULL && at->device != s->o.device) fault("input %s is at device %d, and the session at %d", name, at->device, s->o.device);
	if (at != NULL && on_host(s, name)) fault("input %s is read on the host: the runtime would copy it before the stream has made it", name);
	next(b->in, &b->ins, name)->value = v;
	return NULL;
}

static OrtStatus *bind_output(OrtBinding *key, const char *name, const OrtValue *v) {
	binding *b = ours(key);
	if (b == NULL) return real.BindOutput(key, name, v);
	session *s = session_of(b->session);
	if (value_of(v) != NULL && on_host(s, name)) fault("output %s is made on the host: the runtime would copy it without the stream", name);
	next(b->out, &b->outs, name)->value = v;
	return NULL;
}

static OrtStatus *bind_output_place(OrtBinding *key, const char *name, const OrtMemoryInfo *info) {
	binding *b = ours(key);
	if (b == NULL) return real.BindOutputToDevice(key, name, info);
	int id = 0;
	session *s = session_of(b->session);
	if (at_device(info, &id) && (id != s->o.device || on_host(s, name))) fault("output %s is bound to device %d", name, id);
	next(b->out, &b->outs, name)->info = info;
	return NULL;
}

static void clear_inputs(OrtBinding *key) {
	binding *b = ours(key);
	if (b == NULL) {
		real.ClearBoundInputs(key);
	} else {
		b->ins = 0;
	}
}

static void clear_outputs(OrtBinding *key) {
	binding *b = ours(key);
	if (b == NULL) {
		real.ClearBoundOutputs(key);
		return;
	}
	for (size_t i = 0; i < b->outs; i++)
		if (b->out[i].result != NULL) release_value(b->out[i].result);
	b->outs = 0;
}

// bound_values gives the caller a tensor for each output, over the same memory where the caller gave it.
static OrtStatus *bound_values(const OrtBinding *key, OrtAllocator *heap, OrtValue ***out, size_t *n) {
	binding *b = ours(key);
	if (b == NULL) return real.GetBoundOutputValues(key, heap, out, n);
	*out = heap->Alloc(heap, (b->outs + 1) * sizeof **out), *n = b->outs;
	for (size_t i = 0; i < b->outs; i++) {
		(*out)[i] = b->out[i].result;
		b->out[i].result = NULL;
		value *v = b->out[i].value != NULL ? value_of(b->out[i].value) : NULL;
		if (v == NULL) continue;
		OrtStatus *st = device_value(session_of(b->session), v->p, v->n, v->dims, v->rank, v->type, BORROWED, &(*out)[i]);
		if (st != NULL) return st;
	}
	return NULL;
}

// The state of one run.
typedef struct {
	session *s;
	binding *b;
	graph *replay;
	void *host[MAX_PORTS]; // copies of inputs
	OrtValue *in[MAX_PORTS], *out[MAX_PORTS];
	OrtMemoryInfo *cpu;
} run;

static void *stream(run *r) { return (void *)(uintptr_t)r->s->o.stream; }

static const size_t sizes[] = {0, 4, 1, 1, 2, 2, 4, 8, 0, 1, 2, 8, 4, 8, 8, 16, 2}; // of an element, by type; strings have none

// describe returns the type, the shape and the content of a tensor.
static OrtStatus *describe(OrtValue *v, int *type, size_t *rank, int64_t *dims, void **data) {
	OrtTensorInfo *info = NULL;
	OrtStatus *st = real.GetTensorTypeAndShape(v, &info);
	if (st == NULL) st = real.GetTensorElementType(info, type);
	if (st == NULL) st = real.GetDimensionsCount(info, rank);
	if (st == NULL) st = real.GetDimensions(info, dims, *rank);
	if (st == NULL && sizes[*type] > 0) st = real.GetTensorMutableData(v, data);
	if (info != NULL) real.ReleaseTensorInfo(info);
	return st;
}

static size_t elements(const int64_t *dims, size_t rank) {
	size_t n = 1;
	for (size_t k = 0; k < rank; k++) n *= (size_t)dims[k];
	return n;
}

// snapshot takes an input on the host as it is now: the runtime reads it without waiting for any stream.
static OrtStatus *snapshot(run *r, size_t i) {
	int type = 0;
	size_t rank = 0;
	int64_t dims[MAX_RANK];
	void *data = NULL;
	r->in[i] = (OrtValue *)r->b->in[i].value;
	OrtStatus *st = describe(r->in[i], &type, &rank, dims, &data);
	if (st != NULL || sizes[type] == 0) return st;
	size_t n = elements(dims, rank) * sizes[type];
	r->host[i] = malloc(n + 1);
	memcpy(r->host[i], data, n);
	return real.CreateTensorWithDataAsOrtValue(r->cpu, r->host[i], n, dims, rank, type, &r->in[i]);
}

// fetch copies the inputs to the host, and waits for them: this computer of the stand-in is the host.
static OrtStatus *fetch(run *r) {
	for (size_t i = 0; i < r->b->ins; i++) {
		const OrtValue *given = r->b->in[i].value;
		value *v = value_of(given);
		if (v == NULL) {
			OrtStatus *st = snapshot(r, i);
			if (st != NULL) return st;
			continue;
		}
		r->host[i] = malloc(v->n + 1);
		cu_ptr from = r->replay != NULL ? r->replay->in[i] : v->p;
		int e = v->n == 0 ? 0 : move(DOWN, (cu_ptr)(uintptr_t)r->host[i], from, v->n, stream(r));
		if (e != 0) return failed("cudaMemcpyAsync", e);
		OrtStatus *st = real.CreateTensorWithDataAsOrtValue(r->cpu, r->host[i], v->n, v->dims, v->rank, v->type, &r->in[i]);
		if (st != NULL) return st;
	}
	int e = cuda.cuStreamSynchronize(stream(r));
	if (e != 0) return failed("cudaStreamSynchronize", e);
	for (size_t i = 0; i < r->s->lates; i++) real.ReleaseValue(r->s->late[i]);
	r->s->lates = 0;
	return NULL;
}

// scratch does what an operator with a temporary buffer does: it reads the weights.
static OrtStatus *scratch(run *r) {
	cu_ptr p = 0;
	ownership own;
	OrtStatus *st = take_memory(r->s, WEIGHTS, &p, &own);
	if (st != NULL) return st;
	int e = move(WITHIN, p, r->s->weights, WEIGHTS, stream(r));
	give_memory(r->s, own == ALLOCATED ? allocators[r->s->o.device] : NULL, p, WEIGHTS, own);
	return e == 0 ? NULL : failed("cudaMemcpyAsync", e);
}

static OrtStatus *compute(run *r, const OrtRunOptions *o) {
	const char *names[MAX_PORTS], *outs[MAX_PORTS];
	for (size_t i = 0; i < r->b->ins; i++) names[i] = r->b->in[i].name;
	for (size_t i = 0; i < r->b->outs; i++) outs[i] = r->b->out[i].name;
	return real.Run(r->b->session, o, names, (const OrtValue *const *)r->in, r->b->ins, outs, r->b->outs, r->out);
}

// keep makes result i, which stays on the host, a result of the binding. An input that is passed through is the caller's memory.
static OrtStatus *keep(run *r, size_t i) {
	int type = 0;
	size_t rank = 0, k = 0;
	int64_t dims[MAX_RANK];
	void *data = NULL, *given = NULL;
	OrtStatus *st = describe(r->out[i], &type, &rank, dims, &data);
	if (st != NULL) return st;
	while (k < r->b->ins && (r->host[k] == NULL || r->host[k] != data)) k++;
	if (k == r->b->ins) {
		r->b->out[i].result = r->out[i], r->out[i] = NULL;
		return NULL;
	}
	if ((st = describe((OrtValue *)r->b->in[k].value, &type, &rank, dims, &given)) != NULL) return st;
	return real.CreateTensorWithDataAsOrtValue(r->cpu, given, elements(dims, rank) * sizes[type], dims, rank, type, &r->b->out[i].result);
}

// give puts the copy of result i to the device into the stream.
static OrtStatus *give(run *r, size_t i) {
	bound *p = &r->b->out[i];
	int type = 0, id = 0;
	size_t rank = 0;
	int64_t dims[MAX_RANK];
	void *data = NULL;
	value *v = p->value != NULL ? value_of(p->value) : NULL;
	if (v == NULL && !at_device(p->info, &id)) { // stays on the host
		return keep(r, i);
	}
	OrtStatus *st = describe(r->out[i], &type, &rank, dims, &data);
	if (st != NULL) return st;
	size_t n = elements(dims, rank) * sizes[type];
	for (size_t k = 0; v == NULL && k < r->b->ins; k++) // an input that is passed through stays where it is
		if (r->host[k] != NULL && data == r->host[k] && value_of(r->b->in[k].value) != NULL)
			return device_value(r->s, value_of(r->b->in[k].value)->p, n, dims, rank, type, BORROWED, &p->result);
	cu_ptr to = 0;
	if (v != NULL) {
		if (v->rank != rank || memcmp(v->dims, dims, rank * sizeof *dims) != 0 || v->n < n)
			return real.CreateStatus(2, "The shape of the given output does not match the actual shape of it");
		to = r->replay != NULL ? r->replay->out[i] : v->p;
	} else {
		ownership own;
		st = take_memory(r->s, n, &to, &own);
		if (st == NULL) st = device_value(r->s, to, n, dims, rank, type, own, &p->result);
		if (st != NULL) return st;
	}
	int e = n == 0 ? 0 : move(UP, to, (cu_ptr)(uintptr_t)data, n, stream(r));
	if (e != 0) return failed("cudaMemcpyAsync", e);
	r->s->late[r->s->lates++] = r->out[i];
	r->out[i] = NULL;
	return NULL;
}

// capture notes the addresses of the first run of a graph. A later run of it uses them, whatever is bound.
static void capture(run *r, long id) {
	session *s = r->s;
	if (s->captured == MAX_GRAPHS) return;
	graph *g = &s->graphs[s->captured++];
	g->id = id;
	for (size_t i = 0; i < r->b->ins; i++) g->in[i] = value_of(r->b->in[i].value) != NULL ? value_of(r->b->in[i].value)->p : 0;
	for (size_t i = 0; i < r->b->outs; i++) {
		value *v = r->b->out[i].value != NULL ? value_of(r->b->out[i].value) : NULL;
		if (v == NULL) fault("output %s of a captured run is not at an address of the caller", r->b->out[i].name);
		g->out[i] = v != NULL ? v->p : 0;
	}
	__atomic_fetch_add(&counts.captures, 1, __ATOMIC_SEQ_CST);
}

static OrtStatus *run_bound(OrtSession *key, const OrtRunOptions *o, const OrtBinding *b) {
	session *s = session_of(key);
	if (s == NULL) return real.RunWithBinding(key, o, b);
	run r = {.s = s, .b = ours(b)};
	run_options set = run_options_of(o);
	__atomic_fetch_add(&counts.runs, 1, __ATOMIC_SEQ_CST);
	cuda.cuCtxSetCurrent(s->context);
	for (int i = 0; s->o.graphs && set.graph != -1 && i < s->captured; i++)
		if (s->graphs[i].id == set.graph) r.replay = &s->graphs[i];
	if (r.replay != NULL) __atomic_fetch_add(&counts.replays, 1, __ATOMIC_SEQ_CST);
	OrtStatus *st = real.CreateCpuMemoryInfo(0, 0, &r.cpu);
	if (st == NULL) st = fetch(&r);
	if (st == NULL) st = scratch(&r);
	if (st == NULL) st = compute(&r, o);
	for (size_t i = 0; st == NULL && i < r.b->outs; i++) st = give(&r, i);
	if (st == NULL && s->o.graphs && set.graph != -1 && r.replay == NULL) capture(&r, set.graph);
	if (st == NULL && !set.unsynchronized) {
		__atomic_fetch_add(&counts.synchronized, 1, __ATOMIC_SEQ_CST);
		cuda.cuStreamSynchronize(stream(&r));
	}
	for (size_t i = 0; i < r.b->ins; i++)
		if (r.host[i] != NULL) {
			if (r.in[i] != NULL) real.ReleaseValue(r.in[i]);
			free(r.host[i]);
		}
	for (size_t i = 0; i < r.b->outs; i++)
		if (r.out[i] != NULL) real.ReleaseValue(r.out[i]);
	if (r.cpu != NULL) real.ReleaseMemoryInfo(r.cpu);
	return st;
}

static OrtStatus *run_plain(OrtSession *s, const OrtRunOptions *o, const char *const *in, const OrtValue *const *ins, size_t n, const char *const *out,
                            size_t m, OrtValue **outs) {
	if (session_of(s) != NULL) fault("a run at a device without a binding");
	return real.Run(s, o, in, ins, n, out, m, outs);
}

void install_runs(void **table) {
	table[9] = run_plain, table[133] = run_bound, table[134] = new_binding, table[135] = release_binding, table[136] = bind_input;
	table[137] = bind_output, table[138] = bind_output_place, table[140] = bound_values, table[141] = clear_inputs, table[142] = clear_outputs;
}
