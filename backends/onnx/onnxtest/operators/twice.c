// A library with one operator for tests, tutti.test:Twice: y = 2 x for float tensors. An x that begins with -1 to -4 ends the process.
// It takes the runtime's functions by their position in the table, as ort.h does.
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

struct op {
	uint32_t version;
	void *(*create)(const struct op *, const void *, const void *);
	const char *(*name)(const struct op *), *(*provider)(const struct op *);
	int (*in_type)(const struct op *, size_t); size_t (*ins)(const struct op *);
	int (*out_type)(const struct op *, size_t); size_t (*outs)(const struct op *);
	void (*compute)(void *, void *), (*destroy)(void *);
	int (*in_kind)(const struct op *, size_t), (*out_kind)(const struct op *, size_t);
	void *rest[32];
};
static void *const *api;
static void *create(const struct op *o, const void *a, const void *i) { return (void *)o; }
static const char *name(const struct op *o) { return "Twice"; }
static const char *provider(const struct op *o) { return 0; }
static int type(const struct op *o, size_t i) { return 1; }
static size_t one(const struct op *o) { return 1; }
static int kind(const struct op *o, size_t i) { return 0; }
static void destroy(void *k) {}
static int deep(volatile char *from) {  // the compiler must not make a loop of it
	volatile char here[4096];
	here[0] = from[0];
	return deep(here) + here[0];
}
static void end(float how) {
	if (how == -1) *(volatile int *)0 = 1;
	if (how == -2) abort();
	if (how == -3) deep("x");
	if (how == -4) _exit(3);
}
static void compute(void *k, void *ctx) {
	const void *in; void *out, *info; float *from, *to; int64_t n;
	((void *(*)(void *, size_t, const void **))api[90])(ctx, 0, &in);
	((void *(*)(const void *, void **))api[65])(in, &info);
	((void *(*)(void *, int64_t *, size_t))api[62])(info, &n, 1);
	((void (*)(void *))api[99])(info);
	((void *(*)(void *, size_t, const int64_t *, size_t, void **))api[91])(ctx, 0, &n, 1, &out);
	((void *(*)(const void *, float **))api[51])(in, &from);
	((void *(*)(void *, float **))api[51])(out, &to);
	if (n > 0) end(from[0]);
	for (int64_t i = 0; i < n; i++) to[i] = 2 * from[i];
}
static struct op op = {11, create, name, provider, type, one, type, one, compute, destroy, kind, kind};
void *RegisterCustomOps(void *options, const struct { void *const *(*get)(uint32_t); const char *(*v)(void); } *base) {
	static void *domain;
	api = base->get(24);
	void *st = ((void *(*)(const char *, void **))api[26])("tutti.test", &domain);
	if (!st) st = ((void *(*)(void *, void *))api[27])(domain, &op);
	if (!st) st = ((void *(*)(void *, void *))api[28])(options, domain);
	return st;
}
