#include <stdlib.h>
#include <string.h>

#include "shim.h"

#define LENGTH 4  // bytes before each element of BYTES, little-endian as the machine

// The number of elements of v, or more than limit.
static size_t elements(const tt_value *v, size_t limit) {
	size_t n = 1;
	for (int k = 0; k < v->rank; k++) {
		if (v->dims[k] == 0) return 0;
	}
	for (int k = 0; k < v->rank; k++) {
		if (v->dims[k] < 0 || (uint64_t)v->dims[k] > limit / n) return limit + 1;
		n *= (size_t)v->dims[k];
	}
	return n;
}

// Reads one element at p. Returns the bytes it takes, 0 when it is cut short.
static size_t next(const char *p, size_t left, uint32_t *n) {
	if (left < LENGTH) return 0;
	memcpy(n, p, LENGTH);
	return *n > left - LENGTH ? 0 : LENGTH + (size_t)*n;
}

static OrtStatus *fill(tt_call *c, const tt_value *v, size_t n, OrtValue *value) {
	const char *p = v->data;
	size_t left = v->bytes;
	for (size_t i = 0; i < n; i++) {
		uint32_t size = 0;
		char *to = NULL;
		size_t taken = next(p, left, &size);
		if (taken == 0) return c->rt->f.CreateStatus(2, "a string is cut short");
		OrtStatus *st = c->rt->f.GetResizedStringTensorElementBuffer(value, i, size, &to);
		if (st != NULL) return st;
		memcpy(to, p + LENGTH, size);
		p += taken, left -= taken;
	}
	return left == 0 ? NULL : c->rt->f.CreateStatus(2, "there are more strings than the shape says");
}

OrtStatus *tt_make_strings(tt_call *c, tt_value *v, OrtValue **out) {
	size_t n = elements(v, v->bytes / LENGTH);
	if (n > v->bytes / LENGTH) return c->rt->f.CreateStatus(2, "there are fewer strings than the shape says");
	OrtStatus *st = c->rt->f.CreateTensorAsOrtValue(c->rt->heap, v->dims, (size_t)v->rank, TT_STRING, out);
	if (st != NULL) return st;
	st = fill(c, v, n, *out);
	if (st != NULL) c->rt->f.ReleaseValue(*out);
	return st;
}

static int room(tt_call *c, size_t n) {
	if (n <= c->starts_room) return 1;
	size_t *grown = realloc(c->starts, n * sizeof *grown);
	if (grown == NULL) return 0;
	c->starts = grown, c->starts_room = n;
	return 1;
}

// The strings are read at once to the end of dst and then moved forward, each after its length. The destination of an
// element never lies behind its source.
OrtStatus *tt_take_strings(tt_call *c, size_t i, size_t n, char *dst) {
	const tt_value *v = &c->out[i];
	if (n == 0) return NULL;
	if (!room(c, n)) return c->rt->f.CreateStatus(1, "no memory for the strings of an output");
	char *from = dst + n * LENGTH;
	OrtStatus *st = c->rt->f.GetStringTensorContent(v->value, from, v->bytes, c->starts, n);
	for (size_t k = 0; st == NULL && k < n; k++) {
		size_t end = k + 1 < n ? c->starts[k + 1] : v->bytes;
		uint32_t size = (uint32_t)(end - c->starts[k]);
		memmove(dst + LENGTH, from + c->starts[k], size);
		memcpy(dst, &size, LENGTH);
		dst += LENGTH + size;
	}
	return st;
}
