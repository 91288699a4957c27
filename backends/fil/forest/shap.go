package forest

import "math"

// maxShapDepth is the most tests on a path that Shapley values are computed for, as in Triton: their errors grow with the depth.
const maxShapDepth = 32

// explainer has what Shapley values need besides the forest.
type explainer struct {
	// cover has, for each node, the weight of the rows of training that reached it.
	cover []float64
	// bias has the mean of each output over the rows of training.
	bias []float64
}

// element is a feature on the path from the root: the share of the subsets of features in which the path continues when the feature is
// left out (zero) and when it is known (one), and the weight of the subsets of a size.
type element struct {
	feature           int32
	zero, one, weight float64
}

// path is a path; it has each feature once.
type path []element

// extend appends a feature.
func (p path) extend(feature int32, zero, one float64) path {
	n := len(p)
	p = append(p, element{feature, zero, one, 0})
	if n == 0 {
		p[0].weight = 1
	}
	for i := n - 1; i >= 0; i-- {
		p[i+1].weight += one * p[i].weight * float64(i+1) / float64(n+1)
		p[i].weight *= zero * float64(n-i) / float64(n+1)
	}
	return p
}

// remove undoes extend for the feature at k.
func (p path) remove(k int) path {
	last := len(p) - 1
	zero, one, next := p[k].zero, p[k].one, p[last].weight
	for i := last - 1; i >= 0; i-- {
		switch {
		case one != 0:
			before := p[i].weight
			p[i].weight = next * float64(last+1) / (float64(i+1) * one)
			next = before - p[i].weight*zero*float64(last-i)/float64(last+1)
		case zero != 0:
			p[i].weight *= float64(last+1) / (zero * float64(last-i))
		}
	}
	for i := k; i < last; i++ {
		p[i].feature, p[i].zero, p[i].one = p[i+1].feature, p[i+1].zero, p[i+1].one
	}
	return p[:last]
}

// sumWithout returns the sum of the weights without the feature at k.
func (p path) sumWithout(k int) (sum float64) {
	last := len(p) - 1
	zero, one, next := p[k].zero, p[k].one, p[last].weight
	for i := last - 1; i >= 0; i-- {
		switch {
		case one != 0:
			w := next * float64(last+1) / (float64(i+1) * one)
			sum += w
			next = p[i].weight - w*zero*float64(last-i)/float64(last+1)
		case zero != 0:
			sum += p[i].weight * float64(last+1) / (zero * float64(last-i))
		}
	}
	return sum
}

// Explains reports whether the forest was built to compute Shapley values.
func (f *Forest) Explains() bool { return f.explainer != nil }

// Shapley sets out to the Shapley values of the rows in x: for each output of a row, Head.Features contributions and the mean, whose sum
// is the margin. The algorithm is TreeSHAP of Lundberg, Erion and Lee ("Consistent Individualized Feature Attribution for Tree
// Ensembles", algorithm 2), with the weights of rows in training. Shapley may be called concurrently. It allocates.
func (f *Forest) Shapley(x, out []float32) {
	width := f.Features + 1
	w := &walker{f: f, row: make([]int32, f.slots()), sums: make([]float64, width*f.Outputs)}
	for i := range w.paths {
		w.paths[i] = make(path, 0, i+2)
	}
	for ; len(x) > 0; x, out = x[f.Features:], out[len(w.sums):] {
		f.prepareRow(w.row, x[:f.Features])
		clear(w.sums)
		for i := range f.trees {
			w.tree = &f.trees[i]
			w.walk(w.tree.root, 0, nil, -1, 1, 1)
		}
		for k := range f.Outputs {
			w.sums[k*width+f.Features] = f.explainer.bias[k]
		}
		for i, v := range w.sums {
			out[i] = float32(v)
		}
	}
}

// walker computes the Shapley values of one row.
type walker struct {
	f    *Forest
	tree *tree
	row  []int32 // prepared
	sums []float64
	// paths has a path for each depth.
	paths [maxShapDepth + 1]path
}

// walk follows both children of a node. from is the path to its parent; feature, zero and one are those of the parent's test.
func (w *walker) walk(at uint32, depth int, from path, feature int32, zero, one float64) {
	f := w.f
	p := append(w.paths[depth][:0], from...).extend(feature, zero, one)
	n := &f.nodes[at]
	if n.slot == uint32(len(f.columns)) {
		w.leaf(p, n.leaf)
		return
	}
	test, first := f.step(n, w.row)
	zero, one = 1, 1
	for k := 1; k < len(p); k++ {
		if p[k].feature == test {
			zero, one = p[k].zero, p[k].one
			p = p.remove(k)
			break
		}
	}
	hot, cold, cover := n.next+first, n.next+1-first, f.explainer.cover
	w.walk(hot, depth+1, p, test, zero*cover[hot]/cover[at], one)
	w.walk(cold, depth+1, p, test, zero*cover[cold]/cover[at], 0)
}

// leaf adds the contributions of a leaf.
func (w *walker) leaf(p path, leaf uint32) {
	f, width := w.f, w.f.Features+1
	for i := 1; i < len(p); i++ {
		share := p.sumWithout(i) * (p[i].one - p[i].zero)
		if w.tree.output >= 0 {
			k := int(w.tree.output)
			w.sums[k*width+int(p[i].feature)] += share * f.leafValue(leaf, 0) / f.trials(k)
			continue
		}
		for k := range f.Outputs {
			w.sums[k*width+int(p[i].feature)] += share * f.leafValue(leaf, k) / f.trials(k)
		}
	}
}

// step returns the feature of a test, and 0 when a prepared row continues at its first child, else 1.
func (f *Forest) step(n *node, row []int32) (feature int32, second uint32) {
	if n.slot < uint32(len(f.columns)) {
		return f.columns[n.slot].from, n.after(row[n.slot]) - n.next
	}
	s := &f.special[n.slot-uint32(len(f.columns))-1]
	return f.columns[s.slot].from, s.second(row[s.slot], f.sets)
}

// leafValue returns value k of a leaf.
func (f *Forest) leafValue(leaf uint32, k int) float64 {
	if f.Double {
		return f.double[int(leaf)+k]
	}
	return float64(f.single[int(leaf)+k])
}

// trials returns what the sum of an output is divided by.
func (f *Forest) trials(k int) float64 {
	if f.Average {
		return f.counts[k]
	}
	return 1
}

// explain prepares Shapley values: it checks the weights of rows, and computes the means.
func (b *Builder) explain(cover []float64) error {
	f := b.f
	f.explainer = &explainer{cover: cover, bias: make([]float64, f.Outputs)}
	copy(f.explainer.bias, f.Base)
	for i := range f.trees {
		t := &f.trees[i]
		if t.depth > maxShapDepth-1 {
			return invalid("tree %d has depth %d, expected at most %d for Shapley values", i, t.depth, maxShapDepth-1)
		}
		for k := range f.Outputs {
			if t.output >= 0 && int(t.output) != k {
				continue
			}
			value := k // of a leaf's vector
			if t.output >= 0 {
				value = 0
			}
			mean := f.mean(t.root, value)
			if math.IsNaN(mean) || math.IsInf(mean, 0) {
				return invalid("tree %d has no statistics of its nodes, which Shapley values need", i)
			}
			f.explainer.bias[k] += mean / f.trials(k)
		}
	}
	return nil
}

// mean returns the mean of value k of the leaves below a node over the rows of training.
func (f *Forest) mean(at uint32, k int) float64 {
	n := &f.nodes[at]
	if n.slot == uint32(len(f.columns)) {
		return f.leafValue(n.leaf, k)
	}
	c := f.explainer.cover
	return (f.mean(n.next, k)*c[n.next] + f.mean(n.next+1, k)*c[n.next+1]) / c[at]
}
