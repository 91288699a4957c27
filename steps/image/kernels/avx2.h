// Kernels for processors with AVX2. native.go describes what they compute. The caller has checked the
// sizes; nothing is read or written outside of the rows.
#include <stdint.h>

void tk_inverse(uint8_t *dst, intptr_t stride, const int16_t *coefs, intptr_t blocks);
void tk_inverse4(uint8_t *dst, intptr_t stride, const int16_t *coefs, intptr_t blocks);
void tk_inverse2(uint8_t *dst, intptr_t stride, const int16_t *coefs, intptr_t blocks);
void tk_color(uint8_t *dst, const uint8_t *luma, const uint8_t *cb, const uint8_t *cr, intptr_t n);
void tk_widen(uint8_t *dst, const uint8_t *src, intptr_t n);
void tk_lengthen(uint8_t *dst, const uint8_t *near, const uint8_t *far, intptr_t n, int bias);
void tk_stretch(uint8_t *dst, const uint8_t *near, const uint8_t *far, intptr_t n);
void tk_along(uint8_t *a, uint8_t *b, const uint8_t *rowA, const uint8_t *rowB, const int32_t *at,
              const int16_t *weights, intptr_t outputs, intptr_t groups);
void tk_add(int32_t *sum, const uint8_t *a, const uint8_t *b, int32_t ka, int32_t kb, intptr_t n);
void tk_round(uint8_t *dst, const int32_t *sum, intptr_t n);
void tk_lerp(int16_t *dst, const uint8_t *src, const int32_t *at, const int16_t *weights, intptr_t n);
void tk_blend(uint8_t *dst, const int16_t *a, const int16_t *b, int16_t wa, int16_t wb, intptr_t n);
void tk_above(uint8_t *dst, const float *values, float threshold, intptr_t n);
void tk_lines(uint8_t *a, uint8_t *b, uint8_t *c, const uint8_t *src, const float *lines, intptr_t n);
