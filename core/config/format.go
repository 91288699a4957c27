package config

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/tutti-server/tutti/internal/jsontext"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// quotedFields are the 64-bit integers that Triton writes as strings, as protobuf's JSON does. It writes all others
// as numbers.
var quotedFields = map[protoreflect.FullName]bool{
	"inference.ModelSequenceBatching.InitialState.dims":          true,
	"inference.ModelOptimizationPolicy.Cuda.GraphSpec.Shape.dim": true,
	"inference.ModelInstanceGroup.SecondaryDevice.device_id":     true,
}

// unlessZero are fields that Triton 2.51's clients reject as unknown. They are written only if set.
var unlessZero = map[protoreflect.FullName]bool{"inference.ModelEnsembling.max_inflight_requests": true}

// JSON returns cfg in the form of the configuration endpoint: proto field names in declaration order; scalars,
// lists and maps always, messages only if set.
func JSON(cfg *modelconfig.ModelConfig) ([]byte, error) {
	return appendMessage(nil, cfg.ProtoReflect()), nil
}

func appendMessage(b []byte, m protoreflect.Message) []byte {
	b = append(b, '{')
	fields := m.Descriptor().Fields()
	first := true
	for i := range fields.Len() {
		fd := fields.Get(i)
		if (fd.HasPresence() || unlessZero[fd.FullName()]) && !m.Has(fd) {
			continue
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(append(append(b, '"'), fd.Name()...), '"', ':')
		switch v := m.Get(fd); {
		case fd.IsMap():
			b = appendMap(b, fd.MapValue(), v.Map())
		case fd.IsList():
			b = appendList(b, fd, v.List())
		default:
			b = appendValue(b, fd, v)
		}
	}
	return append(b, '}')
}

func appendList(b []byte, fd protoreflect.FieldDescriptor, l protoreflect.List) []byte {
	b = append(b, '[')
	for i := range l.Len() {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendValue(b, fd, l.Get(i))
	}
	return append(b, ']')
}

// appendMap writes a map sorted by key, so that equal configurations have equal texts.
func appendMap(b []byte, fd protoreflect.FieldDescriptor, m protoreflect.Map) []byte {
	b = append(b, '{')
	for i, k := range sortedMapKeys(m) {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(jsontext.AppendValid(b, k.String()), ':')
		b = appendValue(b, fd, m.Get(k))
	}
	return append(b, '}')
}

func appendValue(b []byte, fd protoreflect.FieldDescriptor, v protoreflect.Value) []byte {
	switch fd.Kind() {
	case protoreflect.MessageKind:
		return appendMessage(b, v.Message())
	case protoreflect.EnumKind:
		if e := fd.Enum().Values().ByNumber(v.Enum()); e != nil {
			return jsontext.AppendValid(b, string(e.Name()))
		}
		return strconv.AppendInt(b, int64(v.Enum()), 10)
	case protoreflect.StringKind:
		return jsontext.AppendValid(b, v.String())
	case protoreflect.FloatKind:
		return appendFloat(b, v.Float(), 32)
	case protoreflect.DoubleKind:
		return appendFloat(b, v.Float(), 64)
	case protoreflect.Int64Kind:
		if quotedFields[fd.FullName()] {
			return jsontext.AppendValid(b, v.String())
		}
	}
	return append(b, v.String()...) // true, false and other numbers
}

// appendFloat writes NaN and infinities as strings, as protobuf's JSON does.
func appendFloat(b []byte, f float64, bits int) []byte {
	switch {
	case math.IsNaN(f):
		return jsontext.AppendValid(b, "NaN")
	case math.IsInf(f, 1):
		return jsontext.AppendValid(b, "Infinity")
	case math.IsInf(f, -1):
		return jsontext.AppendValid(b, "-Infinity")
	}
	return strconv.AppendFloat(b, f, 'g', -1, bits)
}

// Text returns cfg in protobuf text format: set fields in declaration order, maps sorted by key, so that equal
// configurations have equal texts.
func Text(cfg *modelconfig.ModelConfig) []byte {
	var b bytes.Buffer
	writeMessage(&b, cfg.ProtoReflect(), "")
	return b.Bytes()
}

func writeMessage(b *bytes.Buffer, m protoreflect.Message, indent string) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		if !m.Has(fd) {
			continue
		}
		switch v := m.Get(fd); {
		case fd.IsMap():
			for _, k := range sortedMapKeys(v.Map()) {
				b.WriteString(indent + fd.TextName() + " {\n")
				writeOne(b, fd.MapKey(), k.Value(), indent+"  ")
				writeOne(b, fd.MapValue(), v.Map().Get(k), indent+"  ")
				b.WriteString(indent + "}\n")
			}
		case fd.IsList() && fd.Message() == nil:
			list := make([]string, v.List().Len())
			for i := range list {
				list[i] = scalarText(fd, v.List().Get(i))
			}
			b.WriteString(indent + fd.TextName() + ": [ " + strings.Join(list, ", ") + " ]\n")
		case fd.IsList():
			for i := range v.List().Len() {
				writeOne(b, fd, v.List().Get(i), indent)
			}
		default:
			writeOne(b, fd, v, indent)
		}
	}
}

func writeOne(b *bytes.Buffer, fd protoreflect.FieldDescriptor, v protoreflect.Value, indent string) {
	if fd.Message() == nil {
		b.WriteString(indent + fd.TextName() + ": " + scalarText(fd, v) + "\n")
		return
	}
	b.WriteString(indent + fd.TextName() + " {\n")
	writeMessage(b, v.Message(), indent+"  ")
	b.WriteString(indent + "}\n")
}

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

// quoteText quotes a string as the C++ printer does: printable and non-ASCII characters unchanged, the rest in octal.
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
			fmt.Fprintf(&b, `\%03o`, c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}
