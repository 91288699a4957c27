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

const char *tt_function(int i) { return names[i]; }

void tt_set_function(TF_Functions *f, int i, void *address) { memcpy((char *)f + (size_t)i * sizeof(void *), &address, sizeof(void *)); }

const char *tt_version(TF_Functions *f) { return f->Version(); }

tt_session *tt_session_new(TF_Functions *f) {
	tt_session *s = calloc(1, sizeof *s);
	if (s == NULL) return NULL;
	s->f = f;
	s->status = f->NewStatus();
	s->graph = f->NewGraph();
	if (s->status != NULL && s->graph != NULL) return s;
	tt_session_free(s);
	return NULL;
}

void tt_session_free(tt_session *s) {
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

const char *tt_session_text(tt_session *s) { return s->f->Message(s->status); }

static TF_SessionOptions *options(tt_session *s, const void *config, size_t n) {
	TF_SessionOptions *o = s->f->NewSessionOptions();
	s->f->SetConfig(o, config, n, s->status);
	return o;
}

int tt_load_saved(tt_session *s, const char *dir, const char *tag, const void *config, size_t n) {
	TF_SessionOptions *o = options(s, config, n);
	if (s->f->GetCode(s->status) == 0) {
		s->meta = s->f->NewBuffer();
		s->session = s->f->LoadSessionFromSavedModel(o, NULL, dir, &tag, 1, s->graph, s->meta, s->status);
	}
	s->f->DeleteSessionOptions(o);
	malloc_trim(0);  // reading leaves a second copy of the graph in freed pages
	return s->f->GetCode(s->status);
}

int tt_load_graph(tt_session *s, const void *graph, size_t size, const void *config, size_t n) {
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

int tt_init(tt_session *s, const char *operation) {
	const TF_Operation *target = s->f->GraphOperationByName(s->graph, operation);
	if (target == NULL) return TT_UNFIT;
	s->f->SessionRun(s->session, NULL, NULL, NULL, 0, NULL, NULL, 0, &target, 1, NULL, s->status);
	return s->f->GetCode(s->status);
}

int tt_find(tt_session *s, const char *operation, int index, tt_port *p) {
	memset(p, 0, sizeof *p);
	p->at.oper = s->f->GraphOperationByName(s->graph, operation);
	p->at.index = index;
	if (p->at.oper == NULL) return 1;
	if (index < 0 || index >= s->f->OperationNumOutputs(p->at.oper)) return 2;
	p->type = s->f->OperationOutputType(p->at);
	p->rank = s->f->GraphGetTensorNumDims(s->graph, p->at, s->status);
	if (s->f->GetCode(s->status) != 0) p->rank = -1;
	if (p->rank > 0 && p->rank <= TT_MAX_RANK) s->f->GraphGetTensorShape(s->graph, p->at, p->dims, p->rank, s->status);
	return 0;
}
