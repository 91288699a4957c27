package tokenize_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/tutti-server/tutti/internal/tokenizer"
	"github.com/tutti-server/tutti/internal/tokenizer/tokenizertest"
	"github.com/tutti-server/tutti/steps/steptest"
)

// BenchmarkPeer has the cases of bench/peers/steps/tokenize.py.
func BenchmarkPeer(b *testing.B) {
	texts := peerTexts(b)
	for _, kind := range append(slices.Sorted(maps.Keys(tokenizertest.AllStored(b))), "wordpiece") {
		tok, err := tokenizer.Parse(tokenizertest.Stored(b, kind))
		if err != nil {
			b.Fatal(err)
		}
		for _, name := range slices.Sorted(maps.Keys(texts)) { // as the script has them: each finds the words of those before
			var e tokenizer.Encoding
			list := texts[name]
			steptest.Peer(b, kind+", "+name, len(list), func() {
				for _, text := range list {
					if err := tok.Encode(&e, text); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// peerTexts is the corpus without pairs and the longest texts: every fifth of them, and those in English and code.
func peerTexts(b *testing.B) map[string][][]byte {
	b.Helper()
	out, n := map[string][][]byte{"rare words": rareWords()}, 0
	for _, entry := range tokenizertest.Corpus(b) {
		if len(entry) != 1 || len(entry[0]) > 2000 {
			continue
		}
		text := []byte(entry[0])
		if n%5 == 0 {
			out["corpus"] = append(out["corpus"], text)
		}
		if n++; len(text) >= 20 && ascii(text) {
			out["english"] = append(out["english"], text)
		}
	}
	return out
}

// rareWords are texts of words of 1 to 12 random letters, hardly any of them twice, so that no memory of words helps.
func rareWords() [][]byte {
	x := uint32(1)
	next := func(n uint32) uint32 {
		x = (x*1103515245 + 12345) & 0x7FFFFFFF
		return (x >> 16) % n
	}
	out := make([][]byte, 4000)
	for i := range out {
		for range 12 {
			for range next(12) + 1 {
				out[i] = append(out[i], byte('a'+next(26)))
			}
			out[i] = append(out[i], ' ')
		}
	}
	return out
}

func ascii(text []byte) bool {
	for _, c := range text {
		if c > 127 {
			return false
		}
	}
	return true
}
