#include "shim.h"

OrtStatus *tt_call_bind(tt_call *c, int id) {
	const OrtFunctions *f = &c->rt->f;
	OrtStatus *st = NULL;
	if (id >= 0) st = f->CreateMemoryInfo("Cuda", 0, id, 0, &c->device);
	if (st == NULL && id >= 0) st = f->AddRunConfigEntry(c->options, "disable_synchronize_execution_providers", "1");
	return st != NULL ? st : f->CreateIoBinding(c->session, &c->binding);
}

// Takes over the outputs that the runtime allocated, which are in binding order.
static OrtStatus *collect(tt_call *c, size_t no) {
	const OrtFunctions *f = &c->rt->f;
	OrtValue **got = NULL;
	size_t n = 0;
	OrtStatus *st = f->GetBoundOutputValues(c->binding, c->rt->heap, &got, &n);
	if (st != NULL || got == NULL) return st;
	for (size_t k = 0; k < n; k++) {
		if (k < no && c->out_values[k] == NULL) {
			c->out_values[k] = got[k];
		} else {
			f->ReleaseValue(got[k]);
		}
	}
	return f->AllocatorFree(c->rt->heap, got);
}

static OrtStatus *bind(tt_call *c, size_t ni, size_t no) {
	const OrtFunctions *f = &c->rt->f;
	OrtStatus *st = NULL;
	for (size_t i = 0; st == NULL && i < ni; i++) st = f->BindInput(c->binding, c->in_used[i], c->in_values[i]);
	size_t k = 0;
	for (size_t i = 0; st == NULL && i < c->outs && k < no; i++) {
		if (!c->out[i].use) continue;
		// Strings are always on the host.
		const OrtMemoryInfo *at = c->device != NULL && c->out[i].device ? c->device : c->rt->cpu;
		st = c->out_values[k] != NULL ? f->BindOutput(c->binding, c->out_used[k], c->out_values[k])
		                              : f->BindOutputToDevice(c->binding, c->out_used[k], at);
		k++;
	}
	return st;
}

OrtStatus *tt_run_binding(tt_call *c, size_t ni, size_t no) {
	const OrtFunctions *f = &c->rt->f;
	OrtStatus *st = bind(c, ni, no);
	if (st == NULL) st = f->RunWithBinding(c->session, c->options, c->binding);
	if (st == NULL) st = collect(c, no);
	f->ClearBoundInputs(c->binding), f->ClearBoundOutputs(c->binding);
	return st;
}
