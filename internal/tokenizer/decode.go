package tokenizer

import (
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"golang.org/x/text/encoding/unicode"
)

// Decoding is the result of Decode and its memory. The zero value is ready; used again, it reuses the memory. It serves one
// goroutine at a time.
type Decoding struct {
	// Text is the result of the last Decode, valid until the next one.
	Text []byte

	in, out pieces
}

// Memory returns the capacity of the larger of d's two buffers in bytes.
func (d *Decoding) Memory() int { return max(cap(d.in.buf), cap(d.out.buf)) }

// pieces is a text in pieces: at first one per token, then the results of decoders.
type pieces struct {
	buf  []byte
	ends []int // the end of each piece in buf
}

func (p *pieces) reset() { p.buf, p.ends = p.buf[:0], p.ends[:0] }

// end makes a piece of the bytes appended to buf since the last piece.
func (p *pieces) end() { p.ends = append(p.ends, len(p.buf)) }

func (p *pieces) add(s string) {
	p.buf = append(p.buf, s...)
	p.end()
}

// at returns piece i.
func (p *pieces) at(i int) []byte {
	if i == 0 {
		return p.buf[:p.ends[0]]
	}
	return p.buf[p.ends[i-1]:p.ends[i]]
}

// decoder is one stage of decoding. It appends its result for src to dst, which is empty, and must not retain either. For example,
// WordPiece turns the pieces "hello", "world", "##s" into "hello", " world", "s".
type decoder interface {
	decode(dst, src *pieces)
}

// detokenizer is the decoder section.
type detokenizer struct {
	chain  []decoder
	spaced bool // tokens are joined by spaces, as without a decoder section
}

// errText is the error for a result longer than MaxText.
var errText = errors.New("text is longer than 268435456 bytes")

// Decode sets dst.Text to the text of ids, without special tokens where skipSpecial is set. An id that is neither in the vocabulary
// nor an added token is an error (the reference skips it), and so is a text longer than MaxText.
//
// hot: no allocation once dst has grown.
func (t *Tokenizer) Decode(dst *Decoding, ids []int64, skipSpecial bool) error {
	dst.in.reset()
	for i, id := range ids {
		if err := t.appendToken(&dst.in, id, i, skipSpecial); err != nil {
			return err
		}
	}
	in, out := &dst.in, &dst.out
	for _, d := range t.detokenizer.chain {
		out.reset()
		d.decode(out, in)
		if in, out = out, in; len(in.buf) > MaxText {
			return errText
		}
	}
	if dst.Text = dst.Text[:0]; !t.detokenizer.spaced {
		dst.Text = append(dst.Text, in.buf...)
		return nil
	}
	for i := range in.ends {
		if i > 0 {
			dst.Text = append(dst.Text, ' ')
		}
		dst.Text = append(dst.Text, in.at(i)...)
	}
	return nil
}

func (t *Tokenizer) appendToken(p *pieces, id int64, at int, skipSpecial bool) error {
	short := int32(id)
	text, ok := t.token(short)
	switch {
	case !ok || int64(short) != id:
		return fmt.Errorf("id %d at %d is not in the vocabulary", id, at)
	case skipSpecial && short < t.reserved:
		p.add(boundary)
		return nil
	case skipSpecial && t.special[text]:
		return nil
	case len(p.buf)+len(text) > MaxText:
		return errText
	}
	p.add(text)
	return nil
}

// boundary is a piece that stands for a skipped token. Bytes before and after it do not form a character together. No token has
// this text.
const boundary = "\xff"

// byteLevelDecoder turns ByteLevel's characters into the bytes that they stand for. A piece with any other character stays as it is.
// Bytes of the result that are not UTF-8 become U+FFFD.
type byteLevelDecoder struct{}

func (byteLevelDecoder) decode(dst, src *pieces) {
	from := 0
	for i := range src.ends {
		if p := src.at(i); string(p) == boundary {
			dst.buf = madeValid(dst.buf, from)
			from = len(dst.buf)
		} else {
			dst.buf = appendByteLevel(dst.buf, p)
		}
	}
	dst.buf = madeValid(dst.buf, from)
	dst.end()
}

func appendByteLevel(dst, piece []byte) []byte {
	start := len(dst)
	for at := 0; at < len(piece); {
		r, n := utf8.DecodeRune(piece[at:])
		b := byteOf(r)
		if b < 0 {
			return append(dst[:start], piece...)
		}
		dst = append(dst, byte(b))
		at += n
	}
	return dst
}

// validated replaces each truncated character and each byte that is never valid by U+FFFD (Unicode's "maximal subparts"; Go's
// conversion replaces every byte).
var validated = unicode.UTF8.NewDecoder()

// madeValid replaces the bytes of buf that are not UTF-8, from the given position on.
func madeValid(buf []byte, from int) []byte {
	if utf8.Valid(buf[from:]) {
		return buf
	}
	n, most := len(buf), 3*(len(buf)-from)
	buf = slices.Grow(buf, most)
	// the room is always enough, so that there is no error
	size, _, _ := validated.Transform(buf[n:n+most], buf[from:n], true)
	return append(buf[:from], buf[n:n+size]...)
}
