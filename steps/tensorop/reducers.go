package tensorop

import "github.com/tutti-server/tutti/core/tensor"

func (number[T]) reduce(r *reduce, out, in *tensor.Tensor, g lines) {
	src := tensor.Slice[T](in)
	switch {
	case r.position:
		dst := tensor.Slice[int64](out)
		for o := range g.outer {
			for i := range g.inner {
				line := src[o*g.n*g.inner+i : (o+1)*g.n*g.inner]
				dst[o*g.inner+i] = extremeAt(line, g.inner, r.name == "argmin")
			}
		}
	case g.inner == 1:
		reduceLines(r.name, tensor.Slice[T](out), src, g)
	default:
		reduceRows(r.name, tensor.Slice[T](out), src, g)
	}
}

// beyond reports whether v takes the place of best as the greatest element, or the least:
// it is greater (less), or one of them is NaN, as numpy has it.
func beyond[T tensor.Number](v, best T, least bool) bool {
	if least {
		return !(v >= best) //nolint:staticcheck // v < best differs for NaN
	}
	return !(v <= best) //nolint:staticcheck // v > best differs for NaN
}

// extremeAt returns the index of the first greatest or least of the elements that are so
// far apart in line. The first NaN counts as both.
func extremeAt[T tensor.Number](line []T, apart int, least bool) int64 {
	best, at, from := line[0], 0, apart
	if apart == 1 && !least {
		if v, n := greatestFast(line); n > 0 {
			best, at, from = v, -1, n
		}
	}
	for i := from; i < len(line) && !isNaN(best); i += apart {
		if v := line[i]; beyond(v, best, least) {
			best, at = v, i
		}
	}
	if at < 0 {
		at = firstFast(line, from, best)
	}
	return int64(at / apart)
}

// extremeOf returns the greatest or least element, or the first NaN if there is one.
func extremeOf[T tensor.Number](line []T, least bool) T {
	best, done := line[0], 0
	if !least {
		best, done = greatestFast(line)
	}
	for _, v := range line[done:] {
		if beyond(v, best, least) {
			if best = v; isNaN(v) {
				break
			}
		}
	}
	return best
}

// reduceLines reduces elements that lie next to each other.
func reduceLines[T tensor.Number](name string, dst, src []T, g lines) {
	for o := range dst {
		line := src[o*g.n : (o+1)*g.n]
		switch name {
		case "sum":
			dst[o] = sum(line)
		case "mean":
			dst[o] = sum(line) / T(g.n)
		case "prod":
			p := T(1)
			for _, v := range line {
				p *= v
			}
			dst[o] = p
		default:
			dst[o] = extremeOf(line, name == "min")
		}
	}
}

// pairwise is the number of elements above which the two halves of a line are summed
// separately. This keeps the rounding error small.
const pairwise = 256

func sum[T tensor.Number](line []T) T {
	if len(line) > pairwise {
		half := len(line) / 16 * 8
		return sum(line[:half]) + sum(line[half:])
	}
	var a, b, c, d, e, f, g, h T
	for len(line) >= 8 {
		a, b, c, d = a+line[0], b+line[1], c+line[2], d+line[3]
		e, f, g, h = e+line[4], f+line[5], g+line[6], h+line[7]
		line = line[8:]
	}
	total := ((a + b) + (c + d)) + ((e + f) + (g + h))
	for _, v := range line {
		total += v
	}
	return total
}

// reduceRows reduces n rows of inner elements to one row.
func reduceRows[T tensor.Number](name string, dst, src []T, g lines) {
	for o := range g.outer {
		to := dst[o*g.inner : (o+1)*g.inner]
		rows := src[o*g.n*g.inner : (o+1)*g.n*g.inner]
		if g.n == 0 {
			fill(to, T(truth(name == "prod")))
		} else {
			copy(to, rows)
			rows = rows[g.inner:]
		}
		if (name == "sum" || name == "mean") && !hasVectors[T]() {
			for ; len(rows) >= 4*g.inner; rows = rows[4*g.inner:] {
				addRows(to, rows)
			}
		}
		for ; len(rows) > 0; rows = rows[g.inner:] {
			reduceRow(name, to, rows[:len(to)])
		}
		if name == "mean" {
			for i := range to {
				to[i] /= T(g.n)
			}
		}
	}
}

// addRows adds four consecutive rows to one.
func addRows[T tensor.Number](to, rows []T) {
	n := len(to)
	a, b, c, d := rows[:n], rows[n:][:n], rows[2*n:][:n], rows[3*n:][:n]
	for i, v := range to {
		to[i] = v + a[i] + b[i] + c[i] + d[i]
	}
}

func reduceRow[T tensor.Number](name string, to, row []T) {
	switch name {
	case "sum", "mean":
		done := computeVector(add, to, to, row)
		plainLoop(add, to[done:], to[done:], row[done:])
	case "prod":
		plainLoop(multiply, to, to, row)
	case "min":
		plainLoop(minimum, to, to, row)
	default:
		plainLoop(maximum, to, to, row)
	}
}
