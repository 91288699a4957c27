package config

import (
	"bytes"
	"strconv"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/tutti-server/tutti/proto/modelconfig"
)

// Places tells where the fields of a configuration stand in its text.
type Places struct {
	file string
	at   map[string]place
}

// place is a line and a column, both from 1.
type place struct{ line, column int }

// NewPlaces finds the fields of text, which need not parse.
func NewPlaces(file string, text []byte) *Places {
	p := &Places{file: file, at: map[string]place{}}
	s := &scanner{text: text, seen: func(path string, offset int) {
		if _, known := p.at[path]; !known && len(p.at) < maxPlaces {
			p.at[path] = placeOf(text, offset)
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

// Locate sets the file, line and column of every diagnostic that has none.
func (p *Places) Locate(list []Diagnostic) {
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
func (p *Places) Has(field string) bool {
	_, ok := p.at[field]
	return ok
}

// find returns the place of the field or, when the text does not have it, of what it
// would stand in.
func (p *Places) find(field string) (place, bool) {
	for field != "" {
		if at, ok := p.at[field]; ok {
			return at, true
		}
		field = field[:max(0, strings.LastIndexAny(field, ".["))]
	}
	return place{}, false
}

// placeOf turns an offset into a line and a column that counts characters.
func placeOf(text []byte, offset int) place {
	before := text[:offset]
	start := bytes.LastIndexByte(before, '\n') + 1
	return place{line: 1 + bytes.Count(before, []byte{'\n'}), column: 1 + utf8.RuneCount(before[start:])}
}

// scanner walks over text format without checking it.
type scanner struct {
	text   []byte
	seen   func(path string, offset int)
	frames []frame
}

// frame is one open message while scanning: its type, nil when unknown, and the
// last field seen in it.
type frame struct {
	desc   protoreflect.MessageDescriptor
	path   string // with a dot at its end, empty outermost
	field  string
	offset int // of the field's name
	begins int // of the message, its name where it has one of its own
	count  map[string]int
	value  bool // a colon was read
	list   bool // a bracket is open
}

// maxFrames bounds the nesting that is followed; the parser allows more, no schema has it.
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

// name enters a field's name, or passes over a value.
func (s *scanner) name(name string, at int) {
	f := s.top()
	if f.value || f.list || name[0] <= '9' {
		f.value = false
		return
	}
	f.field, f.offset = name, at
	s.tell(f.path+name, at)
}

// key tells the place of an entry of a map by its key: parameters.KEY is where the entry begins.
func (s *scanner) key(quoted string) {
	if len(s.frames) < 2 || s.top().field != "key" {
		return
	}
	around := &s.frames[len(s.frames)-2]
	if fd := around.descriptor(); fd != nil && fd.IsMap() && len(quoted) > 2 {
		s.tell(around.path+around.field+"."+quoted[1:len(quoted)-1], s.top().begins)
	}
}

// mark follows one punctuation character.
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
		s.tell(path, at)
	}
	s.frames = append(s.frames, frame{desc: child(f), path: path + ".", begins: at, count: map[string]int{}})
}

func (s *scanner) tell(path string, at int) {
	if s.seen != nil {
		s.seen(path, at)
	}
}

// descriptor returns the field's, or nil.
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

// skip returns how many leading bytes satisfy ok, at least 1.
func skip(text []byte, ok func(byte) bool) int {
	n := 1
	for n < len(text) && ok(text[n]) {
		n++
	}
	return n
}

// quoted returns the length of the string literal that text starts with.
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
