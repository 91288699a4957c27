// The kernels of native steps and of batches at a device. `go generate` compiles them to kernels.ptx. Each computes
// what the native step on the host does; where sums are in another order, the step's documentation gives the
// tolerance.
#include "kernel.h"

// pad_rows copies rows of from bytes into rows of to bytes, and fills the rest of each with an element of width bytes.
// It splits a batch again with to < from. For example, from 6, to 8, width 2: rows of three elements get a fourth.
KERNEL(pad_rows, IN(uint8_t, src), OUT(uint8_t, dst), VAL(int64_t, rows), VAL(int64_t, from), VAL(int64_t, to), VAL(uint64_t, elem), VAL(int, width)) {
	int64_t i = THREAD_ID;
	if (i >= rows * to) return;
	int64_t row = i / to, at = i % to;
	dst[i] = at < from ? src[row * from + at] : (uint8_t)(elem >> (8 * (at % width)));
}

// half_to_float and float_to_half round to nearest even, and keep the payload of NaNs.
FUNC float bits_float(uint32_t u) {
	union { uint32_t u; float f; } v;
	v.u = u;
	return v.f;
}

FUNC uint32_t float_bits(float f) {
	union { uint32_t u; float f; } v;
	v.f = f;
	return v.u;
}

FUNC float half_to_float(uint16_t h) {
	uint32_t sign = (uint32_t)(h & 0x8000) << 16, exp = h >> 10 & 31, man = h & 0x3ff;
	if (exp == 31) return bits_float(sign | 0x7f800000 | man << 13);
	if (exp != 0) return bits_float(sign | (exp + 112) << 23 | man << 13);
	float f = (float)man * 5.9604644775390625e-08f; // 2^-24
	return sign ? -f : f;
}

FUNC uint16_t float_to_half(float f) {
	uint32_t u = float_bits(f), sign = u >> 16 & 0x8000, abs = u & 0x7fffffff;
	if (abs > 0x7f800000) return (uint16_t)(sign | 0x7e00 | (abs >> 13 & 0x3ff));
	if (abs >= 0x47800000) return (uint16_t)(sign | 0x7c00);
	if (abs < 0x38800000) { // subnormal: 2^-24 units
		if (abs < 0x33000000) return (uint16_t)sign;
		uint32_t shift = 126 - (abs >> 23), man = (abs & 0x7fffff) | 0x800000;
		uint32_t r = man >> shift, rest = man & ((1u << shift) - 1), mid = 1u << (shift - 1);
		return (uint16_t)(sign | (r + (rest > mid || (rest == mid && (r & 1)))));
	}
	uint32_t r = (abs - 0x38000000) >> 13, rest = abs & 0x1fff;
	return (uint16_t)(sign | (r + (rest > 0x1000 || (rest == 0x1000 && (r & 1)))));
}

FUNC uint16_t float_to_bf16(float f) {
	uint32_t u = float_bits(f);
	if ((u & 0x7fffffff) > 0x7f800000) return (uint16_t)(u >> 16 | 0x40);
	return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

#define CAST(name, from, to, expr) \
	KERNEL(cast_##name, IN(from, src), OUT(to, dst), VAL(int64_t, n)) { \
		int64_t i = THREAD_ID; \
		if (i >= n) return; \
		from v = src[i]; \
		dst[i] = expr; \
	}
CAST(u8_f32, uint8_t, float, (float)v)
CAST(i32_f32, int32_t, float, (float)v)
CAST(i64_f32, int64_t, float, (float)v)
CAST(i32_i64, int32_t, int64_t, (int64_t)v)
CAST(i64_i32, int64_t, int32_t, (int32_t)v)
CAST(f32_f16, float, uint16_t, float_to_half(v))
CAST(f16_f32, uint16_t, float, half_to_float(v))
CAST(f32_bf16, float, uint16_t, float_to_bf16(v))
CAST(bf16_f32, uint16_t, float, bits_float((uint32_t)v << 16))
CAST(f32_f64, float, double, (double)v)
CAST(f64_f32, double, float, (float)v)

// transpose_3 swaps the last two of three dimensions [a, b, c] of elements of width bytes.
KERNEL(transpose_3, IN(uint8_t, src), OUT(uint8_t, dst), VAL(int64_t, a), VAL(int64_t, b), VAL(int64_t, c), VAL(int, width)) {
	int64_t i = THREAD_ID;
	if (i >= a * b * c) return;
	int64_t k = i % b, j = i / b % c, outer = i / (b * c);
	const uint8_t *from = src + (outer * b * c + k * c + j) * width;
	for (int w = 0; w < width; w++) dst[i * width + w] = from[w];
}

// Resizing takes the fixed-point weights of the native step: output i is the sum of count[i] samples from first[i] on, times
// weights[i * taps + k], rounded from 22 fraction bits to 8 bits.
FUNC uint8_t clip8(int32_t sum) {
	int32_t v = sum >> 22;
	return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

// resize_x resamples rows of in pixels to out pixels of ch channels.
KERNEL(resize_x, IN(uint8_t, src), OUT(uint8_t, dst), IN(int32_t, first), IN(int32_t, count), IN(int32_t, weights), VAL(int, taps), VAL(int64_t, rows), VAL(int, in), VAL(int, out), VAL(int, ch)) {
	int64_t i = THREAD_ID;
	if (i >= rows * out * ch) return;
	int c = (int)(i % ch), x = (int)(i / ch % out);
	const uint8_t *row = src + i / ((int64_t)ch * out) * in * ch + (int64_t)first[x] * ch + c;
	int32_t sum = 1 << 21;
	for (int k = 0; k < count[x]; k++) sum += row[k * ch] * weights[x * taps + k];
	dst[i] = clip8(sum);
}

// resize_y resamples columns: in rows of n samples become out rows.
KERNEL(resize_y, IN(uint8_t, src), OUT(uint8_t, dst), IN(int32_t, first), IN(int32_t, count), IN(int32_t, weights), VAL(int, taps), VAL(int64_t, n), VAL(int, out)) {
	int64_t i = THREAD_ID;
	if (i >= n * out) return;
	int y = (int)(i / n);
	const uint8_t *column = src + (int64_t)first[y] * n + i % n;
	int32_t sum = 1 << 21;
	for (int k = 0; k < count[y]; k++) sum += column[k * n] * weights[y * taps + k];
	dst[i] = clip8(sum);
}

// crop copies a rectangle of h rows of w samples out of rows of pitch samples.
KERNEL(crop, IN(uint8_t, src), OUT(uint8_t, dst), VAL(int64_t, pitch), VAL(int64_t, x), VAL(int64_t, y), VAL(int64_t, w), VAL(int64_t, h)) {
	int64_t i = THREAD_ID;
	if (i < w * h) dst[i] = src[(y + i / w) * pitch + x + i % w];
}

// normalize_32 and normalize_16 map pixels [h, w, ch] through a table of 256 values per channel, as bits of the output's type. With
// planar the output is [ch, h, w].
#define NORMALIZE(bits) \
	KERNEL(normalize_##bits, IN(uint8_t, src), OUT(uint##bits##_t, dst), IN(uint32_t, table), VAL(int64_t, pixels), VAL(int, ch), VAL(int, planar)) { \
		int64_t i = THREAD_ID; \
		if (i >= pixels * ch) return; \
		int c = (int)(i % ch); \
		dst[planar ? c * pixels + i / ch : i] = (uint##bits##_t)table[c * 256 + src[i]]; \
	}
NORMALIZE(32)
NORMALIZE(16)

#define MOST_THREADS 256

// block_sum and block_max reduce one value per thread. Every thread gets the result.
FUNC float block_sum(float v, float *part) {
	part[threadIdx.x] = v;
	SYNC();
	for (unsigned n = blockDim.x / 2; n > 0; n /= 2) {
		if (threadIdx.x < n) part[threadIdx.x] += part[threadIdx.x + n];
		SYNC();
	}
	float sum = part[0];
	SYNC();
	return sum;
}

FUNC float block_max(float v, float *part) {
	part[threadIdx.x] = v;
	SYNC();
	for (unsigned n = blockDim.x / 2; n > 0; n /= 2) {
		if (threadIdx.x < n && part[threadIdx.x + n] > part[threadIdx.x]) part[threadIdx.x] = part[threadIdx.x + n];
		SYNC();
	}
	float most = part[0];
	SYNC();
	return most;
}

// softmax_rows: a block per row of n numbers.
BLOCKS(softmax_rows, IN(float, src), OUT(float, dst), VAL(int, n)) {
	SHARED float part[MOST_THREADS];
	const float *x = src + (int64_t)blockIdx.x * n;
	float *y = dst + (int64_t)blockIdx.x * n;
	float most = -INFINITY_F, sum = 0;
	for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x) most = x[i] > most ? x[i] : most;
	most = block_max(most, part);
	for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x) sum += y[i] = expf(x[i] - most);
	sum = block_sum(sum, part);
	for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x) y[i] /= sum;
}

// top_k_rows: a block per row of n numbers writes the k largest, descending; of equal ones the lower index first. k rounds of an
// arg max: k is small.
BLOCKS(top_k_rows, IN(float, src), OUT(float, values), OUT(int32_t, indices), VAL(int, n), VAL(int, k)) {
	SHARED float best[MOST_THREADS];
	SHARED int at[MOST_THREADS];
	const float *x = src + (int64_t)blockIdx.x * n;
	float last = INFINITY_F;
	int last_at = -1;
	for (int r = 0; r < k; r++) {
		float v = -INFINITY_F;
		int found = -1;
		for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x) {
			int left = x[i] < last || (x[i] == last && i > last_at);
			if (left && (found < 0 || x[i] > v)) v = x[i], found = i;
		}
		best[threadIdx.x] = v, at[threadIdx.x] = found;
		SYNC();
		for (unsigned h = blockDim.x / 2; h > 0; h /= 2) {
			if (threadIdx.x < h) {
				unsigned o = threadIdx.x + h;
				int take = at[o] >= 0 && (at[threadIdx.x] < 0 || best[o] > best[threadIdx.x] || (best[o] == best[threadIdx.x] && at[o] < at[threadIdx.x]));
				if (take) best[threadIdx.x] = best[o], at[threadIdx.x] = at[o];
			}
			SYNC();
		}
		last = best[0], last_at = at[0];
		SYNC();
		if (threadIdx.x == 0) values[(int64_t)blockIdx.x * k + r] = last, indices[(int64_t)blockIdx.x * k + r] = last_at;
	}
}

// mean_pool: a block per row of [tokens, dim] sums the tokens with a mask other than 0, and divides by their number, at least 1e-9. With
// unit the result is divided by its length, at least 1e-12.
BLOCKS(mean_pool, IN(float, src), IN(int64_t, mask), OUT(float, dst), VAL(int, tokens), VAL(int, dim), VAL(int, unit)) {
	SHARED float part[MOST_THREADS];
	const float *x = src + (int64_t)blockIdx.x * tokens * dim;
	const int64_t *m = mask + (int64_t)blockIdx.x * tokens;
	float *y = dst + (int64_t)blockIdx.x * dim;
	float count = 0, square = 0;
	for (int t = 0; t < tokens; t++) count += m[t] != 0;
	if (count < 1e-9f) count = 1e-9f;
	for (int i = (int)threadIdx.x; i < dim; i += (int)blockDim.x) {
		float sum = 0;
		for (int t = 0; t < tokens; t++)
			if (m[t] != 0) sum += x[(int64_t)t * dim + i];
		y[i] = sum / count;
		square += y[i] * y[i];
	}
	if (!unit) return;
	float norm = sqrtf(block_sum(square, part));
	if (norm < 1e-12f) norm = 1e-12f;
	for (int i = (int)threadIdx.x; i < dim; i += (int)blockDim.x) y[i] /= norm;
}
