package tokenizer

import (
	"bytes"
	"hash/maphash"
	"slices"
	"sync/atomic"
)

// bpe is byte pair encoding (Sennrich et al. 2016): a word starts as its code points, or bytes. While some neighbours have a merge,
// the pair with the lowest rank becomes one symbol. For example, with merges "l o" and "lo w" the word "low" goes from l, o, w over
// lo, w to low.
type bpe struct {
	vocabulary

	merges   *pairTable
	symbols  symbolTable
	whole    map[string]int32 // ignore_merges: words that are tokens; nil when off
	fallback *[256]int32      // byte_fallback: the tokens of bytes, noID where there is none; nil when off
	unknown  int32            // noID without one
	strict   bool             // the file names an unknown token that the vocabulary lacks
	fuse     bool
	seam     []byte // words can be cut before this code point, since no merge crosses it; nil where they cannot
	cache    *wordCache
}

// bpeScratch is the memory of one word's merging.
type bpeScratch struct {
	symbols []symbol
	heap    []candidate
	out     []cachedToken
}

// symbol is a token so far; size 0 marks one that was merged into its neighbour.
type symbol struct{ id, size, prev, next int32 }

// candidate is a pair that could be merged.
type candidate struct{ rank, pos, id int32 }

func (c candidate) before(o candidate) bool {
	return c.rank < o.rank || c.rank == o.rank && c.pos < o.pos
}

func (m *bpe) tokenize(t *text, w Span, dst []token) []token {
	if m.seam == nil {
		return m.cache.tokenize(m, t, w, dst)
	}
	for at := w; at.Start < at.End; at.Start, at.End = at.End, w.End {
		at.End = at.Start + m.nextSeam(t.buf[at.Start:at.End])
		dst = m.cache.tokenize(m, t, at, dst)
	}
	return dst
}

// nextSeam returns the first position where b can be cut: before a seam that follows another code point.
func (m *bpe) nextSeam(b []byte) int32 {
	i := 0
	for bytes.HasPrefix(b[i:], m.seam) {
		i += len(m.seam)
	}
	if n := bytes.Index(b[i:], m.seam); n >= 0 {
		return int32(i + n)
	}
	return int32(len(b))
}

// tokens appends the tokens of a word that starts at byte start of buf.
func (t *text) tokens(dst []token, start int32, word []cachedToken) []token {
	for _, c := range word {
		dst = append(dst, token{id: c.id, span: t.source(Span{start, start + c.size}), lead: byID})
		start += c.step
	}
	return dst
}

// encode returns the tokens of a word, in scratch memory.
func (m *bpe) encode(t *text, b []byte) []cachedToken {
	s := &t.bpe
	s.out = s.out[:0]
	if m.whole != nil {
		if id, ok := m.whole[string(b)]; ok {
			s.out = append(s.out, cachedToken{id, int32(len(b)), int32(len(b))})
			return s.out
		}
	}
	if !m.start(s, b) {
		t.bad = errUnknown
	}
	if len(s.symbols) <= maxScanned {
		m.mergeShort(s)
	} else {
		m.mergeLong(s)
	}
	for _, y := range s.symbols {
		if y.size != 0 {
			s.out = append(s.out, cachedToken{y.id, y.size, y.size})
		}
	}
	return s.out
}

// add appends a symbol.
func (s *bpeScratch) add(id, size int32) {
	n := int32(len(s.symbols))
	s.symbols = append(s.symbols, symbol{id, size, n - 1, n + 1})
}

// start fills s.symbols with the code points of the word. Code points that the vocabulary lacks become byte tokens or unknown ones;
// ok is false where one should but there is no unknown token.
func (m *bpe) start(s *bpeScratch, b []byte) (ok bool) {
	s.symbols = s.symbols[:0]
	ok = true
	unknown := int32(0) // bytes of unknown code points that are not yet a symbol
	for i := int32(0); int(i) < len(b); {
		id, n := m.symbols.at(b, i)
		i += n
		switch {
		case id != noID:
			if unknown > 0 {
				s.add(m.unknown, unknown)
				unknown = 0
			}
			s.add(id, n)
		case m.fallback != nil && m.byteTokens(s, b, i-n, n):
		case m.unknown == noID:
			ok = !m.strict
		case m.fuse || unknown == 0:
			unknown += n
		default:
			s.add(m.unknown, unknown)
			unknown = n
		}
	}
	if unknown > 0 {
		s.add(m.unknown, unknown)
	}
	return ok
}

// byteTokens adds the byte tokens of a code point with its prefix and suffix, if all of them exist.
func (m *bpe) byteTokens(s *bpeScratch, b []byte, i, n int32) bool {
	parts, start := [...]string{"", string(b[i : i+n]), ""}, len(s.symbols)
	if i > 0 {
		parts[0] = m.symbols.prefix
	}
	if int(i+n) == len(b) {
		parts[2] = m.symbols.suffix
	}
	for _, part := range parts {
		for k := range len(part) {
			id := m.fallback[part[k]]
			if id == noID {
				s.symbols = s.symbols[:start]
				return false
			}
			s.add(id, 1)
		}
	}
	return true
}

// maxScanned is the largest number of symbols for which a scan per merge is cheaper than a heap.
const maxScanned = 24

// mergeShort scans for the lowest rank before each merge. The symbols stay adjacent.
func (m *bpe) mergeShort(s *bpeScratch) {
	y := s.symbols
	var best [maxScanned]candidate
	for i := 0; i+1 < len(y); i++ {
		best[i] = m.merges.find(y[i].id, y[i+1].id)
	}
	for len(y) > 1 {
		low := 0
		for i := 1; i+1 < len(y); i++ {
			if uint32(best[i].rank) < uint32(best[low].rank) {
				low = i
			}
		}
		if best[low].rank == noRank {
			break
		}
		y[low].id, y[low].size = best[low].id, y[low].size+y[low+1].size
		copy(y[low+1:], y[low+2:])
		copy(best[low:len(y)-2], best[low+1:])
		y = y[:len(y)-1]
		if low+1 < len(y) {
			best[low] = m.merges.find(y[low].id, y[low+1].id)
		}
		if low > 0 {
			best[low-1] = m.merges.find(y[low-1].id, y[low].id)
		}
	}
	s.symbols = y
}

// mergeLong merges with a heap of candidates, in time n log n.
func (m *bpe) mergeLong(s *bpeScratch) {
	s.heap = s.heap[:0]
	y := s.symbols
	y[len(y)-1].next = -1
	for i := range int32(len(y) - 1) {
		m.consider(s, i, i+1)
	}
	for len(s.heap) > 0 {
		top := s.pop()
		left := &y[top.pos]
		if left.size == 0 || left.next < 0 {
			continue
		}
		right := &y[left.next]
		if now := m.merges.find(left.id, right.id); now.rank == noRank || now.id != top.id {
			continue // the pair has changed since
		}
		left.id, left.size, left.next = top.id, left.size+right.size, right.next
		right.size = 0
		if left.next >= 0 {
			y[left.next].prev = top.pos
			m.consider(s, top.pos, left.next)
		}
		if left.prev >= 0 {
			m.consider(s, left.prev, top.pos)
		}
	}
}

// consider pushes the pair of two neighbours if there is a merge.
func (m *bpe) consider(s *bpeScratch, left, right int32) {
	if c := m.merges.find(s.symbols[left].id, s.symbols[right].id); c.rank != noRank {
		c.pos = left
		s.push(c)
	}
}

func (s *bpeScratch) push(c candidate) {
	s.heap = append(s.heap, c)
	for i := len(s.heap) - 1; i > 0; {
		up := (i - 1) / 4
		if !s.heap[i].before(s.heap[up]) {
			break
		}
		s.heap[i], s.heap[up] = s.heap[up], s.heap[i]
		i = up
	}
}

func (s *bpeScratch) pop() candidate {
	h := s.heap
	top, last := h[0], len(h)-1
	h[0] = h[last]
	h = h[:last]
	s.heap = h
	for i := 0; ; {
		low := i
		for k := 4*i + 1; k <= 4*i+4 && k < last; k++ {
			if h[k].before(h[low]) {
				low = k
			}
		}
		if low == i {
			return top
		}
		h[i], h[low] = h[low], h[i]
		i = low
	}
}

// cachedToken is a token of a word: its id, its length in bytes, and the distance to the start of the next one.
type cachedToken struct{ id, size, step int32 }

// cachedWord never changes.
type cachedWord struct {
	text   string
	tokens []cachedToken
}

// wordCache maps words to their tokens. It fills up once and never evicts, so that it needs no lock and stops allocating. It holds at
// most cacheSlots words of maxCachedWord bytes.
type wordCache struct {
	seed  maphash.Seed
	slots []atomic.Pointer[cachedWord]
}

const (
	cacheSlots      = 1 << 15
	cacheProbes     = 4
	maxCachedWord   = 64 // the longest word in bytes that is cached
	maxCachedTokens = 24
)

func newWordCache() *wordCache {
	return &wordCache{maphash.MakeSeed(), make([]atomic.Pointer[cachedWord], cacheSlots)}
}

// find returns the cached word, or the slot to store it in. Both are nil when the word's slots are full.
func (c *wordCache) find(b []byte) (*cachedWord, *atomic.Pointer[cachedWord]) {
	h := maphash.Bytes(c.seed, b)
	for i := range uint64(cacheProbes) {
		slot := &c.slots[(h+i)%cacheSlots]
		w := slot.Load()
		if w == nil {
			return nil, slot
		}
		if w.text == string(b) {
			return w, nil
		}
	}
	return nil, nil
}

// encoder returns the tokens of a word, in scratch memory. It sets t.bad where the word has none.
type encoder interface {
	encode(t *text, b []byte) []cachedToken
}

// tokenize appends the tokens of a word: those that are known, or else those of m, which it stores.
func (c *wordCache) tokenize(m encoder, t *text, at Span, dst []token) []token {
	b := t.buf[at.Start:at.End]
	var slot *atomic.Pointer[cachedWord]
	if len(b) <= maxCachedWord && c != nil {
		var w *cachedWord
		if w, slot = c.find(b); w != nil {
			return t.tokens(dst, at.Start, w.tokens)
		}
	}
	out := m.encode(t, b)
	if slot != nil && len(out) <= maxCachedTokens && t.bad == nil {
		slot.CompareAndSwap(nil, &cachedWord{string(b), slices.Clone(out)})
	}
	return t.tokens(dst, at.Start, out)
}
