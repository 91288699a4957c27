package stringop

import (
	"bytes"
	"context"
	"encoding/base64"
	"regexp"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/pool"
	"github.com/tutti-server/tutti/steps"
)

var ops = []string{
	"lower", "upper", "title", "strip", "replace", "match", "extract", "length", "concat", "join", "split", "template",
	"base64_encode", "base64_decode",
}

var codings = map[string]*base64.Encoding{
	"std": base64.StdEncoding, "url": base64.URLEncoding, "raw_std": base64.RawStdEncoding, "raw_url": base64.RawURLEncoding,
}

// step is the step "string". Its fields are the parameters of the operation; a step that is loaded never changes.
type step struct {
	op        string
	batched   bool
	pattern   *regexp.Regexp
	group     int
	with      []byte
	chars     string
	separator []byte
	fields    int
	parts     []part
	coding    *base64.Encoding
	invalid   string
	pool      pool.Of[scratch]
}

// scratch is the memory of one execution.
type scratch struct {
	out   []byte   // the output so far, encoded
	elem  []byte   // one element
	valid []byte   // one element with its invalid bytes replaced
	rest  [][]byte // the unread elements of each input

	lower, upper cases.Caser
}

// Run fills the output. An element that cannot be processed fails the request of its row and becomes an empty element.
func (st *step) Run(_ context.Context, b *backends.Batch) error {
	x := st.pool.Get()
	defer st.put(x)
	for i := range b.In {
		x.rest = append(x.rest, b.In[i].Bytes())
	}
	rows, perRow := st.extent(&b.In[0])
	switch st.op {
	case "match", "length":
		return st.numbers(b, x, rows, perRow)
	case "concat":
		return st.concat(b, x, rows)
	case "join", "template":
		return st.fill(b, x, rows)
	case "split":
		return st.split(b, x, rows, perRow)
	default:
		return st.each(b, x, rows, perRow)
	}
}

// newScratch returns an empty scratch. Letter case follows no language; a final sigma gets its own form.
func newScratch() *scratch {
	return &scratch{lower: cases.Lower(language.Und, cases.HandleFinalSigma(true)), upper: cases.Upper(language.Und)}
}

// mostKept is the largest scratch in bytes that the pool keeps.
const mostKept = 1 << 20

func (st *step) put(x *scratch) {
	if cap(x.out)+cap(x.elem)+cap(x.valid) > mostKept {
		return
	}
	clear(x.rest)
	x.out, x.elem, x.rest = x.out[:0], x.elem[:0], x.rest[:0]
	st.pool.Put(x)
}

// extent returns the rows of a tensor, and the elements of each.
func (st *step) extent(t *tensor.Tensor) (rows, perRow int) {
	n := int(t.Shape.Elements())
	if !st.batched {
		return 1, n
	}
	if rows = int(t.Shape.Dim(0)); rows == 0 {
		return 0, 0
	}
	return rows, n / rows
}

// next reads the next element of an input as text. Bytes that are not UTF-8 are treated as parameter 'invalid' says.
func (st *step) next(b *backends.Batch, x *scratch, input, row int) ([]byte, error) {
	elem, rest, ok := tensor.NextBytes(x.rest[input])
	if !ok {
		return nil, status.Errorf(status.Internal, "input %d ends inside an element", input)
	}
	x.rest[input] = rest
	if st.invalid == "keep" || st.op == "base64_encode" || utf8.Valid(elem) {
		return elem, nil
	}
	if st.invalid == "refuse" {
		b.Fail(row, status.Errorf(status.InvalidArg, "an element of row %d is not UTF-8: %.40q", row, elem))
		return nil, nil
	}
	x.valid = replaced(x.valid[:0], elem)
	return x.valid, nil
}

// replaced appends text with every invalid byte replaced by U+FFFD.
func replaced(dst, text []byte) []byte {
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		dst = utf8.AppendRune(dst, r)
		text = text[n:]
	}
	return dst
}

// each makes one element of every element.
func (st *step) each(b *backends.Batch, x *scratch, rows, perRow int) error {
	for row := range rows {
		for range perRow {
			text, err := st.next(b, x, 0, row)
			if err != nil {
				return err
			}
			x.out = tensor.AppendBytes(x.out, st.change(b, x, row, text))
		}
	}
	return steps.Write(b, 0, tensor.Bytes, b.In[0].Shape, x.out)
}

// change applies the operation to one element. The result lies in the scratch or in text, and is valid until the next call.
func (st *step) change(b *backends.Batch, x *scratch, row int, text []byte) []byte {
	x.elem = x.elem[:0]
	switch st.op {
	case "lower":
		x.elem = cased(x.elem, text, 'A', x.lower)
	case "upper":
		x.elem = cased(x.elem, text, 'a', x.upper)
	case "title":
		x.elem = titled(x.elem, text)
	case "strip":
		if st.chars == "" {
			return bytes.TrimSpace(text)
		}
		return bytes.Trim(text, st.chars)
	case "replace":
		return st.pattern.ReplaceAll(text, st.with)
	case "extract":
		if m := st.pattern.FindSubmatchIndex(text); m != nil && m[2*st.group] >= 0 {
			return text[m[2*st.group]:m[2*st.group+1]]
		}
	case "base64_encode":
		x.elem = st.coding.AppendEncode(x.elem, text)
	case "base64_decode":
		var err error
		if x.elem, err = st.coding.AppendDecode(x.elem, text); err != nil {
			b.Fail(row, status.Errorf(status.InvalidArg, "an element of row %d is not base64: %w", row, err))
			return nil
		}
	}
	return x.elem
}

// numbers makes one number of every element: whether the pattern matches, or the length.
func (st *step) numbers(b *backends.Batch, x *scratch, rows, perRow int) error {
	d := tensor.Int32
	if st.op == "match" {
		d = tensor.Bool
	}
	out, err := b.Alloc(0, d, b.In[0].Shape)
	if err != nil {
		return err
	}
	for i := range rows * perRow {
		text, err := st.next(b, x, 0, i/perRow)
		switch {
		case err != nil:
			return err
		case d == tensor.Int32:
			tensor.Slice[int32](out)[i] = int32(utf8.RuneCount(text))
		default:
			out.Bytes()[i] = 0
			if st.pattern.Match(text) {
				out.Bytes()[i] = 1
			}
		}
	}
	return nil
}

// concat joins the elements at equal positions of all inputs. An input with one element in a row repeats it at every position.
func (st *step) concat(b *backends.Batch, x *scratch, rows int) error {
	widest, perRow := 0, 0
	for i := range b.In {
		if _, n := st.extent(&b.In[i]); n > perRow {
			widest, perRow = i, n
		}
	}
	for i := range b.In {
		if _, n := st.extent(&b.In[i]); n != perRow && n != 1 && rows > 0 {
			return status.Errorf(status.InvalidArg, "input %d has %d elements a row, expected %d as the others, or 1", i, n, perRow)
		}
	}
	for row := range rows {
		for k := range perRow {
			if err := st.concatAt(b, x, row, k+1 < perRow); err != nil {
				return err
			}
		}
	}
	return steps.Write(b, 0, tensor.Bytes, b.In[widest].Shape, x.out)
}

// concatAt appends the output's next element. more says that the row has further ones, for which an input of one element a row
// is read again.
func (st *step) concatAt(b *backends.Batch, x *scratch, row int, more bool) error {
	x.elem = x.elem[:0]
	for i := range b.In {
		before := x.rest[i]
		text, err := st.next(b, x, i, row)
		if err != nil {
			return err
		}
		if i > 0 {
			x.elem = append(x.elem, st.separator...)
		}
		x.elem = append(x.elem, text...)
		if _, n := st.extent(&b.In[i]); more && n == 1 {
			x.rest[i] = before
		}
	}
	x.out = tensor.AppendBytes(x.out, x.elem)
	return nil
}

// fill makes one element of every row: the template with its inputs in place, or all elements joined.
func (st *step) fill(b *backends.Batch, x *scratch, rows int) error {
	parts := st.parts
	if st.op == "join" {
		parts = joinAll
	}
	for row := range rows {
		x.elem = x.elem[:0]
		for _, p := range parts {
			x.elem = append(x.elem, p.text...)
			if p.input >= 0 {
				if err := st.appendRow(b, x, p, row); err != nil {
					return err
				}
			}
		}
		x.out = tensor.AppendBytes(x.out, x.elem)
	}
	return steps.Write(b, 0, tensor.Bytes, steps.Shape(b, st.batched, 1), x.out)
}

// appendRow appends the elements that a row has in an input, with the separator between them.
func (st *step) appendRow(b *backends.Batch, x *scratch, p part, row int) error {
	before := x.rest[p.input]
	_, n := st.extent(&b.In[p.input])
	for k := range n {
		text, err := st.next(b, x, p.input, row)
		if err != nil {
			return err
		}
		if k > 0 {
			x.elem = append(x.elem, st.separator...)
		}
		x.elem = append(x.elem, text...)
	}
	if p.again {
		x.rest[p.input] = before // another part reads the same row
	}
	return nil
}

// split cuts the one element of each row into fields.
func (st *step) split(b *backends.Batch, x *scratch, rows, perRow int) error {
	if perRow != 1 && rows > 0 {
		return status.Errorf(status.InvalidArg, "operation 'split' takes 1 element a row, found %d", perRow)
	}
	made := 0
	for row := range rows {
		text, err := st.next(b, x, 0, row)
		if err != nil {
			return err
		}
		made += st.appendFields(x, text)
	}
	if st.fields > 0 {
		made = st.fields
	}
	return steps.Write(b, 0, tensor.Bytes, steps.Shape(b, st.batched, int64(made)), x.out)
}

// appendFields appends the fields of a text as elements: st.fields of them where that is not 0. It returns their number.
func (st *step) appendFields(x *scratch, text []byte) int {
	n := 0
	for more := true; more && (st.fields == 0 || n < st.fields); n++ {
		var field []byte
		if field, text, more = st.cut(text); field == nil && !more {
			break
		}
		x.out = tensor.AppendBytes(x.out, field)
	}
	for ; n < st.fields; n++ {
		x.out = tensor.AppendBytes(x.out, "")
	}
	return n
}

// cut returns the first field of text and the rest. The field is nil when there is only white space.
func (st *step) cut(text []byte) (field, rest []byte, more bool) {
	if len(st.separator) > 0 {
		field, rest, more = bytes.Cut(text, st.separator)
		if field == nil {
			field = []byte{}
		}
		return field, rest, more
	}
	text = bytes.TrimSpace(text)
	end := bytes.IndexFunc(text, unicode.IsSpace)
	switch {
	case len(text) == 0:
		return nil, nil, false
	case end < 0:
		return text, nil, false
	default:
		rest = bytes.TrimSpace(text[end:])
		return text[:end], rest, len(rest) > 0
	}
}
