package main

import (
	"math"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/tutti-server/tutti/proto/modelconfig"
)

// never is an interval that is longer than any test.
const never = 24 * time.Hour

// validConfigs are the starting points of random configurations, so that most pass the first checks.
var validConfigs = []string{
	``,
	`backend: "onnxruntime"`,
	`backend: "onnxruntime" max_batch_size: 4`,
	`backend: "identity" max_batch_size: 4 input { name: "INPUT0" data_type: TYPE_FP32 dims: 1 } output { name: "OUTPUT0" data_type: TYPE_FP32 dims: 1 }`,
	`backend: "native" max_batch_size: 4 parameters { key: "step" value { string_value: "normalize" } }`,
	`backend: "sequence" max_batch_size: 4 input { name: "INPUT" data_type: TYPE_INT32 dims: 1 } output { name: "OUTPUT" data_type: TYPE_INT32 dims: 1 } sequence_batching { control_input { name: "START" control { int32_false_true: [ 0, 1 ] } } }`,
	`platform: "ensemble" ensemble_scheduling { step { model_name: "part" model_version: -1 input_map { key: "INPUT0" value: "a" } output_map { key: "OUTPUT0" value: "b" } } }`,
}

// anyStrings are words that have a meaning in some field, and some that have none.
var anyStrings = []string{
	"", "m", "part", "INPUT0", "OUTPUT0", "INPUT", "OUTPUT", "a", "b", "START", "identity", "native", "onnxruntime", "sequence", "repeat", "openvino", "ensemble",
	"onnxruntime_onnx", "tensorrt_plan", "cuda", "tensorrt", "xnnpack", "model.onnx", "../m/1/model.onnx", "libtriton_identity.so", "libnone.so",
	"step", "tokenize", "normalize", "1", "-1", "0", "true", "1e9", "99999999999999999999", "checksum", "cpu", "%s", "two words", "\u00e4\u00f6", strings.Repeat("x", 300),
}

// anyNumbers are boundary values.
var anyNumbers = []int64{0, 1, 2, 3, 4, 8, 100, 1000, -1, -2, math.MaxInt32, math.MinInt32, math.MaxUint32, math.MaxInt64, math.MinInt64}

// maxDepth bounds the nesting of random messages.
const maxDepth = 6

// anyConfig builds a configuration from the bytes in choices. When the bytes are used up, every choice is the first
// one.
func anyConfig(choices []byte) *modelconfig.ModelConfig {
	c := &chooser{choices}
	cfg := &modelconfig.ModelConfig{}
	if err := prototext.Unmarshal([]byte(validConfigs[c.below(len(validConfigs))]), cfg); err != nil {
		panic(err) // the text is a constant
	}
	c.fill(cfg.ProtoReflect(), 0, 1+c.below(maxDepth))
	return cfg
}

// chooser makes choices from bytes.
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

// fill sets n random fields of a message.
func (c *chooser) fill(m protoreflect.Message, depth, n int) {
	fields := m.Descriptor().Fields()
	for range n {
		if len(c.bytes) > 0 && fields.Len() > 0 {
			c.set(m, fields.Get(c.below(fields.Len())), depth)
		}
	}
}

// set sets one field, or appends to it if it is repeated.
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
		return protoreflect.ValueOfInt32(int32(number())) //nolint:gosec // any truncated number is a valid choice
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
