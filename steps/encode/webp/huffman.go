package webp

import (
	"math/bits"
	"slices"
)

// code is a Huffman code: canonical, its bits in the order they are written.
type code struct {
	counts []uint32
	size   []uint8
	bits   []uint16
	nodes  []node
	used   int
}

// node is a tree of symbols under construction.
type node struct {
	count       uint32
	left, right int32 // Nodes; or the symbol and -1.
}

// reset makes it a code of n symbols that were not seen.
func (c *code) reset(n int) {
	c.counts, c.size, c.bits = sized(c.counts, n), sized(c.size, n), sized(c.bits, n)
	clear(c.counts)
}

// build finds codes of at most limit bits. Where they come out longer, rare symbols
// count for more.
func (c *code) build(limit uint8) {
	for least := uint32(1); ; least *= 2 {
		clear(c.size)
		c.tree(least)
		if slices.Max(c.size) <= limit {
			break
		}
	}
	c.assign()
}

// tree gives each symbol its length. A lone symbol has none.
func (c *code) tree(least uint32) {
	c.nodes = c.nodes[:0]
	for s, n := range c.counts {
		if n > 0 {
			c.nodes = append(c.nodes, node{max(n, least), int32(s), -1})
		}
	}
	c.used = len(c.nodes)
	if c.used < 2 {
		return
	}
	slices.SortStableFunc(c.nodes, func(a, b node) int { return int(int64(a.count) - int64(b.count)) })
	// Two queues, the leaves and the nodes made of them, both in order of count.
	leaf, inner := 0, c.used
	next := func() int32 {
		if leaf < c.used && (inner >= len(c.nodes) || c.nodes[leaf].count <= c.nodes[inner].count) {
			leaf++
			return int32(leaf - 1)
		}
		inner++
		return int32(inner - 1)
	}
	for range c.used - 1 {
		a, b := next(), next()
		c.nodes = append(c.nodes, node{c.nodes[a].count + c.nodes[b].count, a, b})
	}
	c.depth(int32(len(c.nodes)-1), 0)
}

func (c *code) depth(i int32, d uint8) {
	n := c.nodes[i]
	if n.right < 0 {
		c.size[n.left] = d
		return
	}
	c.depth(n.left, d+1)
	c.depth(n.right, d+1)
}

// assign gives the symbols of each length consecutive codes.
func (c *code) assign() {
	next := uint16(0)
	for n := uint8(1); n <= 15; n++ {
		next <<= 1
		for s, size := range c.size {
			if size == n {
				c.bits[s] = bits.Reverse16(next) >> (16 - n)
				next++
			}
		}
	}
}

// order is that in which lengths of lengths are written.
var order = [19]uint8{17, 18, 0, 1, 2, 3, 4, 5, 16, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}

// writeCode writes a code: by its symbol where there is but one, else by its lengths.
func (e *Encoder) writeCode(c *code) {
	if c.used < 2 {
		symbol := uint32(max(slices.IndexFunc(c.counts, func(n uint32) bool { return n > 0 }), 0))
		e.w.put(1|0<<1|1<<2|symbol<<3, 11)
		return
	}
	l := &e.lengths
	l.reset(19)
	runs(c.size, func(s uint32, _ uint, _ uint32) { l.counts[s]++ })
	if distinct(l.counts) < 2 { // A code needs two.
		l.counts[0]++
		l.counts[1]++
	}
	l.build(7)
	e.w.put(0, 1)
	e.w.put(19-4, 4)
	for _, s := range order {
		e.w.put(uint32(l.size[s]), 3)
	}
	e.w.put(0, 1) // All symbols have a length.
	runs(c.size, func(s uint32, n uint, extra uint32) {
		e.w.put(uint32(l.bits[s]), uint(l.size[s]))
		e.w.put(extra, n)
	})
}

func distinct(counts []uint32) (n int) {
	for _, v := range counts {
		if v > 0 {
			n++
		}
	}
	return n
}

// runs calls use for each symbol that tells the lengths: one, or a run of zeros.
func runs(sizes []uint8, use func(symbol uint32, n uint, extra uint32)) {
	for i := 0; i < len(sizes); {
		n := 1
		for i+n < len(sizes) && sizes[i+n] == sizes[i] && n < 138 {
			n++
		}
		switch {
		case sizes[i] == 0 && n >= 11:
			use(18, 7, uint32(n-11))
		case sizes[i] == 0 && n >= 3:
			use(17, 3, uint32(n-3))
		default:
			n = 1
			use(uint32(sizes[i]), 0, 0)
		}
		i += n
	}
}

// writer writes bits, the lowest first.
type writer struct {
	out []byte
	acc uint64
	n   uint
}

// put writes the low n bits of v, at most 32.
func (w *writer) put(v uint32, n uint) {
	w.acc |= uint64(v) << w.n
	for w.n += n; w.n >= 8; w.n -= 8 {
		w.out = append(w.out, byte(w.acc))
		w.acc >>= 8
	}
}

// flush fills the last byte and returns all.
func (w *writer) flush() []byte {
	if w.n > 0 {
		w.out = append(w.out, byte(w.acc))
	}
	out := w.out
	*w = writer{}
	return out
}
