package tokenizer_test

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"github.com/tutti-server/tutti/internal/tokenizer"
	"github.com/tutti-server/tutti/internal/tokenizer/tokenizertest"
)

// FuzzKinds encodes a text, or a pair, with every kind of tokenizer and decodes the ids.
func FuzzKinds(f *testing.F) {
	entries := tokenizertest.Corpus(f)
	for i := 0; i < len(entries); i += 50 {
		f.Add([]byte(entries[i][0]), []byte(entries[i][len(entries[i])-1]))
	}
	toks := everyKind(f)
	f.Fuzz(func(t *testing.T, a, b []byte) {
		tracked, plain, text := tokenizer.Encoding{TrackOffsets: true, KeepOverflow: true}, tokenizer.Encoding{}, tokenizer.Decoding{}
		for _, tok := range toks {
			err := cmp.Or(tok.EncodePair(&plain, a, b), tok.Encode(&plain, a))
			if tok.EncodePair(&tracked, a, b) != nil || tok.Encode(&tracked, a) != nil || err != nil {
				continue
			}
			if !slices.Equal(plain.IDs, tracked.IDs) {
				t.Fatalf("ids depend on offsets: %v and %v", plain.IDs, tracked.IDs)
			}
			if n := tracked.Len(); len(tracked.Offsets) != n || len(tracked.Words) != n || len(tracked.Sequences) != n || len(tracked.Special) != n {
				t.Fatalf("%d ids, but %d offsets, %d words, %d sequences", n, len(tracked.Offsets), len(tracked.Words), len(tracked.Sequences))
			}
			for _, skip := range []bool{true, false} {
				if err := tok.Decode(&text, wide(plain.IDs), skip); err != nil {
					t.Fatalf("the ids of a text do not decode: %v", err)
				}
			}
		}
	})
}

// everyKind is a tokenizer of each stored file, whole and cut to eight tokens, and of each format.
func everyKind(tb testing.TB) []*tokenizer.Tokenizer {
	tb.Helper()
	var out []*tokenizer.Tokenizer
	for _, name := range append(slices.Sorted(maps.Keys(tokenizertest.AllStored(tb))), "wordpiece") {
		tok := mustParse(tb, tokenizertest.Stored(tb, name))
		short, err := tok.WithMaxLength(8)
		if err != nil {
			tb.Fatal(err)
		}
		out = append(out, tok, short)
	}
	for _, g := range readerGolds(tb) {
		out = append(out, g.tokenizer(tb))
	}
	return out
}

// FuzzParse reads files whose sections are anything, and encodes with those that load.
func FuzzParse(f *testing.F) {
	for _, path := range goldFiles(f) {
		head, _ := readKind(f, path)
		for _, v := range head.Variants {
			patch, err := json.Marshal(v.Patch)
			if err != nil {
				f.Fatal(err)
			}
			if len(patch) < 2000 {
				f.Add(patch, []byte("Hello [MASK] wörld's  12 ▁x"))
			}
		}
	}
	base := []byte(`{"version":"1.0","model":{"type":"BPE","unk_token":"a","vocab":{"a":0,"b":1,"ab":2,"▁":3},"merges":["a b"]}}`)
	f.Fuzz(func(t *testing.T, patch, text []byte) {
		var sections map[string]json.RawMessage
		if json.Unmarshal(patch, &sections) != nil || len(text) > 1<<12 {
			return
		}
		tok, err := tokenizer.Parse(tokenizertest.Replace(t, base, sections))
		if err != nil {
			return
		}
		e := tokenizer.Encoding{TrackOffsets: true, KeepOverflow: true}
		if tok.EncodePair(&e, text, text) == nil {
			_ = tok.Decode(&tokenizer.Decoding{}, wide(e.IDs), true)
		}
	})
}

// FuzzReaders reads files of other formats that are anything.
func FuzzReaders(f *testing.F) {
	for _, g := range readerGolds(f) {
		f.Add(g.File, []byte("of the <sep> 漢 x"))
	}
	f.Add([]byte("[CLS]\n[SEP]\n[UNK]\na\n##b\n"), []byte("ab"))
	f.Add([]byte(`{"a":0,"b":1,"ab":2}`), []byte("a b\n"))
	f.Fuzz(func(_ *testing.T, file, text []byte) {
		if len(text) > 1<<12 || len(file) > 1<<17 {
			return
		}
		for _, define := range []func() (*tokenizer.Definition, error){
			func() (*tokenizer.Definition, error) { return tokenizer.DefineWordPiece(file, true) },
			func() (*tokenizer.Definition, error) { return tokenizer.DefineByteLevelBPE(file, text) },
			func() (*tokenizer.Definition, error) { return tokenizer.DefineSentencePiece(file, false, false) },
			func() (*tokenizer.Definition, error) { return tokenizer.DefineTiktoken(file, "gpt2", "") },
			func() (*tokenizer.Definition, error) { return tokenizer.DefineTekken(file, true, true) },
		} {
			d, err := define()
			if err != nil {
				continue
			}
			tok, err := tokenizer.New(d)
			if err != nil {
				continue
			}
			var e tokenizer.Encoding
			if tok.Encode(&e, text) == nil {
				_ = tok.Decode(&tokenizer.Decoding{}, wide(e.IDs), true)
			}
		}
	})
}
