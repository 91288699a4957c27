// Images: rows of pixels of ch samples of 8 bits. Resizing is Pillow's (Resample.c): weights with 22 fraction bits, two passes,
// each rounded to 8 bits.

// to_space converts n pixels of from samples (1 grey, 3 RGB, 4 RGB and alpha) to ch samples: 1 grey, or 3, of YCbCr with ycc.
KERNEL(to_space, IN(uint8_t, src), OUT(uint8_t, dst), VAL(int64_t, n), VAL(int, from), VAL(int, ch), VAL(int, ycc)) {
	int64_t i = THREAD_ID;
	if (i >= n) return;
	const uint8_t *p = src + i * from;
	uint8_t r = p[0], g = from == 1 ? r : p[1], b = from == 1 ? r : p[2];
	if (ch == 1) { // the luma of ITU-R BT.601, as Pillow's L24
		dst[i] = from == 1 ? r : (uint8_t)(((uint32_t)r * 19595 + (uint32_t)g * 38470 + (uint32_t)b * 7471 + 0x8000) >> 16);
		return;
	}
	uint8_t *q = dst + i * 3;
	q[0] = r, q[1] = g, q[2] = b;
	if (!ycc) return;
	if (from == 1) {
		q[1] = q[2] = 128;
		return;
	}
	// Pillow's ConvertYCbCr.c: 6 fraction bits, each product rounded to an integer.
	q[0] = (uint8_t)(((int16_t)(0.299 * 64 * r + 0.5) + (int16_t)(0.587 * 64 * g + 0.5) + (int16_t)(0.114 * 64 * b + 0.5)) >> 6);
	q[1] = (uint8_t)((((int16_t)(-0.16874 * 64 * r + 0.5) + (int16_t)(-0.33126 * 64 * g + 0.5) + (int16_t)(0.5 * 64 * b + 0.5)) >> 6) + 128);
	q[2] = (uint8_t)((((int16_t)(0.5 * 64 * r + 0.5) + (int16_t)(-0.41869 * 64 * g + 0.5) + (int16_t)(-0.08131 * 64 * b + 0.5)) >> 6) + 128);
}

enum { NEAREST, AREA, BILINEAR, HAMMING, BICUBIC };

FUNC double filter_weight(int filter, double x) {
	if (filter == AREA) return x > -0.5 && x <= 0.5 ? 1 : 0;
	if (x < 0) x = -x;
	if (filter == BILINEAR) return 1 - x > 0 ? 1 - x : 0;
	if (x < 1) return (1.5 * x - 2.5) * x * x + 1;
	if (x < 2) return (((x - 5) * x + 8) * x - 4) * -0.5;
	return 0;
}

// resize_weights computes, for outputs from to from + n - 1 of an axis, the first input, their count and their weights, size per output.
// scale is the inputs per output, support the reach of the filter in inputs, inverse what distances are multiplied by.
KERNEL(resize_weights, OUT(int32_t, first), OUT(int32_t, count), OUT(int32_t, weights), VAL(int, filter), VAL(int64_t, in), VAL(int64_t, from),
	VAL(int64_t, n), VAL(int64_t, size), VAL(double, scale), VAL(double, support), VAL(double, inverse)) {
	int64_t i = THREAD_ID;
	if (i >= n) return;
	int32_t *fixed = weights + i * size;
	if (filter == NEAREST) { // the position is summed up, as Pillow does
		int64_t skip = from > 1 << 20 ? 0 : from;
		double at = from > 1 << 20 ? scale * ((double)from + 0.5) : scale * 0.5;
		for (int64_t k = 0; k < skip + i; k++) at += scale;
		first[i] = (int32_t)((int64_t)at < in - 1 ? (int64_t)at : in - 1), count[i] = 1, fixed[0] = 1 << 22;
		return;
	}
	double center = ((double)(from + i) + 0.5) * scale, sum = 0;
	int64_t lo = (int64_t)(center - support + 0.5), hi = (int64_t)(center + support + 0.5);
	if (lo < 0) lo = 0;
	if (hi > in) hi = in;
	for (int64_t j = lo; j < hi; j++) sum += filter_weight(filter, ((double)j - center + 0.5) * inverse);
	for (int64_t j = lo; j < hi; j++) {
		double v = filter_weight(filter, ((double)j - center + 0.5) * inverse);
		if (sum != 0) v /= sum;
		fixed[j - lo] = (int32_t)((v < 0 || double_bits(v) >> 63 ? -0.5 : 0.5) + v * 4194304);
	}
	first[i] = (int32_t)lo, count[i] = (int32_t)(hi - lo);
}

FUNC uint8_t clip8(int32_t sum) {
	int32_t v = sum >> 22;
	return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

// resize_x resamples along rows: of images of height rows of pitch samples it takes rows rows from top on, and computes out pixels of each. The
// inputs of the weights are counted from pixel left on.
KERNEL(resize_x, IN(uint8_t, src), OUT(uint8_t, dst), IN(int32_t, first), IN(int32_t, count), IN(int32_t, weights), VAL(int64_t, size), VAL(int64_t, n),
	VAL(int64_t, rows), VAL(int64_t, height), VAL(int64_t, top), VAL(int64_t, pitch), VAL(int64_t, left), VAL(int64_t, out), VAL(int, ch)) {
	int64_t i = THREAD_ID;
	if (i >= n) return;
	int64_t c = i % ch, x = i / ch % out, row = i / (ch * out);
	const uint8_t *p = src + (row / rows * height + top + row % rows) * pitch + (left + first[x]) * ch + c;
	const int32_t *w = weights + x * size;
	int32_t sum = 1 << 21;
	for (int k = 0; k < count[x]; k++) sum += p[k * (int64_t)ch] * w[k];
	dst[i] = clip8(sum);
}

// resize_y resamples along columns: of images of height rows of pitch samples it takes wide samples from left on, and computes out rows. The
// inputs of the weights are counted from row top on.
KERNEL(resize_y, IN(uint8_t, src), OUT(uint8_t, dst), IN(int32_t, first), IN(int32_t, count), IN(int32_t, weights), VAL(int64_t, size), VAL(int64_t, n),
	VAL(int64_t, height), VAL(int64_t, top), VAL(int64_t, pitch), VAL(int64_t, left), VAL(int64_t, wide), VAL(int64_t, out)) {
	int64_t i = THREAD_ID;
	if (i >= n) return;
	int64_t at = i % wide, y = i / wide % out, image = i / (wide * out);
	const uint8_t *p = src + (image * height + top + first[y]) * pitch + left + at;
	const int32_t *w = weights + y * size;
	int32_t sum = 1 << 21;
	for (int k = 0; k < count[y]; k++) sum += p[k * pitch] * w[k];
	dst[i] = clip8(sum);
}

// place crops or pads images of sh x sw pixels to height x width: pixel (0, 0) goes to (x, y). It maps the samples of output channel c,
// which are those of channel order >> 8c & 255, through 256 words of table; a pixel without image has sample blank >> 8c & 255. Outputs
// have size bytes, and are planes [ch, height, width] with planar, else pixels.
KERNEL(place, IN(uint8_t, src), OUT(uint8_t, dst), IN(uint32_t, table), VAL(int64_t, n), VAL(int64_t, sw), VAL(int64_t, sh), VAL(int64_t, x), VAL(int64_t, y),
	VAL(int64_t, width), VAL(int64_t, height), VAL(int, ch), VAL(uint32_t, order), VAL(uint32_t, blank), VAL(int, planar), VAL(int, size)) {
	int64_t i = THREAD_ID;
	if (i >= n) return;
	int64_t area = width * height, image = i / (area * ch), rest = i % (area * ch);
	int64_t c = planar ? rest / area : rest % ch, pixel = planar ? rest % area : rest / ch;
	int64_t px = pixel % width - x, py = pixel / width - y;
	uint32_t v = blank >> (8 * c) & 255;
	if (px >= 0 && px < sw && py >= 0 && py < sh) v = src[((image * sh + py) * sw + px) * ch + (order >> (8 * c) & 255)];
	put_bits(dst, i, table[c * 256 + v], size);
}
