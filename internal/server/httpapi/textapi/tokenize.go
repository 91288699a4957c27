package textapi

import (
	"strconv"
	"unicode/utf8"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/jsontext"
	"github.com/tutti-server/tutti/internal/server/httpapi/transport"
)

// Tokenize serves POST /tokenize of Text Embeddings Inference.
func (s *Service) Tokenize() transport.Handler {
	return s.tei("/tokenize", func(x *exchange) error {
		x.fields.special = true
		if err := x.read((*exchange).tokenizeMember); err != nil {
			return err
		}
		if err := x.describe(tokens); err != nil {
			return err
		}
		if x.fields.field == "" {
			x.fields.field = "inputs"
		}
		if err := x.checkTexts(true); err != nil {
			return err
		}
		a := x.api
		x.want(a.TokenIDs, a.Mask, a.Special, a.Offsets)
		if err := x.run(); err != nil {
			return err
		}
		for i := range x.results {
			if err := x.checkTokens(&x.results[i]); err != nil {
				return err
			}
		}
		return x.respond(encodeTokens)
	})
}

func (x *exchange) tokenizeMember(name string) (err error) {
	switch name {
	case "inputs":
		x.items = x.items[:0]
		return x.readTexts(name, false)
	case "add_special_tokens":
		x.fields.special, err = x.flag(name, true)
		return err
	default:
		return x.commonMember(name)
	}
}

// column returns the row of a text in an output of integers, nil without a name.
func (x *exchange) column(r *result, name string) (list []int64) {
	if name != "" {
		_ = x.integers(r, name, func(v int64) { list = append(list, v) }) // checked before
	}
	return list
}

// checkTokens checks that the outputs have an element per token.
func (x *exchange) checkTokens(r *result) error {
	a, n := x.api, -1
	for _, name := range []string{a.TokenIDs, a.Mask, a.Special, a.Offsets} {
		if name == "" {
			continue
		}
		_, first, end, err := x.output(r, name)
		if err != nil {
			return err
		}
		have := end - first
		if name == a.Offsets {
			have /= 2
		}
		if n >= 0 && have != n {
			return status.Reasonf(status.StepFailed, "model '%s' has sent %d elements of output '%s', expected one per token, %d", x.model.name, have, name, n)
		}
		n = have
	}
	return nil
}

func encodeTokens(x *exchange) {
	n := 0
	x.eachResult(func(r *result) {
		x.appendTokens(r, n)
		n++
	})
}

// appendTokens appends the tokens of text i.
func (x *exchange) appendTokens(r *result, i int) {
	ids, mask, special, offsets := x.column(r, x.api.TokenIDs), x.column(r, x.api.Mask), x.column(r, x.api.Special), x.column(r, x.api.Offsets)
	x.p.Reset(x.items[i].at)
	text, _ := x.p.Str() // read before
	at := cursor{text: text}
	x.out = append(x.out, '[')
	first := true
	for n, id := range ids {
		isSpecial := special != nil && special[n] != 0
		if mask != nil && mask[n] == 0 || isSpecial && !x.fields.special {
			continue
		}
		x.comma(&first)
		x.out = strconv.AppendInt(append(x.out, `{"id":`...), id, 10)
		var part []byte
		if offsets != nil && !isSpecial {
			part = at.slice(int(offsets[2*n]), int(offsets[2*n+1]))
		}
		x.out = jsontext.AppendValid(append(x.out, `,"text":`...), part)
		x.out = strconv.AppendBool(append(x.out, `,"special":`...), isSpecial)
		if offsets == nil || isSpecial {
			x.out = append(x.out, `,"start":null,"stop":null}`...)
			continue
		}
		x.out = strconv.AppendInt(append(x.out, `,"start":`...), offsets[2*n], 10)
		x.out = append(strconv.AppendInt(append(x.out, `,"stop":`...), offsets[2*n+1], 10), '}')
	}
	x.out = append(x.out, ']')
}

// cursor finds code points in a text. Offsets that do not descend cost one pass.
type cursor struct {
	text  []byte
	chars int // code points before at
	at    int // in bytes
}

// slice returns the code points from start to below end, as far as there are any.
func (c *cursor) slice(start, end int) []byte {
	if start < c.chars {
		c.chars, c.at = 0, 0
	}
	c.move(start)
	from := c.at
	for n := start; n < end && c.at < len(c.text); n++ {
		_, size := utf8.DecodeRune(c.text[c.at:])
		c.at, c.chars = c.at+size, c.chars+1
	}
	return c.text[from:c.at]
}

func (c *cursor) move(to int) {
	for c.chars < to && c.at < len(c.text) {
		_, size := utf8.DecodeRune(c.text[c.at:])
		c.at, c.chars = c.at+size, c.chars+1
	}
}
