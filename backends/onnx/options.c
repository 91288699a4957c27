#include <malloc.h>

#include "shim.h"

static OrtStatus *configure(const OrtFunctions *f, OrtSessionOptions *o, const tt_settings *s) {
	OrtStatus *st = f->SetSessionLogSeverityLevel(o, 3);
	if (st == NULL && s->shared_threads) st = f->DisablePerSessionThreads(o);
	if (st == NULL) st = f->SetIntraOpNumThreads(o, s->intra_threads);
	if (st == NULL) st = f->SetInterOpNumThreads(o, s->inter_threads);
	if (st == NULL) st = f->SetSessionExecutionMode(o, s->parallel);
	if (st == NULL) st = f->SetSessionGraphOptimizationLevel(o, s->graph_level);
	if (st == NULL) st = s->arena ? f->EnableCpuMemArena(o) : f->DisableCpuMemArena(o);
	if (st == NULL) st = s->pattern ? f->EnableMemPattern(o) : f->DisableMemPattern(o);
	return st;
}

OrtStatus *tt_options_new(tt_runtime *rt, const tt_settings *s, OrtSessionOptions **out) {
	OrtStatus *st = rt->f.CreateSessionOptions(out);
	return st != NULL ? st : configure(&rt->f, *out, s);
}

void tt_options_free(tt_runtime *rt, OrtSessionOptions *o) { rt->f.ReleaseSessionOptions(o); }

OrtStatus *tt_options_entry(tt_runtime *rt, OrtSessionOptions *o, const char *key, const char *value) {
	return rt->f.AddSessionConfigEntry(o, key, value);
}

OrtStatus *tt_options_library(tt_runtime *rt, OrtSessionOptions *o, const char *path) {
	return rt->f.RegisterCustomOpsLibrary_V2(o, path);
}

void tt_options_cancel(tt_runtime *rt, OrtSessionOptions *o) {
	OrtStatus *st = rt->f.SessionOptionsSetLoadCancellationFlag(o, 1);
	if (st != NULL) rt->f.ReleaseStatus(st);
}

static OrtStatus *add_cuda(const OrtFunctions *f, OrtSessionOptions *o, const tt_pairs *p) {
	OrtCuda *set = NULL;
	OrtStatus *st = f->CreateCUDAProviderOptions(&set);
	if (st == NULL) st = f->UpdateCUDAProviderOptions(set, p->keys, p->values, p->n);
	if (st == NULL) st = f->SessionOptionsAppendExecutionProvider_CUDA_V2(o, set);
	if (set != NULL) f->ReleaseCUDAProviderOptions(set);
	return st;
}

static OrtStatus *add_tensorrt(const OrtFunctions *f, OrtSessionOptions *o, const tt_pairs *p) {
	OrtTensorRT *set = NULL;
	OrtStatus *st = f->CreateTensorRTProviderOptions(&set);
	if (st == NULL) st = f->UpdateTensorRTProviderOptions(set, p->keys, p->values, p->n);
	if (st == NULL) st = f->SessionOptionsAppendExecutionProvider_TensorRT_V2(o, set);
	if (set != NULL) f->ReleaseTensorRTProviderOptions(set);
	return st;
}

OrtStatus *tt_options_provider(tt_runtime *rt, OrtSessionOptions *o, tt_provider which, const char *name, const tt_pairs *p) {
	switch (which) {
	case TT_CUDA: return add_cuda(&rt->f, o, p);
	case TT_TENSORRT: return add_tensorrt(&rt->f, o, p);
	case TT_OPENVINO: return rt->f.SessionOptionsAppendExecutionProvider_OpenVINO_V2(o, p->keys, p->values, p->n);
	default: return rt->f.SessionOptionsAppendExecutionProvider(o, name, p->keys, p->values, p->n);
	}
}

OrtStatus *tt_providers(tt_runtime *rt, char ***names, int *n) { return rt->f.GetAvailableProviders(names, n); }

void tt_providers_free(tt_runtime *rt, char **names, int n) {
	OrtStatus *st = rt->f.ReleaseAvailableProviders(names, n);
	if (st != NULL) rt->f.ReleaseStatus(st);
}

OrtStatus *tt_load(tt_runtime *rt, const char *path, const OrtSessionOptions *o, OrtSession **out) {
	OrtStatus *st = rt->f.CreateSession(rt->env, path, o, out);
	// Parsing leaves a second copy of the weights in freed pages; return them to the system.
	malloc_trim(0);
	return st;
}
