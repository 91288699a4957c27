package tokenizer_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/internal/tokenizer"
	"github.com/tutti-server/tutti/internal/tokenizer/tokenizertest"
)

// decoderGold is what the reference decodes of some ids with one decoder. A case is the ids, the text, and the text
// without special tokens where it is another.
type decoderGold struct {
	Name, Base    string
	File, Decoder json.RawMessage
	Cases         [][]json.RawMessage
}

func TestDecode(t *testing.T) {
	t.Parallel()
	for _, g := range readDecoders(t) {
		t.Run(g.Name, func(t *testing.T) {
			t.Parallel()
			file := g.File
			if g.Base != "" {
				file = tokenizertest.Stored(t, g.Base)
			}
			tok, err := tokenizer.Parse(tokenizertest.Replace(t, file, map[string]json.RawMessage{"decoder": g.Decoder}))
			if err != nil && strings.Contains(err.Error(), "is not supported") {
				t.Skip(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			bad := 0
			for _, c := range g.Cases {
				if !decodesTo(t, tok, c) {
					bad++
				}
			}
			t.Logf("%d of %d equal", len(g.Cases)-bad, len(g.Cases))
		})
	}
}

// decodesTo compares one case.
func decodesTo(t *testing.T, tok *tokenizer.Tokenizer, c []json.RawMessage) bool {
	t.Helper()
	var ids []int64
	var want [2]string
	unmarshal(t, c[0], &ids)
	unmarshal(t, c[1], &want[0])
	unmarshal(t, c[len(c)-1], &want[1])
	ok, d := true, &tokenizer.Decoding{}
	for i, skip := range []bool{false, true} {
		if err := tok.Decode(d, ids, skip); err != nil || string(d.Text) != want[i] {
			ok = false
			t.Errorf("%v, skip special %t: %q (%v), expected %q", ids, skip, d.Text, err, want[i])
		}
	}
	return ok
}

func unmarshal(tb testing.TB, data []byte, into any) {
	tb.Helper()
	if err := json.Unmarshal(data, into); err != nil {
		tb.Fatal(err)
	}
}

// readDecoders is decoders.jsonl.gz; a file given once serves the lines behind it.
func readDecoders(tb testing.TB) []decoderGold {
	tb.Helper()
	var out []decoderGold
	var file json.RawMessage
	for d := json.NewDecoder(bytes.NewReader(tokenizertest.File(tb, "decoders.jsonl.gz"))); d.More(); {
		var g decoderGold
		if err := d.Decode(&g); err != nil {
			tb.Fatal(err)
		}
		if len(g.File) > 0 && string(g.File) != "null" {
			file = g.File
		}
		g.File = file
		out = append(out, g)
	}
	return out
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	tok := mustParse(t, tokenizertest.Small(t, tokenizertest.NoLimits()))
	for _, id := range []int64{-1, 1, 30000, 1 << 40} {
		err := tok.Decode(&tokenizer.Decoding{}, []int64{101, id}, true)
		if err == nil || !strings.Contains(err.Error(), "at 1 is not in the vocabulary") {
			t.Errorf("id %d gave error %v", id, err)
		}
	}
}

func TestParseRefusesDecoders(t *testing.T) {
	t.Parallel()
	nested := strings.Repeat(`{"type":"Sequence","decoders":[`, 100) + `{"type":"Fuse"}` + strings.Repeat("]}", 100)
	for decoder, want := range map[string]string{
		`{"type":"Nothing"}`: "'Nothing' is not supported",
		`{}`:                 "tokenizer decoder has no type",
		`[1]`:                "tokenizer decoder",
		`{"type":"WordPiece","prefix":"##","cleanup":true,"x":1}`:                 "unknown field \"x\"",
		`{"type":"Metaspace","replacement":"ab"}`:                                 "'ab', expected one character",
		`{"type":"Metaspace","replacement":"a","prepend_scheme":"sometimes"}`:     "'sometimes'",
		`{"type":"BPEDecoder","suffix":""}`:                                       "empty suffix",
		`{"type":"CTC","pad_token":"","word_delimiter_token":"|","cleanup":true}`: "empty pad_token",
		`{"type":"Strip","content":" ","start":-1,"stop":0}`:                      "at least 0",
		`{"type":"Replace","pattern":{},"content":""}`:                            "no pattern",
		`{"type":"Sequence","decoders":[{"type":"Odd"}]}`:                         "'Odd' is not supported",
		nested: "more than 64 parts",
	} {
		_, err := tokenizer.Parse(tokenizertest.Small(t, map[string]json.RawMessage{"decoder": json.RawMessage(decoder)}))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("decoder %.80s gave error %v, expected %q", decoder, err, want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	golds := readDecoders(f)
	var toks []*tokenizer.Tokenizer
	for _, g := range golds {
		if g.Base != "" {
			continue
		}
		if tok, err := tokenizer.Parse(tokenizertest.Replace(f, g.File, map[string]json.RawMessage{"decoder": g.Decoder})); err == nil {
			toks = append(toks, tok)
		}
	}
	f.Add([]byte{16, 17, 18, 2}, true)
	f.Add([]byte{3, 3, 0, 3, 36, 200}, false)
	f.Fuzz(func(t *testing.T, data []byte, skip bool) {
		ids := make([]int64, len(data))
		for i, b := range data {
			ids[i] = int64(b)
		}
		d, again := &tokenizer.Decoding{}, &tokenizer.Decoding{}
		for _, tok := range toks {
			err := tok.Decode(d, ids, skip)
			if err2 := tok.Decode(again, ids, skip); (err == nil) != (err2 == nil) || err == nil && !bytes.Equal(d.Text, again.Text) {
				t.Errorf("%v gave %q (%v), then %q (%v)", ids, d.Text, err, again.Text, err2)
			}
		}
	})
}
