package tensorop

import (
	"github.com/tutti-server/tutti/core/tensor"
)

func reduceAll[T tensor.Number](r *reduce, out, in *tensor.Tensor, g lineup) {
	src := tensor.Slice[T](in)
	switch {
	case r.position && r.name == "argmax":
		positions(tensor.Slice[int64](out), src, g, true)
	case r.position:
		positions(tensor.Slice[int64](out), src, g, false)
	case g.inner == 1:
		reduceLines(r.name, tensor.Slice[T](out), src, g)
	default:
		reduceRows(r.name, tensor.Slice[T](out), src, g)
	}
}

// positions finds the first of the greatest or least; what is no number is both.
func positions[T tensor.Number](dst []int64, src []T, g lineup, greatest bool) {
	for o := range g.outer {
		for i := range g.inner {
			line := src[o*g.n*g.inner+i : (o+1)*g.n*g.inner]
			if greatest {
				dst[o*g.inner+i] = greatestAt(line, g.inner)
			} else {
				dst[o*g.inner+i] = leastAt(line, g.inner)
			}
		}
	}
}

// isNaN tells what is no number.
func isNaN[T tensor.Number](v T) bool { return v != v } //nolint:gocritic // which alone differs from itself

// after tells whether a is greater than b or one of them is no number.
func after[T tensor.Number](a, b T) bool { return !(a <= b) } //nolint:staticcheck // a > b says something else of what is no number

// greatestAt goes through every apart-th element.
func greatestAt[T tensor.Number](line []T, apart int) int64 {
	if apart == 1 {
		if best, n := greatestFast(line); n > 0 {
			return greatestAfter(line, n, best)
		}
	}
	best, where := line[0], 0
	for at := apart; at < len(line) && !isNaN(best); at += apart {
		if v := line[at]; after(v, best) {
			best, where = v, at
		}
	}
	return int64(where / apart)
}

// greatestAfter is greatestAt where the greatest of the first n elements is known.
func greatestAfter[T tensor.Number](line []T, n int, best T) int64 {
	where := -1
	for k := n; k < len(line) && !isNaN(best); k++ {
		if v := line[k]; after(v, best) {
			best, where = v, k
		}
	}
	if where < 0 {
		where = firstFast(line, n, best)
	}
	return int64(where)
}

func leastAt[T tensor.Number](line []T, apart int) int64 {
	best, where := line[0], 0
	for at := apart; at < len(line) && !isNaN(best); at += apart {
		if v := line[at]; after(best, v) {
			best, where = v, at
		}
	}
	return int64(where / apart)
}

// greatestOf returns the greatest, or what is no number if there is such.
func greatestOf[T tensor.Number](line []T) T {
	best, done := greatestFast(line)
	for _, v := range line[done:] {
		if after(v, best) {
			if best = v; isNaN(v) {
				break
			}
		}
	}
	return best
}

func leastOf[T tensor.Number](line []T) T {
	best := line[0]
	for _, v := range line {
		if after(best, v) {
			if best = v; isNaN(v) {
				break
			}
		}
	}
	return best
}

// reduceLines reduces elements that lie together.
func reduceLines[T tensor.Number](name string, dst, src []T, g lineup) {
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
		case "min":
			dst[o] = leastOf(line)
		default:
			dst[o] = greatestOf(line)
		}
	}
}

// half of more than so many elements are added by themselves, which keeps the error small.
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

// reduceRows reduces rows of inner elements to one.
func reduceRows[T tensor.Number](name string, dst, src []T, g lineup) {
	for o := range g.outer {
		to := dst[o*g.inner : (o+1)*g.inner]
		rows := src[o*g.n*g.inner : (o+1)*g.n*g.inner]
		if g.n == 0 {
			fill(to, T(truth(name == "prod")))
		} else {
			copy(to, rows)
			rows = rows[g.inner:]
		}
		if (name == "sum" || name == "mean") && !fast[T]() {
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

// addRows adds four rows, one after the other.
func addRows[T tensor.Number](to, rows []T) {
	n := len(to)
	a, b, c, d := rows[:n], rows[n:][:n], rows[2*n:][:n], rows[3*n:][:n]
	for i, v := range to {
		to[i] = v + a[i] + b[i] + c[i] + d[i]
	}
}

func reduceRow[T tensor.Number](name string, to, row []T) {
	row = row[:len(to)]
	switch name {
	case "sum", "mean":
		done := computeVector(add, to, to, row)
		to, row = to[done:], row[done:]
		for i, v := range row {
			to[i] += v
		}
	case "prod":
		for i, v := range row {
			to[i] *= v
		}
	case "min":
		for i, v := range row {
			to[i] = min(to[i], v)
		}
	default:
		for i, v := range row {
			to[i] = max(to[i], v)
		}
	}
}
