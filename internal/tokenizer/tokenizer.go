// Package tokenizer turns text into the token ids that a language model reads, and ids back into text. It reads the Hugging
// Face tokenizer.json format and four others, and gives the results of the libraries that define them.
//
// A text passes a pipeline of five stages. For example, "Héllo tokenizers!" with the WordPiece tokenizer of BERT:
//
//	added tokens    find [MASK] and the like in the source       "Héllo tokenizers!"
//	normalizer      clean, decompose, strip accents, lower case  "hello tokenizers!"
//	pre-tokenizer   cut into words                               "hello", "tokenizers", "!"
//	model           cut words into entries of the vocabulary     hello, token, ##izer, ##s, !
//	post-processor  truncate, add special tokens, pad            101 7592 19204 17629 2015 999 102
//
// Stages of each kind, and where their algorithms come from:
//
//   - Normalizers: BertNormalizer in one pass (bert.go); Unicode normalization forms (unicode_forms.go, UAX #15); the compiled
//     character maps of sentencepiece (precompiled.go, a double-array trie of darts-clone); others (normalizers.go).
//   - Pre-tokenizers: BertPreTokenizer, Metaspace, ByteLevel (bert.go, pretokenizers.go) and Split by a regular expression (split.go).
//     Package onig matches the expressions; those of GPT-2, Llama 3 and Qwen are matched by hand (pretokenizers.go).
//   - Models: WordPiece, the longest match from the left (models.go); BPE, byte pair encoding of Sennrich et al. 2016
//     (bpe*.go); Unigram of Kudo 2018, by the Viterbi algorithm (unigram.go); WordLevel. Vocabularies are double-array tries
//     (trie.go, Aoe 1989).
//   - Post-processors: templates of special tokens, truncation into windows, padding, and offsets without white
//     space (encoding.go).
//   - Decoders turn tokens into text (decode*.go).
//
// load*.go read a tokenizer.json. A component or option that this package does not know is an error with its name, never a
// different result. The readers of other formats (vocab_files.go, sentencepiece.go, tiktoken.go) make the same [Definition].
//
// The results equal those of PyPI tokenizers 0.23.3, sentencepiece 0.2.3, tiktoken 0.14.0 and mistral-common 1.13.1. Files in
// testdata hold their answers and the scripts that wrote them. The Unicode classes are those of the libraries (package
// charclass): they differ from Go's, and from stage to stage.
//
// Time is linear in the length of the text for every input. A [Tokenizer] is safe for concurrent use; an [Encoding] and a
// [Decoding] serve one goroutine at a time and allocate nothing once their memory and the cache of words (bpe.go, bounded)
// have grown.
package tokenizer

import (
	"errors"
	"fmt"
	"unicode/utf8"
)

// MaxText is the longest text in bytes that Encode accepts, so that offsets fit into 32 bits.
const MaxText = 1 << 28

// Tokenizer is a loaded tokenizer file. It never changes and is safe for concurrent use. For example:
//
//	tok, err := tokenizer.Parse(file)
//	var e tokenizer.Encoding // one per goroutine, used again and again
//	err = tok.Encode(&e, []byte("Hello worlds!"))
//	// e.IDs is [101 7592 8484 999 102] with BERT's vocabulary
type Tokenizer struct {
	before, after *addedTokens // found in the source, and in the normalized text
	normalizer    normalizer
	passes        []pass // over the result of normalizer
	preTokenizers []preTokenizer
	model         model
	template      *template
	trims         []trim
	truncation    *Truncation
	padding       *padding
	padID         int32
	mustTrack     bool             // the pre-tokenizer needs the source positions of words
	added         map[int32]string // the text of added tokens when they are decoded
	special       map[string]bool  // contents of the special ones
	reserved      int32            // ids below it are special tokens, even if a text contains their names
	spaces        [][2]int16       // white space at the ends of tokens by id; nil without trims
	detokenizer   detokenizer
}

// Encode writes the encoding of text to dst. dst borrows text until it is used again. Text that is not UTF-8, is longer than
// MaxText, or has a part without a token is an error.
func (t *Tokenizer) Encode(dst *Encoding, text []byte) error {
	if err := t.sequence(dst, 0, text); err != nil {
		return err
	}
	return t.assemble(dst, false)
}

// EncodePair writes the encoding of two texts together to dst, for example a question and its context. It fails as Encode does,
// and when the truncation strategy cannot shorten the pair to the limit.
func (t *Tokenizer) EncodePair(dst *Encoding, text, pair []byte) error {
	if err := t.sequence(dst, 0, text); err != nil {
		return err
	}
	if err := t.sequence(dst, 1, pair); err != nil {
		return fmt.Errorf("second text: %w", err)
	}
	return t.assemble(dst, true)
}

// token returns the text of an id for decoding. Added tokens hide those of the vocabulary.
func (t *Tokenizer) token(id int32) (string, bool) {
	if s, ok := t.added[id]; ok {
		return s, true
	}
	return t.model.token(id)
}

// PadID returns the id that pads shorter rows: that of the padding section, that of "[PAD]", or 0.
func (t *Tokenizer) PadID() int32 { return t.padID }

// PadTypeID returns the type id of padding.
func (t *Tokenizer) PadTypeID() int32 {
	if t.padding == nil {
		return 0
	}
	return t.padding.typeID
}

// PadsLeft reports whether padding goes before the tokens.
func (t *Tokenizer) PadsLeft() bool { return t.padding != nil && t.padding.left }

// MaxLength returns the number of tokens that encodings are truncated to, 0 without truncation.
func (t *Tokenizer) MaxLength() int {
	if t.truncation == nil {
		return 0
	}
	return t.truncation.MaxLength
}

// WithMaxLength returns a tokenizer that truncates to n tokens, special ones included, with the file's strategy and
// direction, or longest first from the right where the file has no truncation.
func (t *Tokenizer) WithMaxLength(n int) (*Tokenizer, error) {
	cut := Truncation{Strategy: longestFirst, Direction: right}
	if t.truncation != nil {
		cut = *t.truncation
	}
	cut.MaxLength = n
	c := t.with(&cut)
	return c, c.checkTruncation()
}

// WithStrategy returns a tokenizer that truncates with another strategy: longest_first, only_first or only_second.
func (t *Tokenizer) WithStrategy(name string) (*Tokenizer, error) {
	strategy := map[string]string{"longest_first": longestFirst, "only_first": onlyFirst, "only_second": onlySecond}[name]
	if t.truncation == nil || strategy == "" {
		return nil, fmt.Errorf("truncation by '%s' is not known, or there is no max_length", name)
	}
	cut := *t.truncation
	cut.Strategy = strategy
	return t.with(&cut), nil
}

// WithStride returns a tokenizer whose windows repeat the last n tokens of the window before.
func (t *Tokenizer) WithStride(n int) (*Tokenizer, error) {
	if t.truncation == nil {
		return nil, errors.New("a stride needs truncation to a max_length")
	}
	cut := *t.truncation
	cut.Stride = n
	if room := cut.MaxLength - t.template.added(false); n >= room {
		return nil, fmt.Errorf("stride %d is not less than the %d tokens that max_length %d leaves for a text", n, room, cut.MaxLength)
	}
	return t.with(&cut), nil
}

// WithoutTruncation returns a tokenizer that does not truncate.
func (t *Tokenizer) WithoutTruncation() *Tokenizer { return t.with(nil) }

func (t *Tokenizer) with(cut *Truncation) *Tokenizer {
	c := *t
	c.truncation = cut
	return &c
}

func (t *Tokenizer) checkTruncation() error {
	if n := t.template.added(false); t.truncation.MaxLength <= n {
		return fmt.Errorf("truncation to max_length %d leaves no room beside %d special tokens", t.truncation.MaxLength, n)
	}
	return nil
}

// errNotUTF8 is the error for a text with invalid bytes.
var errNotUTF8 = errors.New("text is not valid UTF-8")

// sequence fills e.seqs[which] with the tokens of one text.
func (t *Tokenizer) sequence(e *Encoding, which int, src []byte) error {
	if len(src) > MaxText {
		return fmt.Errorf("text has %d bytes, expected at most %d", len(src), MaxText)
	}
	if !utf8.Valid(src) {
		at := 0
		for r, n := utf8.DecodeRune(src); r != utf8.RuneError || n != 1; r, n = utf8.DecodeRune(src[at:]) {
			at += n
		}
		return fmt.Errorf("%w: byte %d", errNotUTF8, at)
	}
	track := e.TrackOffsets || t.mustTrack
	e.text.track, e.text.alt.track, e.text.count = track, track, 0
	seq := e.seqs[which][:0]
	e.pieces = t.before.cut(e.pieces[:0], src)
	for _, p := range e.pieces {
		if p.id != noID {
			seq = append(seq, t.whole(e, p, src[p.at.Start:p.at.End]))
			continue
		}
		e.text.reset(int(p.at.Start))
		t.normalize(&e.text, src[p.at.Start:p.at.End], int(p.at.Start))
		seq = t.normalized(e, seq)
		if e.text.bad != nil {
			return e.text.bad
		}
	}
	e.sources[which] = src
	e.seqs[which] = seq
	return nil
}

// normalize appends the normalized form of src to x.
func (t *Tokenizer) normalize(x *text, src []byte, base int) {
	t.normalizer.normalize(x, src, base)
	for _, p := range t.passes {
		p.apply(x)
	}
}

// whole returns the token of an added token found in the source.
func (t *Tokenizer) whole(e *Encoding, p word, content []byte) token {
	if !e.text.track {
		return token{id: p.id}
	}
	out := token{id: p.id, span: p.at, word: e.text.count}
	e.text.count++
	if len(t.trims) > 0 {
		out.lead, out.trail = spacesOf(content)
	}
	return out
}

// normalized appends the tokens of one normalized piece.
func (t *Tokenizer) normalized(e *Encoding, seq []token) []token {
	x := &e.text
	x.words = t.after.cut(x.words[:0], x.buf)
	for _, p := range t.preTokenizers {
		p.split(x)
	}
	for _, w := range x.words {
		from := len(seq)
		if w.id == noID {
			seq = t.model.tokenize(x, w.at, seq)
		} else {
			seq = x.added(seq, w)
		}
		if e.TrackOffsets {
			for k := range seq[from:] {
				seq[from+k].word = x.count
			}
			x.count++
		}
	}
	return seq
}

// assemble truncates the sequences, joins them by the template and pads the result.
func (t *Tokenizer) assemble(e *Encoding, pair bool) error {
	e.reset()
	if !pair {
		e.seqs[1] = e.seqs[1][:0]
	}
	e.windows[0], e.windows[1] = e.windows[0][:0], e.windows[1][:0]
	e.Total = len(e.seqs[0]) + len(e.seqs[1]) + t.template.added(pair)
	kept := [2]Span{{0, int32(len(e.seqs[0]))}, {0, int32(len(e.seqs[1]))}}
	if c := t.truncation; c != nil {
		n1, n2, err := c.lengths(len(e.seqs[0]), len(e.seqs[1]), c.MaxLength-t.template.added(pair), pair)
		if err != nil {
			return err
		}
		for i, n := range [2]int{n1, n2} {
			if e.windows[i], err = c.windows(e.windows[i], len(e.seqs[i]), n); err != nil {
				return err
			}
			if len(e.windows[i]) > 0 {
				kept[i] = e.windows[i][0]
			}
		}
		if n := max(len(e.windows[0]), 1) * max(len(e.windows[1]), 1); e.KeepOverflow && e.MaxWindows > 0 && n > e.MaxWindows {
			return fmt.Errorf("truncation cuts it into %d windows, expected at most %d", n, e.MaxWindows)
		}
	}
	t.template.fill(t, e, e, kept, [2]bool{true, true}, pair)
	length := t.pad(e, -1)
	t.overflow(e, kept, pair, length)
	return nil
}

// pad pads dst to length, or as the file says when that is negative. It returns the padded length.
func (t *Tokenizer) pad(dst *Encoding, length int) int {
	if t.padding == nil {
		return 0
	}
	if length < 0 {
		length = t.padding.length(dst.Len())
	}
	t.padding.apply(dst, length)
	return length
}

// overflow writes the tokens that truncation removed as further encodings: each window of the first text with each of the second.
func (t *Tokenizer) overflow(e *Encoding, kept [2]Span, pair bool, length int) {
	e.Overflow = e.Overflow[:0]
	if !e.KeepOverflow {
		return
	}
	first, second := e.windows[0], e.windows[1]
	first, second = first[min(1, len(first)):], second[min(1, len(second)):]
	for i := -1; i < len(first); i++ {
		for k := -1; k < len(second); k++ {
			if i < 0 && k < 0 {
				continue
			}
			at, main := kept, [2]bool{i < 0, k < 0}
			if i >= 0 {
				at[0] = first[i]
			}
			if k >= 0 {
				at[1] = second[k]
			}
			dst := e.nextOverflow()
			t.template.fill(t, dst, e, at, main, pair)
			t.pad(dst, length)
		}
	}
	if n := len(second); n > 0 && n < len(e.Overflow) {
		rotate(e.Overflow, n) // those with the first window of the first text go behind the others
	}
	copy(e.spare, e.Overflow)
}
