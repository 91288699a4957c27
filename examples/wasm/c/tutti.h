/* The interface of Tutti's backend wasm, version 1, for C without a library. Copy it: docs/wasm.md describes the interface. The file
   that includes it defines tutti_execute, and is compiled by

       clang --target=wasm32 -ffreestanding -O2 -nostdlib -Wl,--no-entry -o model.wasm model.c
*/
#ifndef TUTTI_H
#define TUTTI_H

#include <stddef.h>
#include <stdint.h>

enum tutti_type { TUTTI_INT32 = 8, TUTTI_INT64 = 9, TUTTI_FP32 = 11, TUTTI_BYTES = 13 };

enum tutti_code { TUTTI_INVALID_ARGUMENT = 3, TUTTI_INTERNAL = 13 };

typedef struct {
	const char *name;
	uint32_t name_length;
	uint32_t type;
	uint32_t rank;
	const int64_t *dims; /* with the batch first where the model batches */
	const void *data;
	uint32_t data_length; /* in bytes */
	uint32_t zero;
} tutti_tensor;

typedef struct {
	int32_t row; /* of the batch, or -1 for all */
	uint32_t code;
	const char *text;
	uint32_t text_length;
} tutti_failure;

typedef struct {
	const tutti_tensor *outputs;
	uint32_t output_count;
	const tutti_failure *failures;
	uint32_t failure_count;
} tutti_response;

#define TUTTI_EXPORT(name) __attribute__((export_name(#name)))

/* Runs a batch. The response is read before the next call. */
TUTTI_EXPORT(tutti_execute) const tutti_response *tutti_execute(const tutti_tensor *inputs, uint32_t count);

TUTTI_EXPORT(tutti_abi_version) uint32_t tutti_abi_version(void) { return 1; }

/* Memory of the module behind what the linker placed. */
extern unsigned char __heap_base;
static uintptr_t tutti_input, tutti_input_end, tutti_top;

/* tutti_alloc returns n bytes, aligned to 16, that are free again at the next call of tutti_execute; NULL without memory. */
static void *tutti_alloc(size_t n) {
	uintptr_t at = (tutti_top + 15) & ~(uintptr_t)15, end = at + n;
	size_t size = __builtin_wasm_memory_size(0) << 16;
	if (end < at || (end > size && __builtin_wasm_memory_grow(0, (end - size + 65535) >> 16) == (size_t)-1))
		return NULL;
	tutti_top = end;
	return (void *)at;
}

/* tutti_reset frees what tutti_alloc returned. */
static void tutti_reset(void) { tutti_top = tutti_input_end; }

TUTTI_EXPORT(tutti_buffer) void *tutti_buffer(uint32_t size) {
	tutti_top = (uintptr_t)&__heap_base;
	tutti_input = (uintptr_t)tutti_alloc(size);
	tutti_input_end = tutti_top;
	return (void *)tutti_input;
}

/* tutti_is reports whether a tensor has a name. */
static int tutti_is(const tutti_tensor *t, const char *name) {
	uint32_t i = 0;
	while (i < t->name_length && name[i] && t->name[i] == name[i])
		i++;
	return i == t->name_length && !name[i];
}

/* tutti_find returns the tensor of a name, or NULL. */
static const tutti_tensor *tutti_find(const tutti_tensor *list, uint32_t count, const char *name) {
	for (uint32_t i = 0; i < count; i++)
		if (tutti_is(&list[i], name))
			return &list[i];
	return NULL;
}

/* tutti_fail returns the response that fails the batch. */
static const tutti_response *tutti_fail(uint32_t code, const char *text) {
	static tutti_failure failure;
	static tutti_response response;
	uint32_t n = 0;
	while (text[n])
		n++;
	failure = (tutti_failure){-1, code, text, n};
	response = (tutti_response){NULL, 0, &failure, 1};
	return &response;
}

#endif
