#include "shim.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {
#define X(result, name, args) "TF_" #name,
	TF_FUNCTIONS(X)
#undef X
	NULL,
};

const char *ttf_function(int i) { return names[i]; }

void ttf_set_function(TF_Functions *f, int i, void *address) { memcpy((char *)f + (size_t)i * sizeof(void *), &address, sizeof(void *)); }

const char *ttf_version(TF_Functions *f) { return f->Version(); }

ttf_session *ttf_session_new(TF_Functions *f) {
	ttf_session *s = calloc(1, sizeof *s);
	if (s == NULL) return NULL;
	s->f = f;
	s->status = f->NewStatus();
	s->graph = f->NewGraph();
	if (s->status != NULL && s->graph != NULL) return s;
	ttf_session_free(s);
	return NULL;
}

void ttf_session_free(ttf_session *s) {
	if (s == NULL) return;
	if (s->session != NULL) {
		s->f->CloseSession(s->session, s->status);
		s->f->DeleteSession(s->session, s->status);
	}
	if (s->meta != NULL) s->f->DeleteBuffer(s->meta);
	if (s->graph != NULL) s->f->DeleteGraph(s->graph);
	if (s->status != NULL) s->f->DeleteStatus(s->status);
	free(s);
	malloc_trim(0);
}

const char *ttf_session_text(ttf_session *s) { return s->f->Message(s->status); }

static TF_SessionOptions *options(ttf_session *s, const void *config, size_t n) {
	TF_SessionOptions *o = s->f->NewSessionOptions();
	s->f->SetConfig(o, config, n, s->status);
	return o;
}

int ttf_load_saved(ttf_session *s, const char *dir, const char *tag, const void *config, size_t n) {
	TF_SessionOptions *o = options(s, config, n);
	if (s->f->GetCode(s->status) == 0) {
		s->meta = s->f->NewBuffer();
		s->session = s->f->LoadSessionFromSavedModel(o, NULL, dir, &tag, 1, s->graph, s->meta, s->status);
	}
	s->f->DeleteSessionOptions(o);
	malloc_trim(0);  // loading leaves a second copy of the graph in freed pages: return them to the system
	return s->f->GetCode(s->status);
}

int ttf_load_graph(ttf_session *s, const void *graph, size_t size, const void *config, size_t n) {
	TF_Buffer *b = s->f->NewBufferFromString(graph, size);
	TF_ImportOptions *how = s->f->NewImportGraphDefOptions();
	s->f->GraphImportGraphDef(s->graph, b, how, s->status);
	s->f->DeleteImportGraphDefOptions(how);
	s->f->DeleteBuffer(b);
	if (s->f->GetCode(s->status) == 0) {
		TF_SessionOptions *o = options(s, config, n);
		if (s->f->GetCode(s->status) == 0) s->session = s->f->NewSession(s->graph, o, s->status);
		s->f->DeleteSessionOptions(o);
	}
	malloc_trim(0);
	return s->f->GetCode(s->status);
}

int ttf_init(ttf_session *s, const char *operation) {
	const TF_Operation *target = s->f->GraphOperationByName(s->graph, operation);
	if (target == NULL) return TTF_UNFIT;
	s->f->SessionRun(s->session, NULL, NULL, NULL, 0, NULL, NULL, 0, &target, 1, NULL, s->status);
	return s->f->GetCode(s->status);
}

int ttf_find(ttf_session *s, const char *operation, int index, ttf_port *p) {
	memset(p, 0, sizeof *p);
	p->at.oper = s->f->GraphOperationByName(s->graph, operation);
	p->at.index = index;
	if (p->at.oper == NULL) return 1;
	if (index < 0 || index >= s->f->OperationNumOutputs(p->at.oper)) return 2;
	p->type = s->f->OperationOutputType(p->at);
	p->rank = s->f->GraphGetTensorNumDims(s->graph, p->at, s->status);
	if (s->f->GetCode(s->status) != 0) p->rank = -1;
	if (p->rank > 0 && p->rank <= TTF_MAX_RANK) s->f->GraphGetTensorShape(s->graph, p->at, p->dims, p->rank, s->status);
	return 0;
}
