package tokenize_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"tutti/steps/tokenize"
)

// readerGold is a line of readers.jsonl.gz; see testdata/make_readers.py.
type readerGold struct {
	Name, Format string
	Options      struct {
		BOS     bool `json:"add_bos"`
		EOS     bool `json:"add_eos"`
		Pattern string
		Special string
	}
	File     []byte
	Charsmap bool
	Sums     [][2]uint32
}

func (g *readerGold) tokenizer(tb testing.TB) *tokenize.Tokenizer {
	tb.Helper()
	var d *tokenize.Definition
	var err error
	if g.Format == "tiktoken" {
		d, err = tokenize.DefineTiktoken(g.File, g.Options.Pattern, g.Options.Special)
	} else {
		d, err = tokenize.DefineSentencePiece(g.model(tb), g.Options.BOS, g.Options.EOS)
	}
	if err != nil {
		tb.Fatal(err)
	}
	tok, err := tokenize.New(d)
	if err != nil {
		tb.Fatal(err)
	}
	return tok
}

// model is the file with the characters map that is stored once for all.
func (g *readerGold) model(tb testing.TB) []byte {
	tb.Helper()
	if !g.Charsmap {
		return g.File
	}
	field := protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), gunzip(tb, "testdata/charsmap.gz"))
	return protowire.AppendBytes(protowire.AppendTag(slices.Clone(g.File), 3, protowire.BytesType), field)
}

func readerGolds(tb testing.TB) []readerGold {
	tb.Helper()
	var out []readerGold
	for d := json.NewDecoder(bytes.NewReader(gunzip(tb, "testdata/readers.jsonl.gz"))); d.More(); {
		var g readerGold
		if err := d.Decode(&g); err != nil {
			tb.Fatal(err)
		}
		out = append(out, g)
	}
	return out
}

// TestReaders compares ids and the text they decode to with those of the libraries whose files are read.
func TestReaders(t *testing.T) {
	t.Parallel()
	entries := corpus(t)
	for _, g := range readerGolds(t) {
		t.Run(g.Name, func(t *testing.T) {
			t.Parallel()
			tok, e, text, bad := g.tokenizer(t), &tokenize.Encoding{}, &tokenize.Decoding{}, 0
			for _, s := range g.Sums {
				src := entries[s[0]][0]
				if err := tok.Encode(e, []byte(src)); err != nil {
					t.Fatalf("%q: %v", src, err)
				}
				if err := tok.Decode(text, wide(e.IDs), g.Format == "sentencepiece"); err != nil {
					t.Fatalf("%q: %v", src, err)
				}
				got := list(e.IDs) + " " + string(text.Text)
				if crc32.ChecksumIEEE([]byte(got)) == s[1] {
					continue
				}
				if bad++; bad <= 8 {
					t.Errorf("%d %q gives %q", s[0], src, got)
				}
			}
			t.Logf("%d of %d equal", len(g.Sums)-bad, len(g.Sums))
		})
	}
}

func wide(ids []int32) []int64 {
	out := make([]int64, len(ids))
	for i, id := range ids {
		out[i] = int64(id)
	}
	return out
}

// TestVocabularyFiles compares the formats that are sections of a tokenizer.json with it.
func TestVocabularyFiles(t *testing.T) {
	t.Parallel()
	entries := corpus(t)
	for _, name := range []string{"wordpiece", "gpt2", "roberta"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := storedTokenizer(t, name)
			var sections struct {
				Model struct {
					Vocab  json.RawMessage
					Merges [][2]string
				}
			}
			if err := json.Unmarshal(file, &sections); err != nil {
				t.Fatal(err)
			}
			var d *tokenize.Definition
			var err error
			if name == "wordpiece" {
				d, err = tokenize.DefineWordPiece(lines(t, sections.Model.Vocab), true)
			} else {
				merges := bytes.NewBufferString("#version: 0.2\n")
				for _, p := range sections.Model.Merges {
					merges.WriteString(p[0] + " " + p[1] + "\n")
				}
				vocab := bytes.Replace(sections.Model.Vocab, []byte("{"), []byte(`{"<mask>":700,`), 1) // as RoBERTa's file has it
				d, err = tokenize.DefineByteLevelBPE(map[string][]byte{"gpt2": sections.Model.Vocab, "roberta": vocab}[name], merges.Bytes())
			}
			if err != nil {
				t.Fatal(err)
			}
			made, err := tokenize.New(d)
			if err != nil {
				t.Fatal(err)
			}
			want, got := &tokenize.Encoding{TrackOffsets: true}, &tokenize.Encoding{TrackOffsets: true}
			tok, bad := mustParse(t, file), 0
			for i := 0; i < len(entries); i += 3 {
				if a, b := written(tok, want, entries[i]), written(made, got, entries[i]); a != b {
					if bad++; bad < 5 {
						t.Errorf("%q:\nwant %s\n got %s", entries[i], a, b)
					}
				}
			}
		})
	}
}

// lines is a vocabulary as a vocab.txt.
func lines(t *testing.T, vocab []byte) []byte {
	t.Helper()
	ids := map[string]int{}
	if err := json.Unmarshal(vocab, &ids); err != nil {
		t.Fatal(err)
	}
	out := make([]string, len(ids))
	for token, id := range ids {
		out[id] = token
	}
	return []byte(strings.Join(out, "\n") + "\n")
}

func TestReadersRefuse(t *testing.T) {
	t.Parallel()
	var ranks strings.Builder
	for b := range 256 {
		fmt.Fprintf(&ranks, "%s %d\n", base64.StdEncoding.EncodeToString([]byte{byte(b)}), b)
	}
	bytesFile := ranks.String()
	for _, c := range []struct {
		name string
		run  func() (*tokenize.Definition, error)
		want string
	}{
		{"vocab.txt without marks", func() (*tokenize.Definition, error) { return tokenize.DefineWordPiece([]byte("a\nb\n"), true) }, "[CLS]"},
		{"vocab.txt of bytes", func() (*tokenize.Definition, error) { return tokenize.DefineWordPiece([]byte("a\n\xff\n"), true) }, "line 2"},
		{"no JSON", func() (*tokenize.Definition, error) { return tokenize.DefineByteLevelBPE([]byte("["), nil) }, "vocabulary file"},
		{"merge of one", func() (*tokenize.Definition, error) { return tokenize.DefineByteLevelBPE([]byte("{}"), []byte("ab\n")) }, "merges line 1"},
		{"no protocol buffer", func() (*tokenize.Definition, error) {
			return tokenize.DefineSentencePiece([]byte("\xff\xff"), false, false)
		}, "protocol buffer"},
		{"no pieces", func() (*tokenize.Definition, error) { return tokenize.DefineSentencePiece(nil, false, false) }, "0 pieces"},
		{"pattern", func() (*tokenize.Definition, error) { return tokenize.DefineTiktoken([]byte(bytesFile), "p50k", "") }, "'p50k' is unknown"},
		{"bytes missing", func() (*tokenize.Definition, error) { return tokenize.DefineTiktoken([]byte("YQ== 0\n"), "gpt2", "") }, "no token for byte 0"},
		{"rank twice", func() (*tokenize.Definition, error) {
			return tokenize.DefineTiktoken([]byte(bytesFile+"YWE= 7\n"), "gpt2", "")
		}, "line 257: rank '7'"},
		{"special", func() (*tokenize.Definition, error) {
			return tokenize.DefineTiktoken([]byte(bytesFile), "gpt2", "<a>=x")
		}, "'<a>=x' is not TEXT=ID"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if _, err := c.run(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error is %v, expected it to contain %q", err, c.want)
			}
		})
	}
}
