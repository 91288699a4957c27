package convert_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tutti-server/tutti/backends/caffe2/convert"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// arg is an argument of an operator: an int, a float32, a string, []int64 or []float32.
type arg struct {
	name  string
	value any
}

func appendBytes(b []byte, n protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), v)
}

func (a *arg) encode() []byte {
	b := appendBytes(nil, 1, []byte(a.name))
	integer := func(n protowire.Number, v int64) {
		b = protowire.AppendVarint(protowire.AppendTag(b, n, protowire.VarintType), uint64(v))
	}
	number := func(n protowire.Number, v float32) {
		b = protowire.AppendFixed32(protowire.AppendTag(b, n, protowire.Fixed32Type), math.Float32bits(v))
	}
	switch v := a.value.(type) {
	case int:
		integer(3, int64(v))
	case float32:
		number(2, v)
	case string:
		b = appendBytes(b, 4, []byte(v))
	case []int64:
		for _, x := range v {
			integer(6, x)
		}
	case []float32:
		for _, x := range v {
			number(5, x)
		}
	case nil:
		b = appendBytes(b, 8, nil) // a nested net
	}
	return b
}

// op returns an encoded operator. in and out have the names of blobs, separated by spaces.
func op(kind, in, out string, args ...arg) []byte {
	var b []byte
	for name := range strings.FieldsSeq(in) {
		b = appendBytes(b, 1, []byte(name))
	}
	for name := range strings.FieldsSeq(out) {
		b = appendBytes(b, 2, []byte(name))
	}
	b = appendBytes(b, 4, []byte(kind))
	for i := range args {
		b = appendBytes(b, 5, args[i].encode())
	}
	return b
}

// net returns an encoded net.
func net(ops ...[]byte) (b []byte) {
	for _, o := range ops {
		b = appendBytes(b, 2, o)
	}
	return b
}

func fill(name string, n int, shape ...int64) []byte {
	return op("GivenTensorFill", "", name, arg{"shape", shape}, arg{"values", make([]float32, n)})
}

// images is an input of images.
func images() []convert.Port {
	return []convert.Port{{Name: "x", DType: tensor.FP32, Dims: []int64{-1, 4, 8, 8}}}
}

func TestRefuses(t *testing.T) {
	t.Parallel()
	kernel := arg{"kernel", 3}
	weights := net(fill("w", 4*4*9, 4, 4, 3, 3), fill("b", 4, 4), fill("short", 3, 3))
	for name, tc := range map[string]struct {
		ops     [][]byte
		initial []byte
		want    string
		code    status.Code
	}{
		"unknown operator": {
			[][]byte{op("Relu", "x", "a"), op("Mystery", "a", "y")},
			nil,
			`operator 1 (type "Mystery") of the predict net: the operator is not supported`, status.Unsupported,
		},
		"other case":      {[][]byte{op("relu", "x", "y")}, nil, `did you mean "Relu"?`, status.Unsupported},
		"quantized":       {[][]byte{op("Int8Conv", "x", "y")}, nil, `(type "Int8Conv") of the predict net: quantized operators are not supported`, status.Unsupported},
		"random":          {[][]byte{op("Relu", "x", "y")}, net(op("XavierFill", "", "w")), `operator 0 (type "XavierFill") of the init net: it fills a blob with random`, status.Unsupported},
		"argument":        {[][]byte{op("Relu", "x", "y", arg{"upside_down", 1})}, nil, "argument 'upside_down' is not supported", status.Unsupported},
		"argument's type": {[][]byte{op("Softmax", "x", "y", arg{"axis", "one"})}, nil, "argument 'axis' is no integer", status.InvalidArg},
		"nested net":      {[][]byte{op("Softmax", "x", "y", arg{"axis", nil})}, nil, "argument 'axis' is a net, expected", status.Unsupported},
		"missing blob":    {[][]byte{op("Add", "x z", "y")}, nil, "it reads blob 'z', which no operator before it writes and which is no input", status.InvalidArg},
		"cycle":           {[][]byte{op("Add", "x b", "a"), op("Relu", "a", "b")}, nil, "operator 0 (type \"Add\") of the predict net: it reads blob 'b'", status.InvalidArg},
		"reads itself":    {[][]byte{op("Relu", "x", "a"), op("Relu", "y", "y")}, nil, "it reads blob 'y'", status.InvalidArg},
		"output twice":    {[][]byte{op("Split", "x", "y y")}, nil, "its output 1 is 'y', expected a name that no other output has", status.InvalidArg},
		"no outputs":      {[][]byte{op("Relu", "x", "")}, nil, "it has 0 outputs, expected 1", status.InvalidArg},
		"inputs":          {[][]byte{op("Conv", "x", "y", kernel)}, nil, "it has 1 inputs, expected 2 to 3", status.InvalidArg},
		"variadic":        {[][]byte{op("Relu", "x", "a"), op("Sum", "", "y")}, nil, "it has 0 inputs, expected at least 1", status.InvalidArg},
		"no operators":    {nil, weights, "the predict net has no operators", status.InvalidArg},
		"output":          {[][]byte{op("Relu", "x", "z")}, nil, "unexpected inference output 'y', allowed outputs are", status.InvalidArg},
		"input":           {[][]byte{op("Sum", "w b z", "y")}, weights, "unexpected inference input 'x', allowed inputs are: 'z'", status.InvalidArg},
		"mask":            {[][]byte{op("Dropout", "x", "a y", arg{"is_test", 1})}, nil, "output 'y' is not computed: operator 0 (type \"Dropout\")", status.Unsupported},
		"training":        {[][]byte{op("Dropout", "x", "y mask")}, nil, "argument 'is_test' is not 1", status.Unsupported},
		"NHWC":            {[][]byte{op("Conv", "x w b", "y", kernel, arg{"order", "NHWC"})}, weights, "argument 'order' is NHWC, expected NCHW", status.Unsupported},
		"no kernel":       {[][]byte{op("Conv", "x w b", "y")}, weights, "it has no argument 'kernel'", status.InvalidArg},
		"other kernel":    {[][]byte{op("Conv", "x w b", "y", arg{"kernel", 5})}, weights, "blob 'w' has shape [4,4,3,3], expected dimension 2 to be 5", status.InvalidArg},
		"huge kernel":     {[][]byte{op("MaxPool", "x", "y", arg{"kernel", 1 << 40})}, nil, "argument 'kernel' is 1099511627776, expected 1 to", status.InvalidArg},
		"small image":     {[][]byte{op("MaxPool", "x", "y", arg{"kernel", 9})}, nil, "which is smaller than the window", status.InvalidArg},
		"bias":            {[][]byte{op("Conv", "x w short", "y", kernel)}, weights, "blob 'short' has shape [3], expected dimension 0 to be 4", status.InvalidArg},
		"group":           {[][]byte{op("Conv", "x w b", "y", kernel, arg{"group", 3})}, weights, "argument 'group' is 3, which does not divide", status.InvalidArg},
		"channels": {
			[][]byte{op("Conv", "x w b", "y", kernel, arg{"group", 2})}, weights, "blob 'w' has shape [4,4,3,3], expected dimension 1 to be 2", status.InvalidArg,
		},
		"windows of padding": {[][]byte{op("MaxPool", "x", "y", arg{"kernel", 2}, arg{"pad", 2})}, nil, "windows without elements", status.Unsupported},
		"weights":            {[][]byte{op("FC", "x w b", "y")}, weights, "has 256 elements in a row, and the weights 'w' of shape [4,4,3,3] expect 36", status.InvalidArg},
		"fill":               {[][]byte{op("Relu", "x", "y")}, net(fill("w", 3, 2, 2)), "argument 'values' has 3 elements, expected those of shape [2,2]", status.InvalidArg},
		"negative fill":      {[][]byte{op("Relu", "x", "y")}, net(fill("w", 3, -3)), "argument 'shape' is [-3], expected dimensions of at least 0", status.InvalidArg},
		"endless fill":       {[][]byte{op("Relu", "x", "y")}, net(fill("w", 3, 1<<40, 1<<40)), "larger than any tensor", status.InvalidArg},
		"huge fill": {
			[][]byte{op("Relu", "x", "y")}, net(op("ConstantFill", "", "w", arg{"shape", []int64{1 << 30}})), "have more than 67108864 elements", status.Unsupported,
		},
		"many fills": {
			[][]byte{op("Relu", "x", "y")},
			net(op("ConstantFill", "", "w", arg{"shape", []int64{1 << 26}}), op("ConstantFill", "", "v", arg{"shape", []int64{2}})), "operator 1 (type", status.Unsupported,
		},
		"broadcast": {
			[][]byte{op("Add", "x w", "y", arg{"broadcast", 1}, arg{"axis", 3})}, weights, "a tensor of shape [4,4,3,3] cannot be broadcast to", status.InvalidArg,
		},
		"axis":     {[][]byte{op("Concat", "x x", "y", arg{"axis", 4})}, nil, "argument 'axis' 4 is out of range for 4 dimensions", status.InvalidArg},
		"reshape":  {[][]byte{op("Reshape", "x", "y old", arg{"shape", []int64{0, 5, -1}})}, nil, "a tensor of shape [-1,4,8,8] cannot have the shape [0,5,-1]", status.InvalidArg},
		"wild":     {[][]byte{op("Reshape", "x", "y old", arg{"shape", []int64{-1, -1}})}, nil, "at most one dimension of -1", status.InvalidArg},
		"long":     {[][]byte{op("Reshape", "x", "y old", arg{"shape", make([]int64, 100)})}, nil, "argument 'shape' has 100 elements, expected at most 32", status.InvalidArg},
		"permuted": {[][]byte{op("Transpose", "x", "y", arg{"axes", []int64{0, 1, 2, 2}})}, nil, "argument 'axes' is [0,1,2,2], expected the numbers of 4", status.InvalidArg},
		"split":    {[][]byte{op("Split", "x", "y z", arg{"split", []int64{1, 2}})}, nil, "it splits dimension 1 of shape [-1,4,8,8] into 2 outputs of [1,2]", status.InvalidArg},
		"overflow": {
			[][]byte{op("Split", "x", "y z", arg{"split", []int64{math.MaxInt64, math.MinInt64 + 5}})}, nil, "it splits dimension 1", status.InvalidArg,
		},
		"slice": {
			[][]byte{op("Slice", "x", "y", arg{"starts", []int64{0, 3}}, arg{"ends", []int64{-1, 2}})}, nil, "it slices dimension 1 of shape [-1,4,8,8] from 3 to 2", status.InvalidArg,
		},
		"scale": {[][]byte{op("ResizeNearest", "x", "y", arg{"width_scale", float32(math.NaN())})}, nil, "expected positive numbers", status.InvalidArg},
		"types": {[][]byte{op("Cast", "x", "i", arg{"to", "int32"}), op("Mul", "x i", "y")}, nil, `operator 1 (type "Mul") of the predict net: input 1 has type int32`, status.InvalidArg},
		"ranks": {[][]byte{op("Sum", "x b", "y")}, weights, "input 1 has shape [4], expected that of the first", status.InvalidArg},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := convert.ONNX(t.Context(), &convert.Source{
				Predict: net(tc.ops...), Init: tc.initial, Inputs: images(), Batched: true,
				Outputs: []convert.Port{{Name: "y", DType: tensor.FP32, Dims: []int64{-1, -1, -1, -1}}},
			})
			if err == nil || !strings.Contains(err.Error(), tc.want) || status.CodeOf(err) != tc.code {
				t.Errorf("ONNX = %s error %v\nwant %s with %q", status.CodeOf(err), err, tc.code, tc.want)
			}
		})
	}
}

func TestDamaged(t *testing.T) {
	t.Parallel()
	good := net(op("Conv", "x w b", "y", arg{"kernel", 3}))
	weights := net(fill("w", 4*4*9, 4, 4, 3, 3), fill("b", 4, 4))
	source := func(predict, initial []byte) *convert.Source {
		return &convert.Source{Predict: predict, Init: initial, Inputs: images(), Outputs: []convert.Port{{Name: "y"}}}
	}
	if _, err := convert.ONNX(t.Context(), source(good, weights)); err != nil {
		t.Fatal(err)
	}
	for n := range len(weights) {
		if _, err := convert.ONNX(t.Context(), source(good, weights[:n])); err == nil {
			t.Errorf("%d of %d bytes of the init net are accepted", n, len(weights))
		}
	}
	for name, data := range map[string][]byte{"text": []byte("name: \"net\"\nop {\n}"), "zeros": make([]byte, 100), "wrong kind": {1 << 3, 5}, "group": {2<<3 | 3}} {
		if _, err := convert.ONNX(t.Context(), source(data, weights)); err == nil || !strings.Contains(err.Error(), "unable to read the predict net: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := convert.ONNX(ctx, source(good, weights)); status.CodeOf(err) != status.Cancelled {
		t.Errorf("cancelled: %v", err)
	}
}

// TestUnused checks that weights which no operator needs are not written.
func TestUnused(t *testing.T) {
	t.Parallel()
	var file bytes.Buffer
	_, err := convert.ONNX(t.Context(), &convert.Source{
		Predict: net(op("Add", "x w", "y")), Init: net(fill("x", 4096, 4, 32, 32), fill("v", 4096, 4096), fill("w", 4096, 1, 1, 64, 64)),
		Inputs: []convert.Port{{Name: "x", DType: tensor.FP32, Dims: []int64{4, 4, 64, 64}}}, Outputs: []convert.Port{{Name: "y"}},
		Weights: &file, WeightsFile: "weights",
	})
	if err != nil || file.Len() != 4*4096 {
		t.Errorf("%d bytes of weights, error %v, want those of one tensor of 4096 floats", file.Len(), err)
	}
}

// FuzzONNX checks that nets of any content are converted or refused, without a panic and without much memory.
func FuzzONNX(f *testing.F) {
	file, err := os.Open(filepath.Join("..", "testdata", "operators.json.gz"))
	if err != nil {
		f.Fatal(err)
	}
	defer file.Close()
	var all []struct {
		Predict, Init []byte
		Inputs        []struct {
			Name  string
			Shape []int64
		}
	}
	z, err := gzip.NewReader(file)
	if err == nil {
		err = json.NewDecoder(z).Decode(&all)
	}
	if err != nil {
		f.Fatal(err)
	}
	for i := range all {
		f.Add(all[i].Predict, all[i].Init)
	}
	f.Fuzz(func(t *testing.T, predict, initial []byte) {
		for _, dims := range [][]int64{{2, 6, 4, 3}, {-1, 6, 4}, {2, 8}, {-1, -1, -1, -1}} {
			model, err := convert.ONNX(t.Context(), &convert.Source{
				Predict: predict, Init: initial, Weights: io.Discard, WeightsFile: "weights",
				Inputs: []convert.Port{{Name: "x", DType: tensor.FP32, Dims: dims}, {Name: "a", DType: tensor.FP32, Dims: dims}},
			})
			if (err == nil) != (len(model) > 0) {
				t.Errorf("a model of %d bytes and error %v", len(model), err)
			}
		}
	})
}
