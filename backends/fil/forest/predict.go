package forest

// Most rows, and about as many bytes of prepared rows, are predicted at a time: their values stay in the processor's nearest cache while
// the trees pass.
const (
	blockRows  = 64
	blockBytes = 128 << 10
)

// scratch is the memory of one prediction.
type scratch struct {
	wide   [][lanes]int32 // prepared rows, in groups of eight side by side
	row    []int32        // one prepared row
	single []float32      // sums in FP32
	double []float64      // sums in FP64, and predictions
}

// Writer writes predictions in the form of an output.
type Writer interface {
	// Write writes the predictions of rows, with Head.Outputs values for each, to their part of out. Both are borrowed.
	Write(out []float32, predictions []float64)
}

// Predict has w write the predictions of the rows in x to out, a block of rows at a time. x has Head.Features values for each row, and
// out as many for each as w writes. Predict may be called concurrently.
//
// hot: no allocation in the steady state.
func (f *Forest) Predict(x, out []float32, w Writer) {
	s, _ := f.scratch.Get().(*scratch)
	if s == nil {
		s = f.newScratch()
	}
	if total := len(x) / f.Features; total > 0 {
		width := len(out) / total
		for first := 0; first < total; {
			rows := min(total-first, f.blockSize())
			w.Write(out[first*width:][:rows*width], f.block(s, x[first*f.Features:][:rows*f.Features], rows))
			first += rows
		}
	}
	f.scratch.Put(s)
}

// blockSize returns the number of rows that are predicted at a time, a multiple of lanes.
func (f *Forest) blockSize() int {
	return min(max(blockBytes/(4*f.slots())/lanes, 1)*lanes, blockRows)
}

func (f *Forest) newScratch() *scratch {
	rows := f.blockSize()
	s := &scratch{wide: make([][lanes]int32, rows/lanes*f.slots()), row: make([]int32, f.slots()), double: make([]float64, rows*f.Outputs)}
	if !f.Double {
		s.single = make([]float32, rows*f.Outputs)
	}
	return s
}

// few is the number of rows from which a group that is not full is followed as one that is, instead of row by row.
const few = 4

// block returns the predictions of the rows of one block.
func (f *Forest) block(s *scratch, x []float32, rows int) []float64 {
	if f.Double {
		sum(f, s, s.double[:rows*f.Outputs], f.double, x, rows)
	} else {
		sum(f, s, s.single[:rows*f.Outputs], f.single, x, rows)
		for i, v := range s.single[:rows*f.Outputs] {
			s.double[i] = float64(v)
		}
	}
	out := s.double[:rows*f.Outputs]
	f.Link.apply(out, f.Outputs, f.Double)
	return out
}

// sum sets sums to those of the leaves of each row, with the average and the base scores. values has the values of leaves.
func sum[T float32 | float64](f *Forest, s *scratch, sums, values []T, x []float32, rows int) {
	clear(sums)
	if f.BaseFirst {
		addBase(f, sums)
	}
	full := rows
	if rows%lanes < few {
		full -= rows % lanes
	}
	if full > 0 {
		f.prepare(s.wide, x, full)
		sumRows(f, s, sums, values, full)
	}
	for r := full; r < rows; r++ {
		f.prepareRow(s.row, x[r*f.Features:(r+1)*f.Features])
		sumRow(f, s.row, sums[r*f.Outputs:(r+1)*f.Outputs], values)
	}
	if f.Average {
		for i := range sums {
			sums[i] /= T(f.counts[i%f.Outputs])
		}
	}
	if !f.BaseFirst {
		addBase(f, sums)
	}
}

func addBase[T float32 | float64](f *Forest, sums []T) {
	for i := range sums {
		sums[i] += T(f.Base[i%f.Outputs])
	}
}

// key returns the key of the column's value in a row.
func (c *column) key(row []float32) int32 {
	key := keyOf(row[c.from])
	if c.negated && key != missing {
		return -key
	}
	return key
}

// prepare writes rows of x to groups of prepared rows. The last group may not be full; its other lanes keep what they have.
func (f *Forest) prepare(to [][lanes]int32, x []float32, rows int) {
	slots, zero := f.slots(), len(f.columns)
	for r := range rows {
		group, row, lane := to[r/lanes*slots:][:slots], x[r*f.Features:][:f.Features], r%lanes
		for k := range f.columns {
			group[k][lane] = f.columns[k].key(row)
		}
		group[zero] = [lanes]int32{}
	}
}

// prepareRow writes a row of x as one prepared row.
func (f *Forest) prepareRow(to []int32, x []float32) {
	for k := range f.columns {
		to[k] = f.columns[k].key(x)
	}
	to[len(f.columns)] = 0
}

// sumRows adds the leaves of prepared groups of rows, tree by tree.
func sumRows[T float32 | float64](f *Forest, s *scratch, sums, values []T, rows int) {
	var at [lanes]uint32
	slots := f.slots()
	for i := range f.trees {
		t := &f.trees[i]
		for first := 0; first < rows; first += lanes {
			x := s.wide[first/lanes*slots:][:slots]
			n := min(rows-first, lanes)
			if t.plain {
				f.rows(t, x, &at)
			} else {
				for lane := range n {
					at[lane] = f.lane(t, x, lane)
				}
			}
			for lane := range n {
				add(f, t, sums[(first+lane)*f.Outputs:][:f.Outputs], values, at[lane])
			}
		}
	}
}

// sumRow adds the leaves of one prepared row, eight trees at a time.
func sumRow[T float32 | float64](f *Forest, x []int32, sums, values []T) {
	var at [lanes]uint32
	for trees := f.trees; len(trees) > 0; {
		n := run(trees)
		if n == lanes {
			f.abreast(trees, x, &at)
		} else {
			for i := range n {
				at[i] = f.one(&trees[i], x)
			}
		}
		for i := range n {
			add(f, &trees[i], sums, values, at[i])
		}
		trees = trees[n:]
	}
}

// run returns the number of trees at the front that are followed together: lanes when that many are plain, else fewer.
func run(trees []tree) int {
	for i := range min(len(trees), lanes) {
		if !trees[i].plain {
			return max(i, 1)
		}
	}
	return min(len(trees), lanes)
}

// add adds the values of a leaf to the sums of a row.
func add[T float32 | float64](f *Forest, t *tree, sums, values []T, at uint32) {
	leaf := f.nodes[at].leaf
	if t.output >= 0 {
		sums[t.output] += values[leaf]
		return
	}
	for k, v := range values[leaf:][:len(sums)] {
		sums[k] += v
	}
}
