// A CUDA driver without a GPU that finds mistakes. It exports the driver functions that the package cuda uses, and
//
//   - maps device memory so that any access by the host faults at once;
//   - executes streams late, and in an order between them that a seed chooses;
//   - checks every access against the allocation's life in the order of execution, and against other streams: two
//     accesses, one of them a write, must be ordered by events;
//   - fails allocations, loses devices and slows copies when asked.
//
// Configuration comes from the environment, so that any program can run on it:
//
//	TUTTI_CUDA_CHECK_DEVICES    number of devices, 2 by default
//	TUTTI_CUDA_CHECK_MEMORY     memory of each in bytes, 1 GiB by default
//	TUTTI_CUDA_CHECK_SEED       seed of the order of execution
//	TUTTI_CUDA_CHECK_LATE_US    how long work waits at most when nobody waits for it, 300 by default
//	TUTTI_CUDA_CHECK_OOM        every n-th allocation fails; 0 for none
//	TUTTI_CUDA_CHECK_OOM_AT     allocations fail from the n-th on, TUTTI_CUDA_CHECK_OOM_FOR of them (1); 0 for none. Here contexts, streams,
//	                            events, modules and pinned memory are allocations too
//	TUTTI_CUDA_CHECK_LOST       the device is lost at the n-th operation; 0 for never
//	TUTTI_CUDA_CHECK_SLOW_MBS   bandwidth of copies between devices and the host in MB/s; 0 is unlimited
//	TUTTI_CUDA_CHECK_WORK_US    how long a device takes at least for each copy, fill and kernel, in microseconds; 0 by default. The report
//	                            has the sum of these times: busy, in nanoseconds
//	TUTTI_CUDA_CHECK_NO_PEER    1: devices cannot access each other
//	TUTTI_CUDA_CHECK_EXCLUSIVE  1: another process has the devices in exclusive mode
//	TUTTI_CUDA_CHECK_VERSION    the driver's version, 13000 by default
//	CUDA_VISIBLE_DEVICES        the devices to show, in this order, as with CUDA: none when it is empty, and none from an invalid
//	                            number on
//	TUTTI_CUDA_CHECK_REPORT     a file that gets the report when the last context is released, or the process ends
//
// tutti_check_report returns the same report at any time: one line per fault, then the counters.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "../../driver.h"

enum { OK = 0, INVALID = 1, NO_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100, UNAVAILABLE = 46, BAD_DEVICE = 101, BAD_CONTEXT = 201, PEER_UNSUPPORTED = 217, BAD_HANDLE = 400, NOT_FOUND = 500, NOT_READY = 600, BAD_ADDRESS = 700, LOST = 719 };
enum { MAX_DEVICES = 16, MAX_STREAMS = 512, MAX_FAULTS = 100, ALIGN = 256, PAGE = 4096 };
enum { POISON_NEW = 0xcd, POISON_FREED = 0xdb };

// clock_t_ is a vector clock: for each stream slot, how many of its operations are known to be complete.
typedef struct { uint64_t of[MAX_STREAMS]; int n; } vclock;

// A handle names the memory of a process by its file, so that another process of this driver can map it.
typedef struct { int pid, fd, ordinal; uint64_t offset, n, asked; } shared_memory;

typedef struct block {
	uint64_t base;
	size_t n;
	size_t asked;        // the size of memory for other processes, before rounding
	shared_memory from;  // where memory of another process is
	int opened;          // how often that was opened
	bool live;           // in the order of execution
	bool submitted_free; // by the host
	bool free;           // nothing is there, and nothing will be before it is allocated again
	int born_slot;
	uint64_t born;
	int writer_slot;     // -1: nobody
	uint64_t written;
	const char *writer_name;
	uint64_t reads[MAX_STREAMS]; // the last read of each slot
	int max_reader;
	struct block *before, *next;
	struct cu_pool *pool;
} block;

typedef struct device {
	int ordinal;
	uint8_t *addresses, *memory; // the same offsets: without access, and for the engine
	size_t size;
	int fd;
	block *blocks, *last; // in order of their address
	int retained;
	bool lost;
	uint64_t operations;
} device;

struct cu_ctx { device *d; };
struct cu_pool { device *d; uint64_t keep, used; };

// record is one recording of an event. A wait for it keeps its meaning when the event is recorded again.
typedef struct record {
	int holders;
	bool done, lost; // lost: its device was
	vclock clock; // when it is done
	uint64_t at;  // when the stream reached it, in ns
} record;

struct cu_evnt {
	record *last; // the recording that a query is about; NULL: none yet
	bool dead;    // destroyed; kept to detect uses
	unsigned flags;
	device *d;
};

typedef enum { COPY, SET, ALLOC, FREE, RECORD, WAIT, KERNEL } kind;

typedef struct op {
	kind kind;
	uint64_t dst, src;
	size_t n, pitch, height;
	int width;
	uint32_t value;
	block *b;
	record *record;  // of the event
	vclock *after;   // what the host had waited for, where that changed
	struct cu_func *function;
	unsigned grid[6];
	uint64_t *values;
	struct op *next;
} op;

struct cu_strm {
	device *d;
	bool dead; // destroyed; kept to detect uses
	int slot;
	uint64_t submitted, executed;
	op *head, *tail;
	vclock clock;
	uint64_t host_seen; // host_changes at the last submission
	struct cu_strm *next;
};

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work = PTHREAD_COND_INITIALIZER, progress = PTHREAD_COND_INITIALIZER;
static pthread_t engine;
static bool initialized;
static device devices[MAX_DEVICES];
static struct cu_ctx contexts[MAX_DEVICES];
static int device_count, devices_set, version, oom_every, lost_at, no_peer, late_us, work_us, exclusive;
static int numbers[MAX_DEVICES]; // of the devices in the machine: CUDA_VISIBLE_DEVICES may show others first
static int64_t oom_at, oom_for; // allocations of any kind until the next failure, and failures then
static double slow_mbs;
static uint64_t seed, allocations;
static struct cu_strm *streams;
static bool slots[MAX_STREAMS];
static uint64_t slot_ops[MAX_STREAMS];
static vclock host; // what the host has waited for
static uint64_t host_changes = 1;
static int waiters, idle; // idle: how often the engine has found nothing to do in a row
static bool asleep;       // the engine waits for a signal
static char faults[MAX_FAULTS][320];
static int fault_count;
static __thread struct cu_ctx *current;
static struct { uint64_t up, down, within, peer, up_bytes, down_bytes, within_bytes, peer_bytes, kernels, allocs, frees, events, streams, pinned, contexts, refused, busy_ns; } counts;

static void fault(const char *format, ...) {
	if (fault_count < MAX_FAULTS) {
		va_list args;
		va_start(args, format);
		vsnprintf(faults[fault_count++], sizeof faults[0], format, args);
		va_end(args);
	}
}

static uint64_t number(const char *name, uint64_t otherwise) {
	const char *v = getenv(name);
	return v != NULL && *v != 0 ? strtoull(v, NULL, 10) : otherwise;
}

static uint64_t next_random(void) { // splitmix64
	uint64_t z = (seed += 0x9e3779b97f4a7c15u);
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

// no_memory reports whether an allocation fails. pool is true for those that every n-th of may fail.
static bool no_memory(bool pool) {
	if (pool && oom_every > 0 && ++allocations % (uint64_t)oom_every == 0) {
		counts.refused++;
		return true;
	}
	if (oom_at <= 0) return false;
	if (oom_at > 1) {
		oom_at--;
		return false;
	}
	if (--oom_for <= 0) oom_at = 0;
	counts.refused++;
	return true;
}

static void join(vclock *c, const vclock *o) {
	for (int i = 0; i < o->n; i++)
		if (o->of[i] > c->of[i]) c->of[i] = o->of[i];
	if (o->n > c->n) c->n = o->n;
}

static void host_knows(const vclock *c) {
	join(&host, c);
	host_changes++;
}

static void tick(struct cu_strm *s) {
	s->clock.of[s->slot] = ++slot_ops[s->slot];
	if (s->slot >= s->clock.n) s->clock.n = s->slot + 1;
}

static device *device_of(uint64_t p) {
	for (int i = 0; i < device_count; i++) {
		uint64_t base = (uint64_t)(uintptr_t)devices[i].addresses;
		if (base != 0 && p >= base && p < base + devices[i].size) return &devices[i];
	}
	return NULL;
}

static uint8_t *shadow(uint64_t p) {
	device *d = device_of(p);
	return d != NULL ? d->memory + (p - (uint64_t)(uintptr_t)d->addresses) : (uint8_t *)(uintptr_t)p;
}

static block *block_of(uint64_t p, size_t n) {
	device *d = device_of(p);
	for (block *b = d != NULL ? d->blocks : NULL; b != NULL; b = b->next)
		if (p >= b->base && p < b->base + b->n && n <= b->base + b->n - p) return b;
	return NULL;
}

// touch checks one access of an executing operation, and notes it.
static void touch(struct cu_strm *s, const char *what, uint64_t p, size_t n, bool write) {
	if (device_of(p) == NULL) return; // host memory
	block *b = block_of(p, n);
	if (b == NULL || !b->live) {
		fault("%s of %zu bytes at device:%d by stream %d %s", what, n, device_of(p)->ordinal, s->slot, b == NULL ? "is in no allocation" : "is before the allocation or after the release");
		return;
	}
	if (s->clock.of[b->born_slot] < b->born) fault("%s of %zu bytes at device:%d by stream %d is not ordered after the allocation by stream %d", what, n, s->d->ordinal, s->slot, b->born_slot);
	if (b->writer_slot >= 0 && s->clock.of[b->writer_slot] < b->written)
		fault("%s of %zu bytes at device:%d by stream %d is not ordered after the %s by stream %d", what, n, s->d->ordinal, s->slot, b->writer_name, b->writer_slot);
	if (!write && b->writer_slot < 0) fault("%s of %zu bytes at device:%d by stream %d reads memory that nothing was written to", what, n, s->d->ordinal, s->slot);
	uint64_t now = s->clock.of[s->slot];
	if (!write) {
		b->reads[s->slot] = now;
		if (s->slot > b->max_reader) b->max_reader = s->slot;
		return;
	}
	for (int i = 0; i <= b->max_reader; i++)
		if (b->reads[i] > s->clock.of[i]) fault("%s of %zu bytes at device:%d by stream %d is not ordered after a read by stream %d", what, n, s->d->ordinal, s->slot, i);
	b->writer_slot = s->slot, b->written = now, b->writer_name = what;
}

static uint64_t now_ns(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

// busy lets the device work for a time.
static void busy(double us) {
	if (us <= 0) return;
	counts.busy_ns += (uint64_t)(us * 1e3);
	struct timespec t = {(time_t)(us / 1e6), (long)((us - 1e6 * (long)(us / 1e6)) * 1e3)};
	pthread_mutex_unlock(&mu);
	nanosleep(&t, NULL);
	pthread_mutex_lock(&mu);
}

static void execute_copy(struct cu_strm *s, op *o) {
	device *from = device_of(o->src), *to = device_of(o->dst);
	if ((from != NULL && from->lost) || (to != NULL && to->lost)) {
		s->d->lost = true;
		return;
	}
	touch(s, "copy from memory", o->src, o->n, false);
	touch(s, "copy to memory", o->dst, o->n, true);
	if ((from == NULL || to == NULL) && slow_mbs > 0) busy((double)o->n / slow_mbs);
	uint64_t *count = from == NULL ? &counts.up : to == NULL ? &counts.down : from == to ? &counts.within : &counts.peer;
	*count += 1;
	uint64_t *size = from == NULL ? &counts.up_bytes : to == NULL ? &counts.down_bytes : from == to ? &counts.within_bytes : &counts.peer_bytes;
	*size += o->n;
	memmove(shadow(o->dst), shadow(o->src), o->n);
}

static void execute_set(struct cu_strm *s, op *o) {
	touch(s, "fill", o->dst, o->height > 1 ? o->pitch * (o->height - 1) + (size_t)o->width : o->n, true);
	for (size_t row = 0; row < o->height; row++) {
		uint8_t *at = shadow(o->dst) + row * o->pitch;
		size_t n = o->height > 1 ? (size_t)o->width : o->n;
		for (size_t i = 0; i < n; i += (size_t)o->width) memcpy(at + i, &o->value, (size_t)o->width);
	}
}

// The C version of a kernel: see kernel.h.
typedef struct { unsigned x, y, z; } index3;
typedef struct {
	index3 grid, block;
	void *(*memory)(void *self, uint64_t p, int write);
	void *self;
} launch;
struct cu_func {
	const char *name;
	void (*run)(const launch *l, void **params);
	int params;
	struct cu_func *next;
};
static struct cu_func *functions;

typedef struct { struct cu_strm *s; const char *name; } kernel_use;

static void *kernel_memory(void *self, uint64_t p, int write) {
	kernel_use *u = self;
	touch(u->s, u->name, p, 1, write);
	return shadow(p);
}

static void execute_kernel(struct cu_strm *s, op *o) {
	kernel_use u = {s, o->function->name};
	launch l = {{o->grid[0], o->grid[1], o->grid[2]}, {o->grid[3], o->grid[4], o->grid[5]}, kernel_memory, &u};
	void *params[32];
	for (int i = 0; i < o->function->params; i++) params[i] = &o->values[i];
	o->function->run(&l, params);
}

static record *hold(record *r) {
	r->holders++;
	return r;
}

static void drop(record *r) {
	if (r != NULL && --r->holders == 0) free(r);
}

// release ends a block, and joins it with released neighbours. The addresses are used again only when there are no others.
static void release(device *d, block *b) {
	b->live = false, b->submitted_free = true, b->free = true;
	b->pool->used -= b->n;
	memset(shadow(b->base), POISON_FREED, b->n < 1 << 16 ? b->n : 1 << 16);
	if (b->n > 1 << 17) { // large memory goes back to the system
		uintptr_t from = ((uintptr_t)shadow(b->base) + (1 << 16) + PAGE - 1) / PAGE * PAGE, to = ((uintptr_t)shadow(b->base) + b->n) / PAGE * PAGE;
		madvise((void *)from, to - from, MADV_REMOVE);
	}
	if (b->before != NULL && b->before->free) b = b->before;
	while (b->next != NULL && b->next->free) {
		block *gone = b->next;
		b->n = (size_t)(gone->base + gone->n - b->base), b->next = gone->next;
		if (gone->next != NULL) gone->next->before = b;
		else d->last = b;
		free(gone);
	}
}

static void execute(struct cu_strm *s, op *o) {
	if (o->kind != RECORD && o->kind != WAIT && ++s->d->operations == (uint64_t)lost_at && lost_at > 0) s->d->lost = true;
	if (o->after != NULL) join(&s->clock, o->after);
	if (o->kind == WAIT) {
		join(&s->clock, &o->record->clock);
		// What depends on lost work is lost: CUDA says that the process must be restarted after such an error.
		if (o->record->lost) s->d->lost = true;
		drop(o->record);
		return;
	}
	tick(s);
	if (s->d->lost && o->kind != RECORD) return;
	if (o->kind == COPY || o->kind == SET || o->kind == KERNEL) busy(work_us);
	switch (o->kind) {
	case COPY:
		execute_copy(s, o);
		break;
	case SET:
		execute_set(s, o);
		break;
	case ALLOC:
		o->b->live = true, o->b->born = s->clock.of[s->slot], o->b->born_slot = s->slot;
		memset(shadow(o->b->base), POISON_NEW, o->b->n);
		break;
	case FREE:
		touch(s, "release", o->b->base, 0, true);
		release(s->d, o->b);
		counts.frees++;
		break;
	case KERNEL:
		counts.kernels++;
		execute_kernel(s, o);
		break;
	default:
		o->record->clock = s->clock;
		o->record->done = true, o->record->lost = s->d->lost, o->record->at = now_ns();
		drop(o->record);
	}
}

static bool runnable(struct cu_strm *s) {
	return s->head != NULL && (s->head->kind != WAIT || s->head->record->done);
}

// The engine executes one operation at a time, of a stream that the seed chooses. While no thread waits it lets work
// lie for a random time, so that a host that forgets to wait reads old content.
static void *run_engine(void *arg) {
	(void)arg;
	pthread_mutex_lock(&mu);
	for (;;) {
		struct cu_strm *ready[MAX_STREAMS];
		int n = 0;
		for (struct cu_strm *s = streams; s != NULL; s = s->next)
			if (runnable(s) && n < MAX_STREAMS) ready[n++] = s;
		if (n == 0) { // looks again soon, so that the host need not wake it for each operation
			asleep = ++idle > 50;
			if (asleep) {
				pthread_cond_wait(&work, &mu);
			} else {
				struct timespec until;
				clock_gettime(CLOCK_REALTIME, &until);
				until.tv_nsec += 100000;
				until.tv_sec += until.tv_nsec / 1000000000, until.tv_nsec %= 1000000000;
				pthread_cond_timedwait(&work, &mu, &until);
			}
			continue;
		}
		idle = 0, asleep = false;
		if (waiters == 0 && late_us > 0) {
			struct timespec until;
			clock_gettime(CLOCK_REALTIME, &until);
			until.tv_nsec += (long)(next_random() % (uint64_t)late_us) * 1000;
			until.tv_sec += until.tv_nsec / 1000000000, until.tv_nsec %= 1000000000;
			pthread_cond_timedwait(&progress, &mu, &until);
			int again = 0;
			for (int i = 0; i < n; i++) again += runnable(ready[i]);
			if (again != n) continue;
		}
		struct cu_strm *s = ready[next_random() % (uint64_t)n];
		op *o = s->head;
		execute(s, o);
		s->head = o->next; // only now: others look for operations that are not complete
		if (s->head == NULL) s->tail = NULL;
		free(o->values);
		free(o->after);
		free(o);
		s->executed++;
		pthread_cond_broadcast(&progress);
	}
	return NULL;
}

static op *submit(struct cu_strm *s, kind k) {
	op *o = calloc(1, sizeof *o);
	o->kind = k, o->height = 1;
	if (s->tail != NULL) s->tail->next = o;
	else s->head = o;
	s->tail = o;
	s->submitted++;
	// What the host has waited for is ordered before what it submits.
	if (s->host_seen != host_changes) {
		s->host_seen = host_changes;
		o->after = malloc(sizeof host);
		*o->after = host;
	}
	if (asleep) pthread_cond_signal(&work);
	return o;
}

// LOCK takes the lock, and returns the device's failure when it is lost.
#define LOCK() \
	pthread_mutex_lock(&mu); \
	if (!initialized) UNLOCK(NOT_INITIALIZED)
#define UNLOCK(result) \
	do { \
		cu_result r_ = (result); \
		pthread_mutex_unlock(&mu); \
		return r_; \
	} while (0)
#define CONTEXT() \
	LOCK(); \
	if (current == NULL) UNLOCK(BAD_CONTEXT); \
	device *d = current->d; \
	if (d->lost) UNLOCK(LOST)

static void report_at_exit(void);

// show sets the devices that CUDA_VISIBLE_DEVICES shows of those in the machine: numbers, or UUIDs and their beginnings as nvidia-smi
// prints them.
static void show(const char *list, int in_machine) {
	device_count = 0;
	if (list == NULL)
		for (; device_count < in_machine; device_count++) numbers[device_count] = device_count;
	while (list != NULL && *list != 0 && device_count < in_machine) {
		size_t n = strcspn(list, ",");
		char *end;
		long v = strtol(list, &end, 10);
		if (end == list || end != list + n) {
			for (v = 0; v < in_machine; v++) {
				char id[64];
				snprintf(id, sizeof id, "GPU-%02lx%02lx%02lx%02lx-", v, v, v, v);
				if (n >= 6 && strncmp(id, list, n < 13 ? n : 13) == 0) break;
			}
		}
		if (v < 0 || v >= in_machine) return;
		for (int i = 0; i < device_count; i++)
			if (numbers[i] == (int)v) { // twice: CUDA then shows none
				device_count = 0;
				return;
			}
		numbers[device_count++] = (int)v;
		list += n;
		if (*list == ',') list++;
	}
}

// configure reads the settings that tutti_check_set may change, once.
static void configure(void) {
	static bool done;
	if (done) return;
	done = true;
	version = (int)number("TUTTI_CUDA_CHECK_VERSION", 13000);
	oom_every = (int)number("TUTTI_CUDA_CHECK_OOM", 0);
	oom_at = (int64_t)number("TUTTI_CUDA_CHECK_OOM_AT", 0);
	oom_for = (int64_t)number("TUTTI_CUDA_CHECK_OOM_FOR", 1);
	exclusive = (int)number("TUTTI_CUDA_CHECK_EXCLUSIVE", 0);
	lost_at = (int)number("TUTTI_CUDA_CHECK_LOST", 0);
	no_peer = (int)number("TUTTI_CUDA_CHECK_NO_PEER", 0);
	late_us = (int)number("TUTTI_CUDA_CHECK_LATE_US", 300);
	slow_mbs = (double)number("TUTTI_CUDA_CHECK_SLOW_MBS", 0);
	work_us = (int)number("TUTTI_CUDA_CHECK_WORK_US", 0);
	seed = number("TUTTI_CUDA_CHECK_SEED", 1);
}

cu_result cuInit(unsigned flags) {
	if (flags != 0) return INVALID;
	pthread_mutex_lock(&mu);
	if (initialized) UNLOCK(OK);
	int in_machine = devices_set > 0 ? devices_set : (int)number("TUTTI_CUDA_CHECK_DEVICES", 2);
	show(getenv("CUDA_VISIBLE_DEVICES"), in_machine < MAX_DEVICES ? in_machine : MAX_DEVICES);
	if (device_count == 0) UNLOCK(NO_DEVICE);
	configure();
	size_t size = (size_t)number("TUTTI_CUDA_CHECK_MEMORY", 1u << 30);
	for (int i = 0; i < device_count; i++) {
		device *d = &devices[i];
		d->ordinal = i, d->size = size;
		d->fd = memfd_create("cuda-check", MFD_CLOEXEC);
		if (d->fd < 0 || ftruncate(d->fd, (off_t)size) != 0) UNLOCK(NO_MEMORY);
		d->memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, d->fd, 0);
		d->addresses = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (d->memory == MAP_FAILED || d->addresses == MAP_FAILED) UNLOCK(NO_MEMORY);
		contexts[i].d = d;
	}
	if (pthread_create(&engine, NULL, run_engine, NULL) != 0) UNLOCK(NO_MEMORY);
	pthread_detach(engine);
	initialized = true;
	if (getenv("TUTTI_CUDA_CHECK_REPORT") != NULL) atexit(report_at_exit);
	UNLOCK(OK);
}

cu_result cuDriverGetVersion(int *v) {
	*v = (int)number("TUTTI_CUDA_CHECK_VERSION", 13000);
	return OK;
}

static const struct { cu_result code; const char *name, *text; } errors[] = {
	{INVALID, "CUDA_ERROR_INVALID_VALUE", "invalid argument"}, {NO_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
	{NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"}, {NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
	{BAD_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"}, {BAD_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
	{PEER_UNSUPPORTED, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "peer access is not supported between these two devices"},
	{BAD_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"}, {NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
	{UNAVAILABLE, "CUDA_ERROR_DEVICE_UNAVAILABLE", "CUDA-capable device(s) is/are busy or unavailable"},
	{NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"}, {BAD_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
	{LOST, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
};

cu_result cuGetErrorName(cu_result r, const char **text) {
	for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
		if (errors[i].code == r) return *text = errors[i].name, OK;
	return INVALID;
}

cu_result cuGetErrorString(cu_result r, const char **text) {
	for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
		if (errors[i].code == r) return *text = errors[i].text, OK;
	return INVALID;
}

cu_result cuDeviceGetCount(int *n) {
	LOCK();
	*n = device_count;
	UNLOCK(OK);
}

cu_result cuDeviceGet(cu_device *d, int ordinal) {
	LOCK();
	if (ordinal < 0 || ordinal >= device_count) UNLOCK(BAD_DEVICE);
	*d = ordinal;
	UNLOCK(OK);
}

cu_result cuDeviceGetName(char *name, int n, cu_device d) {
	snprintf(name, (size_t)n, "checking device %d", numbers[d]);
	return OK;
}

cu_result cuDeviceGetUuid_v2(cu_uuid *id, cu_device d) {
	memset(id, numbers[d], sizeof *id);
	return OK;
}

cu_result cuDeviceTotalMem_v2(size_t *n, cu_device d) {
	LOCK();
	*n = devices[d].size;
	UNLOCK(OK);
}

cu_result cuDeviceGetAttribute(int *v, int attribute, cu_device d) {
	(void)d;
	*v = attribute == 75 ? 9 : attribute == 115 ? 1 : 0;
	return OK;
}

cu_result cuDeviceCanAccessPeer(int *yes, cu_device d, cu_device peer) {
	*yes = d != peer && !no_peer;
	return OK;
}

cu_result cuDevicePrimaryCtxRetain(cu_context *c, cu_device d) {
	LOCK();
	if (d < 0 || d >= device_count) UNLOCK(BAD_DEVICE);
	if (exclusive) UNLOCK(UNAVAILABLE);
	if (devices[d].lost) UNLOCK(LOST);
	if (no_memory(false)) UNLOCK(NO_MEMORY);
	if (devices[d].retained++ == 0) counts.contexts++;
	*c = &contexts[d];
	UNLOCK(OK);
}

cu_result cuDevicePrimaryCtxRelease_v2(cu_device d) {
	LOCK();
	if (d < 0 || d >= device_count || devices[d].retained == 0) UNLOCK(INVALID);
	if (--devices[d].retained == 0) counts.contexts--;
	bool last = counts.contexts == 0;
	pthread_mutex_unlock(&mu);
	if (last && getenv("TUTTI_CUDA_CHECK_REPORT") != NULL) report_at_exit(); // a Go program ends without the functions of atexit
	return OK;
}

cu_result cuCtxSetCurrent(cu_context c) {
	current = c;
	return OK;
}

// A stack of contexts for each thread, as programs use it that share a thread with the CUDA runtime.
enum { MAX_PUSHED = 8 };
static __thread struct cu_ctx *pushed[MAX_PUSHED];
static __thread int pushes;

cu_result cuCtxPushCurrent_v2(cu_context c) {
	if (pushes == MAX_PUSHED) return INVALID;
	pushed[pushes++] = current;
	current = c;
	return OK;
}

cu_result cuCtxPopCurrent_v2(cu_context *c) {
	if (pushes == 0) return BAD_CONTEXT;
	*c = current;
	current = pushed[--pushes];
	return OK;
}

static __thread int capture_mode;

cu_result cuThreadExchangeStreamCaptureMode(int *mode) {
	int old = capture_mode;
	capture_mode = *mode;
	*mode = old;
	return OK;
}

cu_result cuCtxGetStreamPriorityRange(int *least, int *greatest) {
	*least = 0, *greatest = -5;
	return OK;
}

static size_t memory_limit; // less memory than the devices have, 0 for all of it

static size_t used_of(const device *d) {
	size_t used = 0;
	for (block *b = d->blocks; b != NULL; b = b->next)
		if (!b->submitted_free) used += b->n;
	return used;
}

cu_result cuMemGetInfo_v2(size_t *available, size_t *total) {
	CONTEXT();
	size_t used = used_of(d);
	*total = memory_limit > 0 ? memory_limit : d->size, *available = used < *total ? *total - used : 0;
	UNLOCK(OK);
}

cu_result cuMemPoolCreate(cu_mempool *p, const cu_pool_props *o) {
	LOCK();
	if (no_memory(false)) UNLOCK(NO_MEMORY);
	if (o->alloc_type != 1 || o->location.type != 1 || o->location.id < 0 || o->location.id >= device_count) UNLOCK(INVALID);
	*p = calloc(1, sizeof **p);
	(*p)->d = &devices[o->location.id];
	UNLOCK(OK);
}

cu_result cuMemPoolDestroy(cu_mempool p) {
	LOCK();
	if (p->d->lost) UNLOCK(LOST);
	if (p->used != 0) fault("a pool of device:%d is destroyed while %llu bytes of it are held", p->d->ordinal, (unsigned long long)p->used);
	UNLOCK(OK); // blocks keep its address
}

cu_result cuMemPoolSetAttribute(cu_mempool p, int attribute, void *value) {
	LOCK();
	if (attribute == 4) p->keep = *(uint64_t *)value;
	UNLOCK(attribute == 4 ? OK : INVALID);
}

cu_result cuMemPoolGetAttribute(cu_mempool p, int attribute, void *value) {
	LOCK();
	if (attribute != 5 && attribute != 7) UNLOCK(INVALID);
	*(uint64_t *)value = p->used;
	UNLOCK(OK);
}

cu_result cuMemPoolSetAccess(cu_mempool p, const cu_access *list, size_t n) {
	(void)p;
	for (size_t i = 0; i < n; i++)
		if (no_peer || list[i].location.id < 0 || list[i].location.id >= device_count) return INVALID;
	return OK;
}

// Memory is never used again at once: freed blocks at the end of the list go when there is no other place.
cu_result cuMemPoolTrimTo(cu_mempool p, size_t keep) {
	(void)p, (void)keep;
	return OK;
}

static block *place_at(device *d, size_t n, size_t align);

// place finds n free bytes, behind the last block first, then where a released block is.
static block *place(device *d, size_t n) { return place_at(d, n, ALIGN); }

// insert adds a block behind another one, NULL for the first place.
static block *insert(device *d, block *before, uint64_t base, size_t n) {
	block *b = calloc(1, sizeof *b);
	b->base = base, b->n = n, b->writer_slot = -1, b->before = before;
	b->next = before != NULL ? before->next : d->blocks;
	if (before != NULL) before->next = b;
	else d->blocks = b;
	if (b->next != NULL) b->next->before = b;
	else d->last = b;
	return b;
}

// place_at is place at a multiple of align.
static block *place_at(device *d, size_t n, size_t align) {
	uint64_t base = (uint64_t)(uintptr_t)d->addresses;
	if (n > d->size || (memory_limit > 0 && used_of(d) + n > memory_limit)) return NULL;
	n = (n + align - 1) / align * align;
	uint64_t end = d->last != NULL ? d->last->base + d->last->n : base;
	end = (end + align - 1) / align * align;
	if (end + n <= base + d->size) return insert(d, d->last, end, n);
	for (block *b = d->blocks; b != NULL; b = b->next) {
		if (!b->free) continue;
		if (b->next == NULL) b->n = base + d->size - b->base; // with what is behind it
		uint64_t at = (b->base + align - 1) / align * align, to = b->base + b->n;
		if (at + n > to) continue;
		static struct cu_pool none;
		block *fresh = insert(d, b, at, n);
		if (at + n < to) {
			block *rest = insert(d, fresh, at + n, (size_t)(to - at - n));
			rest->submitted_free = true, rest->free = true, rest->pool = &none;
		}
		b->n = (size_t)(at - b->base);
		if (b->n == 0) {
			if (b->before != NULL) b->before->next = fresh;
			else d->blocks = fresh;
			fresh->before = b->before;
			free(b);
		}
		return fresh;
	}
	return NULL;
}

// usable reports whether a stream may take work of the device, and notes a fault otherwise.
static bool usable(struct cu_strm *s, device *d, const char *what) {
	if (s == NULL) fault("%s uses the default stream of device:%d", what, d->ordinal);
	else if (s->dead) fault("%s uses a stream of device:%d that is destroyed", what, d->ordinal);
	else if (s->d != d) fault("%s of device:%d uses a stream of device:%d", what, d->ordinal, s->d->ordinal);
	else return true;
	return false;
}

static bool known(struct cu_evnt *e, const char *what) {
	if (e != NULL && !e->dead) return true;
	fault("%s uses an event that is destroyed", what);
	return false;
}

cu_result cuMemAllocFromPoolAsync(cu_ptr *p, size_t n, cu_mempool from, cu_stream s) {
	CONTEXT();
	if (n == 0 || from->d != d || !usable(s, d, "an allocation")) UNLOCK(INVALID);
	if (no_memory(true)) UNLOCK(NO_MEMORY);
	block *b = place(d, n);
	if (b == NULL) UNLOCK(NO_MEMORY);
	b->pool = from;
	from->used += b->n;
	counts.allocs++;
	submit(s, ALLOC)->b = b;
	*p = b->base;
	UNLOCK(OK);
}

cu_result cuMemFreeAsync(cu_ptr p, cu_stream s) {
	CONTEXT();
	if (!usable(s, d, "a release")) UNLOCK(BAD_HANDLE);
	block *b = block_of(p, 0);
	if (b == NULL || b->base != p || b->submitted_free) {
		fault("a release of memory at device:%d that is not allocated", d->ordinal);
		UNLOCK(INVALID);
	}
	b->submitted_free = true;
	submit(s, FREE)->b = b;
	UNLOCK(OK);
}

// Pinned memory.
typedef struct pinned { uint64_t p; size_t n; struct pinned *next; } pinned;
static pinned *regions;

cu_result cuMemHostAlloc(void **p, size_t n, unsigned flags) {
	(void)flags;
	CONTEXT();
	(void)d;
	if (n == 0) UNLOCK(INVALID);
	if (no_memory(false)) UNLOCK(NO_MEMORY);
	void *at = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (at == MAP_FAILED) UNLOCK(NO_MEMORY);
	pinned *r = calloc(1, sizeof *r);
	r->p = (uint64_t)(uintptr_t)at, r->n = n, r->next = regions;
	regions = r;
	*p = at;
	counts.pinned++;
	UNLOCK(OK);
}

cu_result cuMemFreeHost(void *p) {
	CONTEXT();
	(void)d;
	pinned **at = &regions;
	while (*at != NULL && (*at)->p != (uint64_t)(uintptr_t)p) at = &(*at)->next;
	pinned *r = *at;
	if (r == NULL) {
		fault("a release of pinned memory that is not allocated");
		UNLOCK(INVALID);
	}
	bool used = false;
	for (struct cu_strm *s = streams; s != NULL; s = s->next)
		for (op *o = s->head; o != NULL; o = o->next)
			if (o->kind == COPY && (o->src - r->p < r->n || o->dst - r->p < r->n)) {
				if (!used) fault("pinned memory is released before a copy of stream %d", s->slot);
				used = true;
			}
	*at = r->next;
	if (!used) munmap(p, r->n);
	free(r);
	counts.pinned--;
	UNLOCK(OK);
}

cu_result cuStreamCreateWithPriority(cu_stream *out, unsigned flags, int priority) {
	(void)flags, (void)priority;
	CONTEXT();
	int slot = 0;
	while (slot < MAX_STREAMS && slots[slot]) slot++;
	if (slot == MAX_STREAMS || no_memory(false)) UNLOCK(NO_MEMORY);
	slots[slot] = true;
	struct cu_strm *s = calloc(1, sizeof *s);
	s->d = d, s->slot = slot, s->next = streams;
	s->clock.of[slot] = slot_ops[slot], s->clock.n = slot + 1;
	streams = s;
	counts.streams++;
	*out = s;
	UNLOCK(OK);
}

// drain waits until the stream has executed what was submitted, which the host then knows.
static void drain(struct cu_strm *s) {
	uint64_t upto = s->submitted;
	waiters++;
	pthread_cond_broadcast(&progress);
	pthread_cond_signal(&work);
	while (s->executed < upto) pthread_cond_wait(&progress, &mu);
	waiters--;
	host_knows(&s->clock);
}

cu_result cuStreamDestroy_v2(cu_stream s) {
	LOCK();
	if (s == NULL || s->dead) {
		fault("a stream is destroyed twice");
		UNLOCK(BAD_HANDLE);
	}
	drain(s);
	for (struct cu_strm **at = &streams; *at != NULL; at = &(*at)->next)
		if (*at == s) {
			*at = s->next;
			break;
		}
	slots[s->slot] = false;
	counts.streams--;
	s->dead = true;
	UNLOCK(OK);
}

cu_result cuStreamSynchronize(cu_stream s) {
	CONTEXT();
	if (!usable(s, d, "a wait")) UNLOCK(BAD_HANDLE);
	drain(s);
	UNLOCK(d->lost ? LOST : OK);
}

// drain_all waits for what the streams of a device have now. Streams may come and go while it waits.
static void drain_all(device *d) {
	struct cu_strm *list[MAX_STREAMS];
	int n = 0;
	for (struct cu_strm *s = streams; s != NULL && n < MAX_STREAMS; s = s->next)
		if (s->d == d) list[n++] = s;
	for (int i = 0; i < n; i++) drain(list[i]); // also those that are destroyed meanwhile: nothing is freed
}

cu_result cuCtxSynchronize(void) {
	CONTEXT();
	drain_all(d);
	UNLOCK(d->lost ? LOST : OK);
}

cu_result cuStreamWaitEvent(cu_stream s, cu_event e, unsigned flags) {
	(void)flags;
	CONTEXT();
	if (!usable(s, d, "a wait for an event") || !known(e, "a wait for an event")) UNLOCK(BAD_HANDLE);
	if (e->last != NULL) submit(s, WAIT)->record = hold(e->last);
	UNLOCK(OK);
}

cu_result cuEventCreate(cu_event *e, unsigned flags) {
	CONTEXT();
	if (no_memory(false)) UNLOCK(NO_MEMORY);
	*e = calloc(1, sizeof **e);
	(*e)->flags = flags, (*e)->d = d;
	counts.events++;
	UNLOCK(OK);
}

cu_result cuEventDestroy_v2(cu_event e) {
	LOCK();
	if (!known(e, "a destruction")) UNLOCK(BAD_HANDLE);
	if (e->last != NULL && !e->last->done) fault("an event is destroyed before its stream reached it");
	counts.events--;
	drop(e->last);
	e->last = NULL, e->dead = true;
	UNLOCK(OK);
}

cu_result cuEventRecord(cu_event e, cu_stream s) {
	CONTEXT();
	if (!usable(s, d, "a record") || !known(e, "a record")) UNLOCK(BAD_HANDLE);
	drop(e->last);
	e->last = hold(calloc(1, sizeof *e->last));
	submit(s, RECORD)->record = hold(e->last);
	UNLOCK(OK);
}

cu_result cuEventQuery(cu_event e) {
	CONTEXT();
	if (!known(e, "a query")) UNLOCK(BAD_HANDLE);
	if (e->last != NULL && !e->last->done) UNLOCK(d->lost ? LOST : NOT_READY);
	if (e->last != NULL) host_knows(&e->last->clock);
	UNLOCK(OK);
}

cu_result cuEventSynchronize(cu_event e) {
	CONTEXT();
	if (!known(e, "a wait")) UNLOCK(BAD_HANDLE);
	if (e->last == NULL) UNLOCK(OK);
	record *r = hold(e->last); // the event may be recorded again meanwhile
	waiters++;
	pthread_cond_broadcast(&progress);
	pthread_cond_signal(&work);
	while (!r->done) pthread_cond_wait(&progress, &mu);
	waiters--;
	host_knows(&r->clock);
	drop(r);
	UNLOCK(d->lost ? LOST : OK);
}

// As CUDA: events without timing, of different devices, or never recorded are invalid handles; events that their streams have not
// reached are not ready. The result is negative when end was reached first.
cu_result cuEventElapsedTime(float *ms, cu_event start, cu_event end) {
	enum { DISABLE_TIMING = 2 };
	CONTEXT();
	if (!known(start, "a time") || !known(end, "a time")) UNLOCK(BAD_HANDLE);
	if (((start->flags | end->flags) & DISABLE_TIMING) != 0 || start->d != d || end->d != d) {
		fault("the time between two events is read, of which one has no timing or is of another device");
		UNLOCK(BAD_HANDLE);
	}
	if (start->last == NULL || end->last == NULL) UNLOCK(BAD_HANDLE);
	if (!start->last->done || !end->last->done) UNLOCK(NOT_READY);
	*ms = (float)((double)((int64_t)(end->last->at - start->last->at)) / 1e6);
	UNLOCK(OK);
}

// inside checks a range of device memory when it is submitted.
static bool inside(uint64_t p, size_t n) {
	if (device_of(p) == NULL) return true;
	block *b = block_of(p, n);
	return b != NULL && !b->submitted_free;
}

cu_result cuMemcpyAsync(cu_ptr dst, cu_ptr src, size_t n, cu_stream s) {
	CONTEXT();
	if (!usable(s, d, "a copy")) UNLOCK(BAD_HANDLE);
	if (!inside(dst, n) || !inside(src, n)) {
		fault("a copy of %zu bytes by stream %d leaves its allocation", n, s->slot);
		UNLOCK(INVALID);
	}
	op *o = submit(s, COPY);
	o->dst = dst, o->src = src, o->n = n;
	UNLOCK(OK);
}

static cu_result fill(cu_ptr dst, size_t pitch, uint32_t v, int width, size_t n, size_t height, cu_stream s) {
	CONTEXT();
	if (!usable(s, d, "a fill")) UNLOCK(BAD_HANDLE);
	if (dst % (size_t)width != 0 || device_of(dst) == NULL || !inside(dst, height > 1 ? pitch * (height - 1) + (size_t)width : n)) {
		fault("a fill of %zu bytes by stream %d leaves its allocation, or is not aligned", n, s->slot);
		UNLOCK(INVALID);
	}
	op *o = submit(s, SET);
	o->dst = dst, o->value = v, o->width = width, o->n = n, o->height = height, o->pitch = pitch;
	UNLOCK(OK);
}

cu_result cuMemsetD8Async(cu_ptr dst, unsigned char v, size_t n, cu_stream s) { return fill(dst, 0, v, 1, n, 1, s); }
cu_result cuMemsetD16Async(cu_ptr dst, unsigned short v, size_t n, cu_stream s) { return fill(dst, 0, v, 2, 2 * n, 1, s); }
cu_result cuMemsetD32Async(cu_ptr dst, unsigned v, size_t n, cu_stream s) { return fill(dst, 0, v, 4, 4 * n, 1, s); }

cu_result cuMemsetD2D32Async(cu_ptr dst, size_t pitch, unsigned v, size_t width, size_t height, cu_stream s) {
	if (width != 1) return INVALID;
	return fill(dst, pitch, v, 4, 4, height, s);
}

// Modules: a kernel is the function of that name in a library: the image, if that is an absolute path, or else
// TUTTI_CUDA_CHECK_KERNELS, or else kernels.so beside the driver, see package kernels.
cu_result cuModuleLoadDataEx(cu_module *m, const void *image, unsigned n, int *options, void **values) {
	(void)n, (void)options, (void)values;
	CONTEXT();
	(void)d;
	const char *text = image, *path = getenv("TUTTI_CUDA_CHECK_KERNELS");
	if (text[0] == '/' && text[1] != '/') path = text; // PTX begins with a comment or a dot
	char beside[4096];
	Dl_info self;
	if (path == NULL && dladdr(&devices, &self) != 0) {
		const char *slash = strrchr(self.dli_fname, '/');
		snprintf(beside, sizeof beside, "%.*skernels.so", slash != NULL ? (int)(slash + 1 - self.dli_fname) : 0, self.dli_fname);
		path = beside;
	}
	if (no_memory(false)) UNLOCK(NO_MEMORY);
	void *lib = path != NULL ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
	*m = (cu_module)lib;
	UNLOCK(lib != NULL ? OK : NOT_FOUND);
}

cu_result cuModuleUnload(cu_module m) {
	(void)m;
	return OK;
}

cu_result cuModuleGetFunction(cu_function *f, cu_module m, const char *name) {
	char symbol[128];
	snprintf(symbol, sizeof symbol, "%s_params", name);
	void (*run)(const launch *, void **) = (void (*)(const launch *, void **))dlsym((void *)m, name);
	const int *params = dlsym((void *)m, symbol);
	if (run == NULL || params == NULL || *params > 32) return NOT_FOUND;
	LOCK();
	struct cu_func *made = calloc(1, sizeof *made);
	made->name = strdup(name), made->run = run, made->params = *params, made->next = functions;
	*f = functions = made;
	UNLOCK(OK);
}

cu_result cuLaunchKernel(cu_function f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, cu_stream s, void **params, void **extra) {
	(void)shared, (void)extra;
	CONTEXT();
	if (!usable(s, d, "a launch") || gx == 0 || gy == 0 || gz == 0 || bx == 0 || by == 0 || bz == 0 || bx * by * bz > 1024) UNLOCK(INVALID);
	op *o = submit(s, KERNEL);
	o->function = f;
	unsigned grid[6] = {gx, gy, gz, bx, by, bz};
	memcpy(o->grid, grid, sizeof grid);
	o->values = calloc((size_t)f->params, sizeof *o->values);
	for (int i = 0; i < f->params; i++) o->values[i] = *(uint64_t *)params[i]; // the package passes words
	UNLOCK(OK);
}

// Memory outside the pools may be exported, so it shares no page with another allocation.
cu_result cuMemAlloc_v2(cu_ptr *p, size_t n) {
	CONTEXT();
	static struct cu_pool direct;
	block *b = n > 0 && !no_memory(true) ? place_at(d, n, PAGE) : NULL;
	if (b == NULL) UNLOCK(n > 0 ? NO_MEMORY : INVALID);
	b->pool = &direct, direct.used += b->n, b->live = true, b->asked = n;
	memset(shadow(b->base), POISON_NEW, b->n);
	*p = b->base;
	UNLOCK(OK);
}

cu_result cuMemFree_v2(cu_ptr p) {
	CONTEXT();
	block *b = block_of(p, 0);
	if (b == NULL || b->base != p || b->submitted_free || b->from.pid != 0) UNLOCK(INVALID);
	b->submitted_free = true; // while it waits, other threads must not
	drain_all(d);
	release(d, b);
	UNLOCK(OK);
}

cu_result cuMemGetAddressRange_v2(cu_ptr *base, size_t *n, cu_ptr p) {
	LOCK();
	block *b = block_of(p, 0);
	if (b == NULL) UNLOCK(NOT_FOUND);
	*base = b->base, *n = b->asked > 0 ? b->asked : b->n;
	UNLOCK(OK);
}

cu_result cuIpcGetMemHandle(cu_ipc_handle *h, cu_ptr p) {
	CONTEXT();
	block *b = block_of(p, 0);
	if (b == NULL || b->base != p || b->asked == 0) UNLOCK(INVALID); // memory of pools has no such handle
	if (b->writer_slot < 0) b->writer_slot = 0, b->writer_name = "other process"; // which may write from now on
	shared_memory m = {(int)getpid(), d->fd, d->ordinal, b->base - (uint64_t)(uintptr_t)d->addresses, b->n, b->asked};
	memset(h, 0, sizeof *h);
	memcpy(h, &m, sizeof m);
	UNLOCK(OK);
}

// mapped returns the live block of a handle that the device has opened, NULL for none.
static block *mapped(device *d, const shared_memory *m) {
	for (block *b = d->blocks; b != NULL; b = b->next)
		if (b->live && b->from.pid == m->pid && b->from.fd == m->fd && b->from.offset == m->offset) return b;
	return NULL;
}

// A handle that is open in the context has its address, and counts: as CUDA.
cu_result cuIpcOpenMemHandle_v2(cu_ptr *p, cu_ipc_handle h, unsigned flags) {
	(void)flags;
	CONTEXT();
	shared_memory m;
	memcpy(&m, &h, sizeof m);
	if (m.pid <= 0 || m.fd < 0 || m.n == 0 || m.n % PAGE != 0 || m.asked > m.n) UNLOCK(INVALID);
	if (m.pid == (int)getpid()) UNLOCK(BAD_CONTEXT); // as CUDA: not in the process that made it
	if (no_peer && m.ordinal != d->ordinal) UNLOCK(PEER_UNSUPPORTED);
	block *b = mapped(d, &m);
	if (b != NULL) {
		b->opened++;
		*p = b->base;
		UNLOCK(OK);
	}
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/fd/%d", m.pid, m.fd);
	int fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0) UNLOCK(INVALID);
	if (no_memory(true)) b = NULL;
	else b = place_at(d, m.n, PAGE);
	void *at = b == NULL ? MAP_FAILED : mmap(shadow(b->base), m.n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, (off_t)m.offset);
	close(fd);
	if (b == NULL) UNLOCK(NO_MEMORY);
	static struct cu_pool others;
	b->pool = &others, others.used += b->n;
	if (at == MAP_FAILED) {
		release(d, b);
		UNLOCK(INVALID);
	}
	b->live = true, b->opened = 1, b->from = m, b->asked = m.asked, b->writer_slot = 0, b->writer_name = "other process";
	*p = b->base;
	UNLOCK(OK);
}

// The unmapping is not ordered with streams: work on the memory must have ended.
cu_result cuIpcCloseMemHandle(cu_ptr p) {
	CONTEXT();
	block *b = block_of(p, 0);
	if (b == NULL || b->base != p || b->from.pid == 0 || !b->live) UNLOCK(INVALID);
	if (--b->opened > 0) UNLOCK(OK);
	for (struct cu_strm *s = streams; s != NULL; s = s->next)
		for (op *o = s->head; o != NULL; o = o->next)
			if ((o->kind == COPY || o->kind == SET) && (block_of(o->dst, 0) == b || (o->kind == COPY && block_of(o->src, 0) == b)))
				fault("memory of another process at device:%d is unmapped before a copy of stream %d", d->ordinal, s->slot);
	off_t at = (off_t)(b->base - (uint64_t)(uintptr_t)d->addresses);
	mmap(shadow(b->base), b->n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, d->fd, at);
	b->from.pid = 0;
	release(d, b);
	UNLOCK(OK);
}

cu_result cuIpcGetEventHandle(cu_ipc_handle *h, cu_event e) {
	(void)h, (void)e;
	return 801;
}

cu_result cuIpcOpenEventHandle(cu_event *e, cu_ipc_handle h) {
	(void)e, (void)h;
	return 801;
}

// tutti_check_report writes the report and returns the number of faults. reset clears both.
int tutti_check_report(char *text, size_t n, int reset) {
	pthread_mutex_lock(&mu);
	int faulty = fault_count;
	size_t at = 0;
	for (int i = 0; i < fault_count && at < n; i++) at += (size_t)snprintf(text + at, n - at, "fault: %s\n", faults[i]);
	uint64_t held = 0;
	for (int i = 0; i < device_count; i++)
		for (block *b = devices[i].blocks; b != NULL; b = b->next)
			if (!b->submitted_free) held += b->n;
	if (at < n)
		snprintf(text + at, n - at,
			"up %llu %llu\ndown %llu %llu\nwithin %llu %llu\npeer %llu %llu\nkernels %llu\nallocs %llu\nheld %llu\nstreams %llu\nevents %llu\npinned %llu\ncontexts %llu\nrefused %llu\nbusy %llu\n",
			(unsigned long long)counts.up, (unsigned long long)counts.up_bytes, (unsigned long long)counts.down, (unsigned long long)counts.down_bytes,
			(unsigned long long)counts.within, (unsigned long long)counts.within_bytes, (unsigned long long)counts.peer, (unsigned long long)counts.peer_bytes,
			(unsigned long long)counts.kernels, (unsigned long long)counts.allocs, (unsigned long long)held, (unsigned long long)counts.streams,
			(unsigned long long)counts.events, (unsigned long long)counts.pinned, (unsigned long long)counts.contexts, (unsigned long long)counts.refused,
			(unsigned long long)counts.busy_ns);
	if (reset) fault_count = 0, counts.up = counts.down = counts.within = counts.peer = counts.up_bytes = counts.down_bytes = counts.within_bytes = counts.peer_bytes = 0;
	pthread_mutex_unlock(&mu);
	return faulty;
}

// revive makes a lost device usable again, as a restart of the process does: its memory is released.
static void revive(device *d) {
	drain_all(d);
	d->lost = false;
	for (block *b = d->blocks; b != NULL; b = b->next)
		if (!b->free) {
			release(d, b);
			b = d->blocks; // release joins blocks
		}
}

// tutti_check_set changes a setting while the process runs. devices counts before cuInit only; forget gives the pages of the device
// memory, which nobody may use, back to the system. It returns 0 for an unknown name.
int tutti_check_set(const char *name, long long v) {
	pthread_mutex_lock(&mu);
	configure();
	int known = 1;
	if (strcmp(name, "oom") == 0) oom_every = (int)v, allocations = 0;
	else if (strcmp(name, "seed") == 0) seed = (uint64_t)v;
	else if (strcmp(name, "late_us") == 0) late_us = (int)v;
	else if (strcmp(name, "slow_mbs") == 0) slow_mbs = (double)v;
	else if (strcmp(name, "work_us") == 0) work_us = (int)v;
	else if (strcmp(name, "memory") == 0) memory_limit = (size_t)v; // of each device, 0 for all that it has
	else if (strcmp(name, "oom_at") == 0) oom_at = v;
	else if (strcmp(name, "oom_for") == 0) oom_for = v;
	else if (strcmp(name, "exclusive") == 0) exclusive = (int)v;
	else if (strcmp(name, "devices") == 0 && !initialized && v > 0) devices_set = (int)v;
	else if (strcmp(name, "forget") == 0) {
		for (int i = 0; i < device_count; i++) fallocate(devices[i].fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)devices[i].size);
	}
	else if (strcmp(name, "lost_at") == 0) {
		lost_at = (int)v;
		for (int i = 0; i < device_count; i++) devices[i].operations = 0;
	} else if (strcmp(name, "lose") == 0 && v >= 0 && v < device_count) devices[v].lost = true;
	else if (strcmp(name, "revive") == 0 && v >= 0 && v < device_count) revive(&devices[v]);
	else known = 0;
	pthread_mutex_unlock(&mu);
	return known;
}

// report_at_exit writes the report, once.
static void report_at_exit(void) {
	static char text[64 << 10];
	static bool written;
	if (written) return;
	written = true;
	tutti_check_report(text, sizeof text, 0);
	FILE *f = fopen(getenv("TUTTI_CUDA_CHECK_REPORT"), "a");
	if (f == NULL) return;
	fputs(text, f);
	fclose(f);
}
