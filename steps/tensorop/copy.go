package tensorop

import "github.com/tutti-server/tutti/core/tensor"

// spread copies elements as the loops of w say: operand 0 is dst, from element at on,
// operand 1 is src.
func spread(w *nest, dst *tensor.Tensor, at int, src *tensor.Tensor) {
	w.fold()
	if w.empty {
		return
	}
	w.at[0] += at
	copierOf(dst.DType).spread(w, dst, src)
}

func (word[T]) spread(w *nest, dstTensor, srcTensor *tensor.Tensor) {
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

// columns is the number of columns that flip reads at once.
const columns = 8

// flip transposes: it writes rows of n elements, whose starts are apart elements from each
// other in dst. In src the elements of a row are from elements apart, and those of a column
// lie next to each other.
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
	if rows == 3 && from == 3 { // pixels
		planes(dst[:n], dst[apart:][:n], dst[2*apart:][:n], src)
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
	k := 0
	for ; k+columns <= n; k += columns {
		flipColumns(dst[k:], src[k*from:], rows, apart, from)
	}
	for ; k < n; k++ {
		at := k
		for _, v := range src[k*from:][:rows] {
			dst[at] = v
			at += apart
		}
	}
}

// planes splits pixels of three elements into three planes, four pixels at a time.
func planes[T bits](a, b, c, src []T) {
	i := 0
	for ; i+4 <= len(a); i += 4 {
		p := (*[12]T)(src[3*i:])
		*(*[4]T)(a[i:]) = [4]T{p[0], p[3], p[6], p[9]}
		*(*[4]T)(b[i:]) = [4]T{p[1], p[4], p[7], p[10]}
		*(*[4]T)(c[i:]) = [4]T{p[2], p[5], p[8], p[11]}
	}
	for ; i < len(a); i++ {
		a[i], b[i], c[i] = src[3*i], src[3*i+1], src[3*i+2]
	}
}

// flipColumns writes the first 8 columns of each row.
func flipColumns[T bits](dst, src []T, rows, apart, from int) {
	a, b, c, d := src[:rows], src[from:][:rows], src[2*from:][:rows], src[3*from:][:rows]
	e, f, g, h := src[4*from:][:rows], src[5*from:][:rows], src[6*from:][:rows], src[7*from:][:rows]
	at := 0
	for i, v := range a {
		line := dst[at : at+columns]
		line[0], line[1], line[2], line[3] = v, b[i], c[i], d[i]
		line[4], line[5], line[6], line[7] = e[i], f[i], g[i], h[i]
		at += apart
	}
}
