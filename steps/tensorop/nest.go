package tensorop

import "github.com/tutti-server/tutti/core/tensor"

const (
	// maxRank is the most dimensions of a tensor, the batch dimension among them.
	maxRank = 8
	// operands is the most tensors that one nest visits.
	operands = 4
)

// dims holds a number for each dimension of a tensor.
type dims [maxRank]int

// nest is a nest of loops over tensors, the outermost loop first, as numpy's iterators
// work: each operand has a stride per loop, 0 where it is broadcast. Operand 0 is written.
//
//  1. start sets sizes; dense, broadcast or the caller set the strides of the operands.
//  2. fold merges loops. It must be called once, before the elements are visited.
//  3. for more := true; more; more = w.next() visits the innermost loops: operand k is at
//     element w.at[k] and goes on by w.step(k), w.inner() times.
//
// For example, adding [3, 5] and [5] gives two loops of sizes 3, 5; the strides of the second operand are 0, 1.
type nest struct {
	rank, n int
	size    dims
	stride  [operands]dims // in elements, of each operand
	at      [operands]int  // the element where the innermost loop starts, of each operand
	count   dims           // iterations done, of each loop
	empty   bool           // some size is 0
}

// start sets the sizes to a shape, for n operands; operand 0 is dense.
func (w *nest) start(shape *tensor.Shape, n int) {
	*w = nest{rank: shape.Rank(), n: n}
	for i, d := range shape.Dims() {
		w.size[i] = int(d)
		w.empty = w.empty || d == 0
	}
	w.dense(0)
}

// dense gives operand k the strides of a tensor that has the nest's sizes.
func (w *nest) dense(k int) {
	step := 1
	for i := w.rank - 1; i >= 0; i-- {
		w.stride[k][i] = step
		step *= w.size[i]
	}
}

// broadcast gives operand k the strides of a tensor that is repeated along dimensions of
// extent 1 and along those it lacks, which come after the first batch ones.
func (w *nest) broadcast(k int, shape *tensor.Shape, batch int) {
	step, missing := 1, w.rank-shape.Rank()
	for i := w.rank - 1; i >= 0; i-- {
		from := i - missing
		if i < batch {
			from = i
		} else if from < batch {
			continue
		}
		if d := int(shape.Dim(from)); d != 1 {
			w.stride[k][i] = step
			step *= d
		}
	}
}

// fold drops loops of size 1 and merges loops that are one loop for every operand.
func (w *nest) fold() {
	to := 0
	for i := range w.rank {
		if w.size[i] == 1 {
			continue
		}
		if to > 0 && w.joins(to-1, i) {
			to--
			w.size[to] *= w.size[i]
		} else {
			w.size[to] = w.size[i]
		}
		for k := range w.n {
			w.stride[k][to] = w.stride[k][i]
		}
		to++
	}
	if to == 0 {
		w.size[0], to = 1, 1
		for k := range w.n {
			w.stride[k][0] = 1
		}
	}
	w.rank = to
}

func (w *nest) joins(outer, inner int) bool {
	for k := range w.n {
		if w.stride[k][outer] != w.stride[k][inner]*w.size[inner] {
			return false
		}
	}
	return true
}

func (w *nest) inner() int { return w.size[w.rank-1] }

// step returns the stride of operand k in the innermost loop.
func (w *nest) step(k int) int { return w.stride[k][w.rank-1] }

// next moves to the next start of the innermost loop, and reports false after the last.
func (w *nest) next() bool { return w.advance(w.rank - 2) }

// advance moves to the next iteration of loop i, and reports false after the last.
func (w *nest) advance(i int) bool {
	for ; i >= 0; i-- {
		w.count[i]++
		for k := range w.n {
			w.at[k] += w.stride[k][i]
		}
		if w.count[i] < w.size[i] {
			return true
		}
		for k := range w.n {
			w.at[k] -= w.stride[k][i] * w.size[i]
		}
		w.count[i] = 0
	}
	return false
}

// spread copies elements as the loops of w say: operand 0 is dst, from element at on, operand 1 is src.
func spread(w *nest, dst *tensor.Tensor, at int, src *tensor.Tensor) {
	w.fold()
	if w.empty {
		return
	}
	w.at[0] += at
	copiers[dst.DType.Size()].spread(w, dst, src)
}

// spread is the function spread with the loops of m.x, where the batch is.
func (m *moving) spread(dst *tensor.Tensor, at int, src *tensor.Tensor) error {
	if m.x.device == nil {
		spread(&m.x.loop, dst, at, src)
		return nil
	}
	return m.x.launch(m.b.Stream, dst, at, src)
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

// flip transposes: it writes rows of n elements, whose starts are apart elements from each other in dst. In src the
// elements of a row are from elements apart, and those of a column lie next to each other.
func flip[T bits](dst, src []T, rows, n, apart, from int) {
	switch {
	case n <= 4: // few columns: along them all
	case rows == 3 && from == 3: // pixels
		planes(dst[:n], dst[apart:][:n], dst[2*apart:][:n], src)
		return
	case rows <= 4:
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
