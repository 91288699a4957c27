// The inside of the process that hosts a backend library: objects behind the opaque types of api.h, and the memory shared with the server.
//
//	objects.c    errors, messages, parameters, attributes, logs and metrics
//	model.c      backend, model and instances
//	heap.c       blocks of shared memory
//	request.c    requests, their inputs and responses
//	execute.c    instances' threads, and the functions that Go calls
//
// The memory has the range of this process, which it may write, at the start of which is the header. The layout of a range, and of a request
// and an event in it, is that of wire.go.
#ifndef TUTTI_TRITON_HOST_H
#define TUTTI_TRITON_HOST_H

#include <pthread.h>
#include <stdatomic.h>

#include "api.h"

// Offsets and sizes, equal to those in wire.go.
enum {
	TT_FREED = 0,     // the first block that the server has freed, 0 for none
	TT_NOTIFY = 64,   // counts the wake-ups of the server
	TT_ASLEEP = 128,  // 1 while the server waits for TT_NOTIFY
	TT_MAILBOX = 4096,
	TT_MAILBOX_SIZE = 128, // a counter of started executions, then at 4 the slot of the last one, at 64 whether the instance waits
	TT_INSTANCES = 1024,
	TT_SLOTS = TT_MAILBOX + TT_MAILBOX_SIZE * TT_INSTANCES,
	TT_SLOT_EVENTS = 0,   // the last event, 0 for none
	TT_SLOT_WAITING = 64, // 1 while the server waits for an event
	TT_SLOT_PENDING = 68, // events that the server has not taken
	TT_SLOT_TAKEN = 72,   // counts when the server has taken events
	TT_SLOT_ROUND = 76,   // the number of the execution
	TT_SLOT_REQUEST = 128,
	TT_BLOCK_HEAD = 64,   // before a block: its class, and the next block
	TT_MOST_PENDING = 512,
};

// Kinds of events.
enum { TT_EVENT_EXECUTED = 1, TT_EVENT_RESPONSE, TT_EVENT_RELEASED, TT_EVENT_STATE, TT_EVENT_ACTIVITY, TT_EVENT_ABANDONED };

// Words of every event, before its own.
enum { TT_EVENT_NEXT, TT_EVENT_KIND, TT_EVENT_ROUND, TT_EVENT_REQUEST, TT_EVENT_FLAGS, TT_EVENT_SIZE, TT_EVENT_BODY };

struct tl_range {
	uint8_t *mem;       // the range, for writing
	size_t size;
	const uint8_t *all; // all shared memory, for reading
	size_t slots, slot_size;
	size_t heap;        // where blocks begin
};

struct TRITONSERVER_Error {
	TRITONSERVER_Error_Code code;
	char text[];
};

struct TRITONSERVER_Message {
	char *json;
	size_t size;
};

struct TRITONSERVER_Parameter {
	char *name;
	TRITONSERVER_ParameterType type;
	union {
		int64_t number;
		double real;
		bool truth;
	};
	char *bytes; // of a string, which ends with 0, or of bytes
	uint64_t size;
};

struct TRITONSERVER_BufferAttributes {
	size_t size;
	TRITONSERVER_MemoryType type;
	int64_t id;
	void *handle;
};

struct TRITONBACKEND_MemoryManager { int unused; };
struct TRITONSERVER_Server { int unused; };

struct TRITONBACKEND_Backend {
	char *name, *folder;
	TRITONSERVER_Message config;
	TRITONBACKEND_ExecutionPolicy policy;
	void *state;
};

struct TRITONBACKEND_Model {
	TRITONBACKEND_Backend *backend;
	char *name, *folder;
	uint64_t version;
	bool complete; // the library may complete the configuration
	pthread_mutex_t lock;
	TRITONSERVER_Message config; // guarded by lock
	bool set;                    // the library has set config; guarded by lock
	void *state;
	char **inputs, **outputs, **states; // the names of the ports; outputs are those of responses, states those of sequences
	uint32_t input_count, output_count, state_count;
};

// The functions of the library. Those that it does not have are NULL.
struct tl_library {
	TRITONSERVER_Error *(*initialize)(TRITONBACKEND_Backend *);
	TRITONSERVER_Error *(*finalize)(TRITONBACKEND_Backend *);
	TRITONSERVER_Error *(*attributes)(TRITONBACKEND_Backend *, TRITONBACKEND_BackendAttribute *);
	TRITONSERVER_Error *(*model_initialize)(TRITONBACKEND_Model *);
	TRITONSERVER_Error *(*model_finalize)(TRITONBACKEND_Model *);
	TRITONSERVER_Error *(*instance_initialize)(TRITONBACKEND_ModelInstance *);
	TRITONSERVER_Error *(*instance_finalize)(TRITONBACKEND_ModelInstance *);
	TRITONSERVER_Error *(*execute)(TRITONBACKEND_ModelInstance *, TRITONBACKEND_Request **, uint32_t);
};

struct TRITONBACKEND_ModelInstance {
	TRITONBACKEND_Model *model;
	char *name;
	TRITONSERVER_InstanceGroupKind kind;
	int32_t device;
	TRITONSERVER_Message policy;
	char **profiles;
	uint32_t profile_count;
	void *state;
	uint32_t index; // of its mailbox
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool ready; // it is initialized, or failed with error; guarded by lock
	TRITONSERVER_Error *error; // guarded by lock
	atomic_bool stop;
	TRITONBACKEND_Request *requests; // spare ones; used by the thread, and returned under spare_lock
	pthread_mutex_t spare_lock;
	TRITONBACKEND_Request **batch;   // of the thread
	uint32_t batch_room;
};

// A ticket is what the responses of a request need after the request was released. It is freed with its last user: the request, its
// factories and responses.
struct tl_ticket {
	atomic_int users;
	atomic_bool final; // its last response was sent
	uint32_t slot, round, index;
	TRITONBACKEND_Model *model;
	const atomic_uint_least64_t *cancelled; // in the slot; valid while the slot has the round
	TRITONBACKEND_State *states;
	pthread_mutex_t lock; // of states
};

struct TRITONBACKEND_Input {
	const char *name;
	TRITONSERVER_DataType type;
	const int64_t *shape;
	uint32_t rank;
	uint64_t size;
	const void *data;
	TRITONSERVER_BufferAttributes attributes;
};

struct TRITONSERVER_InferenceTrace { struct tl_ticket *ticket; };

struct TRITONBACKEND_Request {
	TRITONBACKEND_ModelInstance *instance;
	TRITONBACKEND_Request *next; // of the spare ones
	struct tl_ticket *ticket;
	const char *id, *correlation;
	uint64_t correlation_id, timeout;
	uint32_t flags;
	bool traced;
	TRITONSERVER_InferenceTrace trace;
	TRITONBACKEND_Input *inputs;
	uint32_t input_count, input_room;
	const char **outputs;
	uint32_t output_count, output_room;
	TRITONSERVER_Parameter *params;
	uint32_t param_count, param_room;
};

struct TRITONBACKEND_Output {
	TRITONBACKEND_Output *next;
	char *name;
	TRITONSERVER_DataType type;
	int64_t *shape;
	uint32_t rank;
	uint64_t block, size; // its buffer in the range, 0 for none
	TRITONSERVER_BufferAttributes attributes;
};

struct TRITONBACKEND_State {
	TRITONBACKEND_State *next;
	struct tl_ticket *ticket;
	TRITONBACKEND_Output out;
};

struct TRITONBACKEND_ResponseFactory { struct tl_ticket *ticket; };

struct TRITONBACKEND_Response {
	struct tl_ticket *ticket;
	TRITONBACKEND_Output *outputs, **end;
	uint32_t output_count;
	TRITONSERVER_Parameter *params;
	uint32_t param_count;
};

extern struct tl_range tl_range;
extern struct tl_library tl_library;

TRITONSERVER_Error *tl_errorf(TRITONSERVER_Error_Code code, const char *format, ...) __attribute__((format(printf, 2, 3)));

// tl_alloc returns the position of a block of the range, or 0 when the range is full. Blocks are aligned to 64 bytes.
uint64_t tl_alloc(size_t size);
// tl_free frees a block that the server has not seen.
void tl_free(uint64_t block);

static inline void *tl_at(uint64_t offset) { return tl_range.mem + offset; }
static inline uint8_t *tl_slot(uint32_t slot) { return tl_range.mem + TT_SLOTS + (size_t)slot * tl_range.slot_size; }

// tl_event allocates an event with so many bytes of body, or returns NULL when the range is full.
uint64_t *tl_event(const struct tl_ticket *t, uint64_t kind, uint64_t flags, size_t body);
// tl_post hands an event to the server. Where too many wait there, it blocks until the server has taken some, if wait is true.
void tl_post(uint32_t slot, uint64_t *event, bool wait);

struct tl_ticket *tl_keep(struct tl_ticket *t);
// tl_drop gives up one use of a ticket. The last one of a request without a final response reports that to the server.
void tl_drop(struct tl_ticket *t);
bool tl_cancelled(const struct tl_ticket *t);

// tl_parse makes the requests of a slot. It returns NULL and sets *why when the description is not readable.
TRITONBACKEND_Request **tl_parse(TRITONBACKEND_ModelInstance *x, uint32_t slot, uint32_t *count, const char **why);
void tl_recycle(TRITONBACKEND_Request *r);

void tl_notices(int socket, int verbose);

void tl_parameter_set(TRITONSERVER_Parameter *p, TRITONSERVER_ParameterType type, const void *value, uint64_t size);
void tl_parameter_clear(TRITONSERVER_Parameter *p);

// The entry points for Go: see execute.c. An error is NULL or must be freed with TRITONSERVER_ErrorDelete.
struct tl_symbol { const char *name; void *address; };
// tl_symbol_at returns a call that libraries find, or one without a name after the last.
const struct tl_symbol *tl_symbol_at(size_t i);

TRITONSERVER_Error *tl_setup(uint8_t *mem, size_t size, const uint8_t *all, size_t slots, size_t slot_size);
TRITONSERVER_Error *tl_load(const char *library, const char *name, const char *folder, const char *settings, const char *model, const char *model_folder, uint64_t version, const char *config, int complete);
char *tl_completed(void);
TRITONSERVER_Error *tl_bind(const char *names, uint32_t inputs, uint32_t outputs, uint32_t states);
TRITONSERVER_Error *tl_instance(uint32_t index, const char *name, int kind, int device, const char *profiles, uint32_t profile_count);
TRITONSERVER_Error *tl_close_instance(uint32_t index);
TRITONSERVER_Error *tl_unload(void);

#endif
