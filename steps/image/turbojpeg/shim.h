#ifndef TUTTI_TURBOJPEG_SHIM_H
#define TUTTI_TURBOJPEG_SHIM_H

// What is used of the interface of libturbojpeg 2, which version 3 keeps.
typedef struct {
	void *init, *header, *decompress, *code, *text, *destroy;
} tt_tj;

enum { TT_TJ_OK, TT_TJ_FAILED, TT_TJ_WARNED, TT_TJ_SIZE };

// tt_tj_decode decodes a file of width x height to out_width x out_height, in the
// format 0 (RGB) or 6 (grey). Unless it is all well, text says why.
int tt_tj_decode(const tt_tj *lib, const unsigned char *data, unsigned long n,
	int width, int height, unsigned char *out, int out_width, int out_height,
	int format, char *text, int room);

#endif
