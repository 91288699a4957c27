package tensorop

import "github.com/tutti-server/tutti/core/tensor"

const (
	// maxRank bounds dimensions, the batch dimension among them.
	maxRank = 8
	// operands bounds the tensors that one loop visits.
	operands = 4
)

// dims are the dimensions of a tensor, or a list of as many numbers.
type dims [maxRank]int

// nest is a nest of loops over tensors, outermost first. Operand 0 is what is written.
type nest struct {
	rank, n int
	size    dims
	stride  [operands]dims // in elements, of each operand
	at      [operands]int  // where the innermost loop starts, by operand
	count   dims
	nothing bool // some size is 0
}

// start makes a nest of n operands over a shape; operand 0 is dense.
func (w *nest) start(shape *tensor.Shape, n int) {
	*w = nest{rank: shape.Rank(), n: n}
	for i, d := range shape.Dims() {
		w.size[i] = int(d)
		w.nothing = w.nothing || d == 0
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

// broadcast gives operand k the strides of a tensor that is repeated along the
// dimensions it lacks, which are those after the first batch ones, and where it has 1.
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

// fold drops loops of one turn and joins those that all operands go through as one.
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

// inner returns the turns of the innermost loop.
func (w *nest) inner() int { return w.size[w.rank-1] }

// step returns the stride of operand k in the innermost loop.
func (w *nest) step(k int) int { return w.stride[k][w.rank-1] }

// next goes to the next start of the innermost loop; false: that was all.
func (w *nest) next() bool { return w.advance(w.rank - 2) }

// advance goes to the next turn of loop i.
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
