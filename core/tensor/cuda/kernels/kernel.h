// Declares kernels once, for NVRTC and for the checking driver's C compiler.
//
//	KERNEL(name, IN(float, x), OUT(float, y), VAL(int, n)) { ... }        each thread on its own
//	BLOCKS(name, ...) { ... SYNC(); ... }                                 threads of a block work together
//
// An argument is IN (read), OUT (written) or VAL (a number of at most 8 bytes); a kernel has at most 21. A kernel of the second kind must be
// right with any number of threads in a block: the C version runs it with one.
#ifndef TUTTI_KERNEL_H
#define TUTTI_KERNEL_H

#ifdef __CUDACC_RTC__

typedef unsigned char uint8_t;
typedef signed char int8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;

#define IN(type, name) const type *__restrict__ name
#define OUT(type, name) type *__restrict__ name
#define VAL(type, name) type name
#define KERNEL(name, ...) extern "C" __global__ void name(__VA_ARGS__)
#define BLOCKS(name, ...) extern "C" __global__ void __launch_bounds__(256) name(__VA_ARGS__)
#define SYNC() __syncthreads()
#define SHARED __shared__
#define TABLE static __device__ const
#define FUNC static __device__ __forceinline__

#else

#include <math.h>
#include <stdint.h>
#include <string.h>

typedef struct { unsigned x, y, z; } index3;
typedef struct {
	index3 grid, block;
	void *(*memory)(void *self, uint64_t p, int write); // the engine's view of a device address
	void *self;
} launch;

static __thread index3 blockIdx, threadIdx, blockDim, gridDim;

#define SYNC()
#define SHARED static __thread
#define TABLE static const
#define FUNC static inline

#define IN_DECLARE(type, name) const type *restrict name
#define OUT_DECLARE(type, name) type *restrict name
#define VAL_DECLARE(type, name) type name
#define IN_UNPACK(i, type, name) (const type *)l->memory(l->self, *(uint64_t *)params[i], 0)
#define OUT_UNPACK(i, type, name) (type *)l->memory(l->self, *(uint64_t *)params[i], 1)
#define VAL_UNPACK(i, type, name) *(type *)params[i]
#define IN(type, name) (IN, type, name)
#define OUT(type, name) (OUT, type, name)
#define VAL(type, name) (VAL, type, name)
#define DECLARE_(kind, type, name) kind##_DECLARE(type, name)
#define DECLARE(i, a) DECLARE_ a
#define UNPACK__(i, kind, type, name) kind##_UNPACK(i, type, name)
#define UNPACK_(...) UNPACK__(__VA_ARGS__)
#define STRIP(...) __VA_ARGS__
#define NAME_(kind, type, name) name
#define NAME(i, a) NAME_ a
#define UNPACK(i, a) UNPACK_(i, STRIP a)

#define EACH1(m, i, a) m(i, a)
#define EACH2(m, i, a, ...) m(i, a), EACH1(m, i + 1, __VA_ARGS__)
#define EACH3(m, i, a, ...) m(i, a), EACH2(m, i + 1, __VA_ARGS__)
#define EACH4(m, i, a, ...) m(i, a), EACH3(m, i + 1, __VA_ARGS__)
#define EACH5(m, i, a, ...) m(i, a), EACH4(m, i + 1, __VA_ARGS__)
#define EACH6(m, i, a, ...) m(i, a), EACH5(m, i + 1, __VA_ARGS__)
#define EACH7(m, i, a, ...) m(i, a), EACH6(m, i + 1, __VA_ARGS__)
#define EACH8(m, i, a, ...) m(i, a), EACH7(m, i + 1, __VA_ARGS__)
#define EACH9(m, i, a, ...) m(i, a), EACH8(m, i + 1, __VA_ARGS__)
#define EACH10(m, i, a, ...) m(i, a), EACH9(m, i + 1, __VA_ARGS__)
#define EACH11(m, i, a, ...) m(i, a), EACH10(m, i + 1, __VA_ARGS__)
#define EACH12(m, i, a, ...) m(i, a), EACH11(m, i + 1, __VA_ARGS__)
#define EACH13(m, i, a, ...) m(i, a), EACH12(m, i + 1, __VA_ARGS__)
#define EACH14(m, i, a, ...) m(i, a), EACH13(m, i + 1, __VA_ARGS__)
#define EACH15(m, i, a, ...) m(i, a), EACH14(m, i + 1, __VA_ARGS__)
#define EACH16(m, i, a, ...) m(i, a), EACH15(m, i + 1, __VA_ARGS__)
#define EACH17(m, i, a, ...) m(i, a), EACH16(m, i + 1, __VA_ARGS__)
#define EACH18(m, i, a, ...) m(i, a), EACH17(m, i + 1, __VA_ARGS__)
#define EACH19(m, i, a, ...) m(i, a), EACH18(m, i + 1, __VA_ARGS__)
#define EACH20(m, i, a, ...) m(i, a), EACH19(m, i + 1, __VA_ARGS__)
#define EACH21(m, i, a, ...) m(i, a), EACH20(m, i + 1, __VA_ARGS__)
#define PICK(a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17, a18, a19, a20, a21, name, ...) name
#define EACH(m, ...) PICK(__VA_ARGS__, EACH21, EACH20, EACH19, EACH18, EACH17, EACH16, EACH15, EACH14, EACH13, EACH12, EACH11, EACH10, EACH9, EACH8, EACH7, EACH6, EACH5, EACH4, EACH3, EACH2, EACH1)(m, 0, __VA_ARGS__)
#define COUNT(...) PICK(__VA_ARGS__, 21, 20, 19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1)

// A kernel's addresses are looked up once; then its threads run one after another.
#define DEFINE(name, threads, ...) \
	static void name##_thread(EACH(DECLARE, __VA_ARGS__)); \
	static void name##_threads(EACH(DECLARE, __VA_ARGS__)) { \
		for (blockIdx.z = 0; blockIdx.z < gridDim.z; blockIdx.z++) \
			for (blockIdx.y = 0; blockIdx.y < gridDim.y; blockIdx.y++) \
				for (blockIdx.x = 0; blockIdx.x < gridDim.x; blockIdx.x++) \
					for (threadIdx.z = 0; threadIdx.z < blockDim.z; threadIdx.z++) \
						for (threadIdx.y = 0; threadIdx.y < blockDim.y; threadIdx.y++) \
							for (threadIdx.x = 0; threadIdx.x < blockDim.x; threadIdx.x++) name##_thread(EACH(NAME, __VA_ARGS__)); \
	} \
	void name(const launch *l, void **params); \
	const int name##_params = COUNT(__VA_ARGS__); \
	void name(const launch *l, void **params) { \
		gridDim = l->grid; \
		blockDim = threads; \
		name##_threads(EACH(UNPACK, __VA_ARGS__)); \
	} \
	static void name##_thread(EACH(DECLARE, __VA_ARGS__))

#define KERNEL(name, ...) DEFINE(name, l->block, __VA_ARGS__)
#define BLOCKS(name, ...) DEFINE(name, ((index3){1, 1, 1}), __VA_ARGS__)

#endif

// thread_id is the number of a thread in a one-dimensional grid.
#define THREAD_ID ((int64_t)blockIdx.x * blockDim.x + threadIdx.x)

#endif
