package warp

import "math"

// Point is a position in pixels: x to the right, y down.
type Point struct{ X, Y float32 }

// Matrix is a perspective transform, row after row: (x, y) goes to ((m0 x + m1 y + m2)/w, (m3 x + m4 y + m5)/w) with
// w = m6 x + m7 y + m8.
type Matrix [9]float64

// Transform returns the transform that takes each corner of from to that of to. For corners of which three lie on a line
// there is none; the result is then any transform.
func Transform(from, to *[4]Point) Matrix {
	var a [8][8]float64
	var b [8]float64
	for i := range 4 {
		f, t := from[i], to[i]
		x, y := float64(f.X), float64(f.Y)
		a[i] = [8]float64{x, y, 1, 0, 0, 0, float64(-f.X * t.X), float64(-f.Y * t.X)}
		a[i+4] = [8]float64{0, 0, 0, x, y, 1, float64(-f.X * t.Y), float64(-f.Y * t.Y)}
		b[i], b[i+4] = float64(t.X), float64(t.Y)
	}
	m := Matrix{8: 1}
	if solve(&a, &b) {
		copy(m[:8], b[:])
	}
	return m
}

// solve replaces b by the solution x of a x = b: Gaussian elimination with pivots by column, in OpenCV's order of
// operations. It returns false for a singular matrix. Conversions to float64 forbid fused multiply-add.
func solve(a *[8][8]float64, b *[8]float64) bool {
	for i := range 8 {
		k := i
		for j := i + 1; j < 8; j++ {
			if math.Abs(a[j][i]) > math.Abs(a[k][i]) {
				k = j
			}
		}
		if !(math.Abs(a[k][i]) >= smallest) {
			return false
		}
		a[i], a[k], b[i], b[k] = a[k], a[i], b[k], b[i]
		d := -1 / a[i][i]
		for j := i + 1; j < 8; j++ {
			alpha := a[j][i] * d
			for k := i + 1; k < 8; k++ {
				a[j][k] += float64(alpha * a[i][k])
			}
			b[j] += float64(alpha * b[i])
		}
	}
	for i := 7; i >= 0; i-- {
		s := b[i]
		for k := i + 1; k < 8; k++ {
			s -= float64(a[i][k] * b[k])
		}
		b[i] = s / a[i][i]
	}
	return true
}

// smallest is the least pivot of a matrix that OpenCV solves: 100 times DBL_EPSILON of C.
const smallest = 100 * 0x1p-52

// Inverse returns the transform back; all zeros if there is none.
func (m *Matrix) Inverse() Matrix {
	// minor is the determinant of two rows and two columns.
	minor := func(a, d, b, c int) float64 { return float64(m[a]*m[d]) - float64(m[b]*m[c]) }
	det := float64(m[0]*minor(4, 8, 5, 7)) - float64(m[1]*minor(3, 8, 5, 6)) + float64(m[2]*minor(3, 7, 4, 6))
	if det == 0 {
		return Matrix{}
	}
	d := 1 / det
	return Matrix{
		minor(4, 8, 5, 7) * d, minor(2, 7, 1, 8) * d, minor(1, 5, 2, 4) * d,
		minor(5, 6, 3, 8) * d, minor(0, 8, 2, 6) * d, minor(2, 3, 0, 5) * d,
		minor(3, 7, 4, 6) * d, minor(1, 6, 0, 7) * d, minor(0, 4, 1, 3) * d,
	}
}
