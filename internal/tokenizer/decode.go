package tokenizer

import (
	"errors"
	"fmt"
)

// Decoding is the text of some ids and the memory it was made in. The zero value is ready; used again, it keeps its
// memory. It serves one goroutine at a time.
type Decoding struct {
	// Text is the result of the last Decode.
	Text []byte

	in, out pieces
}

// Memory returns the bytes of the larger of the two buffers that d keeps.
func (d *Decoding) Memory() int { return max(cap(d.in.buf), cap(d.out.buf)) }

// pieces is a text in pieces, as decoders see it: the tokens at first.
type pieces struct {
	buf  []byte
	ends []int // where each piece ends in buf
}

func (p *pieces) reset() { p.buf, p.ends = p.buf[:0], p.ends[:0] }

// end ends a piece with what was appended to buf since the one before.
func (p *pieces) end() { p.ends = append(p.ends, len(p.buf)) }

func (p *pieces) add(s string) {
	p.buf = append(p.buf, s...)
	p.end()
}

// at is piece i.
func (p *pieces) at(i int) []byte {
	if i == 0 {
		return p.buf[:p.ends[0]]
	}
	return p.buf[p.ends[i-1]:p.ends[i]]
}

// A decoder appends to dst, which is empty, what it makes of src. It does not keep either.
type decoder interface {
	decode(dst, src *pieces)
}

// detokenizer is the decoder section.
type detokenizer struct {
	chain  []decoder
	spaced bool // there is none: tokens are joined by spaces
}

// errText is the error of an answer longer than MaxText.
var errText = errors.New("text is longer than 268435456 bytes")

// Decode makes dst.Text the text of ids, without special tokens where skipSpecial is set. It fails on an id that is
// neither in the vocabulary nor an added token, and on a text longer than MaxText. The reference leaves such ids out.
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
	dst.Text = t.detokenizer.join(dst.Text[:0], in)
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
	case skipSpecial && t.isSpecial(text):
		return nil
	case len(p.buf)+len(text) > MaxText:
		return errText
	}
	p.add(text)
	return nil
}

// boundary is a piece, and not the text of any token, that bytes before and behind it make no character across.
const boundary = "\xff"

func (d *detokenizer) join(dst []byte, p *pieces) []byte {
	if !d.spaced {
		return append(dst, p.buf...)
	}
	for i := range p.ends {
		if i > 0 {
			dst = append(dst, ' ')
		}
		dst = append(dst, p.at(i)...)
	}
	return dst
}
