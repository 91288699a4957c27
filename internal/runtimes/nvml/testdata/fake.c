// A stand-in for NVIDIA's management library with two GPUs, of which the second tells
// less.
#include <stddef.h>
#include <string.h>

#ifndef COUNT
#define COUNT 2
#endif
#ifndef FAIL_INIT
#define FAIL_INIT 0
#endif

enum { NOT_SUPPORTED = 3 };

typedef struct { int index; unsigned long long energy; } device;
typedef struct { unsigned int gpu, memory; } utilization;
typedef struct { unsigned long long total, free, used; } memory;

static device devices[2] = {{0, 1000}, {1, 0}};

int nvmlInit_v2(void) { return FAIL_INIT; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned int *n) { *n = COUNT; return 0; }

int nvmlDeviceGetHandleByIndex_v2(unsigned int i, device **d) {
	*d = &devices[i];
	return 0;
}

int nvmlDeviceGetUUID(device *d, char *s, unsigned int n) {
	strncpy(s, d->index == 0 ? "GPU-a" : "GPU-b", n);
	return 0;
}

int nvmlDeviceGetUtilizationRates(device *d, utilization *u) {
	if (d->index == 1) return NOT_SUPPORTED;
	u->gpu = 37;
	u->memory = 5;
	return 0;
}

int nvmlDeviceGetMemoryInfo(device *d, memory *m) {
	(void)d;
	m->total = 80ull << 30;
	m->used = 3ull << 30;
	m->free = m->total - m->used;
	return 0;
}

int nvmlDeviceGetPowerUsage(device *d, unsigned int *mw) {
	if (d->index == 1) return NOT_SUPPORTED;
	*mw = 251500;
	return 0;
}

int nvmlDeviceGetEnforcedPowerLimit(device *d, unsigned int *mw) {
	(void)d;
	*mw = 700000;
	return 0;
}

#ifndef NO_ENERGY
int nvmlDeviceGetTotalEnergyConsumption(device *d, unsigned long long *mj) {
	if (d->index == 1) return NOT_SUPPORTED;
	*mj = d->energy;
	d->energy += 2500;
	return 0;
}
#endif
