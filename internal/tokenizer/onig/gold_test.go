package onig_test

import (
	"bytes"
	"encoding/json"
	"hash/crc32"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tutti-server/tutti/internal/tokenizer/onig"
	"github.com/tutti-server/tutti/internal/tokenizer/tokenizertest"
)

// patternGold is a line of patterns.jsonl.gz; testdata/make_patterns.py says what the checksums are of.
type patternGold struct {
	Name, Pattern string
	Sums          []uint32
}

// TestPatternsOfTokenizers compares the matches of the patterns of published tokenizers with those of the reference.
func TestPatternsOfTokenizers(t *testing.T) {
	t.Parallel()
	texts, patterns := goldTexts(t), 0
	for d := json.NewDecoder(bytes.NewReader(tokenizertest.File(t, "patterns.jsonl.gz"))); d.More(); patterns++ {
		var g patternGold
		if err := d.Decode(&g); err != nil {
			t.Fatal(err)
		}
		t.Run(g.Name, func(t *testing.T) {
			t.Parallel()
			p, err := onig.Compile(g.Pattern)
			if err != nil {
				t.Fatal(err)
			}
			i := 0
			for block := range slices.Chunk(texts, 100) {
				if got := blockSum(t, p, block); got != g.Sums[i] {
					t.Errorf("texts from %d on (%.60q): checksum of the matches is %d, expected %d", 100*i, block[0], got, g.Sums[i])
				}
				i++
			}
			if i != len(g.Sums) {
				t.Errorf("%d blocks of texts, expected %d", i, len(g.Sums))
			}
		})
	}
	if patterns < 25 {
		t.Errorf("%d patterns, expected at least 25", patterns)
	}
}

// goldTexts returns the texts of make_patterns.py: the corpus, and rows of 64 code points.
func goldTexts(tb testing.TB) []string {
	tb.Helper()
	out := slices.Concat(tokenizertest.Corpus(tb)...)
	for first := rune(0); first < 0x20000; first += 64 {
		if first >= 0xD800 && first < 0xE000 {
			continue
		}
		var parts []string
		for c := first; c < first+64; c++ {
			part := string(c)
			if c%3 == 0 {
				part += "a"
			}
			parts = append(parts, part)
		}
		out = append(out, strings.Join(parts, " "))
	}
	return out
}

// blockSum returns the checksum of the matches in a block of texts, as ranges of code points.
func blockSum(t *testing.T, p *onig.Pattern, texts []string) uint32 {
	t.Helper()
	var scratch onig.Scratch
	block := [][][2]int{}
	for _, text := range texts {
		found, err := p.Matches(&scratch, []byte(text), nil)
		if err != nil {
			t.Fatal(err)
		}
		spans, chars, at := [][2]int{}, 0, int32(0)
		for _, m := range found {
			if m[0] == m[1] {
				continue
			}
			start := chars + utf8.RuneCountInString(text[at:m[0]])
			chars = start + utf8.RuneCountInString(text[m[0]:m[1]])
			spans, at = append(spans, [2]int{start, chars}), m[1]
		}
		block = append(block, spans)
	}
	data, err := json.Marshal(block)
	if err != nil {
		t.Fatal(err)
	}
	return crc32.ChecksumIEEE(data)
}
