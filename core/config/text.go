package config

import (
	"bytes"
	"strconv"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/tutti-server/tutti/proto/modelconfig"
)

// Text returns cfg in protobuf text format: set fields in declaration order, maps sorted by key, so that equal
// configurations have equal texts.
func Text(cfg *modelconfig.ModelConfig) []byte {
	var b bytes.Buffer
	writeMessage(&b, cfg.ProtoReflect(), 0)
	return b.Bytes()
}

func writeMessage(b *bytes.Buffer, m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		if !m.Has(fd) {
			continue
		}
		switch v := m.Get(fd); {
		case fd.IsMap():
			for _, k := range sortedMapKeys(v.Map()) {
				openMessage(b, fd, depth)
				writeScalar(b, fd.MapKey(), k.Value(), depth+1)
				writeOne(b, fd.MapValue(), v.Map().Get(k), depth+1)
				closeMessage(b, depth)
			}
		case fd.IsList() && fd.Message() == nil:
			writeList(b, fd, v.List(), depth)
		case fd.IsList():
			for i := range v.List().Len() {
				writeOne(b, fd, v.List().Get(i), depth)
			}
		default:
			writeOne(b, fd, v, depth)
		}
	}
}

func writeOne(b *bytes.Buffer, fd protoreflect.FieldDescriptor, v protoreflect.Value, depth int) {
	if fd.Message() == nil {
		writeScalar(b, fd, v, depth)
		return
	}
	openMessage(b, fd, depth)
	writeMessage(b, v.Message(), depth+1)
	closeMessage(b, depth)
}

func writeList(b *bytes.Buffer, fd protoreflect.FieldDescriptor, l protoreflect.List, depth int) {
	indent(b, depth)
	b.WriteString(fd.TextName() + ": [ ")
	for i := range l.Len() {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(scalarText(fd, l.Get(i)))
	}
	b.WriteString(" ]\n")
}

func writeScalar(b *bytes.Buffer, fd protoreflect.FieldDescriptor, v protoreflect.Value, depth int) {
	indent(b, depth)
	b.WriteString(fd.TextName() + ": " + scalarText(fd, v) + "\n")
}

func openMessage(b *bytes.Buffer, fd protoreflect.FieldDescriptor, depth int) {
	indent(b, depth)
	b.WriteString(fd.TextName() + " {\n")
}

func closeMessage(b *bytes.Buffer, depth int) {
	indent(b, depth)
	b.WriteString("}\n")
}

func indent(b *bytes.Buffer, depth int) { b.WriteString(strings.Repeat("  ", depth)) }

func scalarText(fd protoreflect.FieldDescriptor, v protoreflect.Value) string {
	switch fd.Kind() {
	case protoreflect.StringKind:
		return quoteText(v.String())
	case protoreflect.EnumKind:
		if e := fd.Enum().Values().ByNumber(v.Enum()); e != nil {
			return string(e.Name())
		}
		return strconv.Itoa(int(v.Enum()))
	default:
		return v.String()
	}
}

// quoteText quotes a string as the C++ printer does: printable and non-ASCII characters unchanged, the rest in
// octal.
func quoteText(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c == '\n':
			b.WriteString(`\n`)
		case c < ' ' || c == 0x7f:
			octal := strconv.FormatInt(int64(c), 8)
			b.WriteString(`\` + strings.Repeat("0", 3-len(octal)) + octal)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}
