package tokenizer_test

import (
	"bytes"
	"encoding/json"
	"hash/crc32"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/internal/tokenizer"
	"github.com/tutti-server/tutti/internal/tokenizer/tokenizertest"
)

// kindHead is the first line of a gold file: the tokenizer, by name or as a file, and its variants.
type kindHead struct {
	Base     string
	File     json.RawMessage
	Variants []kindVariant
}

// kindVariant is a tokenizer with some sections replaced.
type kindVariant struct {
	Name  string
	Patch map[string]json.RawMessage
}

// kindAnswer is the reference's result for one corpus entry: text as testdata/make_kinds.py writes it, or [CRC-32] of it.
type kindAnswer struct {
	entry int
	text  string
}

// TestKinds encodes the corpus with every kind of tokenizer and every component, and compares with the reference.
func TestKinds(t *testing.T) {
	t.Parallel()
	entries := tokenizertest.Corpus(t)
	if len(entries) < 5000 {
		t.Fatalf("corpus has %d entries, expected at least 5000", len(entries))
	}
	for _, path := range goldFiles(t) {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".jsonl.gz"), func(t *testing.T) {
			t.Parallel()
			head, answers := readKind(t, path)
			file := head.File
			if head.Base != "" {
				file = tokenizertest.Stored(t, head.Base)
			}
			for i, v := range head.Variants {
				t.Run(v.Name, func(t *testing.T) {
					t.Parallel()
					compareKind(t, tokenizertest.Replace(t, file, v.Patch), entries, answers[i])
				})
			}
		})
	}
}

func compareKind(t *testing.T, file []byte, entries [][]string, answers []kindAnswer) {
	t.Helper()
	tok, err := tokenizer.Parse(file)
	if err != nil && strings.Contains(err.Error(), "is not supported") {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	bad, e := 0, &tokenizer.Encoding{TrackOffsets: true, KeepOverflow: true}
	for _, want := range answers {
		got := written(tok, e, entries[want.entry])
		if got == want.text || checksum(got) == want.text {
			continue
		}
		if bad++; bad <= 5 {
			t.Errorf("entry %d %q:\nwant %s\n got %s", want.entry, entries[want.entry], want.text, got)
		}
	}
	t.Logf("%d of %d equal", len(answers)-bad, len(answers))
}

func checksum(answer string) string {
	return "[" + strconv.FormatUint(uint64(crc32.ChecksumIEEE([]byte(answer))), 10) + "]"
}

// goldFiles are the files of TestKinds.
func goldFiles(tb testing.TB) []string {
	tb.Helper()
	var out []string
	for _, pattern := range []string{"testdata/kind_*.jsonl.gz", "testdata/part_*.jsonl.gz"} {
		paths, err := filepath.Glob(pattern)
		if err != nil || len(paths) == 0 {
			tb.Fatalf("no gold files at %s (%v)", pattern, err)
		}
		out = append(out, paths...)
	}
	return out
}

// readKind reads a gold file: the answers of every variant.
func readKind(tb testing.TB, path string) (head kindHead, answers [][]kindAnswer) {
	tb.Helper()
	d := json.NewDecoder(bytes.NewReader(tokenizertest.Gunzip(tb, path)))
	if err := d.Decode(&head); err != nil {
		tb.Fatal(err)
	}
	answers = make([][]kindAnswer, len(head.Variants))
	for d.More() {
		var row []json.RawMessage
		if err := d.Decode(&row); err != nil {
			tb.Fatal(err)
		}
		entry, texts := number(tb, row[0]), map[int]string{}
		for _, raw := range row[1:] {
			var cell []json.RawMessage
			if err := json.Unmarshal(raw, &cell); err != nil {
				tb.Fatal(err)
			}
			k, text := number(tb, cell[0]), string(cell[1])
			if text[0] != '[' && text != "null" {
				text = texts[number(tb, cell[1])] // the same as an earlier variant's
			}
			texts[k] = text
			answers[k] = append(answers[k], kindAnswer{entry, text})
		}
	}
	return head, answers
}

func number(tb testing.TB, raw json.RawMessage) int {
	tb.Helper()
	n, err := strconv.Atoi(string(raw))
	if err != nil {
		tb.Fatal(err)
	}
	return n
}

// written encodes an entry and writes the result as testdata/make_kinds.py does.
func written(tok *tokenizer.Tokenizer, e *tokenizer.Encoding, entry []string) string {
	var err error
	if len(entry) == 2 {
		err = tok.EncodePair(e, []byte(entry[0]), []byte(entry[1]))
	} else {
		err = tok.Encode(e, []byte(entry[0]))
	}
	if err != nil {
		return "null"
	}
	over := make([]string, 0, len(e.Overflow))
	for _, o := range e.Overflow {
		over = append(over, joined(lists(o)))
	}
	return joined(append(lists(e), "["+strings.Join(over, ",")+"]"))
}

// joined is a list of lists without the empty ones at its end.
func joined(lists []string) string {
	for len(lists) > 1 && lists[len(lists)-1] == "[]" {
		lists = lists[:len(lists)-1]
	}
	return "[" + strings.Join(lists, ",") + "]"
}

func lists(e *tokenizer.Encoding) []string {
	types, mask := runs(e.TypeIDs), runs(e.Attention)
	if !slices.ContainsFunc(e.TypeIDs, func(v int32) bool { return v != 0 }) {
		types = nil
	}
	if !slices.Contains(e.Attention, 0) {
		mask = nil
	}
	var special []int32
	for i, s := range e.Special {
		switch {
		case s != 0 && 2*i < len(e.Special):
			special = append(special, int32(i))
		case s != 0:
			special = append(special, int32(i-len(e.Special)))
		}
	}
	return []string{list(e.IDs), list(types), list(mask), list(special), list(offsets(e))}
}

func list(values []int32) string {
	out := []byte{'['}
	for i, v := range values {
		if i > 0 {
			out = append(out, ',')
		}
		out = strconv.AppendInt(out, int64(v), 10)
	}
	return string(append(out, ']'))
}

func offsets(e *tokenizer.Encoding) []int32 {
	out, last, lengths := []int32(nil), int32(0), map[int32]int32{}
	for i, s := range e.Offsets {
		if e.Special[i] != 0 && s == (tokenizer.Span{}) {
			last = 0
			continue
		}
		usual, ok := lengths[e.IDs[i]]
		if !ok {
			usual = 1
		}
		length := s.End - s.Start
		if s.Start != last || length != usual {
			out = append(out, int32(i), s.Start-last, length)
		}
		lengths[e.IDs[i]], last = length, s.End
	}
	return out
}
