// C functions over TensorFlow's functions, for Go. Their names are unique in the program. A function that can fail
// returns the runtime's code, 0 for success, and sets the text of the status.
#ifndef TUTTI_TENSORFLOW_SHIM_H
#define TUTTI_TENSORFLOW_SHIM_H

#include "tf.h"

#define TTF_MAX_RANK 16
#define TTF_UNFIT (-1)      // an invalid input: its bytes do not match its shape
#define TTF_NO_MEMORY (-2)  // no memory for an input

// The names of the functions, in the order of TF_Functions, terminated by NULL.
const char *ttf_function(int i);
void ttf_set_function(TF_Functions *f, int i, void *address);

// One loaded model. status is for loading and unloading, which must not be concurrent.
typedef struct {
	TF_Functions *f;
	TF_Graph *graph;
	TF_Session *session;
	TF_Status *status;
	TF_Buffer *meta;  // the MetaGraphDef of a saved model
} ttf_session;

ttf_session *ttf_session_new(TF_Functions *f);
void ttf_session_free(ttf_session *s);
int ttf_load_saved(ttf_session *s, const char *dir, const char *tag, const void *config, size_t n);
int ttf_load_graph(ttf_session *s, const void *graph, size_t size, const void *config, size_t n);
int ttf_init(ttf_session *s, const char *operation);  // returns TTF_UNFIT if there is no such operation
const char *ttf_session_text(ttf_session *s);

// The declaration of one output of an operation.
typedef struct {
	TF_Output at;
	int type;
	int rank;  // -1 if unknown
	int64_t dims[TTF_MAX_RANK];
} ttf_port;

// Returns 0, 1 if there is no such operation, 2 if it has no such output.
int ttf_find(ttf_session *s, const char *operation, int index, ttf_port *p);

// Tracks whether the runtime still refers to the memory of an input.
typedef struct {
	int lent;  // atomic
} ttf_loan;

ttf_loan *ttf_loan_new(void);
int ttf_lent(ttf_loan *l);

// One tensor of a run.
typedef struct {
	void *data;
	size_t bytes;  // of BYTES: encoded strings, each after a length of four bytes
	size_t count;  // elements
	TF_Output at;
	TF_Tensor *tensor;  // outputs: set by a run
	ttf_loan *loan;      // inputs
	int use;            // takes part in this run
	int copy;           // inputs: the runtime gets a copy
	int sole;           // outputs: the only reference to the memory
	int type;
	int rank;
	int64_t dims[TTF_MAX_RANK];
} ttf_value;

// The reusable memory of one instance. Not safe for concurrent use.
typedef struct {
	TF_Functions *f;
	TF_Session *session;
	TF_Status *status;
	size_t ins, outs;
	ttf_value *in, *out;
	int bad;                          // the input that TTF_UNFIT or TTF_NO_MEMORY concerns
	TF_Output *in_at, *out_at;        // this run's tensors in the graph
	TF_Tensor **in_tensors, **out_tensors;
} ttf_call;

ttf_call *ttf_call_new(ttf_session *s, size_t ins, size_t outs);
void ttf_call_free(ttf_call *c);
const char *ttf_call_text(ttf_call *c);

// Runs the model with c->in and c->out: the only call from Go per execution.
int ttf_run(ttf_call *c);

// Writes the encoded strings of an output: v->bytes bytes.
void ttf_strings(TF_Functions *f, const ttf_value *v, void *to);

void ttf_release(TF_Functions *f, TF_Tensor *t);
const char *ttf_version(TF_Functions *f);

#endif
