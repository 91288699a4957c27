package sequence_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/backendtest"
	"github.com/tutti-server/tutti/backends/sequence"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/tensortest"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

const controls = `
name: "s" max_batch_size: 4
sequence_batching {
  control_input { name: "START" control { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } }
  control_input { name: "READY" control { kind: CONTROL_SEQUENCE_READY int32_false_true: [ 0, 1 ] } }
  control_input { name: "END" control { kind: CONTROL_SEQUENCE_END int32_false_true: [ 0, 1 ] } }
  control_input { name: "CORRID" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_STRING } }
}`

func settings(t *testing.T, text string) backends.Settings {
	t.Helper()
	cfg := &modelconfig.ModelConfig{}
	if err := prototext.Unmarshal([]byte(text), cfg); err != nil {
		t.Fatal(err)
	}
	return backends.Settings{Model: "s", Version: 1, Config: cfg}
}

func ints(v ...int32) backendtest.Value {
	return backendtest.Of(tensor.Int32, []int64{int64(len(v)), 1}, v...)
}

// TestContract runs the contract suite for backends.
func TestContract(t *testing.T) {
	t.Parallel()
	backendtest.Run(t, sequence.NewFactory(), backends.Options{}, backendtest.Fixture{
		Name: "starts", Settings: settings(t, controls), Rows: 3,
		In:   []backendtest.Value{ints(5, 6, 7), ints(1, 1, 1), ints(1, 0, 1), ints(0, 0, 1), backendtest.Strings([]int64{3, 1}, "a", "", "b")},
		Want: []backendtest.Value{ints(5, 0, 7)},
	}, backendtest.Fixture{
		Name: "state", Settings: settings(t, strings.TrimSuffix(controls, "}")+`state { input_name: "I" output_name: "O" data_type: TYPE_INT32 dims: 1 } }`), Rows: 2,
		In:   []backendtest.Value{ints(5, 6), ints(1, 0), ints(1, 0), ints(0, 0), backendtest.Strings([]int64{2, 1}, "a", ""), ints(100, 0)},
		Want: []backendtest.Value{ints(105, 0), ints(105, 0)},
	})
}

// TestSums checks the sums over several batches, by correlation id and by row.
func TestSums(t *testing.T) {
	t.Parallel()
	byRow := strings.Replace(controls, `control_input { name: "CORRID" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_STRING } }`, "", 1)
	for name, tc := range map[string]struct {
		config string
		ids    [][]string
		want   [][]int32
	}{
		"by id":  {controls, [][]string{{"a", "b"}, {"b", "a"}, {"a", "b"}}, [][]int32{{1, 2}, {5, 5}, {6, 12}}},
		"by row": {byRow, nil, [][]int32{{1, 2}, {4, 6}, {5, 13}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, err := sequence.NewFactory().New(backends.Options{})
			if err != nil {
				t.Fatal(err)
			}
			m, err := b.Load(t.Context(), settings(t, tc.config))
			if err != nil {
				t.Fatal(err)
			}
			x, err := m.NewInstance(t.Context(), tensor.Place{})
			if err != nil {
				t.Fatal(err)
			}
			alloc := tensortest.NewChecked(t, nil)
			for i, in := range [][]backendtest.Value{{ints(1, 2), ints(1, 1), ints(1, 1), ints(0, 0)}, {ints(3, 4), ints(0, 0), ints(1, 1), ints(0, 0)}, {ints(1, 7), ints(0, 0), ints(1, 1), ints(0, 1)}} {
				if tc.ids != nil {
					in = append(in, backendtest.Strings([]int64{2, 1}, tc.ids[i]...))
				}
				batch := &backends.Batch{Rows: 2, Out: make([]tensor.Tensor, 1), Allocator: alloc}
				for _, v := range in {
					batch.In = append(batch.In, v.Tensor(t, alloc))
				}
				if err := x.Execute(t.Context(), batch); err != nil {
					t.Fatal(err)
				}
				if got := tensor.Slice[int32](&batch.Out[0]); got[0] != tc.want[i][0] || got[1] != tc.want[i][1] {
					t.Errorf("batch %d gave %v, want %v", i, got, tc.want[i])
				}
				tensor.ReleaseAll(batch.In)
				tensor.ReleaseAll(batch.Out)
			}
		})
	}
}

func TestLoadRefuses(t *testing.T) {
	t.Parallel()
	b, err := sequence.NewFactory().New(backends.Options{})
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(controls, "sequence_batching {")
	rest, _, _ = strings.Cut(rest, "  control_input { name: \"CORRID\"")
	oldest := "sequence_batching { oldest {}" + rest + "}"
	state := func(text string) string {
		return strings.TrimSuffix(controls, "}") + "state { input_name: \"I\" output_name: \"O\" " + text + " } }"
	}
	for want, text := range map[string]string{
		"expects one state of TYPE_INT32 with dims [ 1 ], found 1, of which 'I' is TYPE_FP32 with dims [1]":   state("data_type: TYPE_FP32 dims: 1"),
		"expects one state of TYPE_INT32 with dims [ 1 ], found 1, of which 'I' is TYPE_INT32 with dims [-1]": state("data_type: TYPE_INT32 dims: -1"),
		"with parameter 'countdown' expects 'sequence_batching { iterative_sequence: true }'":                 controls + ` parameters { key: "countdown" value { string_value: "true" } }`,
		"parameter 'countdown' is '3', expected true or false":                                                controls + ` parameters { key: "countdown" value { string_value: "3" } }`,
		"expects sequence_batching with control inputs for START and READY":                                   ``,
		"expects int32_false_true: [ 0, 1 ] for CONTROL_SEQUENCE_START":                                       strings.Replace(controls, "[ 0, 1 ]", "[ 1, 2 ]", 1),
		"expects a control input for CORRID with the strategy oldest, where":                                  oldest,
	} {
		if _, err := b.Load(t.Context(), settings(t, text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}
