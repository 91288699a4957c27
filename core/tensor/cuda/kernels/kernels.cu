// The kernels of native steps and of batches at a device. scripts/generate-kernels compiles them to kernels.ptx. Each
// computes what the native step on the host computes, operation for operation. Sums over the threads of a block are the
// exception: they are added in another order, in FP64, so that results may differ in the last place.
#include "kernel.h"

// Elements are moved as unsigned integers of 1, 2, 4 or 8 bytes.
FUNC void put_element(uint8_t *dst, int64_t to, const uint8_t *src, int64_t from, int width) {
	switch (width) {
	case 1:
		dst[to] = src[from];
		break;
	case 2:
		((uint16_t *)dst)[to] = ((const uint16_t *)src)[from];
		break;
	case 4:
		((uint32_t *)dst)[to] = ((const uint32_t *)src)[from];
		break;
	default:
		((uint64_t *)dst)[to] = ((const uint64_t *)src)[from];
	}
}

FUNC void put_bits(uint8_t *dst, int64_t to, uint64_t bits, int width) {
	switch (width) {
	case 1:
		dst[to] = (uint8_t)bits;
		break;
	case 2:
		((uint16_t *)dst)[to] = (uint16_t)bits;
		break;
	case 4:
		((uint32_t *)dst)[to] = (uint32_t)bits;
		break;
	default:
		((uint64_t *)dst)[to] = bits;
	}
}

// join_rows joins the rows of up to 8 tensors to rows of to units of width bytes: source k has rows nk >> 32 of nk & 0xffffffff units.
// A longer row is cut, a shorter one is followed by fill, 8 bytes of repeated elements.
// For example, with to 4 the rows [1 2] and [3] become [1 2 0 0] and [3 0 0 0].
KERNEL(join_rows, OUT(uint8_t, dst), IN(uint8_t, s0), IN(uint8_t, s1), IN(uint8_t, s2), IN(uint8_t, s3), IN(uint8_t, s4), IN(uint8_t, s5),
	IN(uint8_t, s6), IN(uint8_t, s7), VAL(int64_t, n0), VAL(int64_t, n1), VAL(int64_t, n2), VAL(int64_t, n3), VAL(int64_t, n4), VAL(int64_t, n5),
	VAL(int64_t, n6), VAL(int64_t, n7), VAL(int64_t, to), VAL(int64_t, n), VAL(uint64_t, fill), VAL(int, width)) {
	int64_t i = THREAD_ID;
	if (i >= n) return;
	int64_t row = i / to, at = i % to;
	const uint8_t *s[8] = {s0, s1, s2, s3, s4, s5, s6, s7};
	int64_t of[8] = {n0, n1, n2, n3, n4, n5, n6, n7};
	for (int k = 0; k < 8; k++) {
		int64_t rows = of[k] >> 32, units = of[k] & 0xffffffff;
		if (row < rows) {
			if (at < units) put_element(dst, i, s[k], row * units + at, width);
			else put_bits(dst, i, fill >> (8 * (at * width % 8)), width);
			return;
		}
		row -= rows;
	}
}

// spread copies n elements of width bytes in a nest of 5 loops: sizes z, strides f of the source and t of the target, in elements.
// It transposes, slices, joins and splits.
KERNEL(spread, IN(uint8_t, src), OUT(uint8_t, dst), VAL(int64_t, n), VAL(int, width), VAL(int64_t, z1), VAL(int64_t, z2), VAL(int64_t, z3), VAL(int64_t, z4),
	VAL(int64_t, f0), VAL(int64_t, f1), VAL(int64_t, f2), VAL(int64_t, f3), VAL(int64_t, f4),
	VAL(int64_t, t0), VAL(int64_t, t1), VAL(int64_t, t2), VAL(int64_t, t3), VAL(int64_t, t4), VAL(int64_t, from), VAL(int64_t, to)) {
	int64_t i = THREAD_ID;
	if (i >= n) return;
	int64_t k = i % z4;
	i /= z4;
	from += k * f4, to += k * t4;
	k = i % z3, i /= z3;
	from += k * f3, to += k * t3;
	k = i % z2, i /= z2;
	from += k * f2, to += k * t2;
	k = i % z1, i /= z1;
	put_element(dst, to + k * t1 + i * t0, src, from + k * f1 + i * f0, width);
}

// Element types, as package kernels numbers them.
enum { BOOL, I8, I16, I32, I64, U8, U16, U32, U64, F16, BF16, F32, F64 };

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

FUNC double bits_double(uint64_t u) {
	union { uint64_t u; double f; } v;
	v.u = u;
	return v.f;
}

FUNC uint64_t double_bits(double f) {
	union { uint64_t u; double f; } v;
	v.f = f;
	return v.u;
}

FUNC float half_to_float(uint16_t h) {
	uint32_t sign = (uint32_t)(h & 0x8000) << 16, rest = h & 0x7fff;
	if (rest >= 0x7c00) return bits_float(sign | 0x7f800000 | rest << 13);
	if (rest >= 0x400) return bits_float(sign | ((rest << 13) + 0x38000000));
	return bits_float(sign | float_bits((float)rest * 5.9604644775390625e-08f)); // 2^-24
}

FUNC uint16_t float_to_half(float f) {
	uint32_t bits = float_bits(f), rest = bits & 0x7fffffff;
	uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
	if (rest > 0x7f800000) return (uint16_t)(sign | 0x7c00 | ((rest >> 13 & 0x3ff) > 1 ? (rest >> 13 & 0x3ff) : 1));
	if (rest >= 0x477ff000) return (uint16_t)(sign | 0x7c00);
	if (rest >= 0x38800000) return (uint16_t)(sign | (rest - 0x38000000 + 0xfff + (rest >> 13 & 1)) >> 13);
	return (uint16_t)(sign | (uint16_t)(float_bits(bits_float(rest) + 0.5f) - 0x3f000000));
}

FUNC uint16_t float_to_bf16(float f) {
	uint32_t u = float_bits(f);
	if ((u & 0x7fffffff) > 0x7f800000) return (uint16_t)(u >> 16 | 0x40);
	return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

// narrowed rounds to odd: the last bit is 1 when bits are cut off, so that a second rounding gives what one would.
FUNC float narrowed(double f) {
	float n = (float)f;
	double wide = (double)n;
	uint32_t b = float_bits(n);
	if (wide == f || f != f) return n;
	if ((wide < 0 ? -wide : wide) > (f < 0 ? -f : f)) return bits_float((b - 1) | 1);
	return bits_float(b | 1);
}

// number is an element of any type: an integer, signed or not, or a floating-point number.
typedef struct {
	uint64_t u; // two's complement where negative is set
	double f;
	float s;    // FP16, BF16 and FP32 are kept as FP32
	int kind;   // 0 integer, 1 of 32 bits in s, 2 of 64 bits in f
	int negative;
} number;

FUNC number load_number(const uint8_t *src, int64_t i, int type) {
	number v = {0, 0, 0, 0, 0};
	int64_t x = 0;
	switch (type) {
	case BOOL:
	case U8:
		v.u = src[i];
		return v;
	case U16:
		v.u = ((const uint16_t *)src)[i];
		return v;
	case U32:
		v.u = ((const uint32_t *)src)[i];
		return v;
	case U64:
		v.u = ((const uint64_t *)src)[i];
		return v;
	case I8:
		x = ((const int8_t *)src)[i];
		break;
	case I16:
		x = ((const int16_t *)src)[i];
		break;
	case I32:
		x = ((const int32_t *)src)[i];
		break;
	case I64:
		x = ((const int64_t *)src)[i];
		break;
	case F16:
		v.s = half_to_float(((const uint16_t *)src)[i]), v.kind = 1;
		return v;
	case BF16:
		v.s = bits_float((uint32_t)((const uint16_t *)src)[i] << 16), v.kind = 1;
		return v;
	case F32:
		v.s = ((const float *)src)[i], v.kind = 1;
		return v;
	default:
		v.f = ((const double *)src)[i], v.kind = 2;
		return v;
	}
	v.u = (uint64_t)x, v.negative = x < 0;
	return v;
}

// to_single converts to FP32; odd rounds FP64 to odd, for a second rounding.
FUNC float to_single(number v, int odd) {
	if (v.kind == 1) return v.s;
	if (v.kind == 2) return odd ? narrowed(v.f) : (float)v.f;
	return v.negative ? (float)(int64_t)v.u : (float)v.u;
}

// to_integer converts to an integer of the given bits. A floating-point number is truncated; what does not fit becomes the nearest, a
// NaN 0. An integer that does not fit wraps around unless saturate is set.
FUNC uint64_t to_integer(number v, int bits, int is_signed, int saturate) {
	uint64_t high = is_signed ? ~(uint64_t)0 >> (65 - bits) : ~(uint64_t)0 >> (64 - bits), low = is_signed ? ~high : 0;
	if (v.kind != 0) {
		double f = v.kind == 1 ? (double)v.s : v.f;
		// 2^digits is the first number above all of the type.
		double above = bits_double((uint64_t)(1023 + (is_signed ? bits - 1 : bits)) << 52), least = is_signed ? -above : 0;
		if (f != f) return 0;
		if (f >= above) return high;
		if (is_signed ? f < least : f <= -1) return low;
		return is_signed ? (uint64_t)(int64_t)f : f < 0 ? 0 : (uint64_t)f;
	}
	if (!saturate) return v.u;
	if (v.negative) return !is_signed || (int64_t)v.u < (int64_t)low ? low : v.u;
	return v.u > high ? high : v.u;
}

// cast converts n elements between any two types of numbers and BOOL. BOOL becomes 0 or 1 in types of one byte.
KERNEL(cast, IN(uint8_t, src), OUT(uint8_t, dst), VAL(int64_t, n), VAL(int, from), VAL(int, to), VAL(int, saturate)) {
	int64_t i = THREAD_ID;
	if (i >= n) return;
	number v = load_number(src, i, from);
	switch (to) {
	case BOOL:
		dst[i] = v.kind == 1 ? v.s != 0 : v.kind == 2 ? v.f != 0 : v.u != 0;
		return;
	case I8:
	case U8:
		dst[i] = from == BOOL ? v.u != 0 : (uint8_t)to_integer(v, 8, to == I8, saturate);
		return;
	case I16:
	case U16:
		((uint16_t *)dst)[i] = (uint16_t)to_integer(v, 16, to == I16, saturate);
		return;
	case I32:
	case U32:
		((uint32_t *)dst)[i] = (uint32_t)to_integer(v, 32, to == I32, saturate);
		return;
	case I64:
	case U64:
		((uint64_t *)dst)[i] = to_integer(v, 64, to == I64, saturate);
		return;
	case F16:
		((uint16_t *)dst)[i] = float_to_half(to_single(v, 1));
		return;
	case BF16:
		((uint16_t *)dst)[i] = float_to_bf16(to_single(v, 1));
		return;
	case F32:
		((float *)dst)[i] = to_single(v, 0);
		return;
	default:
		((double *)dst)[i] = v.kind == 1 ? (double)v.s : v.kind == 2 ? v.f : v.negative ? (double)(int64_t)v.u : (double)v.u;
	}
}

#include "image.cuh"
#include "rows.cuh"
