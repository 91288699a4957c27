package bind_test

import (
	"context"
	"errors"
	"slices"
	"strings"
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

func TestSet(t *testing.T) {
	t.Parallel()
	value := func(v string) *modelconfig.ModelParameter { return &modelconfig.ModelParameter{StringValue: v} }
	cfg := &modelconfig.ModelConfig{Parameters: map[string]*modelconfig.ModelParameter{
		"bool": value("YES"), "int": value("3"), "none": value("0"), "other": value("2"), "own": value("1"), "string": value("text"), "zero": nil,
	}}
	w := &bind.Words{True: []string{"yes"}}
	var got []string
	stop := errors.New("stop")
	on, n, none, text := false, 1, 5, ""
	err := w.Set(cfg, bind.Targets{
		"bool": &on, "int": &n, "none": &none, "string": &text,
		"own": func(key, value string) error { got = append(got, key+value); return nil },
		"": func(key, value string) error {
			got = append(got, key+value)
			if key == "zero" {
				return stop
			}
			return nil
		},
	})
	if !errors.Is(err, stop) || !on || n != 3 || none != 5 || text != "text" || !slices.Equal(got, []string{"other2", "own1", "zero"}) {
		t.Errorf("set %t %d %d %q, called for %v, %v", on, n, none, text, got, err)
	}
	if err := w.Set(cfg, bind.Targets{"bool": &on, "string": &n}); err == nil || !strings.Contains(err.Error(), "expected a number of threads") {
		t.Errorf("a text as number: %v", err)
	}
	if err := w.Set(cfg, bind.Targets{"string": &text}); err != nil {
		t.Errorf("other parameters without a target: %v", err)
	}
}

func TestTypes(t *testing.T) {
	t.Parallel()
	types := bind.Types{"undefined", "float"}
	for n, want := range map[int]string{-1: "number -1", 0: "undefined", 1: "float", 2: "number 2"} {
		if got := types.Name(n); got != want {
			t.Errorf("type %d = %s, want %s", n, got, want)
		}
		if got := types.DType(n); (got == tensor.FP32) != (n == 1) || (got == tensor.Invalid) != (n != 1) {
			t.Errorf("data type %d = %s", n, got)
		}
	}
}

// TestWatch checks that a run is stopped when its batch or all its requests are cancelled, and no other.
func TestWatch(t *testing.T) {
	t.Parallel()
	gone, leave := context.WithCancel(t.Context())
	leave()
	both, one := []backends.Request{{Ctx: gone}, {Ctx: gone}}, []backends.Request{{Ctx: gone}, {}}
	stopped := make(chan struct{}, 100)
	w := bind.Watch{Stop: func() { stopped <- struct{}{} }}
	for _, reqs := range [][]backends.Request{both, one, nil} {
		ctx := t.Context()
		if len(reqs) == 0 {
			ctx = gone
		}
		w.Begin(ctx, &backends.Batch{Requests: reqs})
		if reqs == nil || reqs[1].Ctx != nil {
			<-stopped
			if !w.End() {
				t.Errorf("%d requests: the run was stopped, and is not reported", len(reqs))
			}
		} else if w.End() {
			t.Error("a run whose client stays was stopped")
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
