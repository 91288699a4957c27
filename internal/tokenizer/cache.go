package tokenizer

import (
	"hash/maphash"
	"sync/atomic"
)

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

// remember stores the tokens of a word in its slot.
func remember(slot *atomic.Pointer[cachedWord], b []byte, tokens []cachedToken) {
	slot.CompareAndSwap(nil, &cachedWord{string(b), append([]cachedToken(nil), tokens...)})
}
