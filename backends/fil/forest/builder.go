package forest

import (
	"math"
	"slices"

	"github.com/tutti-server/tutti/core/status"
)

// Bounds of a forest. Files beyond them are refused before memory is allocated for them.
const (
	// MaxOutputs is the most outputs of a row.
	MaxOutputs = 1 << 16
	// MaxFeatures is the most columns of a row.
	MaxFeatures = math.MaxInt32 - 1
	maxNodes    = math.MaxUint32 / 2
)

// Builder builds a forest from trees, in their order. It is not safe for concurrent use.
type Builder struct {
	f     *Forest
	slots map[column]uint32
	queue []place
	seen  []bool
	cover []float64 // of the forest's nodes, for Shapley values
}

// place is a node of the file and its index in the forest.
type place struct {
	from  int32
	to    uint32
	level int32
}

// NewBuilder returns a builder for a forest without trees. It refuses heads beyond the bounds of the package.
func NewBuilder(h Head) (*Builder, error) {
	switch {
	case h.Features < 1 || h.Features > MaxFeatures:
		return nil, invalid("the model has %d features, expected 1 to %d", h.Features, MaxFeatures)
	case h.Outputs < 1 || h.Outputs > MaxOutputs:
		return nil, invalid("the model has %d outputs, expected 1 to %d", h.Outputs, MaxOutputs)
	case h.Base == nil:
		h.Base = make([]float64, h.Outputs)
	case len(h.Base) != h.Outputs:
		return nil, invalid("the model has %d base scores, expected %d", len(h.Base), h.Outputs)
	}
	for i, b := range h.Base {
		if math.IsNaN(b) || math.IsInf(b, 0) {
			return nil, invalid("base score %d is %v, expected a finite margin", i, b)
		}
	}
	if err := h.Link.check(h.Outputs); err != nil {
		return nil, err
	}
	return &Builder{f: &Forest{Head: h, counts: make([]float64, h.Outputs)}, slots: map[column]uint32{}}, nil
}

// Add appends a tree whose root is node 0. Its leaves are added to an output; with output -1 each has a vector with a value for every
// output. Nodes that the root does not reach are left out. It refuses what is not a tree. The nodes are borrowed.
func (b *Builder) Add(nodes []Node, output int) error {
	if err := b.add(nodes, output); err != nil {
		return status.Prefixf(err, "tree %d: ", len(b.f.trees))
	}
	return nil
}

func (b *Builder) add(nodes []Node, output int) error {
	f := b.f
	switch {
	case len(nodes) == 0:
		return invalid("it has no nodes")
	case output < -1 || output >= f.Outputs:
		return invalid("it belongs to output %d, expected 0 to %d", output, f.Outputs-1)
	case len(f.nodes)+len(nodes) > maxNodes:
		return invalid("the model has too many nodes, expected at most %d", maxNodes)
	}
	t := tree{root: uint32(len(f.nodes)), output: int32(output), plain: true}
	b.seen = slices.Grow(b.seen[:0], len(nodes))[:len(nodes)]
	clear(b.seen)
	b.queue = append(b.queue[:0], place{to: t.root})
	b.seen[0] = true
	f.nodes = append(f.nodes, node{})
	for at := 0; at < len(b.queue); at++ {
		p := b.queue[at]
		n := &nodes[p.from]
		t.depth = max(t.depth, p.level)
		if f.Explain {
			b.cover = append(b.cover, n.Cover) // nodes leave the queue in the order of their places
		}
		if n.Test == Leaf {
			if err := b.leaf(&t, p, n); err != nil {
				return err
			}
			continue
		}
		plain, err := b.test(nodes, p)
		if err != nil {
			return err
		}
		t.plain = t.plain && plain
	}
	f.trees = append(f.trees, t)
	f.visits += int(t.depth)
	for k := range f.counts {
		if output < 0 || output == k {
			f.counts[k]++
		}
	}
	return nil
}

// leaf lays out a leaf.
func (b *Builder) leaf(t *tree, p place, n *Node) error {
	f, values := b.f, n.Vector
	if t.output >= 0 {
		values = []float64{n.Value}
	} else if len(values) != f.Outputs {
		return invalid("the leaf at node %d has %d values, expected %d", p.from, len(values), f.Outputs)
	}
	at := len(f.single)
	if f.Double {
		at = len(f.double)
		f.double = append(f.double, values...)
	} else {
		for _, v := range values {
			f.single = append(f.single, float32(v))
		}
	}
	if at > maxNodes {
		return invalid("the model has too many leaf values, expected at most %d", maxNodes)
	}
	f.nodes[p.to] = node{slot: leafSlot, next: p.to, leaf: uint32(at)}
	return nil
}

// leafSlot is the slot of leaves while the number of slots is not known.
const leafSlot = math.MaxUint32

// test lays out a test and reserves its children, side by side. plain is false for a special.
func (b *Builder) test(nodes []Node, p place) (plain bool, err error) {
	f, n := b.f, &nodes[p.from]
	for _, child := range []int32{n.Left, n.Right} {
		switch {
		case child < 0 || int(child) >= len(nodes):
			return false, invalid("node %d has child %d, expected 0 to %d", p.from, child, len(nodes)-1)
		case b.seen[child]:
			return false, invalid("node %d is reached twice, expected a tree", child)
		}
		b.seen[child] = true
	}
	if n.Feature < 0 || int(n.Feature) >= f.Features {
		return false, invalid("node %d tests feature %d, expected 0 to %d", p.from, n.Feature, f.Features-1)
	}
	if n.Test < In && math.IsNaN(n.Threshold) {
		return false, invalid("node %d has threshold NaN, expected a number", p.from)
	}
	out, swap, plain, err := b.lay(n)
	if err != nil {
		return false, invalid("node %d: %v", p.from, err)
	}
	first, second := n.Left, n.Right
	if swap {
		first, second = second, first
	}
	out.next = uint32(len(f.nodes))
	f.nodes[p.to] = out
	f.nodes = append(f.nodes, node{}, node{})
	b.queue = append(b.queue, place{first, out.next, p.level + 1}, place{second, out.next + 1, p.level + 1})
	return plain, nil
}

// lay returns the node of a test. swap says that its first child, where a comparison that holds continues, is the right one.
func (b *Builder) lay(n *Node) (out node, swap, plain bool, err error) {
	x, t := n.Feature, n.Threshold
	switch n.Test {
	case Less:
		out, swap = b.compare(x, below(t), n.DefaultLeft)
	case LessEqual:
		if n.ZeroMissing {
			out, swap, plain = b.zeroMissing(n)
			return out, swap, plain, nil
		}
		out, swap = b.compare(x, floor(t), n.DefaultLeft)
	case Greater: // not LessEqual
		out, swap = b.compare(x, floor(t), !n.DefaultLeft)
		swap = !swap
	case GreaterEqual: // not Less
		out, swap = b.compare(x, below(t), !n.DefaultLeft)
		swap = !swap
	case Equal:
		s := special{kind: equal, slot: b.slot(column{from: x}), threshold: keyOf(float32(t)), missingFirst: n.DefaultLeft}
		if float64(float32(t)) != t { // no FP32 value equals it
			s.threshold = none
		}
		return b.special(s), false, false, nil
	case In, InTruncated:
		return b.special(b.categories(special{slot: b.slot(column{from: x}), missingFirst: n.DefaultLeft, truncate: n.Test == InTruncated}, n.Categories)), false, false, nil
	default:
		return out, false, false, invalid("test %d is unknown", n.Test)
	}
	return out, swap, true, nil
}

// compare returns the node that holds for x <= t, with NaN in the given direction: left is the direction of a test that holds. t is a
// key, of which none is below when no x is that small. For NaN to the left the node tests -x <= -(t+1) instead: x > t, which holds for the
// right.
func (b *Builder) compare(from, t int32, missingLeft bool) (out node, swap bool) {
	if missingLeft {
		return node{threshold: -(t + 1), slot: b.slot(column{from, true})}, true
	}
	return node{threshold: t, slot: b.slot(column{from: from})}, false
}

// zeroMissing returns the node of a test LessEqual where values near 0 and NaN go in the default direction. Mostly a comparison does
// the same; where 0 lies on the other side of the threshold the node is a special.
func (b *Builder) zeroMissing(n *Node) (out node, swap, plain bool) {
	t := floor(n.Threshold)
	switch inside := t >= -nearZero && t <= nearZero; {
	case inside && n.DefaultLeft:
		t = nearZero
	case inside:
		t = -nearZero - 1
	case (t > 0) != n.DefaultLeft:
		return b.special(special{kind: flipZero, slot: b.slot(column{from: n.Feature}), threshold: t, missingFirst: n.DefaultLeft}), false, false
	}
	out, swap = b.compare(n.Feature, t, n.DefaultLeft)
	return out, swap, true
}

// nearZero is the key of the largest value that LightGBM takes for 0.
var nearZero = keyOf(1e-35)

// none is the key of a threshold that no x is at or below.
var none = keyOf(float32(math.Inf(-1))) - 1

// floor returns the key of the largest FP32 number that is at most t: x <= floor(t) for the same FP32 numbers x as x <= t.
func floor(t float64) int32 {
	f := float32(t)
	if key := keyOf(f); float64(f) <= t {
		return key
	}
	return keyOf(f) - 1
}

// below returns the key of the largest FP32 number less than t: x <= below(t) for the same FP32 numbers x as x < t.
func below(t float64) int32 {
	f := float32(t)
	if key := keyOf(f); float64(f) < t {
		return key
	}
	return keyOf(f) - 1
}

// slot returns the slot of a column.
func (b *Builder) slot(c column) uint32 {
	at, ok := b.slots[c]
	if !ok {
		at = uint32(len(b.f.columns))
		b.slots[c] = at
		b.f.columns = append(b.f.columns, c)
	}
	return at
}

// Forest returns the forest. It fails only with Head.Explain, for trees without what Shapley values need. The builder must not be used
// afterwards.
func (b *Builder) Forest() (*Forest, error) {
	f := b.f
	zero := uint32(len(f.columns))
	for i := range f.nodes {
		switch n := &f.nodes[i]; {
		case n.slot == leafSlot:
			n.slot = zero
		case n.slot&specialBit != 0:
			n.slot = n.slot&^specialBit + zero + 1
		}
	}
	for k := range f.counts {
		f.counts[k] = max(f.counts[k], 1)
	}
	f.nodes, f.columns = slices.Clip(f.nodes), slices.Clip(f.columns)
	f.single, f.double = slices.Clip(f.single), slices.Clip(f.double)
	if f.Explain {
		if err := b.explain(b.cover); err != nil {
			return nil, err
		}
	}
	b.f = nil
	return f, nil
}

func invalid(format string, args ...any) error {
	return status.Errorf(status.InvalidArg, format, args...)
}
