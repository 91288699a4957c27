package query_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/backendtest"
	"github.com/tutti-server/tutti/backends/query"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/tensortest"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

const (
	in   = `input { name: "INPUT" data_type: TYPE_UINT8 dims: [ 1 ] } `
	outs = `output { name: "OUTPUT0" data_type: TYPE_UINT8 dims: [ -1 ] } output { name: "OUTPUT1" data_type: TYPE_UINT8 dims: [ -1 ] } `
	fail = `parameters { key: "fail_with_query_result" value { string_value: "true" } }`
)

func settings(t *testing.T, text string) backends.Settings {
	t.Helper()
	cfg := &modelconfig.ModelConfig{}
	if err := prototext.Unmarshal([]byte(text), cfg); err != nil {
		t.Fatal(err)
	}
	return backends.Settings{Model: "q", Version: 1, Config: cfg}
}

func load(t *testing.T, text string) (backends.Model, error) {
	t.Helper()
	f := query.NewFactory()
	b, err := f.New(backends.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b.Load(t.Context(), settings(t, text))
}

// TestContract runs the contract suite for backends.
func TestContract(t *testing.T) {
	t.Parallel()
	text := func(s string) backendtest.Value {
		return backendtest.Of(tensor.Uint8, []int64{int64(len(s))}, []byte(s)...)
	}
	backendtest.Run(t, query.NewFactory(), backends.Options{}, backendtest.Fixture{
		Name: "host", Settings: settings(t, in+outs), Rows: 1,
		In: []backendtest.Value{text("x")}, Want: []backendtest.Value{text("OUTPUT0 CPU 0"), text("OUTPUT1 CPU 0")},
	})
}

// elsewhere is an allocator that reports the given place.
type elsewhere struct {
	*tensortest.Checked
	place tensor.Place
}

func (e elsewhere) Place() tensor.Place { return e.place }

// TestPlaces checks the text for each kind of memory.
func TestPlaces(t *testing.T) {
	t.Parallel()
	m, err := load(t, in+outs+fail)
	if err != nil {
		t.Fatal(err)
	}
	i, err := m.NewInstance(t.Context(), tensor.Place{})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		place tensor.Place
		want  string
	}{
		{tensor.Place{}, "OUTPUT0 CPU 0 OUTPUT1 CPU 0"},
		{tensor.Place{Kind: tensor.Pinned}, "OUTPUT0 CPU_PINNED 0 OUTPUT1 CPU_PINNED 0"},
		{tensor.Place{Kind: tensor.Device, ID: 3}, "OUTPUT0 GPU 3 OUTPUT1 GPU 3"},
	} {
		b := &backends.Batch{Rows: 1, In: make([]tensor.Tensor, 1), Out: make([]tensor.Tensor, 2), Allocator: elsewhere{tensortest.NewChecked(t, nil), tc.place}}
		if err := i.Execute(t.Context(), b); err == nil || err.Error() != tc.want {
			t.Errorf("at %s: %v, want %s", tc.place, err, tc.want)
		}
	}
}

// TestVariable checks that the environment variable of Triton's tests makes every model fail.
func TestVariable(t *testing.T) {
	t.Setenv("TEST_FAIL_WITH_QUERY_RESULT", "1")
	m, err := load(t, in+outs)
	if err != nil {
		t.Fatal(err)
	}
	i, err := m.NewInstance(t.Context(), tensor.Place{})
	if err != nil {
		t.Fatal(err)
	}
	b := &backends.Batch{Rows: 1, In: make([]tensor.Tensor, 1), Out: make([]tensor.Tensor, 2), Allocator: tensortest.NewChecked(t, nil)}
	const want = "OUTPUT0 CPU 0 OUTPUT1 CPU 0"
	if err := i.Execute(t.Context(), b); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestLoadRefuses(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, config, want string }{
		{"nothing", ``, "expects inputs and outputs in its configuration, found 0 and 0"},
		{"batch", `max_batch_size: 2 ` + in + outs, "does not batch, expected max_batch_size 0, found 2"},
		{"type", in + `output { name: "O" data_type: TYPE_FP32 dims: [ -1 ] }`, "output 'O' is TYPE_FP32 [-1], expected TYPE_UINT8 [-1]"},
		{"dims", in + `output { name: "O" data_type: TYPE_UINT8 dims: [ 4 ] }`, "output 'O' is TYPE_UINT8 [4]"},
		{"value", in + outs + strings.Replace(fail, "true", "maybe", 1), "is 'maybe', expected true or false"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, err := load(t, tc.config)
			if err == nil || !strings.Contains(err.Error(), tc.want) || status.CodeOf(err) != status.InvalidArg {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}
