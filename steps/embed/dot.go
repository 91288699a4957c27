package embed

// dot returns the inner product of two vectors of the same length, with vector instructions where the processor has them.
func dot(a, b []float32) float32 {
	b = b[:len(a)]
	n := 0
	var sum float32
	if fast && len(a) >= lane {
		n = len(a) &^ (lane - 1)
		sum = product(&a[0], &b[0], n)
	}
	return sum + plain(a[n:], b[n:])
}

// lane is the number of elements that product handles in a step.
const lane = 32

// plain sums four products at a time.
func plain(a, b []float32) float32 {
	b = b[:len(a)]
	var s0, s1, s2, s3 float32
	for len(a) >= 4 && len(b) >= 4 {
		s0 += a[0] * b[0]
		s1 += a[1] * b[1]
		s2 += a[2] * b[2]
		s3 += a[3] * b[3]
		a, b = a[4:], b[4:]
	}
	for i, v := range a {
		s0 += v * b[i]
	}
	return s0 + s1 + (s2 + s3)
}
