package tokenizer

import (
	"hash/maphash"
	"sync/atomic"
)

// cachedToken is a token of a word: its id, its length in bytes and how far the next one starts after it.
type cachedToken struct{ id, size, step int32 }

// cachedWord never changes.
type cachedWord struct {
	text   string
	tokens []cachedToken
}

// wordCache remembers what a model makes of words. It fills up once and then stays, so that it allocates nothing in
// the long run and needs no lock.
type wordCache struct {
	seed  maphash.Seed
	slots []atomic.Pointer[cachedWord]
}

const (
	cacheSlots   = 1 << 15
	cacheProbes  = 4
	longestWord  = 64 // bytes of a word that is worth remembering
	mostCachedID = 24
)

func newWordCache() *wordCache {
	return &wordCache{maphash.MakeSeed(), make([]atomic.Pointer[cachedWord], cacheSlots)}
}

// find is the remembered word and the slot to remember it in, which is nil when the cache is full there.
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

// remember keeps the tokens of a word, whose spans are in bytes of the word, in its slot.
func remember(slot *atomic.Pointer[cachedWord], b []byte, tokens []cachedToken) {
	slot.CompareAndSwap(nil, &cachedWord{string(b), append([]cachedToken(nil), tokens...)})
}
