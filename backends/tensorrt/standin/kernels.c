// The operations of the stand-in library, which the checking driver executes as kernels.
#include "kernel.h"

// y = a x + b
KERNEL(standin_affine, IN(float, x), OUT(float, y), VAL(int64_t, n), VAL(float, a), VAL(float, b)) {
	int64_t i = THREAD_ID;
	if (i < n) y[i] = a * x[i] + b;
}

// y = x, by bytes; x repeats after its m bytes
KERNEL(standin_repeat, IN(uint8_t, x), OUT(uint8_t, y), VAL(int64_t, n), VAL(int64_t, m)) {
	int64_t i = THREAD_ID;
	if (i < n) y[i] = x[i % m];
}

// z = x + y
KERNEL(standin_add, IN(float, x), IN(float, y), OUT(float, z), VAL(int64_t, n)) {
	int64_t i = THREAD_ID;
	if (i < n) z[i] = x[i] + y[i];
}

// The memory of executions is used, so that the driver sees who else uses it.
KERNEL(standin_scribble, OUT(uint8_t, memory), VAL(int64_t, n)) {
	int64_t i = THREAD_ID;
	if (i < n) memory[i] = (uint8_t)i;
}
