// A stand-in for ONNX Runtime with CUDA, for machines without a GPU. It offers OrtGetApiBase, and wraps the real library, which
// TUTTI_ONNX_STANDIN_RUNTIME names, or the file "runtime" beside this library. Sessions with the CUDA provider compute on the host:
//
//   - inputs at device addresses are copied to the host on the session's stream, through the CUDA driver of the process;
//   - the results are copied back in stream order, so that they are late for whoever does not wait for the stream;
//   - memory of the runtime is overwritten on the session's stream when it is released, as a reuse would.
//
// With the checking driver (core/tensor/cuda/cudatest) every access that is not ordered is a fault of the driver. What the stand-in
// itself finds wrong, and what it was asked to do, is in tutti_ort_report.
//
// A session config entry session.standin_host lists ports, separated by commas, which the session reads or makes on the host, as it
// does where the CPU provider has taken a node. The entry session.standin_weights is the size of the weights in bytes.
#ifndef TUTTI_STANDIN_H
#define TUTTI_STANDIN_H

#include <pthread.h>
#include <stdbool.h>

#include "../../ort.h"

enum { MAX_PORTS = 64, TABLE = 420, WEIGHTS = 256, MAX_RANK = 16, MAX_GRAPHS = 64 };

typedef uint64_t cu_ptr;

// The driver's functions that the stand-in calls.
typedef struct {
	int (*cuDevicePrimaryCtxRetain)(void **, int);
	int (*cuDevicePrimaryCtxRelease_v2)(int);
	int (*cuCtxSetCurrent)(void *);
	int (*cuMemcpyAsync)(cu_ptr, cu_ptr, size_t, void *);
	int (*cuMemsetD8Async)(cu_ptr, unsigned char, size_t, void *);
	int (*cuStreamSynchronize)(void *);
	int (*cuMemAlloc_v2)(cu_ptr *, size_t);
	int (*cuMemFree_v2)(cu_ptr);
} driver;

// What session options hold.
typedef struct options {
	OrtSessionOptions *key;
	bool cuda, env, graphs;
	int device;
	uint64_t stream;
	char host[256];
	size_t weights;
	struct options *next;
} options;

// What run options hold.
typedef struct run_options {
	const OrtRunOptions *key;
	bool unsynchronized;
	long graph;
	struct run_options *next;
} run_options;

typedef struct chunk {
	cu_ptr p;
	size_t n;
	struct chunk *next;
} chunk;

// A captured graph: the addresses that a replay uses.
typedef struct {
	long id;
	cu_ptr in[MAX_PORTS], out[MAX_PORTS];
} graph;

// A session with the CUDA provider.
typedef struct session {
	OrtSession *key;
	options o;
	void *context;
	cu_ptr weights;
	chunk *free;               // of the arena
	OrtValue *late[MAX_PORTS]; // results whose copy may still be under way
	size_t lates;
	graph graphs[MAX_GRAPHS];
	int captured;
	struct session *next;
} session;

typedef enum { BORROWED, ALLOCATED, ARENA } ownership;

// A tensor at a device.
typedef struct value {
	OrtValue *key;
	cu_ptr p;
	size_t n;
	int device, type;
	size_t rank;
	int64_t dims[MAX_RANK];
	ownership own;
	OrtAllocator *from; // ALLOCATED
	OrtSession *of;     // ARENA
	struct value *next;
} value;

typedef struct {
	char name[256];
	const OrtValue *value;     // NULL: the runtime allocates
	const OrtMemoryInfo *info; // where
	OrtValue *result;
} bound;

typedef struct {
	OrtSession *session;
	bound in[MAX_PORTS], out[MAX_PORTS];
	size_t ins, outs;
} binding;

extern OrtFunctions real;
extern driver cuda;
extern pthread_mutex_t mu;
extern OrtAllocator *allocators[16]; // registered, by device; guarded by mu
extern struct counts { uint64_t runs, synchronized, captures, replays, sessions, values, arena, moves[3], bytes[3]; } counts;

void fault(const char *format, ...) __attribute__((format(printf, 1, 2)));
void note(const char *format, ...) __attribute__((format(printf, 1, 2)));

session *session_of(const OrtSession *key);
run_options run_options_of(const OrtRunOptions *key);
OrtStatus *failed(const char *call, int result);
// The directions of the stand-in's own copies, which stand for kernels and for the load of weights.
typedef enum { UP, DOWN, WITHIN } way;
// Counts memory of arenas as the checking driver does, in pages of 4096 bytes; sign is 1 or -1.
void count_arena(size_t n, int sign);
// Copies on a stream, and counts it.
int move(way w, cu_ptr to, cu_ptr from, size_t n, void *stream);
// Reports whether info is of a device, and which.
bool at_device(const OrtMemoryInfo *info, int *id);
// Reports whether the session has the port on the host.
bool on_host(const session *s, const char *name);

// In memory.c.
OrtStatus *new_value(const OrtMemoryInfo *info, void *p, size_t n, const int64_t *dims, size_t rank, int type, OrtValue **out);
value *value_of(const OrtValue *key);
OrtStatus *take_memory(session *s, size_t n, cu_ptr *p, ownership *own);
void give_memory(session *s, OrtAllocator *from, cu_ptr p, size_t n, ownership own);
OrtStatus *device_value(session *s, cu_ptr p, size_t n, const int64_t *dims, size_t rank, int type, ownership own, OrtValue **out);
void release_value(OrtValue *key);

// In run.c.
void install_runs(void **table);

#endif
