package tokenizer_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/internal/tokenizer"
	"github.com/tutti-server/tutti/internal/tokenizer/tokenizertest"
)

// goldHead is the first line of gold.jsonl.gz.
type goldHead struct {
	Tokenizers string
	Corpus     [][]string
}

// goldVariant has the reference's results with some sections of the file replaced. Each is ids, type ids,
// attention and special masks as runs, and offsets in code points as distances; null is an error.
type goldVariant struct {
	Name    string
	Patch   map[string]json.RawMessage
	Picked  []int
	Answers [][5][]int32
}

func TestGold(t *testing.T) {
	t.Parallel()
	head, variants := readGold(t)
	if len(head.Corpus) < 2500 {
		t.Fatalf("corpus has %d entries, expected at least 2500", len(head.Corpus))
	}
	for _, v := range variants {
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			tok := mustParse(t, tokenizertest.MiniLM(t, v.Patch))
			bad, e := 0, &tokenizer.Encoding{TrackOffsets: true}
			for i, want := range v.Answers {
				entry := head.Corpus[v.Picked[i]]
				got := answer(tok, e, entry)
				if reflect.DeepEqual(want, got) {
					continue
				}
				if bad++; bad <= 5 {
					t.Errorf("%q (-want +got):\n%s", entry, cmp.Diff(want, got))
				}
			}
			t.Logf("%d of %d equal", len(v.Answers)-bad, len(v.Answers))
		})
	}
}

// answer encodes an entry and writes it as the gold file does.
func answer(tok *tokenizer.Tokenizer, e *tokenizer.Encoding, entry []string) [5][]int32 {
	var err error
	if len(entry) == 2 {
		err = tok.EncodePair(e, []byte(entry[0]), []byte(entry[1]))
	} else {
		err = tok.Encode(e, []byte(entry[0]))
	}
	if err != nil {
		return [5][]int32{}
	}
	return [5][]int32{e.IDs, runs(e.TypeIDs), runs(e.Attention), runs(e.Special), distances(e, entry)}
}

func runs(values []int32) []int32 {
	out := []int32{}
	for _, v := range values {
		if n := len(out); n > 0 && out[n-2] == v {
			out[n-1]++
			continue
		}
		out = append(out, v, 1)
	}
	return out
}

// distances turns byte offsets into code points, each relative to the one before. The order identifies the
// token's text: the second one starts at the first special token after the first one's tokens.
func distances(e *tokenizer.Encoding, entry []string) []int32 {
	out, last, which := []int32{}, int32(0), 0
	for i, s := range e.Offsets {
		if len(entry) == 2 && i > 0 && second(e, i) {
			which = 1
		}
		start := int32(utf8.RuneCountInString(entry[which][:s.Start]))
		end := start + int32(utf8.RuneCountInString(entry[which][s.Start:s.End]))
		out, last = append(out, start-last, end-start), end
	}
	return out
}

// second reports whether token i and those after it are of the pair's second text, by type id.
func second(e *tokenizer.Encoding, i int) bool {
	return e.TypeIDs[i] == 1
}

// readGold is the gold file, read once for all tests.
func readGold(tb testing.TB) (goldHead, []goldVariant) {
	tb.Helper()
	goldOnce.Do(func() { goldFile.head, goldFile.variants = decodeGold(tb) })
	return goldFile.head, goldFile.variants
}

var (
	goldOnce sync.Once
	goldFile struct {
		head     goldHead
		variants []goldVariant
	}
)

func decodeGold(tb testing.TB) (head goldHead, variants []goldVariant) {
	tb.Helper()
	d := json.NewDecoder(bytes.NewReader(tokenizertest.File(tb, "gold.jsonl.gz")))
	if err := d.Decode(&head); err != nil {
		tb.Fatal(err)
	}
	for d.More() {
		var v goldVariant
		if err := d.Decode(&v); err != nil {
			tb.Fatal(err)
		}
		variants = append(variants, v)
	}
	return head, variants
}

func mustParse(tb testing.TB, data []byte) *tokenizer.Tokenizer {
	tb.Helper()
	tok, err := tokenizer.Parse(data)
	if err != nil {
		tb.Fatal(err)
	}
	return tok
}
