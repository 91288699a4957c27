#include <stdlib.h>
#include <string.h>

#include "shim.h"

void tt_call_free(tt_call *c) {
	if (c == NULL) return;
	for (size_t i = 0; c->in_names != NULL && i < c->ins; i++) free(c->in_names[i]);
	for (size_t i = 0; c->out_names != NULL && i < c->outs; i++) free(c->out_names[i]);
	if (c->options != NULL) c->rt->f.ReleaseRunOptions(c->options);
	if (c->binding != NULL) c->rt->f.ReleaseIoBinding(c->binding);
	if (c->device != NULL) c->rt->f.ReleaseMemoryInfo(c->device);
	free(c->in), free(c->out), free(c->starts);
	free(c->in_names), free(c->out_names);
	free(c->in_used), free(c->out_used);
	free(c->in_values), free(c->out_values);
	free(c);
}

OrtStatus *tt_call_new(tt_runtime *rt, OrtSession *s, size_t ins, size_t outs, tt_call **out) {
	tt_call *c = *out = calloc(1, sizeof *c);
	if (c == NULL) return NULL;
	c->rt = rt, c->session = s, c->ins = ins, c->outs = outs;
	size_t ni = ins ? ins : 1, no = outs ? outs : 1;
	c->in = calloc(ni, sizeof *c->in), c->out = calloc(no, sizeof *c->out);
	c->in_names = calloc(ni, sizeof(char *)), c->out_names = calloc(no, sizeof(char *));
	c->in_used = calloc(ni, sizeof(char *)), c->out_used = calloc(no, sizeof(char *));
	c->in_values = calloc(ni, sizeof(OrtValue *)), c->out_values = calloc(no, sizeof(OrtValue *));
	if (c->in && c->out && c->in_names && c->out_names && c->in_used && c->out_used && c->in_values && c->out_values)
		return rt->f.CreateRunOptions(&c->options);
	tt_call_free(c);
	*out = NULL;
	return NULL;
}

int tt_call_name(tt_call *c, int output, size_t i, const char *name) {
	char **slot = output ? &c->out_names[i] : &c->in_names[i];
	*slot = strdup(name);
	return *slot == NULL;
}

OrtStatus *tt_call_option(tt_call *c, const char *key, const char *value) {
	return c->rt->f.AddRunConfigEntry(c->options, key, value);
}

static void drop(const OrtFunctions *f, OrtStatus *st) {
	if (st != NULL) f->ReleaseStatus(st);
}

void tt_stop_run(tt_call *c) { drop(&c->rt->f, c->rt->f.RunOptionsSetTerminate(c->options)); }

void tt_resume(tt_call *c) { drop(&c->rt->f, c->rt->f.RunOptionsUnsetTerminate(c->options)); }

// The address of an empty tensor without memory: the runtime does not accept NULL.
static char no_memory[64];

OrtStatus *tt_make(tt_call *c, tt_value *v, OrtValue **out) {
	if (v->type == TT_STRING) return tt_make_strings(c, v, out);
	void *p = v->data != NULL ? v->data : no_memory;
	const OrtMemoryInfo *at = v->device ? c->device : c->rt->cpu;
	return c->rt->f.CreateTensorWithDataAsOrtValue(at, p, v->bytes, v->dims, (size_t)v->rank, v->type, out);
}

// Describes an output that the runtime allocated. When the rank exceeds TT_MAX_RANK, only v->rank is set.
static OrtStatus *take(const OrtFunctions *f, tt_value *v, OrtValue *value) {
	OrtTensorInfo *info = NULL;
	size_t rank = 0;
	int type = 0;
	OrtStatus *st = f->GetTensorTypeAndShape(value, &info);
	if (st != NULL) return st;
	st = f->GetTensorElementType(info, &type);
	if (st == NULL) st = f->GetDimensionsCount(info, &rank);
	if (st == NULL && rank <= TT_MAX_RANK) st = f->GetDimensions(info, v->dims, rank);
	f->ReleaseTensorInfo(info);
	if (st == NULL) st = type == TT_STRING ? f->GetStringTensorDataLength(value, &v->bytes) : f->GetTensorMutableData(value, &v->data);
	v->type = type, v->rank = (int)rank;
	return st;
}

// Releases the tensors of a finished run, except outputs that the runtime allocated in a successful one.
static OrtStatus *settle(tt_call *c, OrtStatus *st, size_t ni, size_t no) {
	const OrtFunctions *f = &c->rt->f;
	for (size_t i = 0; i < ni; i++) f->ReleaseValue(c->in_values[i]);
	size_t k = 0;
	for (size_t i = 0; i < c->outs && k < no; i++) {
		tt_value *v = &c->out[i];
		if (!v->use) continue;
		OrtValue *value = c->out_values[k++];
		if (st == NULL && !v->given && value != NULL) {
			v->value = value;
			st = take(f, v, value);
		} else if (value != NULL) {
			f->ReleaseValue(value);
		}
	}
	for (size_t i = 0; st != NULL && i < c->outs; i++) {
		if (c->out[i].value != NULL) f->ReleaseValue(c->out[i].value);
		c->out[i].value = NULL;
	}
	return st;
}

// Creates the tensors of this run. ni and no count the created ones, even after a failure.
static OrtStatus *prepare(tt_call *c, size_t *ni, size_t *no) {
	OrtStatus *st = NULL;
	for (size_t i = 0; i < c->outs; i++) c->out[i].value = NULL;
	for (size_t i = 0; st == NULL && i < c->ins; i++) {
		if (!c->in[i].use) continue;
		c->in_used[*ni] = c->in_names[i];
		st = tt_make(c, &c->in[i], &c->in_values[*ni]);
		if (st == NULL) ++*ni;
	}
	for (size_t i = 0; st == NULL && i < c->outs; i++) {
		if (!c->out[i].use) continue;
		c->out_used[*no] = c->out_names[i];
		c->out_values[*no] = NULL;
		if (c->out[i].given) st = tt_make(c, &c->out[i], &c->out_values[*no]);
		if (st == NULL) ++*no;
	}
	return st;
}

static OrtStatus *run(tt_call *c, size_t ni, size_t no) {
	if (c->binding != NULL) return tt_run_binding(c, ni, no);
	return c->rt->f.Run(c->session, c->options, c->in_used, (const OrtValue *const *)c->in_values, ni, c->out_used, no,
	                    c->out_values);
}

OrtStatus *tt_run(tt_call *c) {
	size_t ni = 0, no = 0;
	OrtStatus *st = prepare(c, &ni, &no);
	if (st == NULL) st = run(c, ni, no);
	return settle(c, st, ni, no);
}

OrtStatus *tt_run_device(tt_call *c) { return tt_run(c); }
