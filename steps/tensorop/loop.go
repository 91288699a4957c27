package tensorop

import (
	"math"
	"unsafe"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// tile is the number of elements that an operand of a few repeated elements is expanded to.
const tile = 256

// binary computes all elements in runs. An operand is read where it lies, or, where it
// repeats a few elements, from a tile of them.
func (number[T]) binary(p *binary, b *backends.Batch, x *scratch, out, one, two *tensor.Tensor) {
	w := &x.loop
	from1, from2 := tensor.Slice[T](one), tensor.Slice[T](two)
	tile1, tile2 := (*[tile]T)(unsafe.Pointer(&x.tiles[0])), (*[tile]T)(unsafe.Pointer(&x.tiles[1]))
	level, n := w.rank-1, w.inner()
	period1, period2 := 1-w.step(1), 1-w.step(2)
	if wide1, wide2 := w.period(1), w.period(2); n < tile/4 && wide1 >= 0 && wide2 >= 0 {
		period1, period2 = wide1, wide2
		level, n = level-1, n*w.size[level-1]
	}
	for more := true; more; more = w.advance(level - 1) {
		run1, most := tiled(tile1, from1[w.at[1]:], period1, n)
		run2, most := tiled(tile2, from2[w.at[2]:], period2, most)
		for done := 0; done < n; {
			count := min(n-done, most)
			if !run(p.code, out, w.at[0]+done, run1[:count], run2[:count]) {
				failRows(p, b, out, w.at[0]+done, run2[:count])
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
}

// period returns after how many elements operand k repeats in the two innermost loops
// taken as one: 0 where it is dense, -1 where it is neither.
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

// tiled returns the next elements of an operand, at most so many: src itself, or for a
// period above 0 the tile, filled with the repeated elements.
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

// run computes the elements of out from index at on. It reports false where an element is not defined (see intLoop).
func run[T tensor.Number](c code, out *tensor.Tensor, at int, one, two []T) bool {
	if c >= equal {
		compareLoop(c, out.Bytes()[at:at+len(one)], one, two)
		return true
	}
	dst := tensor.Slice[T](out)[at : at+len(one)]
	done := computeVector(c, dst, one, two)
	dst, one, two = dst[done:], one[done:], two[done:]
	switch {
	case c < divide || c == minimum || c == maximum:
		plainLoop(c, dst, one, two)
	case isFloat[T]():
		floatLoop(c, dst, one, two)
	default:
		return intLoop(c, dst, one, two)
	}
	return true
}

func plainLoop[T tensor.Number](c code, dst, one, two []T) {
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
	case multiply:
		for i := range dst {
			dst[i] = one[i] * two[i]
		}
	case minimum:
		for i := range dst {
			dst[i] = min(one[i], two[i])
		}
	default:
		for i := range dst {
			dst[i] = max(one[i], two[i])
		}
	}
}

func floatLoop[T tensor.Number](c code, dst, one, two []T) {
	one, two = one[:len(dst)], two[:len(dst)]
	for i, v := range one {
		switch c {
		case divide:
			dst[i] = v / two[i]
		case power:
			dst[i] = T(math.Pow(float64(v), float64(two[i])))
		case floorDivide:
			dst[i], _ = floorDivMod(v, two[i])
		default:
			_, dst[i] = floorDivMod(v, two[i])
		}
	}
}

// floorDivMod returns the quotient rounded down and the remainder, which has the sign of
// b, as numpy's npy_divmod computes them. For example, -7 by 2 is -4, remainder 1.
func floorDivMod[T tensor.Number](a, b T) (quotient, rest T) {
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

// intLoop reports false for a division by 0 or a negative exponent; the result is then 0.
func intLoop[T tensor.Number](c code, dst, one, two []T) bool {
	defined := true
	for i := range dst {
		a, b := one[i], two[i]
		switch {
		case c == power && b >= 0:
			dst[i] = intPower(a, b)
		case c == power || b == 0:
			dst[i], defined = 0, false
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
	return defined
}

// intPower returns a to the power of b by squaring. b must not be negative.
func intPower[T tensor.Number](a, b T) T {
	result := T(1)
	for n := uint64(b); n > 0; n >>= 1 {
		if n&1 != 0 {
			result *= a
		}
		a *= a
	}
	return result
}

// failRows fails the rows of the divisors and exponents for which intLoop reported false.
// divisors belong to the elements of out from index at on.
func failRows[T tensor.Number](p *binary, b *backends.Batch, out *tensor.Tensor, at int, divisors []T) {
	perRow := int(out.Shape.Elements()) / rowsOf(out, p.batch)
	for i, v := range divisors {
		if v == 0 && p.code != power || v < 0 && p.code == power {
			row := (at + i) / perRow
			b.Fail(row, status.Errorf(status.InvalidArg, "row %d divides an integer by 0 or raises one to a negative power", row))
		}
	}
}

// compareLoop has the operations whose results are BOOL.
func compareLoop[T tensor.Number](c code, dst []byte, one, two []T) {
	done := compareVector(c, dst, one, two)
	dst = dst[done:]
	one, two = one[done:][:len(dst)], two[done:][:len(dst)]
	switch c {
	case equal:
		for i := range dst {
			dst[i] = truth(one[i] == two[i])
		}
	case notEqual:
		for i := range dst {
			dst[i] = truth(one[i] != two[i])
		}
	case less:
		for i := range dst {
			dst[i] = truth(one[i] < two[i])
		}
	case lessEqual:
		for i := range dst {
			dst[i] = truth(one[i] <= two[i])
		}
	case greater:
		compareLoop(less, dst, two, one)
	case greaterEqual:
		compareLoop(lessEqual, dst, two, one)
	case and:
		for i := range dst {
			dst[i] = truth(one[i] != 0 && two[i] != 0)
		}
	case or:
		for i := range dst {
			dst[i] = truth(one[i] != 0 || two[i] != 0)
		}
	default:
		for i := range dst {
			dst[i] = truth((one[i] != 0) != (two[i] != 0))
		}
	}
}
