#include <stdlib.h>

#include "shim.h"

// Exported by pool.go. stream is a CUstream, 0 when the memory is for any stream. The result is 0 when there is no memory.
extern uintptr_t tuttiOnnxAlloc(int id, size_t n, uintptr_t stream);
extern void tuttiOnnxFree(int id, uintptr_t p);

static void *alloc_any(OrtAllocator *a, size_t n) { return n == 0 ? NULL : (void *)tuttiOnnxAlloc(((tt_pool *)a)->id, n, 0); }

static void *alloc_on_stream(OrtAllocator *a, size_t n, OrtSyncStream *s) {
	tt_pool *p = (tt_pool *)a;
	void *handle = s != NULL ? p->rt->f.SyncStream_GetHandle(s) : NULL;
	return n == 0 ? NULL : (void *)tuttiOnnxAlloc(p->id, n, (uintptr_t)handle);
}

static void give_back(OrtAllocator *a, void *at) {
	if (at != NULL) tuttiOnnxFree(((tt_pool *)a)->id, (uintptr_t)at);
}

static const OrtMemoryInfo *info(const OrtAllocator *a) { return ((const tt_pool *)a)->info; }

OrtStatus *tt_pool_new(tt_runtime *rt, int id, int device, tt_pool **out) {
	tt_pool *p = calloc(1, sizeof *p);
	*out = NULL;
	if (p == NULL) return rt->f.CreateStatus(1, "no memory for an allocator");
	p->base = (OrtAllocator){ORT_MIN_API, alloc_any, give_back, info, alloc_any, NULL, alloc_on_stream};
	p->rt = rt, p->id = id;
	OrtStatus *st = rt->f.CreateMemoryInfo("Cuda", 0, device, 0, &p->info);
	if (st == NULL) st = rt->f.RegisterAllocator(rt->env, &p->base);
	if (st == NULL) {
		*out = p;
	} else {
		tt_pool_free(p);
	}
	return st;
}

void tt_pool_stop(tt_pool *p) {
	OrtStatus *st = p->rt->f.UnregisterAllocator(p->rt->env, p->info);
	if (st != NULL) p->rt->f.ReleaseStatus(st);
}

void tt_pool_free(tt_pool *p) {
	if (p->info != NULL) p->rt->f.ReleaseMemoryInfo(p->info);
	free(p);
}
