#include "shim.h"

#include <stdio.h>

typedef void *(*init_fn)(void);
typedef int (*header_fn)(void *, const unsigned char *, unsigned long, int *, int *, int *, int *);
typedef int (*decompress_fn)(void *, const unsigned char *, unsigned long, unsigned char *, int, int, int, int, int);
typedef int (*code_fn)(void *);
typedef char *(*text_fn)(void *);
typedef int (*destroy_fn)(void *);

static int result(const tt_tj *lib, void *h, int rc, char *text, int room) {
	if (rc == 0) return TT_TJ_OK;
	snprintf(text, room, "%s", ((text_fn)lib->text)(h));
	return ((code_fn)lib->code)(h) == 0 ? TT_TJ_WARNED : TT_TJ_FAILED;
}

int tt_tj_decode(const tt_tj *lib, const unsigned char *data, unsigned long n,
	int width, int height, unsigned char *out, int out_width, int out_height,
	int format, char *text, int room) {
	void *h = ((init_fn)lib->init)();
	if (h == NULL) {
		snprintf(text, room, "no memory for a decoder");
		return TT_TJ_FAILED;
	}
	int w = 0, t = 0, sampling = 0, space = 0;
	int rc = ((header_fn)lib->header)(h, data, n, &w, &t, &sampling, &space);
	int r = result(lib, h, rc, text, room);
	if (r != TT_TJ_FAILED && (w != width || t != height)) {
		snprintf(text, room, "image has %d x %d pixels", w, t);
		r = TT_TJ_SIZE;
	} else if (r != TT_TJ_FAILED) {
		rc = ((decompress_fn)lib->decompress)(h, data, n, out, out_width, 0, out_height, format, 0);
		r = result(lib, h, rc, text, room);
	}
	((destroy_fn)lib->destroy)(h);
	return r;
}
