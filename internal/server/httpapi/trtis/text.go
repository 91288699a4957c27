package trtis

import (
	"slices"
	"strconv"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// textPrinter prints protobuf text as DebugString of the C++ library does: two spaces per level, one field per line, no zero
// values. The Go library varies its white space on purpose, which would break scripts that search for a line.
type textPrinter struct {
	b     []byte
	depth int
}

func (p *textPrinter) field(name string) {
	for range p.depth {
		p.b = append(p.b, ' ', ' ')
	}
	p.b = append(p.b, name...)
}

func (p *textPrinter) begin(field string) {
	p.field(field)
	p.b = append(p.b, " {\n"...)
	p.depth++
}

func (p *textPrinter) end() {
	p.depth--
	p.field("}\n")
}

func (p *textPrinter) word(field, value string) {
	p.field(field)
	p.b = append(append(append(p.b, ": "...), value...), '\n')
}

func (p *textPrinter) text(field, value string) {
	if value != "" {
		p.word(field, string(appendQuoted(nil, value)))
	}
}

func (p *textPrinter) number(field string, value uint64) {
	if value != 0 {
		p.word(field, strconv.FormatUint(value, 10))
	}
}

// beginEntry begins an entry of a map. key must be in printed form.
func (p *textPrinter) beginEntry(field, key string) {
	p.begin(field)
	p.word("key", key)
	p.begin("value")
}

func (p *textPrinter) endEntry() {
	p.end()
	p.end()
}

func (p *textPrinter) message(field string, m protoreflect.Message) {
	p.begin(field)
	fields := m.Descriptor().Fields()
	order := make([]protoreflect.FieldDescriptor, fields.Len())
	for i := range order {
		order[i] = fields.Get(i)
	}
	slices.SortFunc(order, func(a, b protoreflect.FieldDescriptor) int { return int(a.Number()) - int(b.Number()) })
	for _, f := range order {
		if m.Has(f) {
			p.value(f, m.Get(f))
		}
	}
	p.end()
}

func (p *textPrinter) value(f protoreflect.FieldDescriptor, v protoreflect.Value) {
	switch {
	case f.IsMap():
		p.entries(f, v.Map())
	case f.IsList():
		for i, l := 0, v.List(); i < l.Len(); i++ {
			p.single(string(f.Name()), f, l.Get(i))
		}
	default:
		p.single(string(f.Name()), f, v)
	}
}

func (p *textPrinter) entries(f protoreflect.FieldDescriptor, m protoreflect.Map) {
	keys := make([]protoreflect.MapKey, 0, m.Len())
	m.Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
		keys = append(keys, k)
		return true
	})
	slices.SortFunc(keys, compareKeys)
	for _, k := range keys {
		p.begin(string(f.Name()))
		p.single("key", f.MapKey(), k.Value())
		p.single("value", f.MapValue(), m.Get(k))
		p.end()
	}
}

// compareKeys compares numbers by value and other keys by their text.
func compareKeys(a, b protoreflect.MapKey) int {
	x, errX := strconv.ParseUint(a.String(), 10, 64)
	y, errY := strconv.ParseUint(b.String(), 10, 64)
	if errX == nil && errY == nil && x != y {
		if x < y {
			return -1
		}
		return 1
	}
	if a.String() < b.String() {
		return -1
	}
	return 1
}

func (p *textPrinter) single(name string, f protoreflect.FieldDescriptor, v protoreflect.Value) {
	switch f.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		p.message(name, v.Message())
	case protoreflect.StringKind:
		p.word(name, string(appendQuoted(nil, v.String())))
	case protoreflect.BytesKind:
		p.word(name, string(appendQuoted(nil, string(v.Bytes()))))
	case protoreflect.EnumKind:
		p.word(name, enumName(f, v.Enum()))
	case protoreflect.FloatKind:
		p.word(name, strconv.FormatFloat(v.Float(), 'g', -1, 32))
	case protoreflect.DoubleKind:
		p.word(name, strconv.FormatFloat(v.Float(), 'g', -1, 64))
	default:
		p.word(name, v.String())
	}
}

// enumName returns the name of an enumeration value, or its number if it is unknown.
func enumName(f protoreflect.FieldDescriptor, n protoreflect.EnumNumber) string {
	if e := f.Enum().Values().ByNumber(n); e != nil {
		return string(e.Name())
	}
	return strconv.Itoa(int(n))
}

// appendQuoted appends s as a string of protobuf text, with octal escapes: "é" is "\303\251".
func appendQuoted(b []byte, s string) []byte {
	b = append(b, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '\n':
			b = append(b, '\\', 'n')
		case c == '\r':
			b = append(b, '\\', 'r')
		case c == '\t':
			b = append(b, '\\', 't')
		case c == '"' || c == '\'' || c == '\\':
			b = append(b, '\\', c)
		case c < ' ' || c > '~':
			b = append(b, '\\', '0'+c>>6, '0'+c>>3&7, '0'+c&7)
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}
