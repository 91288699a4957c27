// Kernels of a block of threads per row.

#define MOST_THREADS 256

// block_sum adds up one value per thread. Every thread gets the sum.
FUNC double block_sum(double v, double *part) {
	part[threadIdx.x] = v;
	SYNC();
	for (unsigned n = blockDim.x / 2; n > 0; n /= 2) {
		if (threadIdx.x < n) part[threadIdx.x] += part[threadIdx.x + n];
		SYNC();
	}
	double sum = part[0];
	SYNC();
	return sum;
}

FUNC double block_max(double v, double *part) {
	part[threadIdx.x] = v;
	SYNC();
	for (unsigned n = blockDim.x / 2; n > 0; n /= 2) {
		if (threadIdx.x < n && part[threadIdx.x + n] > part[threadIdx.x]) part[threadIdx.x] = part[threadIdx.x + n];
		SYNC();
	}
	double most = part[0];
	SYNC();
	return most;
}

#define INF bits_double(0x7ff0000000000000ull)

// exponents has 2^(i/32).
TABLE double exponents[32] = {
	0x1p+00, 0x1.059b0d3158574p+00, 0x1.0b5586cf9890fp+00, 0x1.11301d0125b51p+00, 0x1.172b83c7d517bp+00, 0x1.1d4873168b9aap+00,
	0x1.2387a6e756238p+00, 0x1.29e9df51fdee1p+00, 0x1.306fe0a31b715p+00, 0x1.371a7373aa9cbp+00, 0x1.3dea64c123422p+00, 0x1.44e086061892dp+00,
	0x1.4bfdad5362a27p+00, 0x1.5342b569d4f82p+00, 0x1.5ab07dd485429p+00, 0x1.6247eb03a5584p+00, 0x1.6a09e667f3bccp+00, 0x1.71f75e8ec5f74p+00,
	0x1.7a11473eb0187p+00, 0x1.82589994cce12p+00, 0x1.8ace5422aa0dcp+00, 0x1.93737b0cdc5e5p+00, 0x1.9c49182a3f09p+00, 0x1.a5503b23e255cp+00,
	0x1.ae89f995ad3aep+00, 0x1.b7f76f2fb5e47p+00, 0x1.c199bdd85529cp+00, 0x1.cb720dcef9069p+00, 0x1.d5818dcfba487p+00, 0x1.dfc97337b9b5fp+00,
	0x1.ea4afa2a490dap+00, 0x1.f50765b6e454p+00,
};

#define LOWEST -700

// power returns e^x for x from -700 to 700, as the step does: P. T. P. Tang, "Table-driven implementation of the exponential function in
// IEEE floating-point arithmetic", 1989.
FUNC double power(double x) {
	double shifted = x * 0x1.71547652b82fep+05 + 6755399441055744.0; // 3 << 51: the integer part is in the lowest bits
	double n = shifted - 6755399441055744.0;
	double r = x - n * 0x1.62e42fefap-6 - n * 0x1.cf79abc9e3b3ap-45;
	int64_t bits = (int64_t)(double_bits(shifted) << 13) >> 13;
	double v = exponents[bits & 31] * (1 + r * (1 + r * (0.5 + r * (1.0 / 6))));
	return bits_double(double_bits(v) + ((uint64_t)(bits >> 5) << 52));
}

// weight returns e^(v-top); 1 for an infinity of the same sign as top, NaN for NaN.
FUNC double weight(float v, double top) {
	double x = (double)v;
	if (x == top) return 1;
	if (x != x) return x;
	if (top == INF || top == -INF) return 0;
	return x - top >= LOWEST ? power(x - top) : 0;
}

FUNC float sigmoid(float v) {
	if (v < LOWEST) return 0;
	if (v <= -LOWEST) return (float)(1 / (1 + power(-(double)v)));
	return v > 0 ? 1 : v;
}

// total is one thread's part of the sum of all weights. NaN counts as 0.
FUNC double total(const float *x, int64_t n, float divisor, double top) {
	double sum = 0;
	for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
		float v = divisor != 1 ? x[i] / divisor : x[i];
		double w = weight(v, top);
		if (w == w) sum += w;
	}
	return sum;
}

enum { SOFTMAX, LOG_SOFTMAX, SIGMOID, RAW };

// score_rows converts rows of n scores: softmax, its logarithm, or a sigmoid each. Scores are divided by divisor first.
BLOCKS(score_rows, IN(float, src), OUT(float, dst), VAL(int64_t, n), VAL(int, op), VAL(float, divisor)) {
	SHARED double part[MOST_THREADS];
	const float *x = src + blockIdx.x * n;
	float *y = dst + blockIdx.x * n;
	if (op == SIGMOID) {
		for (int64_t i = threadIdx.x; i < n; i += blockDim.x) y[i] = sigmoid(x[i]);
		return;
	}
	double top = -INF;
	for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
		float v = divisor != 1 ? x[i] / divisor : x[i];
		if ((double)v > top) top = (double)v;
	}
	top = block_max(top, part);
	double sum = block_sum(total(x, n, divisor, top), part);
	for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
		float v = divisor != 1 ? x[i] / divisor : x[i];
		if (op == LOG_SOFTMAX) y[i] = (float)(((double)v == top ? 0 : (double)v - top) - log(sum));
		else if (v != v) y[i] = v;
		else if (top == INF || top == -INF) y[i] = (float)(weight(v, top) / sum);
		else y[i] = (float)weight(v, top) * (float)(1 / sum);
	}
}

// before reports whether score x of class i ranks before score y of class j: by descending score, then by class, NaN last.
FUNC int before(float x, int64_t i, float y, int64_t j) {
	if (x > y) return 1;
	if (x < y) return 0;
	if (x == y || (x != x) == (y != y)) return i < j;
	return y != y;
}

// next_best returns the class that ranks next after last, -1 for the first one. There must be one.
FUNC int64_t next_best(const float *x, int64_t n, int64_t last, int64_t *at) {
	int64_t found = -1;
	for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
		if ((last < 0 || before(x[last], last, x[i], i)) && (found < 0 || before(x[i], i, x[found], found))) found = i;
	at[threadIdx.x] = found;
	SYNC();
	for (unsigned h = blockDim.x / 2; h > 0; h /= 2) {
		if (threadIdx.x < h) {
			int64_t a = at[threadIdx.x], b = at[threadIdx.x + h];
			if (b >= 0 && (a < 0 || before(x[b], b, x[a], a))) at[threadIdx.x] = b;
		}
		SYNC();
	}
	found = at[0];
	SYNC();
	return found;
}

// top_k_rows writes the k best of each row of n scores and their classes, as k rounds of an arg max: k is small. op is SOFTMAX over all
// scores, SIGMOID or RAW. With cut, values below threshold and NaN become 0 and their class -1, and counts gets the number of the others.
BLOCKS(top_k_rows, IN(float, src), OUT(float, values), OUT(int32_t, indices), OUT(int32_t, counts), VAL(int64_t, n), VAL(int, k), VAL(int, op), VAL(int, cut),
	VAL(float, threshold)) {
	SHARED double part[MOST_THREADS];
	SHARED int64_t at[MOST_THREADS];
	const float *x = src + blockIdx.x * n;
	float *v = values + (int64_t)blockIdx.x * k;
	int32_t *c = indices + (int64_t)blockIdx.x * k;
	int64_t last = -1;
	double top = 0, sum = 1;
	for (int r = 0; r < k; r++) {
		last = next_best(x, n, last, at);
		if (r == 0 && op == SOFTMAX) {
			top = (double)x[last];
			sum = block_sum(total(x, n, 1, top), part);
		}
		if (threadIdx.x == 0) {
			v[r] = op == SOFTMAX ? (float)(weight(x[last], top) / sum) : op == SIGMOID ? sigmoid(x[last]) : x[last];
			c[r] = (int32_t)last;
		}
	}
	if (!cut || threadIdx.x != 0) return;
	int left = k;
	for (; left > 0 && !(v[left - 1] >= threshold); left--) v[left - 1] = 0, c[left - 1] = -1;
	counts[blockIdx.x] = left;
}

// arg_max_rows writes the first of the largest of each row of n scores and its class. NaN is the largest only where all are.
BLOCKS(arg_max_rows, IN(float, src), OUT(int64_t, index), OUT(float, value), VAL(int64_t, n)) {
	SHARED int64_t at[MOST_THREADS];
	const float *x = src + blockIdx.x * n;
	int64_t best = next_best(x, n, -1, at);
	if (threadIdx.x != 0) return;
	index[blockIdx.x] = best, value[blockIdx.x] = x[best];
}

// float_at is element i of FP32 numbers, or of FP16 numbers with half.
FUNC float float_at(const uint8_t *x, int64_t i, int half) { return half ? half_to_float(((const uint16_t *)x)[i]) : ((const float *)x)[i]; }

// length returns the length of a vector whose squares add up to sum, at least 1e-12.
FUNC float length(double sum) {
	double norm = sqrt(sum);
	return (float)(norm < 1e-12 ? 1e-12 : norm); // NaN stays
}

// mean_pool averages, for each text, the vectors [tokens, dim] of the tokens with a mask other than 0; without any it writes 0. With unit the mean
// is divided by its length. Sums over tokens are in FP32, in their order.
BLOCKS(mean_pool, IN(uint8_t, src), IN(int64_t, mask), OUT(float, dst), VAL(int64_t, tokens), VAL(int64_t, dim), VAL(int, half), VAL(int, unit)) {
	SHARED double part[MOST_THREADS];
	const int64_t *m = mask + blockIdx.x * tokens;
	float *y = dst + blockIdx.x * dim;
	int64_t first = blockIdx.x * tokens * dim, count = 0;
	double squares = 0;
	for (int64_t t = 0; t < tokens; t++) count += m[t] != 0;
	for (int64_t i = threadIdx.x; i < dim; i += blockDim.x) {
		float sum = 0;
		for (int64_t t = 0; t < tokens; t++)
			if (m[t] != 0) sum += float_at(src, first + t * dim + i, half);
		sum /= (float)(count > 1 ? count : 1);
		y[i] = sum;
		squares += (double)sum * (double)sum;
	}
	if (!unit) return;
	float norm = length(block_sum(squares, part));
	for (int64_t i = threadIdx.x; i < dim; i += blockDim.x) y[i] /= norm;
}

// unit_rows divides rows of n numbers by their length. Squares are added in four sums, as the step does.
BLOCKS(unit_rows, IN(uint8_t, src), OUT(float, dst), VAL(int64_t, n), VAL(int, half)) {
	SHARED double part[MOST_THREADS];
	int64_t first = blockIdx.x * n, whole = n / 4 * 4;
	double s[4] = {0, 0, 0, 0};
	for (int64_t i = 4 * (int64_t)threadIdx.x; i < whole; i += 4 * (int64_t)blockDim.x)
		for (int k = 0; k < 4; k++) {
			double x = (double)float_at(src, first + i + k, half);
			s[k] += x * x;
		}
	if (threadIdx.x == 0)
		for (int64_t i = whole; i < n; i++) {
			double x = (double)float_at(src, first + i, half);
			s[0] += x * x;
		}
	float norm = length(block_sum(s[0] + s[1] + s[2] + s[3], part));
	for (int64_t i = threadIdx.x; i < n; i += blockDim.x) dst[first + i] = float_at(src, first + i, half) / norm;
}
