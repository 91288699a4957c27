package textapi

import (
	"math"
	"strings"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/server/httpapi/jsonwire"
	"github.com/tutti-server/tutti/internal/server/httpapi/transport"
)

// item is a text of the request, or a list of token ids. It stays in the body.
type item struct {
	at    jsonwire.Mark
	size  int32 // of its encoding in a tensor of BYTES; of ids, their number
	index int32 // of its result
}

// read reads the body, a JSON object, and calls member for each of its members.
func (x *exchange) read(member func(x *exchange, name string) error) error {
	compressed, err := transport.Compressed(x.w, x.r)
	if err == nil {
		err = x.in.Open(x.w, x.r, compressed)
	}
	if err == nil {
		x.body, err = x.in.ReadJSON(x.body[:0])
	}
	if err != nil {
		return err
	}
	x.p.Begin(x.body)
	if err = x.members(member); err == nil {
		x.span.End()
		return nil
	}
	if syntax := x.p.Validate(x.body); syntax != nil {
		err = syntax
	}
	if status.CodeOf(err) == status.Internal { // the parser has Triton's codes
		err = status.Errorf(status.InvalidArg, "the body is no valid JSON: %s", strings.TrimPrefix(status.Text(err), "failed to parse the request JSON buffer: "))
	}
	return err
}

func (x *exchange) members(member func(x *exchange, name string) error) error {
	if err := x.p.Start(); err != nil {
		return err
	}
	if x.p.Peek() != '{' {
		return invalid("", "the body is %s, expected an object", x.found())
	}
	if err := x.p.Members(func(name []byte) error { return member(x, memberName(name)) }); err != nil {
		return err
	}
	return x.p.End()
}

// usualMembers has the members of usual requests, so that their names need no memory.
var usualMembers = map[string]string{
	"input": "input", "model": "model", "encoding_format": "encoding_format", "user": "user", "inputs": "inputs", "truncate": "truncate", "normalize": "normalize",
	"query": "query", "documents": "documents", "texts": "texts", "top_n": "top_n", "prompt": "prompt", "stream": "stream", "max_tokens": "max_tokens",
}

func memberName(name []byte) string {
	if s, usual := usualMembers[string(name)]; usual {
		return s
	}
	return string(name)
}

// found describes the value at the cursor.
func (x *exchange) found() string {
	switch x.p.Peek() {
	case '"':
		return "a string"
	case '{':
		return "an object"
	case '[':
		return "a list"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	default:
		return "a number"
	}
}

func (x *exchange) wrong(field, expected string) error {
	return invalid(field, "'%s' is %s, expected %s", field, x.found(), expected)
}

// text reads a string, or null, which yields none.
func (x *exchange) text(field string) (string, error) {
	if is, err := x.p.Null(); is || err != nil {
		return "", err
	}
	if x.p.Peek() != '"' {
		return "", x.wrong(field, "a string")
	}
	s, err := x.p.Str()
	return string(s), err
}

// flag reads a boolean, or null, which yields otherwise.
func (x *exchange) flag(field string, otherwise bool) (bool, error) {
	if is, err := x.p.Null(); is || err != nil {
		return otherwise, err
	}
	if c := x.p.Peek(); c != 't' && c != 'f' {
		return false, x.wrong(field, "a boolean")
	}
	return x.p.Bool(field)
}

// count reads a number of at least 1, or null, which yields 0.
func (x *exchange) count(field string) (int, error) {
	if is, err := x.p.Null(); is || err != nil {
		return 0, err
	}
	if c := x.p.Peek(); c != '-' && (c < '0' || c > '9') {
		return 0, x.wrong(field, "a number of at least 1")
	}
	n, err := x.p.Number()
	if err != nil {
		return 0, err
	}
	if v, ok := n.Signed(); ok && v >= 1 && v <= 1<<31-1 {
		return int(v), nil
	}
	return 0, invalid(field, "'%s' is %s, expected a number of at least 1", field, n.String())
}

// model reads the name of the model.
func (x *exchange) modelName() error {
	if x.p.Peek() == '"' {
		s, err := x.p.Str()
		if m := x.srv.models.Load(); err == nil && m != nil { // usual names need no memory
			if known := m.byName[string(s)]; known != nil {
				x.fields.model = known.name
				return nil
			}
		}
		x.fields.model = string(s)
		return err
	}
	var err error
	x.fields.model, err = x.text("model")
	return err
}

// readTexts records the texts of a value: a string, or a list of strings. With ids it may also be a list of token ids, or a list of such lists.
func (x *exchange) readTexts(field string, ids bool) error {
	x.fields.field = field
	if x.p.Peek() != '[' {
		return x.readText(field, false)
	}
	if ids {
		start := x.p.Mark()
		numbers, n, err := x.numbers()
		if err != nil {
			return err
		}
		if numbers {
			x.fields.ids = true
			return x.add(start, n)
		}
		x.p.Reset(start)
	}
	return x.p.Elements(func() error { return x.readText(field, ids) })
}

// readText records one text or, with ids, one list of token ids.
func (x *exchange) readText(field string, ids bool) error {
	start := x.p.Mark()
	switch c := x.p.Peek(); {
	case c == '"':
		s, err := x.p.Str()
		if err != nil {
			return err
		}
		if x.fields.ids {
			return invalid(field, "'%s' has texts and token ids, expected one kind", field)
		}
		return x.add(start, tensor.EncodedLen(len(s)))
	case c == '[' && ids:
		numbers, n, err := x.numbers()
		switch {
		case err != nil:
			return err
		case !numbers:
			return invalid(field, "'%s' has a list that is not of token ids, expected texts or lists of token ids", field)
		case len(x.items) > 0 && !x.fields.ids:
			return invalid(field, "'%s' has texts and token ids, expected one kind", field)
		}
		x.fields.ids = true
		return x.add(start, n)
	case ids:
		return x.wrong(field, "a string, a list of strings, or token ids")
	default:
		return x.wrong(field, "a string, or a list of strings")
	}
}

func (x *exchange) add(at jsonwire.Mark, size int) error {
	if len(x.items) >= infer.MaxEntries {
		return invalid(x.fields.field, "'%s' has more than %d texts, expected at most as many: send several requests", x.fields.field, infer.MaxEntries)
	}
	x.items = append(x.items, item{at, int32(size), int32(len(x.items))})
	return nil
}

// numbers reads a list and reports whether it is one of integers, and how many. It stops at the first element that is none.
func (x *exchange) numbers() (is bool, n int, err error) {
	is = true
	err = x.p.Elements(func() error {
		if c := x.p.Peek(); !is || c == '"' || c == '[' || c == '{' || c == 'n' || c == 't' || c == 'f' {
			is = false
			return x.p.Skip()
		}
		v, err := x.p.Number()
		if id, ok := v.Signed(); err == nil && (!ok || id < 0 || id > math.MaxInt32) {
			return invalid(x.fields.field, "'%s' has the token id %s, expected an integer from 0 to %d", x.fields.field, v.String(), math.MaxInt32)
		}
		n++
		return err
	})
	return is && n > 0, n, err
}

// checkTexts refuses a request without texts, and those that its API cannot take. A text that is empty, where that is not allowed, fails alone
// where texts have errors of their own.
func (x *exchange) checkTexts(empty bool) error {
	field := x.fields.field
	if len(x.items) == 0 {
		return &transport.FieldError{Param: field, Code: transport.CodeEmpty, Err: status.Errorf(status.InvalidArg, "'%s' is missing or empty, expected at least one text", field)}
	}
	switch {
	case x.fields.ids && x.api.IDs == "":
		return invalid(field, "'%s' has token ids, which model '%s' does not take, expected texts. Clients that count tokens themselves have an option against it, for example check_embedding_ctx_length=False of langchain", field, x.model.name)
	case !x.fields.ids && x.api.Text == "":
		return invalid(field, "'%s' has texts, and model '%s' takes token ids only", field, x.model.name)
	}
	x.results = append(x.results[:0], make([]result, len(x.items))...)
	kept := x.items[:0]
	for _, it := range x.items {
		if x.fields.ids || empty || it.size > int32(tensor.EncodedLen(0)) {
			kept = append(kept, it)
			continue
		}
		err := &transport.FieldError{Param: field, Code: transport.CodeEmpty, Err: status.Errorf(status.InvalidArg, "'%s' has an empty text at index %d, expected one that is not empty", field, it.index)}
		if !x.fields.itemErrors {
			return err
		}
		x.results[it.index].err = err
	}
	x.items = kept
	return nil
}
