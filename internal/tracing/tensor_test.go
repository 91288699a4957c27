package tracing_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/tracing"
)

func tensorOf(t *testing.T, d tensor.DType, shape []int64, data ...byte) *tensor.Tensor {
	t.Helper()
	buf, err := tensor.NewPool().Alloc(len(data))
	must(t, err)
	copy(buf.Bytes(), data)
	t.Cleanup(buf.Release)
	return &tensor.Tensor{DType: d, Shape: tensor.Of(shape...), Buf: buf, Len: len(data)}
}

// TestTensors checks the trace file's form of a tensor of each type.
// shows: trace.tensors
func TestTensors(t *testing.T) {
	t.Parallel()
	tests := []struct {
		dtype tensor.DType
		data  []byte
		want  string
	}{
		{tensor.Bool, []byte{0, 1}, "0,1"},
		{tensor.Uint8, []byte{1, 255}, "1,255"},
		{tensor.Int8, []byte{1, 255}, "1,-1"},
		{tensor.Uint16, []byte{1, 1}, "257"},
		{tensor.Int16, []byte{255, 255}, "-1"},
		{tensor.Uint32, []byte{0, 0, 0, 128}, "2147483648"},
		{tensor.Int32, []byte{0, 0, 0, 128, 7, 0, 0, 0}, "-2147483648,7"},
		{tensor.Uint64, []byte{255, 255, 255, 255, 255, 255, 255, 255}, "18446744073709551615"},
		{tensor.Int64, []byte{255, 255, 255, 255, 255, 255, 255, 255}, "-1"},
		{tensor.FP32, []byte{0, 0, 192, 63}, "1.5"},
		{tensor.FP64, []byte{0, 0, 0, 0, 0, 0, 248, 63}, "1.5"},
		{tensor.FP16, []byte{0, 60, 0, 60}, ""},
		{tensor.BF16, []byte{0, 60}, ""},
		{tensor.Bytes, []byte{2, 0, 0, 0, 'h', '"', 0, 0, 0, 0}, `"h\"",""`},
		{tensor.Bytes, []byte{9, 0, 0, 0, 'h'}, ""}, // is no such tensor
		{tensor.Bytes, []byte{1}, ""},
		{tensor.FP32, nil, ""},
	}
	for _, tt := range tests {
		tr, file := open(t, tracing.Settings{Level: []string{"TENSORS"}})
		x := tr.Sample("m", 1, "")
		if !x.Tensors() {
			t.Fatal("it takes no tensors")
		}
		x.Tensor(true, -1, 0, "T", tensorOf(t, tt.dtype, []int64{1, 2}, tt.data...))
		x.Stamp(tracing.RequestEnd, 5) // is not of this level
		x.End()
		must(t, tr.Close())
		b, err := os.ReadFile(file)
		must(t, err)
		var list []struct {
			Activity   string
			Timestamps []any
			Tensor     struct{ Name, Data, Shape, Dtype string }
		}
		must(t, json.Unmarshal(b, &list))
		if len(list) != 2 || list[1].Activity != "TENSOR_BACKEND_OUTPUT" {
			t.Fatalf("%s", b)
		}
		got := list[1].Tensor
		if got.Data != tt.want || got.Name != "T" || got.Shape != "1,2" || got.Dtype != tt.dtype.String() {
			t.Errorf("%s: %+v, want %s", tt.dtype, got, tt.want)
		}
	}
}

// TestTensorsOfSteps checks that an ensemble's tensors are in chronological order.
func TestTensorsOfSteps(t *testing.T) {
	t.Parallel()
	tr, file := open(t, tracing.Settings{Level: []string{"TENSORS", "TIMESTAMPS"}})
	one := tensorOf(t, tensor.Uint8, []int64{1}, 1)
	x := tr.Sample("e", 1, "")
	x.SetModel(1, true)
	x.Tensor(false, -1, 0, "IN", one)
	x.Tensor(false, 4, 0, "I", one)
	x.Tensor(true, 4, 0, "O", one)
	x.Step(&tracing.Step{Node: 4, Model: "s", Enqueued: 1 << 60, Execution: tracing.Execution{Start: 1<<60 + 1, InputEnd: 1<<60 + 2, InferEnd: 1<<60 + 3, End: 1<<60 + 4}, Done: 1<<60 + 5})
	x.Tensor(true, -1, 0, "OUT", one)
	x.End()
	var none *tracing.Trace
	none.Tensor(true, 0, 0, "T", one)
	must(t, tr.Close())
	b, err := os.ReadFile(file)
	must(t, err)
	var list []struct {
		ID         int
		Activity   string
		Timestamps []struct{ Name string }
		Tensor     struct{ Name string }
	}
	must(t, json.Unmarshal(b, &list))
	var got []string
	for _, m := range list {
		switch {
		case m.Activity != "":
			got = append(got, m.Activity+" "+m.Tensor.Name)
		case m.Timestamps != nil:
			got = append(got, m.Timestamps[0].Name)
		default:
			got = append(got, "")
		}
	}
	want := []string{
		"", "TENSOR_QUEUE_INPUT IN", "TENSOR_BACKEND_OUTPUT OUT",
		"", "TENSOR_BACKEND_OUTPUT O", "REQUEST_START", "QUEUE_START", "TENSOR_QUEUE_INPUT I", "COMPUTE_START", "COMPUTE_INPUT_END", "TENSOR_BACKEND_INPUT I",
		"COMPUTE_OUTPUT_START", "COMPUTE_END", "REQUEST_END",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s\n%s", diff, b)
	}
}
