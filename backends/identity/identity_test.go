package identity_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/identity"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/tensortest"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

const pairs = `
name: "id" max_batch_size: 8
input { name: "INPUT1" data_type: TYPE_STRING dims: [ 1 ] optional: true }
input { name: "INPUT0" data_type: TYPE_FP32 dims: [ -1, 2 ] }
output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1, 2 ] }
output { name: "OUTPUT1" data_type: TYPE_STRING dims: [ 1 ] }
`

func param(key, value string) string {
	return ` parameters { key: "` + key + `" value { string_value: "` + value + `" } }`
}

func load(t *testing.T, text string) (backends.Model, error) {
	t.Helper()
	cfg := &modelconfig.ModelConfig{}
	if err := prototext.Unmarshal([]byte(text), cfg); err != nil {
		t.Fatal(err)
	}
	f := identity.NewFactory()
	b, err := f.New(backends.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b.Load(t.Context(), backends.Settings{Model: "id", Version: 3, Config: cfg})
}

func TestExecute(t *testing.T) {
	t.Parallel()
	m, err := load(t, pairs+param("absent_as_zeros", "false"))
	if err != nil {
		t.Fatal(err)
	}
	sig := m.Signature()
	if sig.Model != "id" || sig.Version != 3 || sig.MaxBatch != 8 || !sig.Inputs[0].Optional || sig.Inputs[1].DType != tensor.FP32 {
		t.Errorf("signature %+v", sig)
	}
	i, err := m.NewInstance(t.Context(), tensor.Place{})
	if err != nil {
		t.Fatal(err)
	}
	alloc := tensortest.NewChecked(t, nil)
	x, err := tensor.New(alloc, tensor.FP32, tensor.Of(1, 3, 2))
	if err != nil {
		t.Fatal(err)
	}
	copy(tensor.Slice[float32](&x), []float32{1, 2, 3, 4, 5, 6})
	b := &backends.Batch{Rows: 1, In: []tensor.Tensor{{}, x}, Out: make([]tensor.Tensor, 2), Allocator: alloc}
	if err := i.Execute(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	x.Release()
	if out := &b.Out[0]; !out.Shape.Equal(tensor.Of(1, 3, 2)) || tensor.Slice[float32](out)[5] != 6 {
		t.Errorf("output %v", *out)
	}
	if b.Out[1].Present() {
		t.Error("an absent optional input gave an output")
	}
	b.Out[0].Release()
}

// TestLoadWithoutTensors checks that a configuration without tensors loads, as in Triton.
func TestLoadWithoutTensors(t *testing.T) {
	t.Parallel()
	m, err := load(t, ``)
	if err != nil {
		t.Fatal(err)
	}
	if sig := m.Signature(); len(sig.Inputs)+len(sig.Outputs) > 0 {
		t.Errorf("signature %+v", sig)
	}
}

func TestLoadRefuses(t *testing.T) {
	t.Parallel()
	const in0, out0 = `input { name: "INPUT0" data_type: TYPE_FP32 dims: [ 2 ] }`, `output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 2 ] }`
	for _, tc := range []struct {
		name, config, want string
		code               status.Code
	}{
		{"input alone", in0, "'INPUT0' has no partner, expected 'OUTPUT0'", status.InvalidArg},
		{"output alone", in0 + out0 + `output { name: "OUTPUT7" data_type: TYPE_FP32 dims: [ 2 ] }`, "'OUTPUT7' has no partner, expected 'INPUT7'", status.InvalidArg},
		{"other name", `input { name: "x" data_type: TYPE_FP32 dims: [ 2 ] }`, "found 'x'", status.InvalidArg},
		{"no number", `input { name: "INPUT" data_type: TYPE_FP32 dims: [ 2 ] }`, "found 'INPUT'", status.InvalidArg},
		{"type", in0 + `output { name: "OUTPUT0" data_type: TYPE_INT8 dims: [ 2 ] }`, "output 'OUTPUT0' is TYPE_INT8 [2], expected TYPE_FP32 [2] as input 'INPUT0'", status.InvalidArg},
		{"dims", in0 + `output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ] }`, "output 'OUTPUT0' is TYPE_FP32 [-1]", status.InvalidArg},
		{"reshape", in0 + `output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 2 ] reshape { shape: [ 1, 2 ] } }`, "output 'OUTPUT0' is TYPE_FP32 [1,2], expected TYPE_FP32 [2] as input 'INPUT0'", status.InvalidArg},
		{"ragged dims", `max_batch_size: 4 input { name: "INPUT0" data_type: TYPE_FP32 dims: [ 2 ] allow_ragged_batch: true } output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 3 ] }`, "output 'OUTPUT0' is TYPE_FP32 [3], expected TYPE_FP32 [2] as input 'INPUT0'", status.InvalidArg},
		{"computed", `max_batch_size: 4 ` + in0 + out0 + `batch_input { kind: BATCH_ELEMENT_COUNT target_name: "INPUT1" data_type: TYPE_FP32 source_input: "INPUT0" } output { name: "OUTPUT1" data_type: TYPE_FP32 dims: [ -1 ] }`, "output 'OUTPUT1' is TYPE_FP32 [-1], expected TYPE_FP32 [-1] over the whole batch as input 'INPUT1'", status.InvalidArg},
		{"tracing", in0 + out0 + param("enable_custom_tracing", "2"), "parameter 'enable_custom_tracing' is '2', expected true or false", status.InvalidArg},
		{"spans", in0 + out0 + param("nested_span_count", "many"), "parameter 'nested_span_count' is 'many', expected an integer", status.InvalidArg},
		{"delay", in0 + out0 + param("execute_delay_ms", "x"), "parameter 'execute_delay_ms' is 'x', expected an integer from 0 to 1048576", status.InvalidArg},
		{"negative delay", in0 + out0 + param("creation_delay_sec", "-1"), "parameter 'creation_delay_sec' is '-1'", status.InvalidArg},
		{"zeros", in0 + out0 + param("absent_as_zeros", "2"), "parameter 'absent_as_zeros' is '2', expected true or false", status.InvalidArg},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, err := load(t, tc.config)
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "'id'") {
				t.Fatalf("got %v, want %q", err, tc.want)
			}
			if got := status.CodeOf(err); got != tc.code {
				t.Errorf("code %v, want %v", got, tc.code)
			}
		})
	}
}

// TestExecuteAllocatesNothing checks the allocations of Execute. It is not parallel because it counts those of the
// process.
func TestExecuteAllocatesNothing(t *testing.T) {
	m, err := load(t, pairs+param("absent_as_zeros", "false"))
	if err != nil {
		t.Fatal(err)
	}
	i, err := m.NewInstance(t.Context(), tensor.Place{})
	if err != nil {
		t.Fatal(err)
	}
	x, err := tensor.New(tensor.NewPool(), tensor.FP32, tensor.Of(1, 1, 2))
	if err != nil {
		t.Fatal(err)
	}
	b := &backends.Batch{Rows: 1, In: []tensor.Tensor{{}, x}, Out: make([]tensor.Tensor, 2)}
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() {
		if err := i.Execute(ctx, b); err != nil {
			t.Error(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
