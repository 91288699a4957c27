package tensorop

import "tutti/core/tensor"

// bits is an element of any type, moved as it is.
type bits interface {
	uint8 | uint16 | uint32 | uint64
}

// spread copies elements as the nest says: operand 0 is written, operand 1 read. What is
// written starts at an element of dst.
func spread(w *nest, dst *tensor.Tensor, at int, src *tensor.Tensor) {
	w.fold()
	if w.nothing {
		return
	}
	w.at[0] += at
	switch dst.DType.Size() {
	case 1:
		spreadBits[uint8](w, dst, src)
	case 2:
		spreadBits[uint16](w, dst, src)
	case 4:
		spreadBits[uint32](w, dst, src)
	default:
		spreadBits[uint64](w, dst, src)
	}
}

func spreadBits[T interface {
	bits
	tensor.Number
}](w *nest, dstTensor, srcTensor *tensor.Tensor) {
	dst, src := tensor.Slice[T](dstTensor), tensor.Slice[T](srcTensor)
	n, by, from := w.inner(), w.step(0), w.step(1)
	switch {
	case by == 1 && from == 1:
		for more := true; more; more = w.next() {
			copy(dst[w.at[0]:w.at[0]+n], src[w.at[1]:])
		}
	case w.rank > 1 && by == 1 && w.stride[1][w.rank-2] == 1:
		for more := true; more; more = w.advance(w.rank - 3) {
			flip(dst[w.at[0]:], src[w.at[1]:], w.size[w.rank-2], n, w.stride[0][w.rank-2], from)
		}
	default:
		for more := true; more; more = w.next() {
			to, at := dst[w.at[0]:], w.at[1]
			for i := 0; i < n*by; i += by {
				to[i] = src[at]
				at += from
			}
		}
	}
}

// block is the side of the squares that flip goes through, so that what it reads stays
// in the cache until the rest of its line is needed.
const block = 16

// flip writes rows of n elements, apart elements from each other, of what lies in
// columns: the elements of a row are from elements apart, and those of a column next to
// each other.
func flip[T bits](dst, src []T, rows, n, apart, from int) {
	if n <= 4 { // few columns: along them all
		for k := range n {
			line := src[k*from:]
			at := k
			for _, v := range line[:rows] {
				dst[at] = v
				at += apart
			}
		}
		return
	}
	if rows <= 4 {
		for r := range rows {
			line, at := dst[r*apart:r*apart+n], r
			for j := range line {
				line[j] = src[at]
				at += from
			}
		}
		return
	}
	for r := 0; r < rows; r += block {
		last := min(r+block, rows)
		for k := 0; k < n; k += block {
			end := min(k+block, n)
			for i := r; i < last; i++ {
				at := k*from + i
				line := dst[i*apart+k : i*apart+end]
				for j := range line {
					line[j] = src[at]
					at += from
				}
			}
		}
	}
}
