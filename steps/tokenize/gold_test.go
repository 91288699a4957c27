package tokenize_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"maps"
	"os"
	"reflect"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/steps/tokenize"
)

// goldHead is the first line of gold.jsonl.gz.
type goldHead struct {
	Tokenizers string
	Corpus     [][]string
}

// goldVariant is what the reference says with some sections of the file replaced. An answer is ids, type ids,
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
			tok := mustParse(t, patched(t, v.Patch))
			bad, e := 0, &tokenize.Encoding{TrackOffsets: true}
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
func answer(tok *tokenize.Tokenizer, e *tokenize.Encoding, entry []string) [5][]int32 {
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

// distances turns byte offsets into code points, each relative to the one before. The token's text is told by the
// order: the second one starts at the first special token after the first one's tokens.
func distances(e *tokenize.Encoding, entry []string) []int32 {
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
func second(e *tokenize.Encoding, i int) bool {
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
	d := json.NewDecoder(bytes.NewReader(gunzip(tb, "testdata/gold.jsonl.gz")))
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

// patched is the MiniLM tokenizer file with sections replaced.
func patched(tb testing.TB, patch map[string]json.RawMessage) []byte {
	tb.Helper()
	return replaced(tb, gunzip(tb, "testdata/minilm.json.gz"), patch)
}

// smallModel is a few entries of the MiniLM vocabulary under their ids.
const smallModel = `{"type":"WordPiece","unk_token":"[UNK]","continuing_subword_prefix":"##","max_input_chars_per_word":100,
	"vocab":{"[PAD]":0,"[UNK]":100,"[CLS]":101,"[SEP]":102,"[MASK]":103,"hello":7592,"world":2088,"word":2773}}`

// small is patched with the small model, for tests of anything but the vocabulary.
func small(tb testing.TB, patch map[string]json.RawMessage) []byte {
	tb.Helper()
	file := replaced(tb, gunzip(tb, "testdata/minilm.json.gz"), map[string]json.RawMessage{"model": json.RawMessage(smallModel)})
	return replaced(tb, file, patch)
}

// replaced is a file with sections replaced.
func replaced(tb testing.TB, file []byte, patch map[string]json.RawMessage) []byte {
	tb.Helper()
	var sections map[string]json.RawMessage
	if err := json.Unmarshal(file, &sections); err != nil {
		tb.Fatal(err)
	}
	maps.Copy(sections, patch)
	data, err := json.Marshal(sections)
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

func mustParse(tb testing.TB, data []byte) *tokenize.Tokenizer {
	tb.Helper()
	tok, err := tokenize.Parse(data)
	if err != nil {
		tb.Fatal(err)
	}
	return tok
}

func gunzip(tb testing.TB, path string) []byte {
	tb.Helper()
	f, err := os.Open(path)
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		tb.Fatal(err)
	}
	data, err := io.ReadAll(z)
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

func writeFile(tb testing.TB, path string, data []byte) {
	tb.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		tb.Fatal(err)
	}
}
