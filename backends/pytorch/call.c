#include "call.h"

#include <stdlib.h>
#include <string.h>

static const char *const names[] = {
#define X(name, result, params, args) "tt_torch_" #name,
	TT_TORCH_FUNCTIONS(X)
#undef X
	NULL,
};

const char *ttpt_name(size_t i) { return names[i]; }

void ttpt_set(tt_torch_api *a, size_t i, void *address) { ((void **)a)[i] = address; }

const char *ttpt_source(const tt_torch_api *a) { return a->source(); }
const char *ttpt_version(const tt_torch_api *a) { return a->version(); }
int ttpt_threads(const tt_torch_api *a) { return a->threads(); }
int ttpt_setup(const tt_torch_api *a, const tt_torch_process *p, char *why) { return a->setup(p, why); }
int ttpt_memory(const tt_torch_api *a, const char *settings, char *why) { return a->memory(settings, why); }
int ttpt_devices(const tt_torch_api *a, const char *device) { return a->devices(device); }
void ttpt_empty(const tt_torch_api *a, const char *device) { a->empty(device); }
tt_torch_model *ttpt_load(const tt_torch_api *a, const tt_torch_options *o, char *why) { return a->load(o, why); }
tt_torch_model *ttpt_clone(const tt_torch_api *a, tt_torch_model *m, char *why) { return a->clone(m, why); }
void ttpt_unload(const tt_torch_api *a, tt_torch_model *m) { a->unload(m); }
char *ttpt_describe(const tt_torch_api *a, tt_torch_model *m, char *why) { return a->describe(m, why); }
int ttpt_attach(const tt_torch_api *a, tt_torch_call *c, void *stream, char *why) { return a->attach(c, stream, why); }
int ttpt_run(const tt_torch_api *a, tt_torch_call *c) { return a->run(c); }
void ttpt_strings(const tt_torch_api *a, const tt_torch_value *v, void *to) { a->strings(v, to); }
void ttpt_free(const tt_torch_api *a, void *handle) { a->free(handle); }

int ttpt_bind(const tt_torch_api *a, tt_torch_model *m, int in_how, size_t ins, const int64_t *in_at, int out_how,
                size_t outs, const int64_t *out_at, const char *text, char *why) {
	const char **list = calloc(ins + outs + 1, sizeof *list);
	if (list == NULL) {
		strcpy(why, "no memory");
		return 1;
	}
	for (size_t i = 0; i < ins + outs; i++) {
		list[i] = text;
		text += strlen(text) + 1;
	}
	int failed = a->bind(m, in_how, ins, in_at, list, out_how, outs, out_at, list + ins, why);
	free(list);
	return failed;
}

tt_torch_call *ttpt_call_new(tt_torch_model *m, size_t ins, size_t outs) {
	tt_torch_call *c = calloc(1, sizeof *c);
	if (c == NULL) return NULL;
	c->model = m;
	c->in = calloc(ins + 1, sizeof *c->in);
	c->out = calloc(outs + 1, sizeof *c->out);
	if (c->in != NULL && c->out != NULL) return c;
	ttpt_call_free(c);
	return NULL;
}

void ttpt_call_free(tt_torch_call *c) {
	if (c == NULL) return;
	free(c->in), free(c->out);
	free(c);
}
