package main

import (
	"math"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/tutti-server/tutti/proto/modelconfig"
)

// never is an interval that does not pass while a test runs.
const never = 24 * time.Hour

// validConfigs are what a random configuration starts from, so that it gets further than to its first error.
var validConfigs = []string{
	``,
	`backend: "onnxruntime"`,
	`backend: "onnxruntime" max_batch_size: 4`,
	`backend: "identity" max_batch_size: 4 input { name: "INPUT0" data_type: TYPE_FP32 dims: 1 } output { name: "OUTPUT0" data_type: TYPE_FP32 dims: 1 }`,
	`backend: "native" max_batch_size: 4 parameters { key: "step" value { string_value: "normalize" } }`,
	`backend: "sequence" max_batch_size: 4 input { name: "INPUT" data_type: TYPE_INT32 dims: 1 } output { name: "OUTPUT" data_type: TYPE_INT32 dims: 1 } sequence_batching { control_input { name: "START" control { int32_false_true: [ 0, 1 ] } } }`,
	`platform: "ensemble" ensemble_scheduling { step { model_name: "part" model_version: -1 input_map { key: "INPUT0" value: "a" } output_map { key: "OUTPUT0" value: "b" } } }`,
}

// anyStrings are words that some field has a meaning for, and some that none has.
var anyStrings = []string{
	"", "m", "part", "INPUT0", "OUTPUT0", "INPUT", "OUTPUT", "a", "b", "START", "identity", "native", "onnxruntime", "sequence", "repeat", "openvino", "ensemble",
	"onnxruntime_onnx", "tensorrt_plan", "cuda", "tensorrt", "xnnpack", "model.onnx", "../m/1/model.onnx", "libtriton_identity.so", "libnone.so",
	"step", "tokenize", "normalize", "1", "-1", "0", "true", "1e9", "99999999999999999999", "checksum", "cpu", "%s", "two words", "\u00e4\u00f6", strings.Repeat("x", 300),
}

// anyNumbers are what numbers go wrong at.
var anyNumbers = []int64{0, 1, 2, 3, 4, 8, 100, 1000, -1, -2, math.MaxInt32, math.MinInt32, math.MaxUint32, math.MaxInt64, math.MinInt64}

// maxDepth bounds how deep messages are filled.
const maxDepth = 6

// anyConfig makes a configuration by the choices of the bytes. Without bytes every choice is the first one.
func anyConfig(choices []byte) *modelconfig.ModelConfig {
	c := &chooser{choices}
	cfg := &modelconfig.ModelConfig{}
	if err := prototext.Unmarshal([]byte(validConfigs[c.below(len(validConfigs))]), cfg); err != nil {
		panic(err) // the text is a constant
	}
	c.fill(cfg.ProtoReflect(), 0, 1+c.below(maxDepth))
	return cfg
}

// chooser takes choices from bytes.
type chooser struct{ bytes []byte }

// below chooses a number from 0 to n-1.
func (c *chooser) below(n int) int {
	if len(c.bytes) == 0 {
		return 0
	}
	b := c.bytes[0]
	c.bytes = c.bytes[1:]
	return int(b) % n
}

// fill sets n fields of a message.
func (c *chooser) fill(m protoreflect.Message, depth, n int) {
	fields := m.Descriptor().Fields()
	for range n {
		if len(c.bytes) > 0 && fields.Len() > 0 {
			c.set(m, fields.Get(c.below(fields.Len())), depth)
		}
	}
}

// set sets one field, or adds an element to it.
func (c *chooser) set(m protoreflect.Message, fd protoreflect.FieldDescriptor, depth int) {
	below := func(m protoreflect.Message) {
		if depth < maxDepth {
			c.fill(m, depth+1, c.below(5))
		}
	}
	switch {
	case fd.IsMap() && fd.MapValue().Message() != nil:
		below(m.Mutable(fd).Map().Mutable(c.value(fd.MapKey()).MapKey()).Message())
	case fd.IsMap():
		m.Mutable(fd).Map().Set(c.value(fd.MapKey()).MapKey(), c.value(fd.MapValue()))
	case fd.IsList() && fd.Message() != nil:
		below(m.Mutable(fd).List().AppendMutable().Message())
	case fd.IsList():
		m.Mutable(fd).List().Append(c.value(fd))
	case fd.Message() != nil:
		below(m.Mutable(fd).Message())
	default:
		m.Set(fd, c.value(fd))
	}
}

// value chooses the value of a scalar field.
func (c *chooser) value(fd protoreflect.FieldDescriptor) protoreflect.Value {
	number := func() int64 { return anyNumbers[c.below(len(anyNumbers))] }
	switch fd.Kind() { //nolint:exhaustive // the schema has no others
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(c.below(2) == 1)
	case protoreflect.EnumKind:
		values := fd.Enum().Values()
		return protoreflect.ValueOfEnum(values.Get(c.below(values.Len())).Number())
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(int32(number())) //nolint:gosec // what is left of it is a number, too
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(number())
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(uint32(number())) //nolint:gosec // as above
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(uint64(number())) //nolint:gosec // as above
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32(float32(number()))
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(float64(number()))
	default:
		return protoreflect.ValueOfString(anyStrings[c.below(len(anyStrings))])
	}
}
