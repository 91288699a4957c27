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
// For example, adding [3, 5] and [5] gives two loops of sizes 3, 5; the strides of the second
// operand are 0, 1.
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
		switch {
		case w.size[i] == 1:
		case to > 0 && w.joins(to-1, i):
			w.size[to-1] *= w.size[i]
			w.set(to-1, i)
		default:
			w.size[to] = w.size[i]
			w.set(to, i)
			to++
		}
	}
	if to == 0 {
		w.size[0], to = 1, 1
		for k := range w.n {
			w.stride[k][0] = 1
		}
	}
	w.rank = to
}

func (w *nest) set(to, from int) {
	for k := range w.n {
		w.stride[k][to] = w.stride[k][from]
	}
}

func (w *nest) joins(outer, inner int) bool {
	for k := range w.n {
		if w.stride[k][outer] != w.stride[k][inner]*w.size[inner] {
			return false
		}
	}
	return true
}

// inner returns the size of the innermost loop.
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
