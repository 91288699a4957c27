#include "avx2.h"

#include <immintrin.h>

#define AVX2 __attribute__((target("avx2")))
#define INLINE static inline __attribute__((always_inline, target("avx2")))

// Factors of the inverse transform as in inverse.go. Each output of a half is a sum of products, so the
// factors of a coefficient are added.
enum {
	f0298 = 2446, f0390 = 3196, f0541 = 4433, f0765 = 6270, f0899 = 7373, f1175 = 9633,
	f1501 = 12299, f1847 = 15137, f1961 = 16069, f2053 = 16819, f2562 = 20995, f3072 = 25172,
	one = 1 << 13,
};

// PAIR packs two factors for _mm256_madd_epi16.
#define PAIR(lo, hi) _mm256_set1_epi32((int)((uint16_t)(int16_t)(lo) | (uint32_t)(uint16_t)(int16_t)(hi) << 16))
#define DOT(a, lo, hi) _mm256_madd_epi16(a, PAIR(lo, hi))

// eight transforms four vectors of each of two blocks: pairs of coefficients 0 4, 2 6,
// 1 3 and 5 7. The results replace them, in the order 0 to 7.
INLINE void eight(__m256i p04, __m256i p26, __m256i p13, __m256i p57, __m256i *o, int round, const int shift) {
	const __m256i r = _mm256_set1_epi32(round);
	__m256i t0 = _mm256_add_epi32(DOT(p04, one, one), r), t1 = _mm256_add_epi32(DOT(p04, one, -one), r);
	__m256i t2 = DOT(p26, f0541, f0541 - f1847), t3 = DOT(p26, f0541 + f0765, f0541);
	__m256i e[4] = {_mm256_add_epi32(t0, t3), _mm256_add_epi32(t1, t2), _mm256_sub_epi32(t1, t2), _mm256_sub_epi32(t0, t3)};
	__m256i d[4] = {
		_mm256_add_epi32(DOT(p13, f1175 - f0899, f1175 - f1961), DOT(p57, f1175, f0298 - f0899 - f1961 + f1175)),
		_mm256_add_epi32(DOT(p13, f1175 - f0390, f1175 - f2562), DOT(p57, f2053 - f2562 - f0390 + f1175, f1175)),
		_mm256_add_epi32(DOT(p13, f1175, f3072 - f2562 - f1961 + f1175), DOT(p57, f1175 - f2562, f1175 - f1961)),
		_mm256_add_epi32(DOT(p13, f1501 - f0899 - f0390 + f1175, f1175), DOT(p57, f1175 - f0390, f1175 - f0899)),
	};
	for (int i = 0; i < 4; i++) {
		o[i] = _mm256_srai_epi32(_mm256_add_epi32(e[i], d[3 - i]), shift);
		o[7 - i] = _mm256_srai_epi32(_mm256_sub_epi32(e[i], d[3 - i]), shift);
	}
}

// pass transforms the columns of two blocks, one in each half of the eight rows.
INLINE void pass(__m256i *r, int round, const int shift) {
	__m256i lo[8], hi[8];
	eight(_mm256_unpacklo_epi16(r[0], r[4]), _mm256_unpacklo_epi16(r[2], r[6]), _mm256_unpacklo_epi16(r[1], r[3]),
	      _mm256_unpacklo_epi16(r[5], r[7]), lo, round, shift);
	eight(_mm256_unpackhi_epi16(r[0], r[4]), _mm256_unpackhi_epi16(r[2], r[6]), _mm256_unpackhi_epi16(r[1], r[3]),
	      _mm256_unpackhi_epi16(r[5], r[7]), hi, round, shift);
	for (int i = 0; i < 8; i++)
		r[i] = _mm256_packs_epi32(lo[i], hi[i]);
}

// transpose turns rows into columns in both halves.
INLINE void transpose(__m256i *r) {
	__m256i a[8], b[8];
	for (int i = 0; i < 4; i++) {
		a[2 * i] = _mm256_unpacklo_epi16(r[i], r[i + 4]);
		a[2 * i + 1] = _mm256_unpackhi_epi16(r[i], r[i + 4]);
	}
	for (int i = 0; i < 4; i++) {
		b[2 * i] = _mm256_unpacklo_epi16(a[i], a[i + 4]);
		b[2 * i + 1] = _mm256_unpackhi_epi16(a[i], a[i + 4]);
	}
	for (int i = 0; i < 4; i++) {
		r[2 * i] = _mm256_unpacklo_epi16(b[i], b[i + 4]);
		r[2 * i + 1] = _mm256_unpackhi_epi16(b[i], b[i + 4]);
	}
}

INLINE __m256i row_of(const int16_t *a, const int16_t *b, int y) {
	__m128i lo = _mm_loadu_si128((const __m128i *)(a + 8 * y));
	return _mm256_inserti128_si256(_mm256_castsi128_si256(lo), _mm_loadu_si128((const __m128i *)(b + 8 * y)), 1);
}

// put stores two rows of both blocks, of the second one only if there is one.
INLINE void put(uint8_t *dst, intptr_t stride, __m256i rows, int both) {
	// Rows 0 and 1 of the first, then of the second block.
	rows = _mm256_permute4x64_epi64(rows, 0xd8);
	__m128i first = _mm256_castsi256_si128(rows), second = _mm256_extracti128_si256(rows, 1);
	if (both) {
		_mm_storeu_si128((__m128i *)dst, first);
		_mm_storeu_si128((__m128i *)(dst + stride), second);
	} else {
		_mm_storel_epi64((__m128i *)dst, first);
		_mm_storel_epi64((__m128i *)(dst + stride), second);
	}
}

// two transforms two blocks, or one that is given twice.
INLINE void two(uint8_t *dst, intptr_t stride, const int16_t *a, const int16_t *b, int both) {
	__m256i r[8];
	for (int y = 0; y < 8; y++)
		r[y] = row_of(a, b, y);
	__m256i low = _mm256_or_si256(_mm256_or_si256(r[1], r[2]), _mm256_or_si256(r[3], r[4]));
	low = _mm256_or_si256(low, _mm256_or_si256(_mm256_or_si256(r[5], r[6]), r[7]));
	low = _mm256_or_si256(low, _mm256_bsrli_epi128(r[0], 2));
	if (_mm256_testz_si256(low, low)) { // both blocks are flat
		__m256i dc = _mm256_srai_epi16(_mm256_adds_epi16(r[0], _mm256_set1_epi16(4)), 3);
		dc = _mm256_shuffle_epi8(_mm256_adds_epi16(dc, _mm256_set1_epi16(128)), _mm256_set1_epi16(0x0100));
		dc = _mm256_packus_epi16(dc, dc);
		for (int y = 0; y < 8; y += 2)
			put(dst + y * stride, stride, dc, both);
		return;
	}
	pass(r, 1 << 10, 11);
	transpose(r);
	pass(r, (128 << 18) + (1 << 17), 18);
	transpose(r);
	for (int y = 0; y < 8; y += 2)
		put(dst + y * stride, stride, _mm256_packus_epi16(r[y], r[y + 1]), both);
}

AVX2 void tk_inverse(uint8_t *dst, intptr_t stride, const int16_t *coefs, intptr_t blocks) {
	for (; blocks >= 2; blocks -= 2, coefs += 128, dst += 16)
		two(dst, stride, coefs, coefs + 64, 1);
	if (blocks)
		two(dst, stride, coefs, coefs, 0);
}

enum { r0211 = 1730, r0509 = 4176, r0601 = 4926, r0720 = 5906, r0850 = 6967, r1061 = 8697, r1272 = 10426, r1451 = 11893, r2172 = 17799, r3624 = 29692 };

// four computes the four outputs of a reduced transform from pairs of coefficients 0 2,
// 1 3, 4 6 and 5 7.
INLINE void four(__m256i p02, __m256i p13, __m256i p46, __m256i p57, __m256i *o, int round, const int shift) {
	const __m256i r = _mm256_set1_epi32(round);
	__m256i p = _mm256_add_epi32(_mm256_add_epi32(DOT(p02, 2 * one, f1847), DOT(p46, 0, -f0765)), r);
	__m256i q = _mm256_add_epi32(_mm256_add_epi32(DOT(p02, 2 * one, -f1847), DOT(p46, 0, f0765)), r);
	__m256i lo = _mm256_add_epi32(DOT(p13, r1061, -r2172), DOT(p57, r1451, -r0211));
	__m256i hi = _mm256_add_epi32(DOT(p13, f2562, f0899), DOT(p57, -r0601, -r0509));
	o[0] = _mm256_srai_epi32(_mm256_add_epi32(p, hi), shift);
	o[1] = _mm256_srai_epi32(_mm256_add_epi32(q, lo), shift);
	o[2] = _mm256_srai_epi32(_mm256_sub_epi32(q, lo), shift);
	o[3] = _mm256_srai_epi32(_mm256_sub_epi32(p, hi), shift);
}

// two4 transforms two blocks to 4 x 4 samples each.
INLINE __m256i two4(const int16_t *a, const int16_t *b) {
	__m256i r[8], lo[4], hi[4], o[4];
	for (int y = 0; y < 8; y++)
		r[y] = row_of(a, b, y);
	four(_mm256_unpacklo_epi16(r[0], r[2]), _mm256_unpacklo_epi16(r[1], r[3]), _mm256_unpacklo_epi16(r[4], r[6]),
	     _mm256_unpacklo_epi16(r[5], r[7]), lo, 1 << 11, 12);
	four(_mm256_unpackhi_epi16(r[0], r[2]), _mm256_unpackhi_epi16(r[1], r[3]), _mm256_unpackhi_epi16(r[4], r[6]),
	     _mm256_unpackhi_epi16(r[5], r[7]), hi, 1 << 11, 12);
	for (int y = 0; y < 4; y++)
		r[y] = _mm256_packs_epi32(lo[y], hi[y]);
	// Four rows of eight to columns of four, two in each half of a vector.
	__m256i a01 = _mm256_unpacklo_epi16(r[0], r[1]), b01 = _mm256_unpackhi_epi16(r[0], r[1]);
	__m256i a23 = _mm256_unpacklo_epi16(r[2], r[3]), b23 = _mm256_unpackhi_epi16(r[2], r[3]);
	__m256i c01 = _mm256_unpacklo_epi32(a01, a23), c23 = _mm256_unpackhi_epi32(a01, a23);
	__m256i c45 = _mm256_unpacklo_epi32(b01, b23), c67 = _mm256_unpackhi_epi32(b01, b23);
	four(_mm256_unpacklo_epi16(c01, c23), _mm256_unpackhi_epi16(c01, c23), _mm256_unpacklo_epi16(c45, c67),
	     _mm256_unpackhi_epi16(c45, c67), o, 1 << 18, 19);
	// Damaged files make sums wrap around, so 128 is not in the rounding here.
	const __m256i mid = _mm256_set1_epi16(128);
	__m256i px = _mm256_packus_epi16(_mm256_add_epi16(_mm256_packs_epi32(o[0], o[1]), mid), _mm256_add_epi16(_mm256_packs_epi32(o[2], o[3]), mid));
	px = _mm256_shuffle_epi8(px, _mm256_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15,
	                                              0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
	return _mm256_permutevar8x32_epi32(px, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

AVX2 void tk_inverse4(uint8_t *dst, intptr_t stride, const int16_t *coefs, intptr_t blocks) {
	for (; blocks > 0; blocks -= 2, coefs += 128, dst += 8) {
		uint64_t rows[4];
		_mm256_storeu_si256((__m256i *)rows, two4(coefs, blocks > 1 ? coefs + 64 : coefs));
		for (int y = 0; y < 4; y++)
			__builtin_memcpy(dst + y * stride, &rows[y], blocks > 1 ? 8 : 4);
	}
}

// odd2 sums the contributions of the odd coefficients of each row to the first of two samples.
INLINE __m256i odd2(__m256i row) {
	return _mm256_madd_epi16(row, _mm256_setr_epi16(0, r3624, 0, -r1272, 0, r0850, 0, -r0720, 0, r3624, 0, -r1272, 0, r0850, 0, -r0720));
}

// two2 transforms two blocks to 2 x 2 samples each: rows of the first, then of the second.
INLINE __m256i two2(const int16_t *a, const int16_t *b) {
	const __m256i r13 = _mm256_set1_epi32(1 << 12), r20 = _mm256_set1_epi32(1 << 19), zero = _mm256_setzero_si256();
	__m256i r0 = row_of(a, b, 0), r1 = row_of(a, b, 1), r3 = row_of(a, b, 3), r5 = row_of(a, b, 5), r7 = row_of(a, b, 7), v[2][2];
	for (int i = 0; i < 2; i++) {
		__m256i p00 = i ? _mm256_unpackhi_epi16(r0, r0) : _mm256_unpacklo_epi16(r0, r0);
		__m256i p13 = i ? _mm256_unpackhi_epi16(r1, r3) : _mm256_unpacklo_epi16(r1, r3);
		__m256i p57 = i ? _mm256_unpackhi_epi16(r5, r7) : _mm256_unpacklo_epi16(r5, r7);
		__m256i t = _mm256_add_epi32(DOT(p00, 2 * one, 2 * one), r13);
		__m256i o = _mm256_add_epi32(DOT(p13, r3624, -r1272), DOT(p57, r0850, -r0720));
		v[0][i] = _mm256_srai_epi32(_mm256_add_epi32(t, o), 13);
		v[1][i] = _mm256_srai_epi32(_mm256_sub_epi32(t, o), 13);
	}
	__m256i x = _mm256_packs_epi32(v[0][0], v[0][1]), y = _mm256_packs_epi32(v[1][0], v[1][1]);
	__m256i o = _mm256_hadd_epi32(odd2(x), odd2(y));
	o = _mm256_hadd_epi32(o, o);
	__m256i t = _mm256_srai_epi32(_mm256_unpacklo_epi16(zero, _mm256_unpacklo_epi16(x, y)), 1);
	t = _mm256_add_epi32(t, r20);
	__m256i left = _mm256_srai_epi32(_mm256_add_epi32(t, o), 20), right = _mm256_srai_epi32(_mm256_sub_epi32(t, o), 20);
	__m256i px = _mm256_unpacklo_epi32(left, right);
	px = _mm256_add_epi16(_mm256_packs_epi32(px, px), _mm256_set1_epi16(128));
	return _mm256_packus_epi16(px, px);
}

AVX2 void tk_inverse2(uint8_t *dst, intptr_t stride, const int16_t *coefs, intptr_t blocks) {
	for (; blocks > 0; blocks -= 2, coefs += 128, dst += 4) {
		__m256i px = two2(coefs, blocks > 1 ? coefs + 64 : coefs);
		int32_t a = _mm_cvtsi128_si32(_mm256_castsi256_si128(px)), b = _mm_cvtsi128_si32(_mm256_extracti128_si256(px, 1));
		__builtin_memcpy(dst, &a, 2);
		__builtin_memcpy(dst + stride, (uint8_t *)&a + 2, 2);
		if (blocks > 1) {
			__builtin_memcpy(dst + 2, &b, 2);
			__builtin_memcpy(dst + stride + 2, (uint8_t *)&b + 2, 2);
		}
	}
}

// rgb stores 16 pixels from three colours.
INLINE void rgb(uint8_t *dst, __m128i r, __m128i g, __m128i b) {
	const char x = -1;
	const __m128i r0 = _mm_setr_epi8(0, x, x, 1, x, x, 2, x, x, 3, x, x, 4, x, x, 5);
	const __m128i g0 = _mm_setr_epi8(x, 0, x, x, 1, x, x, 2, x, x, 3, x, x, 4, x, x);
	const __m128i b0 = _mm_setr_epi8(x, x, 0, x, x, 1, x, x, 2, x, x, 3, x, x, 4, x);
	const __m128i r1 = _mm_setr_epi8(x, x, 6, x, x, 7, x, x, 8, x, x, 9, x, x, 10, x);
	const __m128i g1 = _mm_setr_epi8(5, x, x, 6, x, x, 7, x, x, 8, x, x, 9, x, x, 10);
	const __m128i b1 = _mm_setr_epi8(x, 5, x, x, 6, x, x, 7, x, x, 8, x, x, 9, x, x);
	const __m128i r2 = _mm_setr_epi8(x, 11, x, x, 12, x, x, 13, x, x, 14, x, x, 15, x, x);
	const __m128i g2 = _mm_setr_epi8(x, x, 11, x, x, 12, x, x, 13, x, x, 14, x, x, 15, x);
	const __m128i b2 = _mm_setr_epi8(10, x, x, 11, x, x, 12, x, x, 13, x, x, 14, x, x, 15);
#define MIX(i) _mm_or_si128(_mm_or_si128(_mm_shuffle_epi8(r, r##i), _mm_shuffle_epi8(g, g##i)), _mm_shuffle_epi8(b, b##i))
	_mm_storeu_si128((__m128i *)dst, MIX(0));
	_mm_storeu_si128((__m128i *)(dst + 16), MIX(1));
	_mm_storeu_si128((__m128i *)(dst + 32), MIX(2));
#undef MIX
}

INLINE __m256i wide(const uint8_t *p) { return _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)p)); }

INLINE __m128i narrow(__m256i v) {
	v = _mm256_permute4x64_epi64(_mm256_packus_epi16(v, v), 0xd8);
	return _mm256_castsi256_si128(v);
}

// part is (v * factor + 1 << 15) >> 16, where the argument is 2 * v.
INLINE __m256i part(__m256i twice, int factor) {
	__m256i v = _mm256_mulhi_epi16(twice, _mm256_set1_epi16((short)factor));
	return _mm256_srai_epi16(_mm256_add_epi16(v, _mm256_set1_epi16(1)), 1);
}

AVX2 void tk_color(uint8_t *dst, const uint8_t *luma, const uint8_t *cb, const uint8_t *cr, intptr_t n) {
	const __m256i mid = _mm256_set1_epi16(128), half = _mm256_set1_epi32(1 << 15);
	intptr_t i = 0;
	for (; i + 16 <= n; i += 16) {
		__m256i y = wide(luma + i), b = _mm256_sub_epi16(wide(cb + i), mid), r = _mm256_sub_epi16(wide(cr + i), mid);
		__m256i b2 = _mm256_add_epi16(b, b), r2 = _mm256_add_epi16(r, r);
		// the integer parts of the factors are added separately: they do not fit into 16 bits
		__m256i red = _mm256_add_epi16(_mm256_add_epi16(y, r), part(r2, 91881 - 65536));
		__m256i blue = _mm256_add_epi16(_mm256_add_epi16(y, b2), part(b2, 116130 - 131072));
		__m256i lo = DOT(_mm256_unpacklo_epi16(b, r), -22554, 65536 - 46802);
		__m256i hi = DOT(_mm256_unpackhi_epi16(b, r), -22554, 65536 - 46802);
		lo = _mm256_srai_epi32(_mm256_add_epi32(lo, half), 16);
		hi = _mm256_srai_epi32(_mm256_add_epi32(hi, half), 16);
		__m256i green = _mm256_add_epi16(_mm256_sub_epi16(y, r), _mm256_packs_epi32(lo, hi));
		rgb(dst + 3 * i, narrow(red), narrow(green), narrow(blue));
	}
	for (; i < n; i++) {
		int y = luma[i], b = cb[i] - 128, r = cr[i] - 128;
		int v[3] = {y + ((91881 * r + (1 << 15)) >> 16), y + ((-22554 * b - 46802 * r + (1 << 15)) >> 16),
		            y + ((116130 * b + (1 << 15)) >> 16)};
		for (int c = 0; c < 3; c++)
			dst[3 * i + c] = v[c] < 0 ? 0 : v[c] > 255 ? 255 : v[c];
	}
}

AVX2 void tk_widen(uint8_t *dst, const uint8_t *src, intptr_t n) {
	dst[0] = src[0];
	dst[1] = (3 * src[0] + src[1] + 2) >> 2;
	intptr_t i = 1;
	for (; i + 17 <= n; i += 16) {
		__m256i v = wide(src + i), last = wide(src + i - 1), next = wide(src + i + 1);
		v = _mm256_add_epi16(v, _mm256_add_epi16(v, v));
		__m256i even = _mm256_srli_epi16(_mm256_add_epi16(_mm256_add_epi16(v, last), _mm256_set1_epi16(1)), 2);
		__m256i odd = _mm256_srli_epi16(_mm256_add_epi16(_mm256_add_epi16(v, next), _mm256_set1_epi16(2)), 2);
		_mm256_storeu_si256((__m256i *)(dst + 2 * i), _mm256_or_si256(even, _mm256_slli_epi16(odd, 8)));
	}
	for (; i < n - 1; i++) {
		dst[2 * i] = (3 * src[i] + src[i - 1] + 1) >> 2;
		dst[2 * i + 1] = (3 * src[i] + src[i + 1] + 2) >> 2;
	}
	dst[2 * n - 2] = (3 * src[n - 1] + src[n - 2] + 1) >> 2;
	dst[2 * n - 1] = src[n - 1];
}

AVX2 void tk_lengthen(uint8_t *dst, const uint8_t *near, const uint8_t *far, intptr_t n, int bias) {
	intptr_t i = 0;
	for (; i + 16 <= n; i += 16) {
		__m256i v = wide(near + i);
		v = _mm256_add_epi16(_mm256_add_epi16(v, _mm256_add_epi16(v, v)), wide(far + i));
		v = _mm256_srli_epi16(_mm256_add_epi16(v, _mm256_set1_epi16((short)bias)), 2);
		_mm_storeu_si128((__m128i *)(dst + i), narrow(v));
	}
	for (; i < n; i++)
		dst[i] = (3 * near[i] + far[i] + bias) >> 2;
}

// down is 3 times the first row plus the second.
INLINE __m256i down(const uint8_t *near, const uint8_t *far) {
	__m256i v = wide(near);
	return _mm256_add_epi16(_mm256_add_epi16(v, _mm256_add_epi16(v, v)), wide(far));
}

AVX2 void tk_stretch(uint8_t *dst, const uint8_t *near, const uint8_t *far, intptr_t n) {
#define DOWN(i) (3 * near[i] + far[i])
	dst[0] = (4 * DOWN(0) + 8) >> 4;
	dst[1] = (3 * DOWN(0) + DOWN(1) + 7) >> 4;
	intptr_t i = 1;
	for (; i + 17 <= n; i += 16) {
		__m256i v = down(near + i, far + i), last = down(near + i - 1, far + i - 1), next = down(near + i + 1, far + i + 1);
		v = _mm256_add_epi16(v, _mm256_add_epi16(v, v));
		__m256i even = _mm256_srli_epi16(_mm256_add_epi16(_mm256_add_epi16(v, last), _mm256_set1_epi16(8)), 4);
		__m256i odd = _mm256_srli_epi16(_mm256_add_epi16(_mm256_add_epi16(v, next), _mm256_set1_epi16(7)), 4);
		_mm256_storeu_si256((__m256i *)(dst + 2 * i), _mm256_or_si256(even, _mm256_slli_epi16(odd, 8)));
	}
	for (; i < n - 1; i++) {
		dst[2 * i] = (3 * DOWN(i) + DOWN(i - 1) + 8) >> 4;
		dst[2 * i + 1] = (3 * DOWN(i) + DOWN(i + 1) + 7) >> 4;
	}
	dst[2 * n - 2] = (3 * DOWN(n - 1) + DOWN(n - 2) + 8) >> 4;
	dst[2 * n - 1] = (4 * DOWN(n - 1) + 7) >> 4;
#undef DOWN
}

// pixels spreads four pixels: pairs of samples of a colour, two pixels in each half.
INLINE __m256i pixels(__m128i four) {
	const char x = -1;
	const __m256i spread = _mm256_setr_epi8(0, x, 3, x, 1, x, 4, x, 2, x, 5, x, x, x, x, x,
	                                        6, x, 9, x, 7, x, 10, x, 8, x, 11, x, x, x, x, x);
	return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(four), spread);
}

// last loads exactly the 12 bytes of four pixels.
INLINE __m128i last(const uint8_t *p) {
	int32_t third;
	__builtin_memcpy(&third, p + 8, 4);
	return _mm_insert_epi32(_mm_loadl_epi64((const __m128i *)p), third, 2);
}

// done adds the sums of the lower 15 and of the upper bits of the weights, and stores a pixel of each
// row and one byte more.
INLINE void done(uint8_t *a, uint8_t *b, __m256i lowA, __m256i highA, __m256i lowB, __m256i highB) {
	__m256i x = _mm256_add_epi32(lowA, _mm256_slli_epi32(highA, 15)), y = _mm256_add_epi32(lowB, _mm256_slli_epi32(highB, 15));
	__m256i v = _mm256_add_epi32(_mm256_permute2x128_si256(x, y, 0x20), _mm256_permute2x128_si256(x, y, 0x31));
	v = _mm256_srai_epi32(_mm256_add_epi32(v, _mm256_set1_epi32(1 << 21)), 22);
	v = _mm256_packus_epi16(_mm256_packs_epi32(v, v), v);
	int32_t first = _mm_cvtsi128_si32(_mm256_castsi256_si128(v)), second = _mm_cvtsi128_si32(_mm256_extracti128_si256(v, 1));
	__builtin_memcpy(a, &first, 4);
	__builtin_memcpy(b, &second, 4);
}

// GROUP adds four pixels of two rows, as they are loaded.
#define GROUP(loadA, loadB) \
	do { \
		__m256i low = _mm256_loadu_si256((const __m256i *)weights), high = _mm256_loadu_si256((const __m256i *)(weights + 16)); \
		__m256i x = pixels(loadA), y = pixels(loadB); \
		lowA = _mm256_add_epi32(lowA, _mm256_madd_epi16(x, low)); \
		highA = _mm256_add_epi32(highA, _mm256_madd_epi16(x, high)); \
		lowB = _mm256_add_epi32(lowB, _mm256_madd_epi16(y, low)); \
		highB = _mm256_add_epi32(highB, _mm256_madd_epi16(y, high)); \
		p += 12, q += 12, weights += 32; \
	} while (0)

AVX2 void tk_along(uint8_t *a, uint8_t *b, const uint8_t *rowA, const uint8_t *rowB, const int32_t *at,
                   const int16_t *weights, intptr_t outputs, intptr_t groups) {
	for (intptr_t i = 0; i < outputs; i++, a += 3, b += 3) {
		const uint8_t *p = rowA + 3 * (intptr_t)at[i], *q = rowB + 3 * (intptr_t)at[i];
		__m256i lowA = _mm256_setzero_si256(), highA = lowA, lowB = lowA, highB = lowA;
		for (intptr_t g = 1; g < groups; g++)
			GROUP(_mm_loadu_si128((const __m128i *)p), _mm_loadu_si128((const __m128i *)q));
		GROUP(last(p), last(q));
		done(a, b, lowA, highA, lowB, highB);
	}
}

AVX2 void tk_add(int32_t *sum, const uint8_t *a, const uint8_t *b, int32_t ka, int32_t kb, intptr_t n) {
	const __m256i wa = _mm256_set1_epi32(ka), wb = _mm256_set1_epi32(kb);
	intptr_t i = 0;
	for (; i + 8 <= n; i += 8) {
		__m256i x = _mm256_mullo_epi32(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(a + i))), wa);
		__m256i y = _mm256_mullo_epi32(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(b + i))), wb);
		__m256i s = _mm256_loadu_si256((const __m256i *)(sum + i));
		_mm256_storeu_si256((__m256i *)(sum + i), _mm256_add_epi32(s, _mm256_add_epi32(x, y)));
	}
	for (; i < n; i++)
		sum[i] = (int32_t)((uint32_t)sum[i] + (uint32_t)a[i] * (uint32_t)ka + (uint32_t)b[i] * (uint32_t)kb);
}

AVX2 void tk_round(uint8_t *dst, const int32_t *sum, intptr_t n) {
	intptr_t i = 0;
	for (; i + 8 <= n; i += 8) {
		__m256i s = _mm256_srai_epi32(_mm256_loadu_si256((const __m256i *)(sum + i)), 22);
		__m128i v = _mm_packs_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
		_mm_storel_epi64((__m128i *)(dst + i), _mm_packus_epi16(v, v));
	}
	for (; i < n; i++) {
		int32_t s = sum[i] >> 22;
		dst[i] = s < 0 ? 0 : s > 255 ? 255 : s;
	}
}

// lerp2 returns two pixels, each in a half. w has their weights in its lower half.
INLINE __m256i lerp2(const uint8_t *p, const uint8_t *q, __m128i w) {
	const char x = -1;
	const __m256i spread = _mm256_setr_epi8(0, x, 3, x, 1, x, 4, x, 2, x, 5, x, x, x, x, x,
	                                        0, x, 3, x, 1, x, 4, x, 2, x, 5, x, x, x, x, x);
	const __m256i halves = _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1);
	__m256i v = _mm256_set_m128i(_mm_loadl_epi64((const __m128i *)q), _mm_loadl_epi64((const __m128i *)p));
	v = _mm256_madd_epi16(_mm256_shuffle_epi8(v, spread), _mm256_permutevar8x32_epi32(_mm256_castsi128_si256(w), halves));
	v = _mm256_srai_epi32(v, 4);
	return _mm256_packs_epi32(v, v);
}

AVX2 void tk_lerp(int16_t *dst, const uint8_t *src, const int32_t *at, const int16_t *weights, intptr_t n) {
	for (; n > 1; n -= 2, at += 2, weights += 4, dst += 6) {
		__m256i v = lerp2(src + 3 * (intptr_t)at[0], src + 3 * (intptr_t)at[1], _mm_loadl_epi64((const __m128i *)weights));
		_mm_storel_epi64((__m128i *)dst, _mm256_castsi256_si128(v));
		_mm_storel_epi64((__m128i *)(dst + 3), _mm256_extracti128_si256(v, 1));
	}
	if (n > 0) {
		const uint8_t *p = src + 3 * (intptr_t)at[0];
		int32_t w;
		__builtin_memcpy(&w, weights, 4);
		_mm_storel_epi64((__m128i *)dst, _mm256_castsi256_si128(lerp2(p, p, _mm_cvtsi32_si128(w))));
	}
}

AVX2 void tk_blend(uint8_t *dst, const int16_t *a, const int16_t *b, int16_t wa, int16_t wb, intptr_t n) {
	const __m256i x = _mm256_set1_epi16(wa), y = _mm256_set1_epi16(wb), two = _mm256_set1_epi16(2);
	intptr_t i = 0;
	for (; i + 16 <= n; i += 16) {
		__m256i v = _mm256_mulhi_epi16(_mm256_loadu_si256((const __m256i *)(a + i)), x);
		v = _mm256_add_epi16(v, _mm256_mulhi_epi16(_mm256_loadu_si256((const __m256i *)(b + i)), y));
		v = _mm256_srai_epi16(_mm256_add_epi16(v, two), 2);
		_mm_storeu_si128((__m128i *)(dst + i), narrow(v));
	}
	for (; i < n; i++)
		dst[i] = (((int32_t)a[i] * wa >> 16) + ((int32_t)b[i] * wb >> 16) + 2) >> 2;
}

// above8 compares eight numbers: -1 for each that is above t, 0 for others and NaN.
INLINE __m256i above8(const float *v, __m256 t) {
	return _mm256_castps_si256(_mm256_cmp_ps(_mm256_loadu_ps(v), t, _CMP_GT_OQ));
}

AVX2 void tk_above(uint8_t *dst, const float *values, float threshold, intptr_t n) {
	const __m256 t = _mm256_set1_ps(threshold);
	const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7), ones = _mm256_set1_epi8(1); // of the groups that packing interleaves
	intptr_t i = 0;
	for (; i + 32 <= n; i += 32, values += 32) {
		__m256i a = _mm256_packs_epi32(above8(values, t), above8(values + 8, t));
		__m256i b = _mm256_packs_epi32(above8(values + 16, t), above8(values + 24, t));
		__m256i v = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(a, b), order);
		_mm256_storeu_si256((__m256i *)(dst + i), _mm256_and_si256(v, ones));
	}
	for (; i < n; i++, values++)
		dst[i] = *values > threshold;
}

#define FMA __attribute__((target("avx2,fma")))

// channel8 returns eight values of a channel from 24 bytes, of which low has the first 16.
static inline __attribute__((always_inline, target("avx2,fma"))) __m256 channel8(__m128i low, __m128i high, __m128i from_low, __m128i from_high, const float *line) {
	__m128i v = _mm_or_si128(_mm_shuffle_epi8(low, from_low), _mm_shuffle_epi8(high, from_high));
	__m256 x = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(v)), _mm256_broadcast_ss(line));
	return _mm256_fmadd_ps(x, _mm256_broadcast_ss(line + 1), _mm256_broadcast_ss(line + 2));
}

FMA void tk_lines(uint8_t *a, uint8_t *b, uint8_t *c, const uint8_t *src, const float *lines, intptr_t n) {
	const __m128i a0 = _mm_setr_epi8(0, 3, 6, 9, 12, 15, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
	const __m128i b0 = _mm_setr_epi8(1, 4, 7, 10, 13, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
	const __m128i c0 = _mm_setr_epi8(2, 5, 8, 11, 14, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
	const __m128i a1 = _mm_setr_epi8(-1, -1, -1, -1, -1, -1, 2, 5, -1, -1, -1, -1, -1, -1, -1, -1);
	const __m128i b1 = _mm_setr_epi8(-1, -1, -1, -1, -1, 0, 3, 6, -1, -1, -1, -1, -1, -1, -1, -1);
	const __m128i c1 = _mm_setr_epi8(-1, -1, -1, -1, -1, 1, 4, 7, -1, -1, -1, -1, -1, -1, -1, -1);
	for (intptr_t i = 0; i < n; i += 8, src += 24) {
		__m128i low = _mm_loadu_si128((const __m128i *)src), high = _mm_loadl_epi64((const __m128i *)(src + 16));
		_mm256_storeu_ps((float *)(a + 4 * i), channel8(low, high, a0, a1, lines));
		_mm256_storeu_ps((float *)(b + 4 * i), channel8(low, high, b0, b1, lines + 3));
		_mm256_storeu_ps((float *)(c + 4 * i), channel8(low, high, c0, c1, lines + 6));
	}
}
