package treelite

import (
	"encoding/binary"
	"math"

	"github.com/tutti-server/tutti/backends/fil/forest"
)

// tests are the comparisons by number.
var tests = []forest.Test{1: forest.Equal, 2: forest.Less, 3: forest.LessEqual, 4: forest.Greater, 5: forest.GreaterEqual}

// categoricalTest is the type of a node with a categorical test.
const categoricalTest = 2

// arrays are the arrays of a tree that both versions have, indexed by node.
type arrays struct {
	left, right []int32
	feature     []int32
	threshold   []float64
	value       []float64
	kind        []byte
	compare     []byte
	defaultLeft []byte
	// Statistics may be missing as a whole, or for some nodes.
	rows                   []uint64
	weight                 []float64
	rowsKnown, weightKnown []byte

	listRight []byte

	vector                   []float64
	category                 []uint32
	vectorFrom, vectorTo     []uint64
	categoryFrom, categoryTo []uint64
}

// tree reads a tree of version 4.
func (c *checkpoint) tree() []forest.Node {
	n := int(c.int32())
	c.uint8() // whether there are categorical tests
	var a arrays
	a.kind = c.block(1)
	a.left, a.right, a.feature = c.int32s(), c.int32s(), c.int32s()
	a.defaultLeft = c.block(1)
	a.value, a.threshold = c.reals(c.head.Double), c.reals(c.head.Double)
	a.compare, a.listRight = c.block(1), c.block(1)
	a.vector, a.vectorFrom, a.vectorTo = c.reals(c.head.Double), c.uint64s(), c.uint64s()
	a.category, a.categoryFrom, a.categoryTo = c.uint32s(), c.uint64s(), c.uint64s()
	a.rows, a.rowsKnown = c.uint64s(), c.block(1)
	a.weight, a.weightKnown = c.float64s(), c.block(1)
	c.skip(8, 1) // the gain
	c.options()
	c.options()
	return c.nodes(&a, n)
}

// treeV3 reads a tree of version 3.9, whose nodes are structures.
func (c *checkpoint) treeV3() []forest.Node {
	n := int(c.int32())
	c.uint8()
	size, value, statistics := nodeSizeV3, 12, 4 // sizes, and where the value and what follows it are
	if c.head.Double {
		size, value, statistics = nodeSizeV3+8, 16, 8
	}
	block := c.block(size)
	var a arrays
	for ; len(block) > 0; block = block[size:] {
		b := block[:size]
		x, flags := float64(math.Float32frombits(binary.LittleEndian.Uint32(b[value:]))), b[size-8:]
		if c.head.Double {
			x = float64At(b[value:])
		}
		index := binary.LittleEndian.Uint32(b[8:])
		a.rows, a.rowsKnown = append(a.rows, binary.LittleEndian.Uint64(b[value+statistics:])), append(a.rowsKnown, flags[2])
		a.weight, a.weightKnown = append(a.weight, float64At(b[value+statistics+8:])), append(a.weightKnown, flags[3])
		a.left = append(a.left, int32(binary.LittleEndian.Uint32(b)))
		a.right = append(a.right, int32(binary.LittleEndian.Uint32(b[4:])))
		a.feature = append(a.feature, int32(index&^(1<<31)))
		a.defaultLeft = append(a.defaultLeft, byte(index>>31))
		a.threshold, a.value = append(a.threshold, x), append(a.value, x)
		a.kind, a.compare, a.listRight = append(a.kind, flags[0]), append(a.compare, flags[1]), append(a.listRight, flags[5])
	}
	a.vector, a.vectorFrom, a.vectorTo = c.reals(c.head.Double), c.uint64s(), c.uint64s()
	a.category = c.uint32s()
	if offsets := c.uint64s(); len(offsets) > 0 {
		a.categoryFrom, a.categoryTo = offsets[:len(offsets)-1], offsets[1:]
	}
	c.options()
	c.options()
	return c.nodes(&a, n)
}

// nodes returns the nodes of a tree with n nodes.
func (c *checkpoint) nodes(a *arrays, n int) []forest.Node {
	for _, k := range []int{
		len(a.kind), len(a.left), len(a.right), len(a.feature), len(a.defaultLeft), len(a.value), len(a.threshold), len(a.compare), len(a.listRight),
		len(a.vectorFrom), len(a.vectorTo), len(a.categoryFrom), len(a.categoryTo),
	} {
		if k != n {
			c.fail("a tree has an array of %d elements, expected one for each of the %d nodes", k, n)
		}
	}
	if c.err != nil {
		return nil
	}
	out := make([]forest.Node, n)
	for i := range out {
		out[i] = c.node(a, i)
		out[i].Cover = a.cover(i)
	}
	return out
}

// cover returns the weight of the rows that reached node i, or their number, or 0.
func (a *arrays) cover(i int) float64 {
	switch {
	case i < len(a.weight) && i < len(a.weightKnown) && a.weightKnown[i] != 0:
		return a.weight[i]
	case i < len(a.rows) && i < len(a.rowsKnown) && a.rowsKnown[i] != 0:
		return float64(a.rows[i])
	}
	return 0
}

// node returns node i.
func (c *checkpoint) node(a *arrays, i int) forest.Node {
	if a.left[i] == -1 {
		return forest.Node{Value: a.value[i], Vector: part(c, a.vector, a.vectorFrom[i], a.vectorTo[i])}
	}
	n := forest.Node{Left: a.left[i], Right: a.right[i], Feature: a.feature[i], Threshold: a.threshold[i], DefaultLeft: a.defaultLeft[i] != 0}
	if a.kind[i] == categoricalTest {
		n.Test, n.Categories = forest.In, part(c, a.category, a.categoryFrom[i], a.categoryTo[i])
		if a.listRight[i] != 0 { // categories in the list go to the right
			n.Left, n.Right, n.DefaultLeft = n.Right, n.Left, !n.DefaultLeft
		}
		return n
	}
	if k := int(a.compare[i]); k < 1 || k >= len(tests) {
		c.fail("node %d of a tree has comparison %d, expected 1 to %d", i, k, len(tests)-1)
		return n
	}
	n.Test = tests[a.compare[i]]
	return n
}

// part returns all[from:to].
func part[T any](c *checkpoint, all []T, from, to uint64) []T {
	if from > to || to > uint64(len(all)) {
		c.fail("a node has elements %d to %d of %d", from, to, len(all))
		return nil
	}
	return all[from:to]
}
