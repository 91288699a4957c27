#include <stdlib.h>
#include <string.h>

#include "standin.h"

static value *values;

value *value_of(const OrtValue *key) {
	pthread_mutex_lock(&mu);
	value *v = values;
	while (v != NULL && v->key != key) v = v->next;
	pthread_mutex_unlock(&mu);
	return v;
}

static value *add(OrtValue *key, cu_ptr p, size_t n, const int64_t *dims, size_t rank, int type) {
	value *v = calloc(1, sizeof *v);
	v->key = key, v->p = p, v->n = n, v->type = type, v->rank = rank;
	if (rank > 0) memcpy(v->dims, dims, rank * sizeof *dims);
	__atomic_fetch_add(&counts.values, 1, __ATOMIC_SEQ_CST);
	pthread_mutex_lock(&mu);
	v->next = values, values = v;
	pthread_mutex_unlock(&mu);
	return v;
}

OrtStatus *new_value(const OrtMemoryInfo *info, void *p, size_t n, const int64_t *dims, size_t rank, int type, OrtValue **out) {
	OrtStatus *st = real.CreateTensorWithDataAsOrtValue(info, p, n, dims, rank, type, out);
	int id = 0;
	if (st == NULL && at_device(info, &id)) add(*out, (cu_ptr)(uintptr_t)p, n, dims, rank, type)->device = id;
	return st;
}

OrtStatus *device_value(session *s, cu_ptr p, size_t n, const int64_t *dims, size_t rank, int type, ownership own, OrtValue **out) {
	OrtMemoryInfo *info = NULL;
	OrtStatus *st = real.CreateMemoryInfo("Cuda", 0, s->o.device, 0, &info);
	if (st == NULL) st = real.CreateTensorWithDataAsOrtValue(info, (void *)(uintptr_t)p, n, dims, rank, type, out);
	if (st == NULL) {
		value *v = add(*out, p, n, dims, rank, type);
		v->device = s->o.device, v->own = own, v->from = own == ALLOCATED ? allocators[s->o.device] : NULL, v->of = s->key;
	}
	if (info != NULL) real.ReleaseMemoryInfo(info);
	return st;
}

OrtStatus *take_memory(session *s, size_t n, cu_ptr *p, ownership *own) {
	if (n == 0) n = 1;
	if (s->o.env && allocators[s->o.device] != NULL) {
		OrtAllocator *a = allocators[s->o.device];
		*own = ALLOCATED;
		*p = (cu_ptr)(uintptr_t)(a->AllocOnStream != NULL ? a->AllocOnStream(a, n, (OrtSyncStream *)s) : a->Alloc(a, n));
		return *p != 0 ? NULL : real.CreateStatus(6, "Failed to allocate memory for requested buffer of a tensor");
	}
	*own = ARENA;
	for (chunk **at = &s->free; *at != NULL; at = &(*at)->next)
		if ((*at)->n == n) {
			chunk *c = *at;
			*at = c->next, *p = c->p;
			free(c);
			return NULL;
		}
	int r = cuda.cuMemAlloc_v2(p, n);
	if (r == 0) count_arena(n, 1);
	return r == 0 ? NULL : failed("cudaMalloc", r);
}

void give_memory(session *s, OrtAllocator *from, cu_ptr p, size_t n, ownership own) {
	if (n == 0) n = 1;
	if (own == ALLOCATED) {
		from->Free(from, (void *)(uintptr_t)p);
		return;
	}
	if (s == NULL) { // the session has ended
		cuda.cuMemFree_v2(p);
		count_arena(n, -1);
		return;
	}
	cuda.cuCtxSetCurrent(s->context);
	cuda.cuMemsetD8Async(p, 0xdd, n, (void *)(uintptr_t)s->o.stream); // as the next user of the memory would
	chunk *c = malloc(sizeof *c);
	pthread_mutex_lock(&mu);
	*c = (chunk){p, n, s->free}, s->free = c;
	pthread_mutex_unlock(&mu);
}

void release_value(OrtValue *key) {
	pthread_mutex_lock(&mu);
	value *gone = NULL;
	for (value **at = &values; *at != NULL; at = &(*at)->next)
		if ((*at)->key == key) {
			gone = *at;
			*at = gone->next;
			break;
		}
	pthread_mutex_unlock(&mu);
	real.ReleaseValue(key);
	if (gone == NULL) return;
	__atomic_fetch_sub(&counts.values, 1, __ATOMIC_SEQ_CST);
	if (gone->own != BORROWED) give_memory(session_of(gone->of), gone->from, gone->p, gone->n, gone->own);
	free(gone);
}
