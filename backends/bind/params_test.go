package bind_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/bind"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

func TestWords(t *testing.T) {
	t.Parallel()
	w := bind.Words{True: []string{"1", "yes"}, False: []string{"0", "no"}, Expected: "YES or NO"}
	for value, want := range map[string]bool{"1": true, "YES": true, "no": false, "0": false} {
		if got, err := w.Parse("k", value); got != want || err != nil {
			t.Errorf("%q = %v, %v, want %v", value, got, err, want)
		}
	}
	const text = "unexpected value 'maybe' of parameter 'k': expected YES or NO"
	if _, err := w.Parse("k", "maybe"); err == nil || err.Error() != text {
		t.Errorf("error %v, want %q", err, text)
	}
}

func TestParseThreads(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]int{"0": 0, "1024": 1024, "1025": -1, "-1": -1, "": -1, "x": -1} {
		got, err := bind.ParseThreads("k", value)
		if err != nil {
			got = -1
		}
		if got != want {
			t.Errorf("%q = %d, %v, want %d", value, got, err, want)
		}
	}
}

func TestEachParam(t *testing.T) {
	t.Parallel()
	cfg := &modelconfig.ModelConfig{Parameters: map[string]*modelconfig.ModelParameter{"b": {StringValue: "2"}, "a": {StringValue: "1"}, "c": nil}}
	var got []string
	stop := errors.New("stop")
	err := bind.EachParam(cfg, func(key, value string) error {
		got = append(got, key+value)
		if key == "b" {
			return stop
		}
		return nil
	})
	if !errors.Is(err, stop) || !slices.Equal(got, []string{"a1", "b2"}) {
		t.Errorf("parameters %v, %v", got, err)
	}
}

func TestTypes(t *testing.T) {
	t.Parallel()
	types := bind.Types{{Name: "undefined"}, {Name: "float", DType: tensor.FP32}}
	for n, want := range map[int]bind.Type{-1: {Name: "number -1"}, 0: {Name: "undefined"}, 1: {Name: "float", DType: tensor.FP32}, 2: {Name: "number 2"}} {
		if got := (bind.Type{Name: types.Name(n), DType: types.DType(n)}); got != want {
			t.Errorf("type %d = %v, want %v", n, got, want)
		}
	}
}

func TestCheckExecute(t *testing.T) {
	t.Parallel()
	m := file([]int64{-1}, []int64{-1})
	b, err := bound(t, "", &m)
	if err != nil {
		t.Fatal(err)
	}
	batch := &backends.Batch{In: make([]tensor.Tensor, 1), Out: make([]tensor.Tensor, 1)}
	if err := b.CheckExecute(t.Context(), true, batch); err != nil {
		t.Error(err)
	}
	if err := b.CheckExecute(t.Context(), false, batch); status.CodeOf(err) != status.Unavailable {
		t.Errorf("a closed instance: %v", err)
	}
	batch.In = nil
	if err := b.CheckExecute(t.Context(), true, batch); status.CodeOf(err) != status.Internal {
		t.Errorf("a batch without inputs: %v", err)
	}
	out := tensor.Tensor{Shape: tensor.Of(5)}
	if err := b.ReshapeOutput(0, &out); err != nil || out.Shape.String() != "[5,1]" {
		t.Errorf("reshaped to %s, %v", out.Shape, err)
	}
	out.Shape = tensor.Of()
	if err := b.ReshapeOutput(0, &out); status.CodeOf(err) != status.Internal {
		t.Errorf("a scalar was reshaped to %s, %v", out.Shape, err)
	}
}
