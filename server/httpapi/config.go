package httpapi

import (
	"encoding/base64"
	"slices"
	"strconv"

	"google.golang.org/protobuf/reflect/protoreflect"

	"tutti/proto/modelconfig"
)

// configJSON prints a model configuration as the config endpoint shows it: the
// names of config.pbtxt, every field of a simple type even when it is zero, and
// 64-bit integers as numbers, where protobuf's own JSON has strings and leaves
// zeros out.
func configJSON(cfg *modelconfig.ModelConfig) []byte {
	return appendMessage(nil, cfg.ProtoReflect())
}

func appendMessage(b []byte, m protoreflect.Message) []byte {
	b = append(b, '{')
	fields := m.Descriptor().Fields()
	first := true
	for i := range fields.Len() {
		f := fields.Get(i)
		if f.HasPresence() && !m.Has(f) {
			continue // an absent message or an unset choice
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(appendString(b, string(f.Name())), ':')
		b = appendField(b, f, m.Get(f))
	}
	return append(b, '}')
}

func appendField(b []byte, f protoreflect.FieldDescriptor, v protoreflect.Value) []byte {
	switch {
	case f.IsMap():
		return appendMap(b, f, v.Map())
	case f.IsList():
		b = append(b, '[')
		for i, l := 0, v.List(); i < l.Len(); i++ {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendValue(b, f, l.Get(i))
		}
		return append(b, ']')
	default:
		return appendValue(b, f, v)
	}
}

func appendMap(b []byte, f protoreflect.FieldDescriptor, m protoreflect.Map) []byte {
	keys := make([]protoreflect.MapKey, 0, m.Len())
	m.Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
		keys = append(keys, k)
		return true
	})
	slices.SortFunc(keys, compareKeys)
	b = append(b, '{')
	for i, k := range keys {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendString(b, k.String()), ':')
		b = appendValue(b, f.MapValue(), m.Get(k))
	}
	return append(b, '}')
}

// compareKeys orders numbers by value, everything else by its text.
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

func appendValue(b []byte, f protoreflect.FieldDescriptor, v protoreflect.Value) []byte {
	switch f.Kind() {
	case protoreflect.BoolKind:
		return strconv.AppendBool(b, v.Bool())
	case protoreflect.EnumKind:
		if e := f.Enum().Values().ByNumber(v.Enum()); e != nil {
			return appendString(b, string(e.Name()))
		}
		return strconv.AppendInt(b, int64(v.Enum()), 10)
	case protoreflect.StringKind:
		return appendString(b, v.String())
	case protoreflect.BytesKind:
		return appendString(b, base64.StdEncoding.EncodeToString(v.Bytes()))
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		return strconv.AppendFloat(b, v.Float(), 'g', -1, floatBits(f))
	case protoreflect.MessageKind, protoreflect.GroupKind:
		return appendMessage(b, v.Message())
	case protoreflect.Uint32Kind, protoreflect.Uint64Kind, protoreflect.Fixed32Kind, protoreflect.Fixed64Kind:
		return appendInteger(b, f, strconv.FormatUint(v.Uint(), 10))
	default:
		return appendInteger(b, f, strconv.FormatInt(v.Int(), 10))
	}
}

func floatBits(f protoreflect.FieldDescriptor) int {
	if f.Kind() == protoreflect.FloatKind {
		return 32
	}
	return 64
}

// appendInteger prints an integer as a number, save for the few 64-bit fields that
// Triton leaves as strings and clients have come to expect so.
func appendInteger(b []byte, f protoreflect.FieldDescriptor, text string) []byte {
	if slices.Contains(quoted(), string(f.FullName())) {
		return appendString(b, text)
	}
	return append(b, text...)
}

func quoted() []string {
	return []string{
		"inference.ModelSequenceBatching.InitialState.dims",
		"inference.ModelOptimizationPolicy.Cuda.GraphSpec.Shape.dim",
		"inference.ModelOptimizationPolicy.Cuda.GraphSpec.LowerBound.Shape.dim",
		"inference.ModelInstanceGroup.SecondaryDevice.device_id",
	}
}
