package config

import (
	"bytes"
	"strconv"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/tutti-server/tutti/proto/modelconfig"
)

// Positions holds the positions of the fields in a configuration's text.
type Positions struct {
	file string
	at   map[string]position
}

// position is a line and a column, both from 1.
type position struct{ line, column int }

// NewPositions finds the fields of text, which may be invalid.
func NewPositions(file string, text []byte) *Positions {
	p := &Positions{file: file, at: map[string]position{}}
	s := &scanner{text: text, seen: func(path string, offset int) {
		if _, known := p.at[path]; !known && len(p.at) < maxPlaces {
			p.at[path] = positionOf(text, offset)
		}
	}}
	if len(text) <= maxPlacedText {
		s.run(len(text))
	}
	return p
}

// A text beyond these bounds is no hand-written one: its diagnostics name fields only.
const (
	maxPlaces     = 1 << 14
	maxPlacedText = 1 << 18
)

// Locate sets the file, line and column of every diagnostic without them.
func (p *Positions) Locate(list []Diagnostic) {
	for i := range list {
		d := &list[i]
		if p == nil || d.File != "" {
			continue
		}
		d.File = p.file
		if at, ok := p.find(d.Field); ok {
			d.Line, d.Column = at.line, at.column
		}
	}
}

// Has reports whether the text sets the field.
func (p *Positions) Has(field string) bool {
	_, ok := p.at[field]
	return ok
}

// find returns the position of the field. If the text does not have it, the position of the innermost enclosing
// field.
func (p *Positions) find(field string) (position, bool) {
	for field != "" {
		if at, ok := p.at[field]; ok {
			return at, true
		}
		field = field[:max(0, strings.LastIndexAny(field, ".["))]
	}
	return position{}, false
}

// positionOf converts an offset into a line and a column in characters.
func positionOf(text []byte, offset int) position {
	before := text[:offset]
	start := bytes.LastIndexByte(before, '\n') + 1
	return position{line: 1 + bytes.Count(before, []byte{'\n'}), column: 1 + utf8.RuneCount(before[start:])}
}

// scanner walks over protobuf text format without validating it.
type scanner struct {
	text   []byte
	seen   func(path string, offset int)
	frames []frame
}

// frame is one open message: its type, or nil if unknown, and the last field in it.
type frame struct {
	desc   protoreflect.MessageDescriptor
	path   string // with a trailing dot; empty for the outermost
	field  string
	offset int // of the field's name
	begins int // of the message, or of its name
	count  map[string]int
	value  bool // a colon was read
	list   bool // a bracket is open
}

// maxFrames bounds the nesting. The parser allows more, but no schema has it.
const maxFrames = 64

// run scans the text before end.
func (s *scanner) run(end int) {
	s.frames = []frame{{desc: (*modelconfig.ModelConfig)(nil).ProtoReflect().Descriptor(), count: map[string]int{}}}
	for i := 0; i < end; {
		rest := s.text[i:end]
		n := 1
		switch c := rest[0]; {
		case c == '#':
			n = skip(rest, func(c byte) bool { return c != '\n' })
		case c == '"' || c == '\'':
			n = quoted(rest)
			s.key(string(rest[:n]))
			s.top().value = false
		case isName(c):
			n = skip(rest, isName)
			s.name(string(rest[:n]), i)
		default:
			s.mark(c, i)
		}
		i += n
	}
}

func (s *scanner) top() *frame { return &s.frames[len(s.frames)-1] }

// name records a field's name, or skips a value.
func (s *scanner) name(name string, at int) {
	f := s.top()
	if f.value || f.list || name[0] <= '9' {
		f.value = false
		return
	}
	f.field, f.offset = name, at
	s.record(f.path+name, at)
}

// key records the position of a map entry as parameters.KEY.
func (s *scanner) key(quoted string) {
	if len(s.frames) < 2 || s.top().field != "key" {
		return
	}
	around := &s.frames[len(s.frames)-2]
	if fd := around.descriptor(); fd != nil && fd.IsMap() && len(quoted) > 2 {
		s.record(around.path+around.field+"."+quoted[1:len(quoted)-1], s.top().begins)
	}
}

// mark processes one punctuation character.
func (s *scanner) mark(c byte, at int) {
	f := s.top()
	switch c {
	case ':':
		f.value = true
	case '[':
		f.list = true
	case ']':
		f.list, f.value = false, false
	case '{', '<':
		s.push(f, at)
	case '}', '>':
		if len(s.frames) > 1 {
			s.frames = s.frames[:len(s.frames)-1]
			s.top().value = false
		}
	}
}

// push opens the message of f's field.
func (s *scanner) push(f *frame, at int) {
	if len(s.frames) == maxFrames {
		return
	}
	if !f.list {
		at = f.offset
	}
	path := f.path + f.field
	if fd := f.descriptor(); fd != nil && fd.Cardinality() == protoreflect.Repeated {
		path += "[" + strconv.Itoa(f.count[f.field]) + "]"
		f.count[f.field]++
		s.record(path, at)
	}
	s.frames = append(s.frames, frame{desc: child(f), path: path + ".", begins: at, count: map[string]int{}})
}

func (s *scanner) record(path string, at int) {
	if s.seen != nil {
		s.seen(path, at)
	}
}

// descriptor returns the descriptor of the frame's current field, or nil.
func (f *frame) descriptor() protoreflect.FieldDescriptor {
	if f.desc == nil {
		return nil
	}
	return f.desc.Fields().ByTextName(f.field)
}

func child(f *frame) protoreflect.MessageDescriptor {
	if fd := f.descriptor(); fd != nil {
		return fd.Message()
	}
	return nil
}

func isName(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// skip returns the number of leading bytes that satisfy ok, at least 1.
func skip(text []byte, ok func(byte) bool) int {
	n := 1
	for n < len(text) && ok(text[n]) {
		n++
	}
	return n
}

// quoted returns the length of the string literal at the start of text.
func quoted(text []byte) int {
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case text[0]:
			return i + 1
		}
	}
	return len(text)
}
