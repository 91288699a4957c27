// What Go calls of libtutti_torch-HASH.so: PyTorch's C++ library behind plain C functions. They are looked up by name in the
// opened library; nothing links to it. A function that can fail writes a text of at most TT_TORCH_TEXT bytes, zero
// included, to why and returns nonzero or NULL.
#ifndef TUTTI_TORCH_SHIM_H
#define TUTTI_TORCH_SHIM_H

#include <stddef.h>
#include <stdint.h>

#define TT_TORCH_RANK 16
#define TT_TORCH_TEXT 2048
#define TT_TORCH_STRINGS 1000  // element type of a List[str]; all others are numbered as PyTorch's ScalarType

// How tensors and the model's values belong together.
enum { TT_TORCH_ORDER, TT_TORCH_KEYS };

typedef struct tt_torch_model tt_torch_model;  // a loaded model, safe for many threads

// The process-wide switches; a negative number leaves one as it is.
typedef struct {
	int32_t intra_threads, inter_threads, fuser, executor, profiling, no_cudnn;
} tt_torch_process;

// How a model is loaded and run.
typedef struct {
	const char *path;
	const char *device;  // PyTorch's name; empty leaves every tensor of the file where it was saved
	int32_t aoti;        // a package of AOTInductor's instead of TorchScript
	int32_t inference;   // under InferenceMode
	int32_t plain;       // without the optimisations of the graph executor
	int32_t clean;       // give the device's cache back after each run
	int32_t runners;     // of a package: how many runs may overlap
} tt_torch_options;

// One tensor of a run. Inputs are described by the caller, outputs by the library.
typedef struct {
	void *data;       // inputs: the caller's memory; outputs: that of the handle
	size_t bytes;
	void *handle;     // outputs: keeps data alive until tt_torch_free; NULL when the model gave none
	int32_t use;      // inputs: given in this run
	int32_t type, rank;
	int64_t dims[TT_TORCH_RANK];
} tt_torch_value;

// The scratch of one instance, in C memory, reused by every run.
typedef struct {
	tt_torch_model *model;
	tt_torch_value *in, *out;
	// The driver's stream of the runs. Tensors are on the model's device then, except strings, and a run returns before the
	// stream is done. NULL: tensors are on the host.
	void *stream;
	char why[TT_TORCH_TEXT];
} tt_torch_call;

// What tt_torch_run returns.
enum { TT_TORCH_OK, TT_TORCH_FAILED, TT_TORCH_NO_MEMORY };

#ifdef __cplusplus
extern "C" {
#endif

const char *tt_torch_source(void);   // the hash of the source that this was built from
const char *tt_torch_version(void);  // PyTorch's
int tt_torch_threads(void);
int tt_torch_setup(const tt_torch_process *p, char *why);
// Settings of the allocator of devices, as in PYTORCH_ALLOC_CONF; those of the environment stay.
int tt_torch_memory(const char *settings, char *why);
// How many devices of the kind of this one there are, 0 without support for it.
int tt_torch_devices(const char *device);
// Gives the unused memory of the allocator of devices back.
void tt_torch_empty(const char *device);

tt_torch_model *tt_torch_load(const tt_torch_options *o, char *why);
// A second model with weights of its own.
tt_torch_model *tt_torch_clone(tt_torch_model *m, char *why);
void tt_torch_unload(tt_torch_model *m);
// The parameters and the result of forward, a line each: "in" or "out", name, kind, count, 1 when it may be left out,
// type, parted by tabs; and a line "state" when forward changes the model. free() it.
char *tt_torch_describe(tt_torch_model *m, char *why);
// Says where each input goes and each output comes from: by position among the leaves of forward's parameters and
// result, or by the key of a dictionary.
int tt_torch_bind(tt_torch_model *m, int in_how, size_t ins, const int64_t *in_at, const char *const *in_names,
                  int out_how, size_t outs, const int64_t *out_at, const char *const *out_names, char *why);

// Makes the runs of a call use a stream of the model's device.
int tt_torch_attach(tt_torch_call *c, void *stream, char *why);
// Runs the model over c->in and c->out: the one crossing per execution.
int tt_torch_run(tt_torch_call *c);
// Writes the strings of an output of type TT_TORCH_STRINGS, each after its length in 4 bytes: v->bytes altogether.
void tt_torch_strings(const tt_torch_value *v, void *to);
void tt_torch_free(void *handle);

#ifdef __cplusplus
}
#endif

#endif
