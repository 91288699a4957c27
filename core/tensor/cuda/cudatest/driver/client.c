// A client that shares device memory: the process at the other end of IPC handles. Tests start it beside a server.
//
//	cuda-client PATH-OF-LIBCUDA
//
// It reads one command a line, and answers each with one line: "ok", followed by a result, or "error CALL CODE".
//
//	alloc DEVICE BYTES         the handle of new memory in hex; the first has the number 0
//	write NUMBER OFFSET HEX    writes bytes
//	read NUMBER OFFSET BYTES   the bytes in hex
//	free NUMBER
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../driver.h"

enum { MAX_MEMORIES = 1024 };

#define CALL(f, ...) \
	do { \
		cu_result r_ = ((cu_result(*)())function(#f))(__VA_ARGS__); \
		if (r_ != 0) { \
			printf("error %s %d\n", #f, r_); \
			return; \
		} \
	} while (0)

static void *library;
static cu_context contexts[16];
static struct { cu_ptr p; int device; } memories[MAX_MEMORIES];
static int count;

static void *function(const char *name) {
	void *f = dlsym(library, name);
	if (f == NULL) {
		fprintf(stderr, "cuda-client: the driver has no %s\n", name);
		exit(1);
	}
	return f;
}

static void put_hex(const unsigned char *b, size_t n) {
	fputs("ok ", stdout);
	for (size_t i = 0; i < n; i++) printf("%02x", b[i]);
	putchar('\n');
}

static void alloc(int device, size_t n) {
	if (device < 0 || device >= 16 || count == MAX_MEMORIES) {
		puts("error alloc 0");
		return;
	}
	if (contexts[device] == NULL) CALL(cuDevicePrimaryCtxRetain, &contexts[device], (cu_device)device);
	CALL(cuCtxSetCurrent, contexts[device]);
	cu_ptr p = 0;
	cu_ipc_handle h;
	CALL(cuMemAlloc_v2, &p, n);
	CALL(cuIpcGetMemHandle, &h, p);
	memories[count].p = p, memories[count++].device = device;
	put_hex((unsigned char *)&h, sizeof h);
}

static void copy(int number, size_t offset, void *host, size_t n, int up) {
	CALL(cuCtxSetCurrent, contexts[memories[number].device]);
	cu_stream s;
	CALL(cuStreamCreateWithPriority, &s, 1u, 0);
	cu_ptr at = memories[number].p + offset, h = (cu_ptr)(uintptr_t)host;
	CALL(cuMemcpyAsync, up ? at : h, up ? h : at, n, s);
	CALL(cuStreamSynchronize, s);
	CALL(cuStreamDestroy_v2, s);
	if (up) puts("ok");
	else put_hex(host, n);
}

static void release(int number) {
	CALL(cuCtxSetCurrent, contexts[memories[number].device]);
	CALL(cuMemFree_v2, memories[number].p);
	puts("ok");
}

static void run(char *line) {
	int number = 0, at = 0;
	size_t a = 0, b = 0;
	if (sscanf(line, "alloc %d %zu", &number, &a) == 2) alloc(number, a);
	else if (sscanf(line, "free %d", &number) == 1 && number >= 0 && number < count) release(number);
	else if (sscanf(line, "read %d %zu %zu", &number, &a, &b) == 3 && number >= 0 && number < count) {
		void *host = malloc(b + 1);
		copy(number, a, host, b, 0);
		free(host);
	} else if (sscanf(line, "write %d %zu %n", &number, &a, &at) == 2 && at > 0 && number >= 0 && number < count) {
		const char *hex = line + at;
		size_t n = strspn(hex, "0123456789abcdef") / 2;
		unsigned char *host = malloc(n + 1);
		for (size_t i = 0; i < n; i++) sscanf(hex + 2 * i, "%2hhx", &host[i]);
		copy(number, a, host, n, 1);
		free(host);
	} else puts("error command 0");
}

int main(int argc, char **argv) {
	library = argc == 2 ? dlopen(argv[1], RTLD_NOW) : NULL;
	if (library == NULL) {
		fprintf(stderr, "usage: cuda-client PATH-OF-LIBCUDA: %s\n", argc == 2 ? dlerror() : "no path");
		return 1;
	}
	if (((cu_result(*)(unsigned))function("cuInit"))(0) != 0) return 1;
	char *line = NULL;
	size_t room = 0;
	while (getline(&line, &room, stdin) > 0) {
		run(line);
		fflush(stdout);
	}
	free(line);
	return 0;
}
