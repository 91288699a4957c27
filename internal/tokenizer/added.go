package tokenizer

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"unicode"
	"unicode/utf8"
)

// AddedToken is one entry of the file's added_tokens.
type AddedToken struct {
	ID         int32  `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

// addedTokens finds the added tokens of one kind (those before or those after normalization) in a text.
type addedTokens struct {
	tokens []AddedToken
	trie   *trie     // content -> index into tokens
	starts [256]bool // bytes that some token starts with
}

// newAddedTokens returns the finder of tokens by their contents; nil for no tokens.
func newAddedTokens(tokens []AddedToken) *addedTokens {
	if len(tokens) == 0 {
		return nil
	}
	a, index := &addedTokens{tokens: tokens}, make(map[string]int32, len(tokens))
	for i, t := range tokens {
		index[t.Content] = int32(i)
		a.starts[t.Content[0]] = true
	}
	a.trie = newTrie(index)
	return a
}

// cut appends the added tokens in b, and the ranges between them as text. At each position the longest token wins. Time is linear in the text, with the length of the longest
// token as a factor.
func (a *addedTokens) cut(dst []word, b []byte) []word {
	done := 0 // end of the last piece
	for i := 0; a != nil && i < len(b); {
		if !a.starts[b[i]] {
			i++
			continue
		}
		index, size := a.trie.longest(rootNode, b[i:])
		if index == noID {
			i++
			continue
		}
		tok, start, end := &a.tokens[index], i, i+size
		i = end
		before, _ := utf8.DecodeLastRune(b[:start])
		after, _ := utf8.DecodeRune(b[end:])
		if tok.SingleWord && (isWord(before) || isWord(after)) {
			continue
		}
		if tok.LStrip {
			start = max(spaceStart(b, min(done, start), start), min(done, end))
		}
		if tok.RStrip {
			end = spaceEnd(b, end)
		}
		if done < start {
			dst = append(dst, word{Span{int32(done), int32(start)}, noID})
		}
		dst = append(dst, word{Span{int32(start), int32(end)}, tok.ID})
		done = end
	}
	if done < len(b) {
		dst = append(dst, word{Span{int32(done), int32(len(b))}, noID})
	}
	return dst
}

// spaceStart returns the start of the white space before end, at least lowest.
func spaceStart(b []byte, lowest, end int) int {
	return lowest + len(bytes.TrimRightFunc(b[lowest:end], unicode.IsSpace))
}

// spaceEnd returns the end of the white space from start on.
func spaceEnd(b []byte, start int) int {
	return len(b) - len(bytes.TrimLeftFunc(b[start:], unicode.IsSpace))
}

// isWord reports whether \w matches r (UTS #18): letters, marks, decimal digits, connectors, joiners.
func isWord(r rune) bool {
	return unicode.In(r, unicode.Letter, unicode.Nl, unicode.Other_Alphabetic, unicode.Mark, unicode.Nd, unicode.Pc,
		unicode.Join_Control)
}

// loadAdded sorts the added tokens into those found in the source and those found after normalization. As in the reference, ids in
// the file are ignored: a token of the vocabulary has its id there, others are numbered from its end on.
func (t *Tokenizer) loadAdded(d *Definition) error {
	var plain, normalized []AddedToken
	t.added, t.special = map[int32]string{}, map[string]bool{}
	known, next := map[string]AddedToken{}, int32(t.model.size())
	for _, a := range d.AddedTokens {
		if a.Content == "" || len(a.Content) > maxEntry || a.ID < 0 {
			return fmt.Errorf("added token '%.40s' with id %d: expected 1 to %d bytes and an id of at least 0", a.Content, a.ID, maxEntry)
		}
		was, again := known[a.Content]
		switch id, ok := t.model.id(a.Content); {
		case again:
			a.ID = was.ID
		case ok:
			a.ID = id
		default:
			a.ID = next
			next++
		}
		known[a.Content] = a
		if a.Special {
			t.special[a.Content] = true
		}
	}
	for _, content := range slices.Sorted(maps.Keys(known)) {
		a := known[content]
		t.added[a.ID] = content
		if !a.Normalized {
			plain = append(plain, a)
			continue
		}
		var x text
		t.normalize(&x, []byte(content), 0)
		if len(x.buf) == 0 {
			return fmt.Errorf("added token '%s' is empty when normalized", content)
		}
		a.Content = string(x.buf)
		t.added[a.ID] = a.Content
		normalized = append(normalized, a)
	}
	t.before, t.after = newAddedTokens(plain), newAddedTokens(normalized)
	return nil
}
