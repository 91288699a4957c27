package tokenizer_test

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

	"github.com/tutti-server/tutti/internal/tokenizer"
	"github.com/tutti-server/tutti/internal/tokenizer/tokenizertest"
)

// readerGold is a line of readers.jsonl.gz; see testdata/make_readers.py.
type readerGold struct {
	Name, Format string
	Options      struct {
		BOS     bool `json:"add_bos"`
		EOS     bool `json:"add_eos"`
		Pattern string
		Special string
		Skip    bool
	}
	File     []byte
	Charsmap bool
	Sums     [][2]uint32
	Long     uint32
}

func (g *readerGold) tokenizer(tb testing.TB) *tokenizer.Tokenizer {
	tb.Helper()
	var d *tokenizer.Definition
	var err error
	switch g.Format {
	case "tiktoken":
		d, err = tokenizer.DefineTiktoken(g.File, g.Options.Pattern, g.Options.Special)
	case "tekken":
		d, err = tokenizer.DefineTekken(g.File, g.Options.BOS, g.Options.EOS)
	default:
		d, err = tokenizer.DefineSentencePiece(g.model(tb), g.Options.BOS, g.Options.EOS)
	}
	if err != nil {
		tb.Fatal(err)
	}
	tok, err := tokenizer.New(d)
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
	field := protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), tokenizertest.File(tb, "charsmap.gz"))
	return protowire.AppendBytes(protowire.AppendTag(slices.Clone(g.File), 3, protowire.BytesType), field)
}

func readerGolds(tb testing.TB) []readerGold {
	tb.Helper()
	var out []readerGold
	for d := json.NewDecoder(bytes.NewReader(tokenizertest.File(tb, "readers.jsonl.gz"))); d.More(); {
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
	entries := tokenizertest.Corpus(t)
	for _, g := range readerGolds(t) {
		t.Run(g.Name, func(t *testing.T) {
			t.Parallel()
			tok, e, text, bad := g.tokenizer(t), &tokenizer.Encoding{}, &tokenizer.Decoding{}, 0
			for _, s := range g.Sums {
				src := entries[s[0]][0]
				if err := tok.Encode(e, []byte(src)); err != nil {
					t.Fatalf("%q: %v", src, err)
				}
				if err := tok.Decode(text, wide(e.IDs), g.Format == "sentencepiece" || g.Options.Skip); err != nil {
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
			if g.Long != 0 && g.long(t, tok, entries) != g.Long {
				t.Error("all texts in one: ids or text differ")
			}
		})
	}
}

// long is the sum of all texts in one.
func (g *readerGold) long(t *testing.T, tok *tokenizer.Tokenizer, entries [][]string) uint32 {
	t.Helper()
	var texts []string
	for _, s := range g.Sums {
		texts = append(texts, entries[s[0]][0])
	}
	var e tokenizer.Encoding
	if err := tok.Encode(&e, []byte(strings.Join(texts, " "))); err != nil {
		t.Fatal(err)
	}
	var d tokenizer.Decoding
	if err := tok.Decode(&d, wide(e.IDs), true); err != nil {
		t.Fatal(err)
	}
	return crc32.ChecksumIEEE([]byte(list(e.IDs) + " " + string(d.Text)))
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
	entries := tokenizertest.Corpus(t)
	for _, name := range []string{"wordpiece", "gpt2", "roberta"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := tokenizertest.Stored(t, name)
			var sections struct {
				Model struct {
					Vocab  json.RawMessage
					Merges [][2]string
				}
			}
			if err := json.Unmarshal(file, &sections); err != nil {
				t.Fatal(err)
			}
			var d *tokenizer.Definition
			var err error
			if name == "wordpiece" {
				d, err = tokenizer.DefineWordPiece(lines(t, sections.Model.Vocab), true)
			} else {
				merges := bytes.NewBufferString("#version: 0.2\n")
				for _, p := range sections.Model.Merges {
					merges.WriteString(p[0] + " " + p[1] + "\n")
				}
				vocab := bytes.Replace(sections.Model.Vocab, []byte("{"), []byte(`{"<mask>":700,`), 1) // as RoBERTa's file has it
				d, err = tokenizer.DefineByteLevelBPE(map[string][]byte{"gpt2": sections.Model.Vocab, "roberta": vocab}[name], merges.Bytes())
			}
			if err != nil {
				t.Fatal(err)
			}
			made, err := tokenizer.New(d)
			if err != nil {
				t.Fatal(err)
			}
			want, got := &tokenizer.Encoding{TrackOffsets: true}, &tokenizer.Encoding{TrackOffsets: true}
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

// tekkenFile is a file of the 256 bytes and one more token, with the given configuration and what else it holds.
func tekkenFile(config, more string) []byte {
	var vocab []string
	for b := range 256 {
		vocab = append(vocab, fmt.Sprintf(`{"rank":%d,"token_bytes":%q}`, b, base64.StdEncoding.EncodeToString([]byte{byte(b)})))
	}
	vocab = append(vocab, `{"rank":256,"token_bytes":"YWI="}`)
	return fmt.Appendf(nil, `{"config":%s,"vocab":[%s]%s}`, config, strings.Join(vocab, ","), more)
}

// TestTekkenRefuses checks that invalid files fail with an error that names the fault.
func TestTekkenRefuses(t *testing.T) {
	t.Parallel()
	const config = `{"pattern":"\\S+|\\s+","default_vocab_size":260,"default_num_special_tokens":3,"version":"v3"}`
	special := func(texts ...string) string {
		var list []string
		for i, text := range texts {
			list = append(list, fmt.Sprintf(`{"rank":%d,"token_str":%q}`, i, text))
		}
		return `,"special_tokens":[` + strings.Join(list, ",") + "]"
	}
	for name, c := range map[string]struct {
		config, more string
		bos          bool
		want         string
	}{
		"fits":         {config, special("<unk>", "<s>"), true, ""},
		"no list":      {config, "", false, "20 special tokens, expected at most default_num_special_tokens 3"},
		"new version":  {strings.Replace(config, "v3", "v11", 1), "", false, "version 'v11' has no special_tokens"},
		"twice":        {config, special("<s>", "<s>"), false, "special token '<s>' has rank 1, expected a new token"},
		"no begin":     {config, special("<unk>"), true, "there is no control piece '<s>'"},
		"few tokens":   {strings.Replace(config, "260", "261", 1), special("<s>"), false, "257 tokens in vocab, expected at least 258"},
		"no bytes":     {strings.Replace(config, "260", "100", 1), special("<s>"), false, "default_vocab_size 100 with default_num_special_tokens 3"},
		"no pattern":   {`{"default_vocab_size":260,"default_num_special_tokens":3}`, special("<s>"), false, "is empty"},
		"bad pattern":  {strings.Replace(config, `\\S+`, "(", 1), special("<s>"), false, "Split"},
		"not a number": {`{"default_vocab_size":"x"}`, "", false, "tekken file: json"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, err := tokenizer.DefineTekken(tekkenFile(c.config, c.more), c.bos, false)
			if err == nil {
				_, err = tokenizer.New(d)
			}
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("error is %v, expected it to contain %q", err, c.want)
			}
		})
	}
}

// TestTekkenSpecial checks that special tokens are no text, and that bytes before and behind one are not read as one character.
func TestTekkenSpecial(t *testing.T) {
	t.Parallel()
	const config = `{"pattern":"\\S+|\\s+","default_vocab_size":260,"default_num_special_tokens":3,"version":"v3"}`
	const listed = `,"special_tokens":[{"rank":0,"token_str":"<unk>"},{"rank":1,"token_str":"<s>"}]`
	d, err := tokenizer.DefineTekken(tekkenFile(config, listed), true, false)
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.New(d)
	if err != nil {
		t.Fatal(err)
	}
	var e tokenizer.Encoding
	if err := tok.Encode(&e, []byte("<s>ab")); err != nil || list(e.IDs) != fmt.Sprintf("[1,%d,%d,%d,259]", '<'+3, 's'+3, '>'+3) {
		t.Errorf("got %s, %v", list(e.IDs), err)
	}
	for skip, want := range map[bool]string{true: "\uFFFD\uFFFDab", false: "\uFFFD<s>\uFFFD<SPECIAL_2>ab"} {
		var text tokenizer.Decoding
		if err := tok.Decode(&text, []int64{0xc3 + 3, 1, 0xa4 + 3, 2, 259}, skip); err != nil || string(text.Text) != want {
			t.Errorf("skip %t: got %q, %v, want %q", skip, text.Text, err, want)
		}
	}
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
		run  func() (*tokenizer.Definition, error)
		want string
	}{
		{"vocab.txt without marks", func() (*tokenizer.Definition, error) { return tokenizer.DefineWordPiece([]byte("a\nb\n"), true) }, "[CLS]"},
		{"vocab.txt of bytes", func() (*tokenizer.Definition, error) { return tokenizer.DefineWordPiece([]byte("a\n\xff\n"), true) }, "line 2"},
		{"no JSON", func() (*tokenizer.Definition, error) { return tokenizer.DefineByteLevelBPE([]byte("["), nil) }, "vocabulary file"},
		{"merge of one", func() (*tokenizer.Definition, error) {
			return tokenizer.DefineByteLevelBPE([]byte("{}"), []byte("ab\n"))
		}, "merges line 1"},
		{"no protocol buffer", func() (*tokenizer.Definition, error) {
			return tokenizer.DefineSentencePiece([]byte("\xff\xff"), false, false)
		}, "protocol buffer"},
		{"no pieces", func() (*tokenizer.Definition, error) { return tokenizer.DefineSentencePiece(nil, false, false) }, "0 pieces"},
		{"pattern", func() (*tokenizer.Definition, error) { return tokenizer.DefineTiktoken([]byte(bytesFile), "p50k", "") }, "'p50k' is unknown"},
		{"bytes missing", func() (*tokenizer.Definition, error) { return tokenizer.DefineTiktoken([]byte("YQ== 0\n"), "gpt2", "") }, "no token for byte 0"},
		{"rank twice", func() (*tokenizer.Definition, error) {
			return tokenizer.DefineTiktoken([]byte(bytesFile+"YWE= 7\n"), "gpt2", "")
		}, "line 257: rank '7'"},
		{"special", func() (*tokenizer.Definition, error) {
			return tokenizer.DefineTiktoken([]byte(bytesFile), "gpt2", "<a>=x")
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
