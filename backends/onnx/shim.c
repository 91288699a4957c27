#include "shim.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

// Drops log lines of the runtime. Every failure is also returned as a status.
static void drop_log(void *param, int severity, const char *category, const char *id, const char *where,
                     const char *message) {
	(void)param, (void)severity, (void)category, (void)id, (void)where, (void)message;
}

int tt_open(void *get_base, tt_runtime *rt, const char **version) {
	const OrtApiBase *base = ((const OrtApiBase *(*)(void))get_base)();
	*version = base->GetVersionString();
	void *const *table = base->GetApi(ORT_MIN_API);
	if (table == NULL) return 1;
#define X(position, result, name, args) rt->f.name = (result(*) args)table[position];
	ORT_FUNCTIONS(X)
#undef X
	return 0;
}

// Creates the environment with global thread pools. Idle threads sleep.
static OrtStatus *start_shared(tt_runtime *rt, const tt_start_settings *s) {
	OrtThreads *pools = NULL;
	OrtStatus *st = rt->f.CreateThreadingOptions(&pools);
	if (st == NULL) st = rt->f.SetGlobalIntraOpNumThreads(pools, s->intra_threads);
	if (st == NULL) st = rt->f.SetGlobalInterOpNumThreads(pools, s->inter_threads);
	if (st == NULL) st = rt->f.SetGlobalSpinControl(pools, 0);
	if (st == NULL) st = rt->f.CreateEnvWithCustomLoggerAndGlobalThreadPools(drop_log, NULL, 3, "tutti", pools, &rt->env);
	if (pools != NULL) rt->f.ReleaseThreadingOptions(pools);
	return st;
}

// Creates an arena of limited size for all sessions that use the environment's allocators.
static OrtStatus *limit_memory(tt_runtime *rt, size_t most) {
	const char *key = "max_mem";
	OrtMemoryInfo *info = NULL;
	OrtArenaCfg *arena = NULL;
	OrtStatus *st = rt->f.CreateCpuMemoryInfo(1, 0, &info);
	if (st == NULL) st = rt->f.CreateArenaCfgV2(&key, &most, 1, &arena);
	if (st == NULL) st = rt->f.CreateAndRegisterAllocator(rt->env, info, arena);
	if (arena != NULL) rt->f.ReleaseArenaCfg(arena);
	if (info != NULL) rt->f.ReleaseMemoryInfo(info);
	return st;
}

OrtStatus *tt_start(tt_runtime *rt, const tt_start_settings *s) {
	OrtStatus *st = s->shared_threads ? start_shared(rt, s) : rt->f.CreateEnvWithCustomLogger(drop_log, NULL, 3, "tutti", &rt->env);
	if (st == NULL && s->memory_limit > 0) st = limit_memory(rt, s->memory_limit);
	if (st == NULL) st = rt->f.CreateCpuMemoryInfo(0, 0, &rt->cpu);
	if (st == NULL) st = rt->f.GetAllocatorWithDefaultOptions(&rt->heap);
	return st;
}

void tt_stop(tt_runtime *rt) {
	if (rt->cpu != NULL) rt->f.ReleaseMemoryInfo(rt->cpu);
	if (rt->env != NULL) rt->f.ReleaseEnv(rt->env);
	rt->cpu = NULL, rt->env = NULL;
}

const char *tt_text(tt_runtime *rt, OrtStatus *st, int *code) {
	*code = rt->f.GetErrorCode(st);
	return rt->f.GetErrorMessage(st);
}

void tt_forget(tt_runtime *rt, OrtStatus *st) { rt->f.ReleaseStatus(st); }

void tt_unload(tt_runtime *rt, OrtSession *s) {
	rt->f.ReleaseSession(s);
	malloc_trim(0);
}

OrtStatus *tt_count(tt_runtime *rt, OrtSession *s, int output, size_t *n) {
	return output ? rt->f.SessionGetOutputCount(s, n) : rt->f.SessionGetInputCount(s, n);
}

static OrtStatus *declared_shape(const OrtFunctions *f, const OrtTensorInfo *info, tt_port *p) {
	const char *symbols[TT_MAX_RANK];
	OrtStatus *st = f->GetTensorElementType(info, &p->type);
	if (st == NULL) st = f->GetDimensionsCount(info, &p->rank);
	if (st != NULL || p->rank > TT_MAX_RANK) return st;
	st = f->GetDimensions(info, p->dims, p->rank);
	if (st == NULL) st = f->GetSymbolicDimensions(info, symbols, p->rank);
	for (size_t i = 0; st == NULL && i < p->rank; i++) {
		if (symbols[i] != NULL && strlen(symbols[i]) < TT_NAME_ROOM) strcpy(p->symbols[i], symbols[i]);
	}
	return st;
}

OrtStatus *tt_declared(tt_runtime *rt, OrtSession *s, int output, size_t i, tt_port *p) {
	const OrtFunctions *f = &rt->f;
	char *name = NULL;
	OrtTypeInfo *type = NULL;
	const OrtTensorInfo *info = NULL;
	memset(p, 0, sizeof *p);
	OrtStatus *st = output ? f->SessionGetOutputName(s, i, rt->heap, &name) : f->SessionGetInputName(s, i, rt->heap, &name);
	if (st != NULL) return st;
	p->name = strdup(name);
	OrtStatus *freed = f->AllocatorFree(rt->heap, name);
	if (freed != NULL) f->ReleaseStatus(freed);
	st = output ? f->SessionGetOutputTypeInfo(s, i, &type) : f->SessionGetInputTypeInfo(s, i, &type);
	if (st == NULL) st = f->GetOnnxTypeFromTypeInfo(type, &p->kind);
	if (st == NULL && p->kind == 1) st = f->CastTypeInfoToTensorInfo(type, &info);
	if (st == NULL && info != NULL) st = declared_shape(f, info, p);
	if (type != NULL) f->ReleaseTypeInfo(type);
	return st;
}

OrtStatus *tt_sides(tt_runtime *rt, OrtSession *s, int output, size_t n, unsigned char *host) {
	const OrtMemoryInfo **infos = calloc(n + 1, sizeof *infos);
	if (infos == NULL) return rt->f.CreateStatus(1, "no memory");
	OrtStatus *st = output ? rt->f.SessionGetMemoryInfoForOutputs(s, infos, n) : rt->f.SessionGetMemoryInfoForInputs(s, infos, n);
	for (size_t i = 0; st == NULL && i < n; i++) {
		int kind = 0;
		if (infos[i] != NULL) rt->f.MemoryInfoGetDeviceType(infos[i], &kind);
		host[i] = kind == 0;
	}
	free(infos);
	return st;
}

void tt_release(tt_runtime *rt, OrtValue *v) { rt->f.ReleaseValue(v); }
