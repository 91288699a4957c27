package config

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"
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
	return appendMessage(nil, cfg.ProtoReflect())
}

func appendMessage(b []byte, m protoreflect.Message) ([]byte, error) {
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
		b = append(b, '"')
		b = append(b, fd.Name()...)
		b = append(b, '"', ':')
		var err error
		if b, err = appendField(b, fd, m.Get(fd)); err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}

func appendField(b []byte, fd protoreflect.FieldDescriptor, v protoreflect.Value) ([]byte, error) {
	switch {
	case fd.IsMap():
		return appendMap(b, fd.MapValue(), v.Map())
	case fd.IsList():
		return appendList(b, fd, v.List())
	default:
		return appendValue(b, fd, v)
	}
}

func appendList(b []byte, fd protoreflect.FieldDescriptor, l protoreflect.List) ([]byte, error) {
	b = append(b, '[')
	var err error
	for i := range l.Len() {
		if i > 0 {
			b = append(b, ',')
		}
		if b, err = appendValue(b, fd, l.Get(i)); err != nil {
			return nil, err
		}
	}
	return append(b, ']'), nil
}

// appendMap writes a map sorted by key, so that equal configurations have equal texts.
func appendMap(b []byte, fd protoreflect.FieldDescriptor, m protoreflect.Map) ([]byte, error) {
	var keys []protoreflect.MapKey
	m.Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
		keys = append(keys, k)
		return true
	})
	slices.SortFunc(keys, compareKeys)
	b = append(b, '{')
	var err error
	for i, k := range keys {
		if i > 0 {
			b = append(b, ',')
		}
		b = jsontext.AppendValid(b, k.String())
		b = append(b, ':')
		if b, err = appendValue(b, fd, m.Get(k)); err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}

// compareKeys orders numbers by value and strings by bytes.
func compareKeys(x, y protoreflect.MapKey) int {
	if n, ok := x.Interface().(uint64); ok {
		return cmp.Compare(n, y.Uint())
	}
	return cmp.Compare(x.String(), y.String())
}

func appendValue(b []byte, fd protoreflect.FieldDescriptor, v protoreflect.Value) ([]byte, error) {
	switch fd.Kind() {
	case protoreflect.MessageKind:
		return appendMessage(b, v.Message())
	case protoreflect.EnumKind:
		if e := fd.Enum().Values().ByNumber(v.Enum()); e != nil {
			return jsontext.AppendValid(b, string(e.Name())), nil
		}
		return strconv.AppendInt(b, int64(v.Enum()), 10), nil
	case protoreflect.StringKind:
		return jsontext.AppendValid(b, v.String()), nil
	case protoreflect.BoolKind:
		return strconv.AppendBool(b, v.Bool()), nil
	case protoreflect.FloatKind:
		return appendFloat(b, v.Float(), 32)
	case protoreflect.DoubleKind:
		return appendFloat(b, v.Float(), 64)
	case protoreflect.Int32Kind:
		return strconv.AppendInt(b, v.Int(), 10), nil
	case protoreflect.Int64Kind:
		if quotedFields[fd.FullName()] {
			return jsontext.AppendValid(b, strconv.FormatInt(v.Int(), 10)), nil
		}
		return strconv.AppendInt(b, v.Int(), 10), nil
	case protoreflect.Uint32Kind, protoreflect.Uint64Kind:
		return strconv.AppendUint(b, v.Uint(), 10), nil
	default:
		return nil, fmt.Errorf("field %s has kind %s, which no configuration has", fd.FullName(), fd.Kind())
	}
}

// appendFloat writes NaN and infinities as strings, as protobuf's JSON does.
func appendFloat(b []byte, f float64, bits int) ([]byte, error) {
	switch {
	case math.IsNaN(f):
		return jsontext.AppendValid(b, "NaN"), nil
	case math.IsInf(f, 1):
		return jsontext.AppendValid(b, "Infinity"), nil
	case math.IsInf(f, -1):
		return jsontext.AppendValid(b, "-Infinity"), nil
	}
	return strconv.AppendFloat(b, f, 'g', -1, bits), nil
}

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
			octal := strconv.FormatInt(int64(c), 8)
			b.WriteString(`\` + strings.Repeat("0", 3-len(octal)) + octal)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}
