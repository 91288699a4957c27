// Package stringop holds the step "string", which works on BYTES tensors element by element or row by row: letter case, white
// space, regular expressions, joining, splitting, templates and base64. For example, op "replace" with the pattern
// "([0-9]+)-([0-9]+)" and "$2/$1" turns "05-01" into "01/05".
//
// Expressions are those of package regexp (RE2), so that no pattern takes more than linear time.
package stringop

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/transform"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/steps"
)

// NewFactory returns the step "string".
//
// Inputs are BYTES of any dims; without a declaration there is one, INPUT of dims [-1]. The output is OUTPUT unless config.pbtxt
// names another. Operations on elements keep the shape and return BYTES; match returns BOOL, length returns INT32 code points.
// join and template return one element a row, split returns the number of elements that parameter "fields" says.
func NewFactory() steps.Factory {
	return steps.Factory{
		Name: "string",
		Doc: "Works on strings: `lower`, `upper`, `title` and `strip` them; `replace`, `match` or `extract` by a regular expression (RE2); " +
			"return their `length` in code points; `concat` several inputs element by element, `join` the elements of a row or `split` one; fill a `template`; `base64_encode` and `base64_decode`.",
		Inline: true,
		Params: []steps.Param{
			{Key: "op", Doc: "The operation.", Required: true, Values: ops},
			{Key: "pattern", Doc: "The regular expression of replace, match and extract, in the syntax of RE2."},
			{Key: "with", Doc: "The text that replaces each match; ${1} is the first group."},
			{Key: "group", Doc: "The group that extract returns, by number or name; an element without a match becomes empty.", Default: "0"},
			{Key: "chars", Doc: "The characters that strip takes from both ends; white space by default."},
			{Key: "separator", Doc: "The text that join and concat put between elements and that split looks for; when empty, split cuts at white space."},
			{Key: "fields", Doc: "How many elements split gives for a row: further ones are dropped, missing ones empty. 0 gives all, without a batch dimension only.", Default: "0"},
			{Key: "template", Doc: "The text of template: {NAME} stands for the elements of that input, with the separator between them; {{ and }} are braces."},
			{Key: "alphabet", Doc: "The characters of base64.", Default: "std", Values: []string{"std", "url", "raw_std", "raw_url"}},
			{Key: "invalid", Doc: "How bytes that are not UTF-8 are treated: replaced by U+FFFD, the request refused, or kept.", Default: "replace", Values: []string{"replace", "refuse", "keep"}},
		},
		Examples: []steps.Example{
			{
				Config:  steps.ExampleConfig("", "string", "op", "replace", "pattern", "([0-9]+)-([0-9]+)-([0-9]+)", "with", "$3.$2.$1"),
				Request: `{"inputs": [{"name": "INPUT", "datatype": "BYTES", "shape": [2], "data": ["2024-05-01", "soon"]}]}`,
			},
			{
				Config: steps.ExampleConfig(`max_batch_size: 8
input [ { name: "QUESTION" data_type: TYPE_STRING dims: [ 1 ] }, { name: "HINTS" data_type: TYPE_STRING dims: [ -1 ] } ]`, "string", "op", "template", "template", "{QUESTION} (think of {HINTS})", "separator", " and "),
				Request: `{"inputs": [
    {"name": "QUESTION", "datatype": "BYTES", "shape": [1, 1], "data": ["What flies?"]},
    {"name": "HINTS", "datatype": "BYTES", "shape": [1, 2], "data": ["birds", "kites"]}]}`,
			},
		},
		Signature: signature,
		New:       newStep,
	}
}

func signature(s *steps.Settings) (*config.Signature, error) {
	op := s.Params["op"]
	in := slices.Clone(s.Inputs)
	if len(in) == 0 {
		in = []config.Port{{Name: "INPUT", DType: tensor.Bytes, Dims: tensor.Of(-1)}}
	}
	for i := range in {
		if in[i].Optional {
			return nil, fmt.Errorf("input '%s' of model '%s' is optional, but step 'string' needs all of its inputs", in[i].Name, s.Model)
		}
		if in[i].DType != tensor.Bytes {
			return nil, fmt.Errorf("input '%s' of model '%s' is %s, but step 'string' takes TYPE_STRING", in[i].Name, s.Model, in[i].DType.ConfigName())
		}
	}
	if len(in) > 1 && op != "concat" && op != "template" {
		return nil, fmt.Errorf("model '%s' declares %d inputs, but operation '%s' of step 'string' takes 1", s.Model, len(in), op)
	}
	if len(s.Outputs) > 1 {
		return nil, fmt.Errorf("model '%s' declares %d outputs, but step 'string' has 1", s.Model, len(s.Outputs))
	}
	out := config.Port{Name: "OUTPUT", DType: tensor.Bytes, Dims: in[0].Dims}
	if len(s.Outputs) == 1 {
		out.Name = s.Outputs[0].Name
	}
	switch op {
	case "match":
		out.DType = tensor.Bool
	case "length":
		out.DType = tensor.Int32
	case "join", "template":
		out.Dims = tensor.Of(1)
	case "split":
		n, err := s.Int("fields", 0)
		if err != nil {
			return nil, err
		}
		if out.Dims = tensor.Of(-1); n > 0 {
			out.Dims = tensor.Of(int64(n))
		}
	}
	return &config.Signature{Inputs: in, Outputs: []config.Port{out}}, nil
}

func newStep(s *steps.Settings) (steps.Step, error) {
	sig, err := signature(s)
	if err != nil {
		return nil, err
	}
	st := &step{op: s.Params["op"], batched: s.MaxBatch > 0, separator: []byte(s.Params["separator"]), with: []byte(s.Params["with"]), invalid: s.Params["invalid"], chars: s.Params["chars"]}
	st.pool.New = newScratch
	switch st.op {
	case "replace", "match", "extract":
		err = st.compile(s)
	case "split":
		if st.fields, err = s.Int("fields", 0); err == nil && st.fields == 0 && st.batched {
			err = fmt.Errorf("parameter 'fields' of model '%s' is 0, expected the number of elements that every row of a batch is split into", s.Model)
		}
	case "template":
		st.parts, err = parseTemplate(s.Params["template"], sig.Inputs)
	case "base64_encode", "base64_decode":
		st.coding = codings[s.Params["alphabet"]]
	}
	if err != nil {
		return nil, err
	}
	return st, nil
}

// compile reads the pattern and, for extract, its group.
func (st *step) compile(s *steps.Settings) error {
	p := s.Params["pattern"]
	if p == "" {
		return fmt.Errorf("operation '%s' of model '%s' needs parameter 'pattern'", st.op, s.Model)
	}
	var err error
	if st.pattern, err = regexp.Compile(p); err != nil {
		return fmt.Errorf("parameter 'pattern' of model '%s' is '%s': %w", s.Model, p, err)
	}
	if st.op != "extract" {
		return nil
	}
	if st.group = st.pattern.SubexpIndex(s.Params["group"]); st.group >= 0 {
		return nil
	}
	if st.group, err = s.Int("group", 0); err != nil || st.group > st.pattern.NumSubexp() {
		return fmt.Errorf("parameter 'group' of model '%s' is '%s', expected a name or a number up to %d of the pattern '%s'", s.Model, s.Params["group"], st.pattern.NumSubexp(), p)
	}
	return nil
}

// cased appends text in the case of c, or unchanged where the mapping fails. In ASCII those are the letters of the other case than first,
// an 'A' or 'a'.
func cased(dst, text []byte, first byte, c cases.Caser) []byte {
	start := len(dst)
	for _, l := range text {
		if l >= utf8.RuneSelf {
			c.Reset()
			out, _, err := transform.Append(c, dst[:start], text)
			if err != nil {
				return append(dst[:start], text...)
			}
			return out
		}
		if l-first < 26 {
			l ^= 'a' - 'A'
		}
		dst = append(dst, l)
	}
	return dst
}

// titled appends text with the first cased code point of each run in title case and the others in lower case, as Python's
// str.title does, but one code point for one. Bytes that are not UTF-8 stay.
func titled(dst, text []byte) []byte {
	for inside := false; len(text) > 0; {
		r, n := utf8.DecodeRune(text)
		first := !inside
		inside = unicode.IsLower(r) || unicode.IsUpper(r) || unicode.IsTitle(r)
		switch {
		case r == utf8.RuneError && n == 1:
			dst = append(dst, text[0])
		case first:
			dst = utf8.AppendRune(dst, unicode.ToTitle(r))
		default:
			dst = utf8.AppendRune(dst, unicode.ToLower(r))
		}
		text = text[n:]
	}
	return dst
}

// part is a piece of a template: text followed by the elements of an input. For example, "{Q} or {C}" has the parts
// {"", Q}, {" or ", C} and {"", none}.
type part struct {
	text  string
	input int  // negative for none
	again bool // a later part has the same input
}

// joinAll is the template of operation join: the first input.
var joinAll = []part{{input: 0}}

// parseTemplate splits a template at its placeholders. Every input must occur.
func parseTemplate(text string, inputs []config.Port) ([]part, error) {
	if text == "" {
		return nil, errors.New("operation 'template' needs parameter 'template'")
	}
	var parts []part
	last := make([]int, len(inputs))
	for i := range last {
		last[i] = -1
	}
	var plain strings.Builder
	for text != "" {
		i := strings.IndexAny(text, "{}")
		if i < 0 {
			plain.WriteString(text)
			break
		}
		plain.WriteString(text[:i])
		if i+1 < len(text) && text[i+1] == text[i] {
			plain.WriteByte(text[i])
			text = text[i+2:]
			continue
		}
		name, rest, ok := strings.Cut(text[i+1:], "}")
		at := slices.IndexFunc(inputs, func(p config.Port) bool { return p.Name == name })
		if text[i] == '}' || !ok || at < 0 {
			return nil, fmt.Errorf("template has '%.40s', expected the name of an input in braces, or a brace twice", text[i:])
		}
		if last[at] >= 0 {
			parts[last[at]].again = true
		}
		last[at] = len(parts)
		parts = append(parts, part{text: plain.String(), input: at})
		plain.Reset()
		text = rest
	}
	for i, at := range last {
		if at < 0 {
			return nil, fmt.Errorf("template does not name input '%s'", inputs[i].Name)
		}
	}
	return append(parts, part{text: plain.String(), input: -1}), nil
}
