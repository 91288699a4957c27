// The part of the CUDA driver API that the package uses, declared by hand: the layouts and values of these
// declarations are the driver's binary interface. A build needs no CUDA header, and a binary no CUDA library.
#ifndef TUTTI_CUDA_DRIVER_H
#define TUTTI_CUDA_DRIVER_H

#include <stddef.h>
#include <stdint.h>

typedef int cu_result;
typedef int cu_device;
typedef uint64_t cu_ptr;
typedef struct cu_ctx *cu_context;
typedef struct cu_strm *cu_stream;
typedef struct cu_evnt *cu_event;
typedef struct cu_pool *cu_mempool;
typedef struct cu_modl *cu_module;
typedef struct cu_func *cu_function;

typedef struct { int type, id; } cu_location;
typedef struct {
	int alloc_type, handle_types;
	cu_location location;
	void *win32;
	size_t max_size;
	unsigned short usage;
	unsigned char reserved[54];
} cu_pool_props;
typedef struct { cu_location location; int flags; } cu_access;
typedef struct { char reserved[64]; } cu_ipc_handle;
typedef struct { unsigned char bytes[16]; } cu_uuid;

// Every function of the table: return type is cu_result. The second column is the exported symbol.
#define TUTTI_CUDA_FUNCTIONS(F) \
	F(init, "cuInit", (unsigned flags)) \
	F(driver_version, "cuDriverGetVersion", (int *version)) \
	F(error_name, "cuGetErrorName", (cu_result r, const char **text)) \
	F(error_string, "cuGetErrorString", (cu_result r, const char **text)) \
	F(device_count, "cuDeviceGetCount", (int *n)) \
	F(device_get, "cuDeviceGet", (cu_device *d, int ordinal)) \
	F(device_name, "cuDeviceGetName", (char *name, int n, cu_device d)) \
	F(device_uuid, "cuDeviceGetUuid_v2", (cu_uuid *id, cu_device d)) \
	F(device_memory, "cuDeviceTotalMem_v2", (size_t *n, cu_device d)) \
	F(device_attribute, "cuDeviceGetAttribute", (int *v, int attribute, cu_device d)) \
	F(can_access_peer, "cuDeviceCanAccessPeer", (int *yes, cu_device d, cu_device peer)) \
	F(context_retain, "cuDevicePrimaryCtxRetain", (cu_context *c, cu_device d)) \
	F(context_release, "cuDevicePrimaryCtxRelease_v2", (cu_device d)) \
	F(context_set, "cuCtxSetCurrent", (cu_context c)) \
	F(context_sync, "cuCtxSynchronize", (void)) \
	F(memory_info, "cuMemGetInfo_v2", (size_t *available, size_t *total)) \
	F(pool_create, "cuMemPoolCreate", (cu_mempool *p, const cu_pool_props *o)) \
	F(pool_destroy, "cuMemPoolDestroy", (cu_mempool p)) \
	F(pool_set, "cuMemPoolSetAttribute", (cu_mempool p, int attribute, void *value)) \
	F(pool_get, "cuMemPoolGetAttribute", (cu_mempool p, int attribute, void *value)) \
	F(pool_access, "cuMemPoolSetAccess", (cu_mempool p, const cu_access *list, size_t n)) \
	F(pool_trim, "cuMemPoolTrimTo", (cu_mempool p, size_t keep)) \
	F(alloc_async, "cuMemAllocFromPoolAsync", (cu_ptr *p, size_t n, cu_mempool from, cu_stream s)) \
	F(free_async, "cuMemFreeAsync", (cu_ptr p, cu_stream s)) \
	F(alloc, "cuMemAlloc_v2", (cu_ptr *p, size_t n)) \
	F(free, "cuMemFree_v2", (cu_ptr p)) \
	F(host_alloc, "cuMemHostAlloc", (void **p, size_t n, unsigned flags)) \
	F(host_free, "cuMemFreeHost", (void *p)) \
	F(stream_create, "cuStreamCreateWithPriority", (cu_stream *s, unsigned flags, int priority)) \
	F(stream_destroy, "cuStreamDestroy_v2", (cu_stream s)) \
	F(stream_sync, "cuStreamSynchronize", (cu_stream s)) \
	F(stream_wait, "cuStreamWaitEvent", (cu_stream s, cu_event e, unsigned flags)) \
	F(priority_range, "cuCtxGetStreamPriorityRange", (int *least, int *greatest)) \
	F(event_create, "cuEventCreate", (cu_event *e, unsigned flags)) \
	F(event_destroy, "cuEventDestroy_v2", (cu_event e)) \
	F(event_record, "cuEventRecord", (cu_event e, cu_stream s)) \
	F(event_query, "cuEventQuery", (cu_event e)) \
	F(event_sync, "cuEventSynchronize", (cu_event e)) \
	F(copy, "cuMemcpyAsync", (cu_ptr dst, cu_ptr src, size_t n, cu_stream s)) \
	F(set8, "cuMemsetD8Async", (cu_ptr dst, unsigned char v, size_t n, cu_stream s)) \
	F(set16, "cuMemsetD16Async", (cu_ptr dst, unsigned short v, size_t n, cu_stream s)) \
	F(set32, "cuMemsetD32Async", (cu_ptr dst, unsigned v, size_t n, cu_stream s)) \
	F(set2d32, "cuMemsetD2D32Async", (cu_ptr dst, size_t pitch, unsigned v, size_t width, size_t height, cu_stream s)) \
	F(ipc_get, "cuIpcGetMemHandle", (cu_ipc_handle *h, cu_ptr p)) \
	F(ipc_open, "cuIpcOpenMemHandle_v2", (cu_ptr *p, cu_ipc_handle h, unsigned flags)) \
	F(ipc_close, "cuIpcCloseMemHandle", (cu_ptr p)) \
	F(ipc_event_get, "cuIpcGetEventHandle", (cu_ipc_handle *h, cu_event e)) \
	F(ipc_event_open, "cuIpcOpenEventHandle", (cu_event *e, cu_ipc_handle h)) \
	F(address_range, "cuMemGetAddressRange_v2", (cu_ptr *base, size_t *n, cu_ptr p)) \
	F(module_load, "cuModuleLoadDataEx", (cu_module *m, const void *image, unsigned n, int *options, void **values)) \
	F(module_unload, "cuModuleUnload", (cu_module m)) \
	F(module_function, "cuModuleGetFunction", (cu_function *f, cu_module m, const char *name)) \
	F(launch, "cuLaunchKernel", (cu_function f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, \
		unsigned bz, unsigned shared, cu_stream s, void **params, void **extra))

typedef struct {
#define F(name, symbol, args) cu_result (*name) args;
	TUTTI_CUDA_FUNCTIONS(F)
#undef F
	cu_result (*capture_mode)(int *mode); // cuThreadExchangeStreamCaptureMode, optional
	cu_result (*event_elapsed)(float *ms, cu_event start, cu_event end); // cuEventElapsedTime, optional: without it nothing is measured
} tutti_cuda;

// Opens the library and fills the table. Returns NULL on success, or the loader's text; missing names the symbol
// that the library lacks, if one is.
const char *tutti_cuda_open(tutti_cuda *t, const char *path, const char **missing);

// Each wrapper makes ctx the thread's context first: goroutines move between threads. A NULL ctx leaves it.
cu_result tutti_cuda_init(tutti_cuda *t, int *version, int *devices);
void tutti_cuda_error(tutti_cuda *t, cu_result r, const char **name, const char **text);
cu_result tutti_cuda_device(tutti_cuda *t, int ordinal, cu_device *d, char name[256], cu_uuid *id, size_t *memory, int *major, int *minor, int *pools);
cu_result tutti_cuda_retain(tutti_cuda *t, cu_device d, cu_context *c);
cu_result tutti_cuda_pool(tutti_cuda *t, cu_context c, int ordinal, uint64_t keep, cu_mempool *p);
cu_result tutti_cuda_stream(tutti_cuda *t, cu_context c, int priority, cu_stream *s);
// These return by value: an address of a Go variable would move it to the heap.
typedef struct { cu_result result; cu_ptr p; } cu_allocated;
typedef struct { cu_result result; void *p; } cu_pinned;
typedef struct { cu_result result; cu_ptr base; size_t n; } cu_range;
typedef struct { cu_result result; cu_module module; } cu_loaded;
typedef struct { cu_result result; cu_function function; } cu_found;
typedef struct { cu_result result; float ms; } cu_elapsed;
typedef struct { cu_result result; cu_event event; } cu_created;
cu_allocated tutti_cuda_alloc_async(tutti_cuda *t, cu_context c, size_t n, cu_mempool from, cu_stream s);
cu_allocated tutti_cuda_alloc(tutti_cuda *t, cu_context c, size_t n);
cu_pinned tutti_cuda_host_alloc(tutti_cuda *t, cu_context c, size_t n, unsigned flags);
cu_allocated tutti_cuda_ipc_open(tutti_cuda *t, cu_context c, const cu_ipc_handle *h);
cu_range tutti_cuda_address_range(tutti_cuda *t, cu_context c, cu_ptr p);
cu_loaded tutti_cuda_module_load(tutti_cuda *t, cu_context c, const void *image);
cu_found tutti_cuda_module_function(tutti_cuda *t, cu_context c, cu_module m, const char *name);
cu_elapsed tutti_cuda_event_elapsed(tutti_cuda *t, cu_context c, cu_event start, cu_event end);
cu_created tutti_cuda_event_new(tutti_cuda *t, cu_context c, unsigned flags);
// Each of the n values is an argument of at most 8 bytes, in the low bytes.
cu_result tutti_cuda_launch(tutti_cuda *t, cu_context c, cu_function f, const unsigned *grid, const unsigned *block, cu_stream s, const uint64_t *values, int n);
cu_result tutti_cuda_fill(tutti_cuda *t, cu_context c, cu_ptr dst, size_t n, const void *elem, int width, cu_stream s);
cu_result tutti_cuda_pool_usage(tutti_cuda *t, cu_mempool p, uint64_t *reserved, uint64_t *used);

// The rest are calls of one entry with the context set.
#define TUTTI_CUDA_CALLS(C) \
	C(context_release, (tutti_cuda *t, cu_device d), (d)) \
	C(can_access_peer, (tutti_cuda *t, int *yes, cu_device d, cu_device peer), (yes, d, peer)) \
	C(pool_access, (tutti_cuda *t, cu_mempool p, const cu_access *list, size_t n), (p, list, n)) \
	C(pool_trim, (tutti_cuda *t, cu_mempool p, size_t keep), (p, keep)) \
	C(pool_destroy, (tutti_cuda *t, cu_mempool p), (p))
#define TUTTI_CUDA_CONTEXT_CALLS(C) \
	C(memory_info, (tutti_cuda *t, cu_context c, size_t *available, size_t *total), (available, total)) \
	C(free_async, (tutti_cuda *t, cu_context c, cu_ptr p, cu_stream s), (p, s)) \
	C(free, (tutti_cuda *t, cu_context c, cu_ptr p), (p)) \
	C(host_free, (tutti_cuda *t, cu_context c, void *p), (p)) \
	C(stream_destroy, (tutti_cuda *t, cu_context c, cu_stream s), (s)) \
	C(stream_sync, (tutti_cuda *t, cu_context c, cu_stream s), (s)) \
	C(context_sync, (tutti_cuda *t, cu_context c), ()) \
	C(stream_wait, (tutti_cuda *t, cu_context c, cu_stream s, cu_event e), (s, e, 0)) \
	C(event_create, (tutti_cuda *t, cu_context c, cu_event *e, unsigned flags), (e, flags)) \
	C(event_destroy, (tutti_cuda *t, cu_context c, cu_event e), (e)) \
	C(event_record, (tutti_cuda *t, cu_context c, cu_event e, cu_stream s), (e, s)) \
	C(event_query, (tutti_cuda *t, cu_context c, cu_event e), (e)) \
	C(event_sync, (tutti_cuda *t, cu_context c, cu_event e), (e)) \
	C(copy, (tutti_cuda *t, cu_context c, cu_ptr dst, cu_ptr src, size_t n, cu_stream s), (dst, src, n, s)) \
	C(ipc_get, (tutti_cuda *t, cu_context c, cu_ipc_handle *h, cu_ptr p), (h, p)) \
	C(ipc_close, (tutti_cuda *t, cu_context c, cu_ptr p), (p)) \
	C(module_unload, (tutti_cuda *t, cu_context c, cu_module m), (m))

#define C(name, args, pass) cu_result tutti_cuda_##name args;
TUTTI_CUDA_CALLS(C)
TUTTI_CUDA_CONTEXT_CALLS(C)
#undef C

#endif
