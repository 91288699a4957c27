package config

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Edit changes one field in the text of a configuration.
type Edit struct {
	// Path names the field. For example, "max_batch_size", "dynamic_batching.max_queue_delay_microseconds",
	// "instance_group[0].count", or "parameters.KEY" for the string_value of a parameter.
	Path string
	// Value is the field's value in text format, for example "8" or "[ 4, 8 ]". The value of a parameter is its string,
	// without quotes. Empty removes the field.
	Value string
}

// EditText applies edits to a configuration and returns the new text. Everything else stays as it was written:
// comments, order and indentation. A message that an edit needs is added. The caller must parse the result: EditText
// does not validate values.
//
// For example, the edit {"dynamic_batching.max_queue_delay_microseconds", "500"} changes "dynamic_batching { }" to
// "dynamic_batching { max_queue_delay_microseconds: 500 }".
func EditText(text []byte, edits ...Edit) ([]byte, error) {
	text = slices.Clone(text)
	for _, e := range edits {
		var err error
		if text, err = editOne(text, e); err != nil {
			return nil, fmt.Errorf("cannot edit field '%s': %w", e.Path, err)
		}
	}
	return text, nil
}

func editOne(text []byte, e Edit) ([]byte, error) {
	top, err := spansOf(text)
	if err != nil {
		return nil, err
	}
	path := strings.Split(e.Path, ".")
	if key, ok := strings.CutPrefix(e.Path, "parameters."); ok {
		return editParameter(text, top, key, e.Value)
	}
	around := top
	for i, name := range path {
		f := around.field(name)
		switch {
		case f == nil && e.Value == "":
			return text, nil
		case f == nil:
			return insert(text, around, nested(path[i:], e.Value)), nil
		case i == len(path)-1 && e.Value == "":
			return f.remove(text), nil
		case i == len(path)-1:
			return f.replace(text, path[i], e.Value), nil
		case f.body == nil:
			return nil, fmt.Errorf("'%s' is no message", name)
		}
		around = f.body
	}
	return text, nil
}

// editParameter edits an entry of the map parameters.
func editParameter(text []byte, top *block, key, value string) ([]byte, error) {
	for _, f := range top.fields {
		if f.name != "parameters" || f.body == nil || f.body.scalar(text, "key") != strconv.Quote(key) {
			continue
		}
		if value == "" {
			return f.remove(text), nil
		}
		holder := f.body.field("value")
		if holder == nil || holder.body == nil {
			return nil, errors.New("the parameter has no value")
		}
		if s := holder.body.field("string_value"); s != nil {
			return s.replace(text, "string_value", strconv.Quote(value)), nil
		}
		return insert(text, holder.body, "string_value: "+strconv.Quote(value)), nil
	}
	if value == "" {
		return text, nil
	}
	return insert(text, top, fmt.Sprintf("parameters { key: %q value { string_value: %q } }", key, value)), nil
}

// nested returns the text of a field inside the messages before it. For example, of {"a", "b"} and "1": "a { b: 1 }".
func nested(path []string, value string) string {
	name, _, _ := strings.Cut(path[0], "[")
	if len(path) == 1 {
		return name + ": " + value
	}
	return name + " { " + nested(path[1:], value) + " }"
}

// block is a message in the text, or the whole text: its fields, and where the text between its braces begins and ends.
type block struct {
	begin, end int
	fields     []*span
}

// span is a field, or one element of a list of messages.
type span struct {
	name       string
	begin, end int    // of the field, or of the element's braces
	value      int    // where the value begins
	body       *block // of a message
	list       *span  // the list that the element is in, nil outside one
}

// field returns the field of a name, where NAME[I] is the I-th of that name; nil if there is none.
func (b *block) field(name string) *span {
	n := 0
	if base, index, ok := strings.Cut(strings.TrimSuffix(name, "]"), "["); ok {
		name = base
		n, _ = strconv.Atoi(index)
	}
	for _, f := range b.fields {
		if f.name == name {
			if n == 0 {
				return f
			}
			n--
		}
	}
	return nil
}

// scalar returns the text of a field's value.
func (b *block) scalar(text []byte, name string) string {
	f := b.field(name)
	if f == nil {
		return ""
	}
	return strings.TrimSpace(string(text[f.value:f.end]))
}

// replace replaces the value of a field.
func (f *span) replace(text []byte, name, value string) []byte {
	name, _, _ = strings.Cut(name, "[")
	return slices.Concat(text[:f.begin], []byte(name+": "+value), text[f.end:])
}

// remove removes a field with the separator behind it, and its line if nothing else is on it.
func (f *span) remove(text []byte) []byte {
	if f.list != nil && f.list.body == nil && f.list.begin <= f.begin {
		f = f.list // the lists that are edited have one element
	}
	begin, end := f.begin, f.end
	if end < len(text) && (text[end] == ',' || text[end] == ';') {
		end++
	}
	line := bytes.LastIndexByte(text[:begin], '\n') + 1
	rest := end
	for rest < len(text) && (text[rest] == ' ' || text[rest] == '\t') {
		rest++
	}
	switch blank := len(bytes.TrimSpace(text[line:begin])) == 0; {
	case blank && rest == len(text):
		begin, end = line, rest
	case blank && text[rest] == '\n':
		begin, end = line, rest+1
	default:
		end = rest
	}
	return slices.Concat(text[:begin], text[end:])
}

// insert adds a field behind the last one of a message.
func insert(text []byte, b *block, field string) []byte {
	inner := text[b.begin:b.end]
	if b.begin == 0 && b.end == len(text) { // the whole text
		if len(text) > 0 && text[len(text)-1] != '\n' {
			field = "\n" + field
		}
		return slices.Concat(text, []byte(field+"\n"))
	}
	last := bytes.LastIndexByte(inner, '\n')
	if last < 0 { // on one line
		return slices.Concat(text[:b.begin], []byte(strings.TrimRight(string(inner), " \t")+" "+field+" "), text[b.end:])
	}
	indent := string(inner[last+1:]) + "  "
	if len(b.fields) > 0 {
		first := b.fields[0].begin
		if start := bytes.LastIndexByte(text[:first], '\n') + 1; len(bytes.TrimSpace(text[start:first])) == 0 {
			indent = string(text[start:first])
		}
	}
	at := b.begin + last + 1
	return slices.Concat(text[:at], []byte(indent+field+"\n"), text[at:])
}

// spansOf finds the fields of a text, which must be valid text format.
func spansOf(text []byte) (*block, error) {
	r := &spanReader{text: text}
	b, err := r.block(0)
	if err == nil && r.at < len(text) {
		err = fmt.Errorf("'%c' closes nothing", text[r.at])
	}
	return b, err
}

// spanReader reads fields one after another.
type spanReader struct {
	text  []byte
	at    int
	depth int
}

// blanks skips space, comments and separators.
func (r *spanReader) blanks() {
	for r.at < len(r.text) {
		switch r.text[r.at] {
		case '#':
			r.at += skip(r.text[r.at:], func(c byte) bool { return c != '\n' })
		case ' ', '\t', '\n', '\r', ',', ';':
			r.at++
		default:
			return
		}
	}
}

// block reads fields up to a closing brace or the end.
func (r *spanReader) block(begin int) (*block, error) {
	b := &block{begin: begin}
	if r.depth++; r.depth > maxFrames {
		return nil, errors.New("the messages are nested too deeply")
	}
	defer func() { r.depth-- }()
	for {
		r.blanks()
		if b.end = r.at; r.at == len(r.text) || r.text[r.at] == '}' || r.text[r.at] == '>' {
			return b, nil
		}
		if !isName(r.text[r.at]) {
			return nil, fmt.Errorf("expected a field's name, found '%c'", r.text[r.at])
		}
		f := &span{begin: r.at}
		r.at += skip(r.text[r.at:], isName)
		f.name = string(r.text[f.begin:r.at])
		fields, err := r.valueOf(f)
		if err != nil {
			return nil, err
		}
		b.fields = append(b.fields, fields...)
	}
}

// valueOf reads the value of a field. A list of messages is one field for each.
func (r *spanReader) valueOf(f *span) ([]*span, error) {
	r.blanks()
	if r.at < len(r.text) && r.text[r.at] == ':' {
		r.at++
		r.blanks()
	}
	f.value = r.at
	if r.at == len(r.text) {
		return nil, fmt.Errorf("field '%s' has no value", f.name)
	}
	var err error
	switch c := r.text[r.at]; c {
	case '{', '<':
		err = r.message(f)
	case '[':
		return r.list(f)
	default:
		r.scalar()
	}
	f.end = r.at
	return []*span{f}, err
}

// message reads the braces of a field and what is between them.
func (r *spanReader) message(f *span) (err error) {
	r.at++
	if f.body, err = r.block(r.at); err != nil {
		return err
	}
	if r.at == len(r.text) {
		return fmt.Errorf("the message of field '%s' does not end", f.name)
	}
	r.at++
	return nil
}

// list reads a list in brackets.
func (r *spanReader) list(f *span) (elements []*span, err error) {
	r.at++
	for r.blanks(); r.at < len(r.text) && r.text[r.at] != ']'; r.blanks() {
		if c := r.text[r.at]; c != '{' && c != '<' {
			r.scalar()
			continue
		}
		e := &span{name: f.name, begin: r.at, value: r.at, list: f}
		if err := r.message(e); err != nil {
			return nil, err
		}
		e.end = r.at
		elements = append(elements, e)
	}
	if r.at == len(r.text) {
		return nil, fmt.Errorf("the list of field '%s' does not end", f.name)
	}
	r.at++
	f.end = r.at
	if len(elements) == 0 {
		elements = []*span{f}
	}
	return elements, nil
}

// scalar reads a value: texts that follow each other, or everything up to a blank, separator or bracket.
func (r *spanReader) scalar() {
	begin := r.at
	for end := r.at; end < len(r.text); {
		if c := r.text[end]; c == '"' || c == '\'' {
			end += quoted(r.text[end:])
			r.at = end
			end += len(r.text[end:]) - len(bytes.TrimLeft(r.text[end:], " \t\r\n"))
			continue
		}
		break
	}
	if r.at > begin {
		return
	}
	r.at += skip(r.text[r.at:], func(c byte) bool { return !bytes.ContainsRune([]byte(" \t\r\n,;#{}<>[]"), rune(c)) })
}
