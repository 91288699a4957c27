package lightgbm

import (
	"math/bits"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/backends/fil/forest"
	"github.com/tutti-server/tutti/core/status"
)

// Bits of decision_type. The next two are the missing type.
const (
	categorical = 1
	defaultLeft = 2
)

// Missing types: the values that a test treats as missing. NaN counts as 0 unless it is one of them.
const (
	missingNone = iota
	missingZero
	missingNaN
)

// maxLeaves bounds the leaves of a tree, so that indices of nodes have 32 bits.
const maxLeaves = 1 << 30

// array returns the elements of a field, of which there must be n.
func array[T any](fields map[string]string, key string, n int, parse func(string) (T, error)) ([]T, error) {
	text, ok := fields[key]
	if !ok {
		return nil, invalidf("there is no field '%s'", key)
	}
	if most := len(text)/2 + 1; n > most { // before memory is allocated
		return nil, invalidf("%s has at most %d elements, expected %d", key, most, n)
	}
	out := make([]T, 0, n)
	for word := range strings.FieldsSeq(text) {
		x, err := parse(word)
		if err != nil {
			return nil, invalidf("element %d of %s is %.40q, expected a number", len(out), key, word)
		}
		out = append(out, x)
	}
	if len(out) != n {
		return nil, invalidf("%s has %d elements, expected %d", key, len(out), n)
	}
	return out, nil
}

func integer(word string) (int32, error) {
	n, err := strconv.ParseInt(word, 10, 32)
	return int32(n), err
}

func word32(word string) (uint32, error) {
	n, err := strconv.ParseUint(word, 10, 32)
	return uint32(n), err
}

func decimal(word string) (float64, error) { return strconv.ParseFloat(word, 64) }

// nodesOf returns the nodes of a tree: its tests, then its leaves.
func nodesOf(fields map[string]string) ([]forest.Node, error) {
	if fields["is_linear"] == "1" {
		return nil, status.Errorf(status.Unsupported, "it has a linear model in each leaf (linear_tree), expected constant leaves")
	}
	leaves, err := number(fields, "num_leaves", 1, maxLeaves)
	if err != nil {
		return nil, err
	}
	values, err := array(fields, "leaf_value", leaves, decimal)
	if err != nil {
		return nil, err
	}
	if leaves == 1 {
		return []forest.Node{{Value: values[0]}}, nil
	}
	t := &tree{tests: leaves - 1}
	if err := t.read(fields); err != nil {
		return nil, err
	}
	nodes := make([]forest.Node, t.tests, t.tests+leaves)
	for i := range nodes {
		if nodes[i], err = t.test(i); err != nil {
			return nil, invalidf("test %d: %v", i, err)
		}
	}
	for _, v := range values {
		nodes = append(nodes, forest.Node{Value: v})
	}
	counts(fields, "internal_count", nodes[:t.tests])
	counts(fields, "leaf_count", nodes[t.tests:])
	return nodes, nil
}

// counts sets the numbers of rows of training that reached the nodes, if the file has them.
func counts(fields map[string]string, key string, nodes []forest.Node) {
	if list, err := array(fields, key, len(nodes), decimal); err == nil {
		for i, n := range list {
			nodes[i].Cover = n
		}
	}
}

// tree has the arrays of a tree, indexed by test.
type tree struct {
	tests                         int
	left, right, feature, decides []int32
	threshold                     []float64
	// The categories of set k are the bits of words from bounds[k] to bounds[k+1].
	bounds []int32
	words  []uint32
}

func (t *tree) read(fields map[string]string) (err error) {
	for key, to := range map[string]*[]int32{"left_child": &t.left, "right_child": &t.right, "split_feature": &t.feature, "decision_type": &t.decides} {
		if *to, err = array(fields, key, t.tests, integer); err != nil {
			return err
		}
	}
	if t.threshold, err = array(fields, "threshold", t.tests, decimal); err != nil {
		return err
	}
	sets, err := number(fields, "num_cat", 0, t.tests)
	if err != nil || sets == 0 {
		return err
	}
	if t.bounds, err = array(fields, "cat_boundaries", sets+1, integer); err != nil {
		return err
	}
	words := len(strings.Fields(fields["cat_threshold"]))
	if t.words, err = array(fields, "cat_threshold", words, word32); err != nil {
		return err
	}
	for k := range sets {
		if from, to := t.bounds[k], t.bounds[k+1]; from < 0 || to < from || int(to) > words {
			return invalidf("cat_boundaries has %d to %d, expected at most %d", from, to, words)
		}
	}
	return nil
}

// test returns the node of test i.
func (t *tree) test(i int) (forest.Node, error) {
	d := t.decides[i]
	n := forest.Node{
		Test: forest.LessEqual, Left: t.child(t.left[i]), Right: t.child(t.right[i]), Feature: t.feature[i],
		Threshold: t.threshold[i], DefaultLeft: d&defaultLeft != 0,
	}
	if d&categorical != 0 { // NaN is in no set
		n.Test, n.DefaultLeft = forest.InTruncated, false
		return n, t.categories(&n)
	}
	switch d >> 2 & 3 {
	case missingNone:
		n.DefaultLeft = n.Threshold >= 0
	case missingZero:
		n.ZeroMissing = true
	case missingNaN:
	default:
		return n, invalidf("decision_type is %d, expected a missing type up to %d", d, missingNaN)
	}
	return n, nil
}

// child returns the index of a child: a test as it is, and leaf k, which is written as -k-1, after the tests. An index that does not
// exist stays one.
func (t *tree) child(k int32) int32 {
	if k >= int32(t.tests) {
		return -1
	}
	if k < 0 {
		return int32(min(int64(t.tests)+int64(^k), maxLeaves*2-1))
	}
	return k
}

// categories completes a categorical test, whose threshold is the number of its set.
func (t *tree) categories(n *forest.Node) error {
	if !(n.Threshold >= 0 && n.Threshold < float64(len(t.bounds)-1)) {
		return invalidf("it has set %v of categories, expected 0 to %d", n.Threshold, len(t.bounds)-2)
	}
	k := int(n.Threshold)
	for i, word := range t.words[t.bounds[k]:t.bounds[k+1]] {
		for ; word != 0; word &= word - 1 {
			n.Categories = append(n.Categories, uint32(i*32+bits.TrailingZeros32(word)))
		}
	}
	return nil
}
