#include "host.h"

struct tl_range tl_range;

// Blocks have sizes in classes, four for each power of two, so that a freed block serves later requests of about its size. The server frees
// a block by putting it in front of the list TT_FREED; this process takes the list when it next allocates.
enum { FIRST = 128, CLASSES = 192 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t lists[CLASSES]; // free blocks by class; guarded by lock
static uint64_t next;           // where unused memory begins, 0 before the first block; guarded by lock

static size_t class_size(int class) {
	size_t base = (size_t)FIRST << (class / 4);
	return base + base / 4 * (size_t)(class % 4);
}

// class_of returns the least class with blocks of that size, or -1.
static int class_of(size_t size) {
	if (size <= FIRST) return 0;
	int power = 63 - __builtin_clzll((unsigned long long)(size - 1) / FIRST | 1);
	int class = power * 4;
	while (class < CLASSES && class_size(class) < size) class++;
	return class < CLASSES ? class : -1;
}

static uint64_t *head(uint64_t block) { return (uint64_t *)tl_at(block - TT_BLOCK_HEAD); }

static void put(uint64_t block) {
	uint64_t *h = head(block);
	h[1] = lists[h[0]];
	lists[h[0]] = block;
}

// take_freed takes the blocks that the server has freed. The caller holds lock.
static void take_freed(void) {
	_Atomic uint64_t *freed = tl_at(TT_FREED);
	if (atomic_load_explicit(freed, memory_order_relaxed) == 0) return;
	for (uint64_t block = atomic_exchange(freed, 0); block != 0;) {
		uint64_t following = head(block)[1];
		put(block);
		block = following;
	}
}

uint64_t tl_alloc(size_t size) {
	if (size > tl_range.size) return 0;
	int class = class_of(size);
	uint64_t block = 0;
	pthread_mutex_lock(&lock);
	if (class >= 0) {
		if (lists[class] == 0) take_freed();
		size_t whole = class_size(class) + TT_BLOCK_HEAD;
		if (next == 0) next = tl_range.heap;
		if (lists[class] == 0 && whole <= tl_range.size - next) {
			block = next + TT_BLOCK_HEAD;
			next += (whole + TT_BLOCK_HEAD - 1) / TT_BLOCK_HEAD * TT_BLOCK_HEAD;
			head(block)[0] = (uint64_t)class;
		}
		for (int larger = class; block == 0 && larger < CLASSES; larger++) { // the range is full: a larger block will do
			if ((block = lists[larger]) != 0) lists[larger] = head(block)[1];
		}
	}
	pthread_mutex_unlock(&lock);
	return block;
}

void tl_free(uint64_t block) {
	if (block == 0) return;
	pthread_mutex_lock(&lock);
	put(block);
	pthread_mutex_unlock(&lock);
}
