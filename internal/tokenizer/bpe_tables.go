package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// pairTable finds the merge of two ids by open addressing.
type pairTable struct {
	keys   []uint64
	merged []candidate
	mask   uint64
}

const (
	noPair = ^uint64(0)
	noRank = -1
)

func newPairTable(n int) *pairTable {
	size := 16
	for size < 2*n {
		size *= 2
	}
	t := &pairTable{make([]uint64, size), make([]candidate, size), uint64(size - 1)}
	for i := range t.keys {
		t.keys[i], t.merged[i].rank = noPair, noRank
	}
	return t
}

func (t *pairTable) slot(key uint64) uint64 {
	h := key * 0x9E3779B97F4A7C15
	return (h ^ h>>32) & t.mask
}

func (t *pairTable) put(left, right int32, c candidate) {
	key := uint64(uint32(left))<<32 | uint64(uint32(right))
	i := t.slot(key)
	for t.keys[i] != noPair && t.keys[i] != key {
		i = (i + 1) & t.mask
	}
	t.keys[i], t.merged[i] = key, c
}

// find returns the merge of two ids, with noRank where there is none.
func (t *pairTable) find(left, right int32) candidate {
	key := uint64(uint32(left))<<32 | uint64(uint32(right))
	for i := t.slot(key); ; i = (i + 1) & t.mask {
		if k := t.keys[i]; k == key || k == noPair {
			return t.merged[i]
		}
	}
}

// symbolTable finds the token of a code point, or of a byte. The continuing prefix and the end-of-word suffix make it depend on
// the position in the word.
type symbolTable struct {
	raw            bool // bytes
	bytes          [256]int32
	prefix, suffix string
	tables         [4]*runeTable // first and last count 1 and 2
	rare           [4]map[rune]int32
}

const notFirst, isLast = 1, 2

// at returns the token of the code point or byte at b[i], noID for none, and its length.
func (y *symbolTable) at(b []byte, i int32) (id, n int32) {
	if y.raw {
		return y.bytes[b[i]], 1
	}
	r, n := decodeRune(b[i:])
	which := 0
	if i > 0 && y.prefix != "" {
		which |= notFirst
	}
	if y.suffix != "" && int(i+n) == len(b) {
		which |= isLast
	}
	if v, ok := y.tables[which].at(r); ok {
		return v, n
	}
	if v, ok := y.rare[which][r]; ok {
		return v, n
	}
	return noID, n
}

// newSymbolTable builds the tables of a vocabulary.
func newSymbolTable(vocab map[string]int32, prefix, suffix string) symbolTable {
	y := symbolTable{prefix: prefix, suffix: suffix}
	for which := range y.tables {
		before, after := "", ""
		if which&notFirst != 0 {
			before = prefix
		}
		if which&isLast != 0 {
			after = suffix
		}
		found := map[rune]int32{}
		for k, id := range vocab {
			if len(k) > len(before)+len(after)+utf8.UTFMax || !strings.HasPrefix(k, before) || !strings.HasSuffix(k, after) ||
				len(k) <= len(before)+len(after) {
				continue
			}
			middle := k[len(before) : len(k)-len(after)]
			if r, n := utf8.DecodeRuneInString(middle); n == len(middle) {
				found[r] = id
			}
		}
		y.rare[which] = found
		y.tables[which] = newRuneTable(func(r rune) int32 {
			if id, ok := found[r]; ok {
				return id
			}
			return noID
		})
		if prefix == "" && suffix == "" {
			break
		}
	}
	return y
}
