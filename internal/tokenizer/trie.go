package tokenizer

import (
	"maps"
	"slices"
)

// cell is one node of a double-array trie: its child for byte b, if any, is cell base+b, and names it as parent.
type cell struct{ base, parent, id int32 }

// trie finds the longest entry of a vocabulary that a text starts with, one load per byte (Aoe 1989).
type trie struct{ cells []cell }

const (
	rootNode = 0
	noNode   = -1
	noID     = -1
	noBase   = -256 // no byte leads from there to a cell
)

// newTrie builds the trie of a vocabulary.
func newTrie(vocab map[string]int32) *trie {
	keys := slices.Sorted(maps.Keys(vocab))
	b := trieBuilder{vocab: vocab}
	b.grow(512)
	b.cells[rootNode].parent = rootNode
	b.free, b.sparse = 256, 256
	b.insert(rootNode, keys, 0)
	return &trie{cells: b.cells}
}

// walk returns the node that s leads to from the root, or noNode.
func (t *trie) walk(s string) int32 {
	node := int32(rootNode)
	for i := range len(s) {
		next := t.cells[node].base + int32(s[i])
		if uint32(next) >= uint32(len(t.cells)) || t.cells[next].parent != node || next == rootNode {
			return noNode
		}
		node = next
	}
	return node
}

// longest returns the longest entry that b starts with when read from node, and its length; noID when there is none.
func (t *trie) longest(node int32, b []byte) (id int32, size int) {
	id = noID
	cells := t.cells
	for i, c := range b {
		next := cells[node].base + int32(c)
		if uint32(next) >= uint32(len(cells)) || cells[next].parent != node || next == rootNode {
			break
		}
		node = next
		if v := cells[node].id; v != noID {
			id, size = v, i+1
		}
	}
	return id, size
}

// trieBuilder places nodes. The search for a cell starts at free for only children and at sparse for siblings. Both start where no
// label makes a base negative.
type trieBuilder struct {
	vocab        map[string]int32
	cells        []cell
	free, sparse int32
}

// grow extends the cells to at least n.
func (b *trieBuilder) grow(n int) {
	for len(b.cells) < n {
		b.cells = append(b.cells, cell{base: noBase, parent: noNode, id: noID})
	}
}

// insert adds the sorted keys, which agree in their first depth bytes, below node.
func (b *trieBuilder) insert(node int32, keys []string, depth int) {
	if len(keys) > 0 && len(keys[0]) == depth {
		b.cells[node].id = b.vocab[keys[0]]
		keys = keys[1:]
	}
	var labels []byte
	for _, k := range keys {
		if c := k[depth]; len(labels) == 0 || labels[len(labels)-1] != c {
			labels = append(labels, c)
		}
	}
	if len(labels) == 0 {
		return
	}
	base := b.place(labels)
	b.cells[node].base = base
	for _, c := range labels {
		b.cells[base+int32(c)].parent = node
	}
	for _, c := range labels {
		n := 0
		for n < len(keys) && keys[n][depth] == c {
			n++
		}
		b.insert(base+int32(c), keys[:n], depth+1)
		keys = keys[n:]
	}
}

// maxTries is the largest number of cells tried for siblings, so that building stays linear.
const maxTries = 64

// place returns a base whose cells for all labels are empty. An only child gets the first empty cell. Siblings search from where the
// last ones gave up; only children fill the gaps.
func (b *trieBuilder) place(labels []byte) int32 {
	from := &b.sparse
	if len(labels) == 1 {
		from = &b.free
	}
	*from = b.empty(*from)
	at := *from
	for tries := 0; ; tries++ {
		if base := at - int32(labels[0]); b.fits(base, labels) {
			return base
		}
		if tries == maxTries {
			*from = at
		}
		at = b.empty(at + 1)
	}
}

// empty returns the first empty cell from at on, with room for all siblings of a child placed there.
func (b *trieBuilder) empty(at int32) int32 {
	for b.grow(int(at) + 512); b.cells[at].parent != noNode; at++ {
		b.grow(int(at) + 513)
	}
	return at
}

func (b *trieBuilder) fits(base int32, labels []byte) bool {
	for _, c := range labels {
		if b.cells[base+int32(c)].parent != noNode {
			return false
		}
	}
	return true
}
