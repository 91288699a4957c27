// What Go calls: the runtime behind plain C functions. One that can fail returns the runtime's code, 0 for success, and
// leaves the text in the status it was given.
#ifndef TUTTI_TENSORFLOW_SHIM_H
#define TUTTI_TENSORFLOW_SHIM_H

#include "tf.h"

#define TT_MAX_RANK 16
#define TT_UNFIT (-1)      // an input that the runtime does not take: its bytes do not fill its shape
#define TT_NO_MEMORY (-2)  // memory for an input

// The names of the functions, in the order of TF_Functions; NULL ends them.
const char *tt_function(int i);
void tt_set_function(TF_Functions *f, int i, void *address);

// One loaded model. status is for whoever loads and unloads it, one at a time.
typedef struct {
	TF_Functions *f;
	TF_Graph *graph;
	TF_Session *session;
	TF_Status *status;
	TF_Buffer *meta;  // the MetaGraphDef of a saved model
} tt_session;

tt_session *tt_session_new(TF_Functions *f);
void tt_session_free(tt_session *s);
int tt_load_saved(tt_session *s, const char *dir, const char *tag, const void *config, size_t n);
int tt_load_graph(tt_session *s, const void *graph, size_t size, const void *config, size_t n);
int tt_init(tt_session *s, const char *operation);  // TT_UNFIT: no such operation
const char *tt_session_text(tt_session *s);

// What a graph says of one result of an operation.
typedef struct {
	TF_Output at;
	int type;
	int rank;  // -1: any
	int64_t dims[TT_MAX_RANK];
} tt_port;

// Returns 0, 1 when there is no such operation, 2 when it has no such result.
int tt_find(tt_session *s, const char *operation, int index, tt_port *p);

// Tells whether the runtime still refers to memory it was lent.
typedef struct {
	int lent;  // atomic
} tt_loan;

tt_loan *tt_loan_new(void);
int tt_lent(tt_loan *l);

// One tensor of a run.
typedef struct {
	void *data;
	size_t bytes;  // of strings: as they are encoded on the wire, each after its length in four bytes
	size_t count;  // elements
	TF_Output at;
	TF_Tensor *tensor;  // outputs: after a run
	tt_loan *loan;      // inputs
	int use;            // takes part in this run
	int copy;           // inputs: the runtime gets memory of its own
	int sole;           // outputs: nothing else refers to the memory
	int type;
	int rank;
	int64_t dims[TT_MAX_RANK];
} tt_value;

// The scratch of one instance, reused by every run. One goroutine at a time.
typedef struct {
	TF_Functions *f;
	TF_Session *session;
	TF_Status *status;
	size_t ins, outs;
	tt_value *in, *out;
	int bad;                          // the input that TT_UNFIT and TT_NO_MEMORY are about
	TF_Output *in_at, *out_at;        // this run's places
	TF_Tensor **in_tensors, **out_tensors;
} tt_call;

tt_call *tt_call_new(tt_session *s, size_t ins, size_t outs);
void tt_call_free(tt_call *c);
const char *tt_call_text(tt_call *c);

// Runs the model over c->in and c->out: the one crossing per execution.
int tt_run(tt_call *c);

// Writes the strings of an output as they are encoded: v->bytes bytes.
void tt_strings(TF_Functions *f, const tt_value *v, void *to);

void tt_release(TF_Functions *f, TF_Tensor *t);
const char *tt_version(TF_Functions *f);

#endif
