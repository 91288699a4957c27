package tokenizer_test

import (
	"bytes"
	"encoding/json"
	"runtime/debug"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/internal/tokenizer"
	"github.com/tutti-server/tutti/internal/tokenizer/tokenizertest"
)

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	raw := func(s string) json.RawMessage { return json.RawMessage(s) }
	for _, c := range []struct{ section, value, want string }{
		{"version", `"2.0"`, "version '2.0'"},
		{"normalizer", `{"type":"NFKQ"}`, "'NFKQ' is not supported"},
		{"normalizer", `{"type":"Sequence","normalizers":[{"type":"Imaginary"}]}`, "'Imaginary' is not supported"},
		{"normalizer", `{"type":"NFC","surprise":1}`, "surprise"},
		{"normalizer", `{"type":"Replace","pattern":{"Regex":"(a"},"content":""}`, "does not end"},
		{"normalizer", `{"type":"Replace","pattern":{},"content":""}`, "neither String nor Regex"},
		{"normalizer", `{"type":"Precompiled","precompiled_charsmap":"AAAA"}`, "shorter"},
		{"normalizer", `{"type":"BertNormalizer","surprise":1}`, "surprise"},
		{"normalizer", `{}`, "has no type"},
		{"normalizer", `7`, "normalizer"},
		{"pre_tokenizer", `{"type":"BiteLevel","x":1}`, "'BiteLevel' is not supported"},
		{"pre_tokenizer", `{"type":"Split","pattern":{"Regex":"\\1"},"behavior":"Isolated"}`, "'\\1' is not supported"},
		{"pre_tokenizer", `{"type":"Split","pattern":{"Regex":"a"},"behavior":"Doubled"}`, "'split behavior Doubled' is not supported"},
		{"pre_tokenizer", `{"type":"Metaspace","replacement":"ab"}`, "not one character"},
		{"pre_tokenizer", `{"type":"FixedLength","length":0}`, "at least 1"},
		{"post_processor", `{"type":"RobertaProcessing"}`, "[text, id]"},
		{"post_processor", `{"type":"Sequence","processors":[{"type":"BertProcessing","sep":["x",1],"cls":["y",2]},
			{"type":"TemplateProcessing"}]}`, "two that add tokens"},
		{"post_processor", `{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"[X]","type_id":0}}]}`, "'[X]'"},
		{"post_processor", `{"type":"TemplateProcessing","single":[{"Sequence":{"id":"B","type_id":0}}]}`, "neither"},
		{"post_processor", `{"type":"TemplateProcessing","single":[{}]}`, "neither"},
		{"post_processor", `{"type":"BertProcessing","sep":["x","y"],"cls":["x",1]}`, "[text, id]"},
		{"model", `{"type":"Magic"}`, "'Magic' is not supported"},
		{"model", `{"type":"BPE","dropout":0.1,"vocab":{},"merges":[]}`, "'BPE with dropout' is not supported"},
		{"model", `{"type":"BPE","vocab":{"a":0},"merges":["a b"]}`, "out of the vocabulary"},
		{"model", `{"type":"BPE","vocab":{"a":0},"merges":["a"]}`, "neither a pair"},
		{"model", `{"type":"Unigram","unk_id":2,"vocab":[["a",0]]}`, "unk_id is 2"},
		{"model", `{"type":"Unigram","vocab":[["a"]]}`, "[text, score]"},
		{"model", `null`, "no model"},
		{"model", `{"type":"WordPiece","unk_token":"?","vocab":{}}`, "'?' is not in the vocabulary"},
		{"model", `{"type":"WordPiece","unk_token":"?","vocab":{"?":-1}}`, "id -1"},
		{"model", `{"type":"WordPiece","unk_token":"?","vocab":{"?":0,"` + strings.Repeat("a", 5000) + `":1}}`, "5000 bytes"},
		{"added_tokens", `[{"id":5,"content":""}]`, "id 5"},
		{"added_tokens", `[{"id":40000,"content":"\u0001","normalized":true}]`, "empty when normalized"},
		{"truncation", `{"max_length":8,"strategy":"LongestFirst","stride":-2}`, "stride is -2"},
		{"truncation", `{"max_length":8,"strategy":"Middle"}`, "'Middle'"},
		{"truncation", `{"max_length":8,"strategy":"OnlyFirst","direction":"Up"}`, "'Up'"},
		{"truncation", `{"max_length":2,"strategy":"OnlyFirst"}`, "no room beside 2 special tokens"},
		{"padding", `{"strategy":"Half","direction":"Right"}`, "strategy"},
		{"padding", `{"strategy":{"Fixed":9999999},"direction":"Right"}`, "expected 0 to"},
		{"padding", `{"strategy":"BatchLongest","direction":"Up"}`, "'Up'"},
	} {
		t.Run(c.want, func(t *testing.T) {
			t.Parallel()
			_, err := tokenizer.Parse(tokenizertest.Small(t, map[string]json.RawMessage{c.section: raw(c.value)}))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error is %v, expected it to contain %q", err, c.want)
			}
		})
	}
	if _, err := tokenizer.Parse([]byte("{")); err == nil {
		t.Error("half a file was read without an error")
	}
}

func TestEncodeRefuses(t *testing.T) {
	t.Parallel()
	only := func(strategy string) map[string]json.RawMessage {
		return map[string]json.RawMessage{"padding": nil, "truncation": json.RawMessage(
			`{"max_length":6,"strategy":"` + strategy + `","direction":"Right","stride":0}`)}
	}
	long := strings.Repeat("word ", 20)
	for _, c := range []struct {
		name, text, pair string
		patch            map[string]json.RawMessage
		want             string
	}{
		{"bad UTF-8", "ok\xff", "", tokenizertest.NoLimits(), "not valid UTF-8: byte 2"},
		{"bad UTF-8 in the pair", "ok", "a\xc3", tokenizertest.NoLimits(), "second text: text is not valid UTF-8: byte 1"},
		{"surrogate", "\xed\xa0\x80", "", tokenizertest.NoLimits(), "not valid UTF-8: byte 0"},
		{"first too short", "a", long, only("OnlyFirst"), "too short"},
		{"no second", long, "", only("OnlySecond"), "needs a pair"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			tok, e := mustParse(t, tokenizertest.Small(t, c.patch)), &tokenizer.Encoding{}
			err := tok.Encode(e, []byte(c.text))
			if c.pair != "" {
				err = tok.EncodePair(e, []byte(c.text), []byte(c.pair))
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error is %v, expected it to contain %q", err, c.want)
			}
			if err := tok.Encode(e, []byte("fine")); err != nil || e.Len() != 3 {
				t.Errorf("the next text gave %d tokens and %v", e.Len(), err)
			}
		})
	}
}

func TestWithMaxLength(t *testing.T) {
	t.Parallel()
	tok := mustParse(t, tokenizertest.MiniLM(t, tokenizertest.NoLimits()))
	if tok.MaxLength() != 0 {
		t.Errorf("max length is %d without truncation", tok.MaxLength())
	}
	short, err := tok.WithMaxLength(5)
	if err != nil {
		t.Fatal(err)
	}
	var e tokenizer.Encoding
	if err := short.Encode(&e, []byte("one two three four five")); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int32{101, 2028, 2048, 2093, 102}, e.IDs); diff != "" {
		t.Errorf("ids (-want +got):\n%s", diff)
	}
	if _, err := tok.WithMaxLength(2); err == nil {
		t.Error("max length 2 was taken, with 2 special tokens")
	}
}

// TestHostileText only has to end: a text that took quadratic time would take minutes.
func TestHostileText(t *testing.T) {
	t.Parallel()
	size := 40_000
	if testing.Short() {
		size = 8_000 // The race detector makes this the longest test of the package.
	}
	for _, tok := range everyKind(t) {
		e := tokenizer.Encoding{TrackOffsets: true}
		for _, unit := range []string{
			"a", "é", "漢", "\u0301", "\u1b44\u0301", "[", "[CLS", "[CLS]", "\x00", "한", "##a", " ", "𝒳", "\n ", " \t", "▁", "'s", "1", "ab", "<mask", "e r",
		} {
			src := []byte(strings.Repeat(unit, size/len(unit)))
			if err := tok.Encode(&e, src); err != nil {
				t.Errorf("%q: %v", unit, err)
			}
		}
	}
}

func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	head, variants := readGold(t)
	plain := variants[0]
	tok := mustParse(t, tokenizertest.MiniLM(t, plain.Patch))
	var group sync.WaitGroup
	for g := range 8 {
		group.Go(func() {
			e := &tokenizer.Encoding{TrackOffsets: true}
			for i := g; i < len(plain.Answers); i += 12 {
				if got := answer(tok, e, head.Corpus[i]); !cmp.Equal(got[0], plain.Answers[i][0]) {
					t.Errorf("ids of %q differ under load", head.Corpus[i])
				}
			}
		})
	}
	group.Wait()
}

func TestEncodeAllocatesNothing(t *testing.T) {
	head, variants := readGold(t)
	toks := append(everyKind(t), mustParse(t, tokenizertest.MiniLM(t, variants[0].Patch)))
	var e tokenizer.Encoding
	var texts [][]byte
	for i := 0; i < len(head.Corpus); i += 9 {
		texts = append(texts, []byte(head.Corpus[i][0]))
	}
	all := func() {
		for _, tok := range toks {
			for _, text := range texts {
				if err := tok.Encode(&e, text); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	all()
	// A garbage collection between the runs would empty pools and count their refilling.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	if n := testing.AllocsPerRun(3, all); n > 0 {
		t.Errorf("%v allocations for %d texts, expected none", n, len(texts))
	}
}

func FuzzEncode(f *testing.F) {
	head, _ := readGold(f)
	for i := 0; i < len(head.Corpus); i += 40 {
		f.Add([]byte(head.Corpus[i][0]), []byte("second [MASK] é\u0301"))
	}
	f.Add([]byte("\xff\xc3"), []byte("\u1b44\u0301"))
	whole := mustParse(f, tokenizertest.MiniLM(f, tokenizertest.NoLimits()))
	short, err := whole.WithMaxLength(9)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		tracked, plain := tokenizer.Encoding{TrackOffsets: true}, tokenizer.Encoding{}
		for _, tok := range []*tokenizer.Tokenizer{whole, short} {
			err := tok.EncodePair(&tracked, a, b)
			if other := tok.EncodePair(&plain, a, b); (err == nil) != (other == nil) {
				t.Fatalf("with offsets %v, without %v", err, other)
			}
			if err != nil {
				continue
			}
			if !cmp.Equal(tracked.IDs, plain.IDs) {
				t.Fatal("ids depend on offsets")
			}
			if n := tok.MaxLength(); n > 0 && tracked.Len() > n {
				t.Fatalf("%d tokens, over the limit of %d", tracked.Len(), n)
			}
			for _, s := range tracked.Offsets {
				if s.Start < 0 || s.End < s.Start || int(s.End) > max(len(a), len(b)) {
					t.Fatalf("offsets %v of texts of %d and %d bytes", s, len(a), len(b))
				}
			}
		}
	})
}

func BenchmarkEncode(b *testing.B) {
	head, variants := readGold(b)
	tok := mustParse(b, tokenizertest.MiniLM(b, variants[0].Patch))
	var texts [][]byte
	size := 0
	for _, entry := range head.Corpus {
		if len(entry) == 1 && len(entry[0]) > 0 {
			texts = append(texts, []byte(entry[0]))
			size += len(entry[0])
		}
	}
	english := bytes.Repeat([]byte("The committee will meet again on Thursday to vote on the plan. "), 3)[:167]
	b.Run("corpus", func(b *testing.B) { benchTexts(b, tok, texts, size/len(texts)) })
	b.Run("english", func(b *testing.B) { benchTexts(b, tok, [][]byte{english}, len(english)) })
	b.Run("korean", func(b *testing.B) {
		benchTexts(b, tok, [][]byte{[]byte(strings.Repeat("값이 비싸다 닭볶음탕 ", 5))}, 160)
	})
	b.Run("arabic", func(b *testing.B) {
		benchTexts(b, tok, [][]byte{[]byte(strings.Repeat("السَّلَامُ عَلَيْكُمْ ", 4))}, 160)
	})
}

func benchTexts(b *testing.B, tok *tokenizer.Tokenizer, texts [][]byte, size int) {
	b.Helper()
	b.SetBytes(int64(size))
	b.ReportAllocs()
	var e tokenizer.Encoding
	i := 0
	for b.Loop() {
		if err := tok.Encode(&e, texts[i]); err != nil {
			b.Fatal(err)
		}
		if i++; i == len(texts) {
			i = 0
		}
	}
}
