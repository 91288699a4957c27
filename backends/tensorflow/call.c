#include <stdlib.h>
#include <string.h>

#include "shim.h"

void ttf_call_free(ttf_call *c) {
	if (c == NULL) return;
	for (size_t i = 0; c->in != NULL && i < c->ins; i++) free(c->in[i].loan);
	free(c->in), free(c->out);
	free(c->in_at), free(c->out_at);
	free(c->in_tensors), free(c->out_tensors);
	if (c->status != NULL) c->f->DeleteStatus(c->status);
	free(c);
}

ttf_call *ttf_call_new(ttf_session *s, size_t ins, size_t outs) {
	ttf_call *c = calloc(1, sizeof *c);
	if (c == NULL) return NULL;
	c->f = s->f, c->session = s->session, c->ins = ins, c->outs = outs;
	size_t ni = ins ? ins : 1, no = outs ? outs : 1;
	c->status = c->f->NewStatus();
	c->in = calloc(ni, sizeof *c->in), c->out = calloc(no, sizeof *c->out);
	c->in_at = calloc(ni, sizeof *c->in_at), c->out_at = calloc(no, sizeof *c->out_at);
	c->in_tensors = calloc(ni, sizeof *c->in_tensors), c->out_tensors = calloc(no, sizeof *c->out_tensors);
	int ok = c->status && c->in && c->out && c->in_at && c->out_at && c->in_tensors && c->out_tensors;
	for (size_t i = 0; ok && i < ins; i++) ok = (c->in[i].loan = ttf_loan_new()) != NULL;
	if (ok) return c;
	ttf_call_free(c);
	return NULL;
}

const char *ttf_call_text(ttf_call *c) { return c->f->Message(c->status); }

ttf_loan *ttf_loan_new(void) { return calloc(1, sizeof(ttf_loan)); }

int ttf_lent(ttf_loan *l) { return __atomic_load_n(&l->lent, __ATOMIC_ACQUIRE); }

// Called on any thread once the runtime no longer refers to the memory.
static void returned(void *data, size_t len, void *arg) {
	(void)data, (void)len;
	__atomic_store_n(&((ttf_loan *)arg)->lent, 0, __ATOMIC_RELEASE);
}

// The address of an empty tensor without memory: the runtime does not accept NULL.
static char no_memory[64] __attribute__((aligned(64)));

// Frees the string objects of one tensor and their memory.
typedef struct {
	TF_Functions *f;
	size_t count;
	char objects[];
} strings;

static void free_strings(void *data, size_t len, void *arg) {
	(void)data, (void)len;
	strings *s = arg;
	for (size_t i = 0; i < s->count; i++) s->f->StringDealloc(s->objects + i * TF_STRING_ROOM);
	free(s);
}

// Creates string objects from encoded strings. Returns TTF_UNFIT if the bytes do not hold exactly count strings.
static int make_strings(TF_Functions *f, const ttf_value *v, TF_Tensor **out) {
	if (v->bytes / 4 < v->count) return TTF_UNFIT;
	strings *s = calloc(1, sizeof *s + v->count * TF_STRING_ROOM + 1);
	if (s == NULL) return TTF_NO_MEMORY;
	s->f = f;
	const char *p = v->data;
	size_t left = v->bytes;
	while (s->count < v->count && left >= 4) {
		uint32_t n;
		memcpy(&n, p, 4);
		p += 4, left -= 4;
		if (n > left) break;
		char *object = s->objects + s->count++ * TF_STRING_ROOM;
		f->StringInit(object);
		f->StringCopy(object, p, n);
		p += n, left -= n;
	}
	if (left != 0 || s->count != v->count) {
		free_strings(NULL, 0, s);
		return TTF_UNFIT;
	}
	*out = f->NewTensor(TF_STRING, v->dims, v->rank, s->objects, v->count * TF_STRING_ROOM, free_strings, s);
	return *out != NULL ? 0 : TTF_UNFIT;
}

static int wrap(TF_Functions *f, ttf_value *v, TF_Tensor **out) {
	if (v->type == TF_STRING) return make_strings(f, v, out);
	if (v->copy) {
		*out = f->AllocateTensor(v->type, v->dims, v->rank, v->bytes);
		if (*out == NULL) return TTF_NO_MEMORY;
		if (f->TensorByteSize(*out) != v->bytes) return TTF_UNFIT;
		if (v->bytes > 0) memcpy(f->TensorData(*out), v->data, v->bytes);
		return 0;
	}
	void *p = v->bytes > 0 ? v->data : no_memory;
	__atomic_store_n(&v->loan->lent, 1, __ATOMIC_RELEASE);
	*out = f->NewTensor(v->type, v->dims, v->rank, p, v->bytes, returned, v->loan);
	if (*out != NULL) return 0;
	__atomic_store_n(&v->loan->lent, 0, __ATOMIC_RELEASE);
	return TTF_UNFIT;
}

static size_t encoded(TF_Functions *f, const ttf_value *v) {
	size_t n = 0;
	const char *objects = v->data;
	for (size_t i = 0; i < v->count; i++) n += 4 + f->StringGetSize(objects + i * TF_STRING_ROOM);
	return n;
}

void ttf_strings(TF_Functions *f, const ttf_value *v, void *to) {
	const char *objects = v->data;
	char *p = to;
	for (size_t i = 0; i < v->count; i++) {
		const void *object = objects + i * TF_STRING_ROOM;
		uint32_t n = (uint32_t)f->StringGetSize(object);
		memcpy(p, &n, 4);
		if (n > 0) memcpy(p + 4, f->StringGetDataPointer(object), n);
		p += 4 + (size_t)n;
	}
}

// Describes an output. If the rank exceeds TTF_MAX_RANK, only v->rank is set.
static void take(TF_Functions *f, ttf_value *v, TF_Tensor *t) {
	v->tensor = t;
	v->type = f->TensorType(t);
	v->rank = f->NumDims(t);
	v->count = 1;
	for (int k = 0; k < v->rank && k < TTF_MAX_RANK; k++) v->count *= (size_t)(v->dims[k] = f->Dim(t, k));
	v->data = f->TensorData(t);
	v->bytes = f->TensorByteSize(t);
	v->sole = f->TensorMaybeMove(t) != NULL;
	if (v->type == TF_STRING && v->rank <= TTF_MAX_RANK) v->bytes = encoded(f, v);
}

static int prepare(ttf_call *c, int *n) {
	int code = 0;
	for (size_t i = 0; i < c->ins && code == 0; i++) {
		if (!c->in[i].use) continue;
		c->bad = (int)i;
		c->in_at[*n] = c->in[i].at;
		c->in_tensors[*n] = NULL;
		code = wrap(c->f, &c->in[i], &c->in_tensors[*n]);
		if (c->in_tensors[*n] != NULL) ++*n;
	}
	return code;
}

int ttf_run(ttf_call *c) {
	int n = 0;
	int code = prepare(c, &n);
	for (size_t i = 0; i < c->outs; i++) {
		c->out_at[i] = c->out[i].at;
		c->out[i].tensor = c->out_tensors[i] = NULL;
	}
	if (code == 0) {
		c->f->SessionRun(c->session, NULL, c->in_at, c->in_tensors, n, c->out_at, c->out_tensors, (int)c->outs, NULL, 0, NULL,
		                 c->status);
		code = c->f->GetCode(c->status);
	}
	for (size_t i = 0; i < c->outs && code == 0; i++) {
		if (c->out_tensors[i] != NULL) take(c->f, &c->out[i], c->out_tensors[i]);
	}
	for (int i = 0; i < n; i++) c->f->DeleteTensor(c->in_tensors[i]);
	return code;
}

void ttf_release(TF_Functions *f, TF_Tensor *t) { f->DeleteTensor(t); }
