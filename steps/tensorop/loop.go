package tensorop

import (
	"math"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// pairLoop goes over all elements in runs: an operand is read as it lies, or repeats a
// few elements, of which a tile is made.
func pairLoop[T tensor.Number](p *pair, b *backends.Batch, x *scratch, t *[2][tile]T, out, one, two *tensor.Tensor) error {
	w := &x.loop
	from1, from2 := tensor.Slice[T](one), tensor.Slice[T](two)
	level, n := w.rank-1, w.inner()
	period1, period2 := 1-w.step(1), 1-w.step(2)
	if wide1, wide2 := w.period(1), w.period(2); n < tile/4 && wide1 >= 0 && wide2 >= 0 {
		period1, period2 = wide1, wide2
		level, n = level-1, n*w.size[level-1]
	}
	for more := true; more; more = w.advance(level - 1) {
		run1, most := tiled(&t[0], from1[w.at[1]:], period1, n)
		run2, most := tiled(&t[1], from2[w.at[2]:], period2, most)
		for done := 0; done < n; {
			count := min(n-done, most)
			if !chunk(p.code, out, w.at[0]+done, run1[:count], run2[:count]) {
				blame(p, b, out, w.at[0]+done, run2[:count])
			}
			if period1 == 0 {
				run1 = run1[count:]
			}
			if period2 == 0 {
				run2 = run2[count:]
			}
			done += count
		}
	}
	return nil
}

// period returns after how many elements operand k repeats itself in the two innermost
// loops as one, 0 when it is dense there and -1 when it is neither.
func (w *nest) period(k int) int {
	if w.rank < 2 {
		return -1
	}
	n := w.inner()
	switch outer := w.stride[k][w.rank-2]; {
	case outer == 0 && w.step(k) == 0:
		return 1
	case outer == 0 && n <= tile:
		return n
	case outer == n && w.step(k) == 1:
		return 0
	default:
		return -1
	}
}

// tiled returns the elements of an operand that the next at most so many go through.
func tiled[T tensor.Number](t *[tile]T, src []T, period, most int) ([]T, int) {
	if period == 0 {
		return src, most
	}
	most = min(most, tile/period*period)
	copy(t[:most], src[:min(period, most)])
	for have := period; have < most; have *= 2 {
		copy(t[have:most], t[:have])
	}
	return t[:most], most
}

// chunk computes elements of the output from the given one on. Not all may be possible.
func chunk[T tensor.Number](c code, out *tensor.Tensor, at int, one, two []T) bool {
	if c >= equal {
		compareChunk(c, out.Bytes()[at:at+len(one)], one, two)
		return true
	}
	dst := tensor.Slice[T](out)[at : at+len(one)]
	done := computeVector(c, dst, one, two)
	dst, one, two = dst[done:], one[done:], two[done:]
	switch {
	case c < divide:
		simpleChunk(c, dst, one, two)
	case c == minimum:
		for i := range dst {
			dst[i] = min(one[i], two[i])
		}
	case c == maximum:
		for i := range dst {
			dst[i] = max(one[i], two[i])
		}
	case isFloat[T]():
		floatChunk(c, dst, one, two)
	default:
		return intChunk(c, dst, one, two)
	}
	return true
}

// simpleChunk is what all numbers have.
func simpleChunk[T tensor.Number](c code, dst, one, two []T) {
	one, two = one[:len(dst)], two[:len(dst)]
	switch c {
	case add:
		for i := range dst {
			dst[i] = one[i] + two[i]
		}
	case subtract:
		for i := range dst {
			dst[i] = one[i] - two[i]
		}
	default:
		for i := range dst {
			dst[i] = one[i] * two[i]
		}
	}
}

func floatChunk[T tensor.Number](c code, dst, one, two []T) {
	one, two = one[:len(dst)], two[:len(dst)]
	for i, v := range one {
		switch c {
		case divide:
			dst[i] = v / two[i]
		case power:
			dst[i] = T(math.Pow(float64(v), float64(two[i])))
		case floorDivide:
			dst[i], _ = divided(v, two[i])
		default:
			_, dst[i] = divided(v, two[i])
		}
	}
}

// divided returns the quotient rounded down and what remains, which has the sign of b.
func divided[T tensor.Number](a, b T) (quotient, rest T) {
	m := T(math.Mod(float64(a), float64(b)))
	if b == 0 {
		return a / b, m
	}
	q := (a - m) / b
	if m == 0 {
		m = T(math.Copysign(0, float64(b)))
	} else if (b < 0) != (m < 0) {
		m += b
		q--
	}
	if q == 0 {
		return T(math.Copysign(0, float64(a/b))), m
	}
	down := T(math.Floor(float64(q)))
	if float64(q-down) > 0.5 {
		down++
	}
	return down, m
}

// intChunk reports whether no division is one by 0 and no exponent below 0; those give 0.
func intChunk[T tensor.Number](c code, dst, one, two []T) bool {
	possible := true
	for i := range dst {
		a, b := one[i], two[i]
		switch {
		case c == power && b >= 0:
			dst[i] = raised(a, b)
		case c == power || b == 0:
			dst[i], possible = 0, false
		default:
			q := a / b
			rest := a - q*b
			if rest != 0 && (rest < 0) != (b < 0) {
				rest += b
				q--
			}
			if dst[i] = q; c == remainder {
				dst[i] = rest
			}
		}
	}
	return possible
}

// raised returns a to the power of b, which is not negative.
func raised[T tensor.Number](a, b T) T {
	result := T(1)
	for n := uint64(b); n > 0; n >>= 1 {
		if n&1 != 0 {
			result *= a
		}
		a *= a
	}
	return result
}

// blame fails the rows of the divisors and exponents that are not possible; they are for
// the elements of the output from the given one on.
func blame[T tensor.Number](p *pair, b *backends.Batch, out *tensor.Tensor, at int, list []T) {
	perRow := int(out.Shape.Elements()) / rowsOf(out, p.batch)
	for i, v := range list {
		if v == 0 && p.code != power || v < 0 && p.code == power {
			row := (at + i) / perRow
			b.Fail(row, status.Errorf(status.InvalidArg, "row %d divides an integer by 0 or raises one to a negative power", row))
		}
	}
}
