// Package xgboost reads models of XGBoost: JSON, Universal Binary JSON and the binary format of versions before 3.1.
//
//	xgboost.go    the formats, and a model of any of them as a forest
//	objective.go  objectives: predictions from sums, and base scores as margins
//	document.go   the schema of JSON and UBJSON
//	source.go     what both have in common; json.go and ubjson.go read them
//	binary.go     the binary format
//
// The formats are described in XGBoost's documentation (Introduction to Model IO) and in its sources (tree_model.cc, gbtree_model.cc,
// learner.cc). Predictions are those of XGBoost: leaves are added to the base score in FP32 in the order of the trees, those of
// dart times the weight of their tree.
package xgboost

import (
	"slices"

	"github.com/tutti-server/tutti/backends/fil/forest"
	"github.com/tutti-server/tutti/core/status"
)

// Format is the format of a file.
type Format uint8

// The formats.
const (
	JSON Format = iota
	UBJSON
	Binary
)

// Options are those of a reader.
type Options struct {
	// AllowUnknown ignores fields that the reader does not know, which are refused otherwise.
	AllowUnknown bool
	// Explain keeps what Shapley values need.
	Explain bool
}

// Read returns the forest in a file.
func Read(data []byte, format Format, o Options) (*forest.Forest, error) {
	m := &model{Options: o}
	var err error
	switch format {
	case JSON:
		err = m.document(&jsonSource{all: string(data)})
	case UBJSON:
		err = m.document(&ubjSource{all: string(data)})
	case Binary:
		err = m.binary(data)
	}
	if err != nil {
		return nil, err
	}
	return m.forest()
}

// model is a model as it is in a file.
type model struct {
	Options

	version    []int32
	booster    string
	objective  string
	features   int64
	classes    int64
	targets    int64
	baseScores []float64
	// margins says that the base scores are margins already, as before version 1.0.
	margins bool
	trees   []regTree
	info    []int32   // for each tree, its output
	weights []float32 // of the first trees, of dart
}

// regTree has the arrays of a tree, indexed by node.
type regTree struct {
	left, right, feature []int32
	threshold            []float32 // of leaves the value
	cover                []float32 // nil if the file has none
	defaultLeft          []int32
	// kind is 1 for categorical tests. Nil if there are none.
	kind []int32
	// category has the categories of the test at nodes[i] from segments[i], sizes[i] of them.
	nodes, segments, sizes, category []int32
	// vector is the number of values of a leaf, 0 or 1 for one.
	vector int64
	// base has vector values for each node. Since 3.1 leaves has those of each leaf, by the number in right.
	base, leaves []float32
}

// forest builds the forest.
func (m *model) forest() (*forest.Forest, error) {
	if m.booster != "gbtree" && m.booster != "dart" {
		return nil, invalidf("the model has booster '%s', expected trees: gbtree or dart", m.booster)
	}
	classes, targets := max(m.classes, 1), max(m.targets, 1)
	if classes > 1 && targets > 1 {
		return nil, status.Errorf(status.Unsupported, "the model has %d classes and %d targets, expected classes or targets", classes, targets)
	}
	h := forest.Head{Features: int(m.features), Outputs: int(max(classes, targets)), BaseFirst: true, Explain: m.Explain}
	if h.Outputs > forest.MaxOutputs || h.Outputs < 1 {
		return nil, invalidf("the model has %d outputs, expected 1 to %d", h.Outputs, forest.MaxOutputs)
	}
	if err := m.objectiveOf(&h); err != nil {
		return nil, err
	}
	if len(m.info) != len(m.trees) {
		return nil, invalidf("the model has %d trees, but tree_info has %d", len(m.trees), len(m.info))
	}
	if len(m.weights) > len(m.trees) {
		return nil, invalidf("the model has %d trees, but weight_drop has %d", len(m.trees), len(m.weights))
	}
	b, err := forest.NewBuilder(h)
	if err != nil {
		return nil, err
	}
	var nodes []forest.Node
	for i := range m.trees {
		t, output, weight := &m.trees[i], int(m.info[i]), float32(1)
		if i < len(m.weights) {
			weight = m.weights[i]
		}
		if t.vector > 1 {
			output = -1
		} else if output < 0 {
			return nil, invalidf("tree %d belongs to output %d, expected 0 to %d", i, output, h.Outputs-1)
		}
		if nodes, err = t.convert(nodes[:0], weight); err != nil {
			return nil, status.Prefixf(err, "tree %d: ", i)
		}
		if err := b.Add(nodes, output); err != nil {
			return nil, err
		}
		m.trees[i] = regTree{} // the memory is needed no more
	}
	return b.Forest()
}

// convert appends the nodes of the tree.
func (t *regTree) convert(nodes []forest.Node, weight float32) ([]forest.Node, error) {
	n := len(t.left)
	for name, list := range map[string]int{
		"right_children": len(t.right), "split_indices": len(t.feature), "split_conditions": len(t.threshold),
		"default_left": len(t.defaultLeft), "split_type": len(t.kind),
	} {
		if list != n && (name != "split_type" || t.kind != nil) {
			return nil, invalidf("%s has %d elements, expected one for each of the %d nodes", name, list, n)
		}
	}
	for i := range n {
		node := forest.Node{
			Test: forest.Less, Left: t.left[i], Right: t.right[i], Feature: t.feature[i],
			Threshold: float64(t.threshold[i]), DefaultLeft: t.defaultLeft[i] != 0,
		}
		var err error
		switch {
		case t.left[i] == -1:
			node, err = t.leaf(i, weight)
		case t.kind != nil && t.kind[i] == 1:
			err = t.categories(i, &node)
		}
		if err != nil {
			return nil, err
		}
		if i < len(t.cover) {
			node.Cover = float64(t.cover[i])
		}
		nodes = append(nodes, node)
	}
	return nodes, nil
}

// leaf returns the leaf at node i.
func (t *regTree) leaf(i int, weight float32) (forest.Node, error) {
	if t.vector <= 1 {
		return forest.Node{Value: float64(t.threshold[i] * weight)}, nil
	}
	values, at := t.base, i
	if t.leaves != nil {
		values, at = t.leaves, int(t.right[i])
	}
	k := int(t.vector)
	if at < 0 || at >= len(values)/k {
		return forest.Node{}, invalidf("the leaf at node %d has values number %d, expected 0 to %d", i, at, len(values)/k-1)
	}
	n := forest.Node{Vector: make([]float64, k)}
	for j, v := range values[at*k:][:k] {
		n.Vector[j] = float64(v * weight)
	}
	return n, nil
}

// categories completes the categorical test at node i. Categories in the list, and only these, go to the right.
func (t *regTree) categories(i int, n *forest.Node) error {
	at, ok := slices.BinarySearch(t.nodes, int32(i))
	if !ok || at >= len(t.segments) || at >= len(t.sizes) {
		return invalidf("node %d has a categorical test without categories", i)
	}
	from, size := int(t.segments[at]), int(t.sizes[at])
	if from < 0 || size < 0 || from > len(t.category) || size > len(t.category)-from {
		return invalidf("node %d has categories %d to %d of %d", i, from, from+size-1, len(t.category))
	}
	n.Test = forest.In
	n.Left, n.Right, n.DefaultLeft = n.Right, n.Left, !n.DefaultLeft
	n.Categories = make([]uint32, size)
	for k, c := range t.category[from:][:size] {
		if c < 0 {
			return invalidf("node %d has category %d, expected at least 0", i, c)
		}
		n.Categories[k] = uint32(c)
	}
	return nil
}

func invalidf(format string, args ...any) error {
	return status.Errorf(status.InvalidArg, format, args...)
}
