// The kernels of the stand-in. The checking driver finds them by name in the library, and executes them on the host.
#include <cstdint>
#include <cstdlib>
#include <cstring>

// As kernel.h of package kernels declares them: arguments are device addresses, of host memory as they are.
extern "C" {
typedef struct {
	unsigned grid[3], block[3];
	void *(*memory)(void *self, uint64_t p, int write);
	void *self;
} standin_launch;

extern const int standin_read_params = 3, standin_write_params = 3, standin_copy_params = 3;

static uint64_t word(void **params, int i) { return *static_cast<uint64_t *>(params[i]); }

void standin_read(const standin_launch *l, void **p) {
	std::memcpy(reinterpret_cast<void *>(word(p, 1)), l->memory(l->self, word(p, 0), 0), word(p, 2));
}

void standin_write(const standin_launch *l, void **p) {
	void *from = reinterpret_cast<void *>(word(p, 0));
	std::memcpy(l->memory(l->self, word(p, 1), 1), from, word(p, 2));
	std::free(from);
}

void standin_copy(const standin_launch *l, void **p) {
	const void *from = l->memory(l->self, word(p, 0), 0);
	std::memmove(l->memory(l->self, word(p, 1), 1), from, word(p, 2));
}
}
