package native_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/backendtest"
	"github.com/tutti-server/tutti/backends/native"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
	"github.com/tutti-server/tutti/steps"
)

// shift adds a number to every element; a negative element fails its request.
type shift struct{ by int32 }

func (s shift) Run(_ context.Context, b *backends.Batch) error {
	out, err := b.Alloc(0, tensor.Int32, b.In[0].Shape)
	if err != nil {
		return err
	}
	to := tensor.Slice[int32](out)
	for i, x := range tensor.Slice[int32](&b.In[0]) {
		if to[i] = x + s.by; x < 0 {
			b.Fail(0, status.Errorf(status.InvalidArg, "element %d is negative", i))
		}
	}
	return nil
}

// factories returns the step "shift" in two variants, and some that cannot be created.
func factories() []steps.Factory {
	port := func(name string) []config.Port {
		return []config.Port{{Name: name, DType: tensor.Int32, Dims: tensor.Of(-1)}}
	}
	signature := func(*steps.Settings) (*config.Signature, error) {
		return &config.Signature{Inputs: port("X"), Outputs: port("Y")}, nil
	}
	build := func(s *steps.Settings) (steps.Step, error) {
		by, err := s.Int("by", 0)
		return shift{int32(by)}, err
	}
	params := []steps.Param{{Key: "by", Doc: "what is added", Default: "1"}}
	return []steps.Factory{
		{Name: "shift", Params: params, Inline: true, Signature: signature, New: build},
		{Name: "slow_shift", Params: params, Signature: signature, New: build},
		{Name: "no_signature", Signature: func(*steps.Settings) (*config.Signature, error) { return nil, errors.New("no signature") }},
	}
}

func newFactory(t *testing.T) backends.Factory {
	t.Helper()
	r, err := steps.NewRegistry(factories()...)
	if err != nil {
		t.Fatal(err)
	}
	return native.NewFactory(r)
}

// settings returns version 3 of model m with a max_batch_size of 8. params alternates keys and values.
func settings(t *testing.T, params ...string) backends.Settings {
	t.Helper()
	cfg := &modelconfig.ModelConfig{Name: "m", MaxBatchSize: 8, Parameters: map[string]*modelconfig.ModelParameter{}}
	for i := 0; i < len(params); i += 2 {
		cfg.Parameters[params[i]] = &modelconfig.ModelParameter{StringValue: params[i+1]}
	}
	return backends.Settings{Model: "m", Version: 3, Config: cfg, Log: slog.New(slog.DiscardHandler)}
}

func load(t *testing.T, s backends.Settings) (backends.Model, error) {
	t.Helper()
	b, err := newFactory(t).New(backends.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b.Load(t.Context(), s)
}

func TestLoad(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		params []string
		inline bool
		err    string
	}{
		{"default", []string{"step", "shift"}, true, ""},
		{"parameter", []string{"step", "slow_shift", "by", "7"}, false, ""},
		{"padding is the scheduler's", []string{"step", "shift", "pad.X", "0", "unpad.Y", "X"}, true, ""},
		{"no step", nil, false, "model 'm' of backend 'native' must name its step by parameter 'step', one of: no_signature, shift, slow_shift"},
		{"empty step", []string{"step", ""}, false, "must name its step by parameter 'step'"},
		{"unknown step", []string{"step", "Shift"}, false, "model 'm' names unknown step 'Shift', expected one of: no_signature, shift, slow_shift"},
		{"unknown parameter", []string{"step", "shift", "bye", "7"}, false, "model 'm': unknown parameter 'bye' of step 'shift', expected one of: by"},
		{"wrong value", []string{"step", "shift", "by", "x"}, false, "parameter 'by' of model 'm' is 'x', expected an integer of at least 0"},
		{"signature", []string{"step", "no_signature"}, false, "no signature"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m, err := load(t, settings(t, tt.params...))
			if tt.err != "" {
				if err == nil || m != nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("error %v, want %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			port := func(name string) []config.Port {
				return []config.Port{{Name: name, DType: tensor.Int32, Dims: tensor.Of(-1)}}
			}
			want := &config.Signature{Model: "m", Version: 3, MaxBatch: 8, Inputs: port("X"), Outputs: port("Y")}
			if diff := cmp.Diff(want, m.Signature()); diff != "" {
				t.Errorf("signature (-want +got):\n%s", diff)
			}
			if c, ok := m.(backends.ConcurrentModel); !ok || c.Inline() != tt.inline {
				t.Errorf("concurrent: %v, inline: want %v", ok, tt.inline)
			}
		})
	}
}

func TestPlaces(t *testing.T) {
	t.Parallel()
	m, err := load(t, settings(t, "step", "shift"))
	if err != nil {
		t.Fatal(err)
	}
	for place, want := range map[tensor.Place]string{
		{}: "", {Kind: tensor.Pinned}: "",
		{Kind: tensor.Device, ID: 1}: "model 'm' of backend 'native' runs on the CPU only, not on device:1, because this machine has no device with kernels: expected KIND_CPU or KIND_AUTO",
	} {
		got := ""
		if _, err := m.NewInstance(t.Context(), place); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: error %q, want %q", place, got, want)
		}
	}
}

// TestContract runs the contract suite for backends.
func TestContract(t *testing.T) {
	t.Parallel()
	i32 := func(rows int64, v ...int32) []backendtest.Value {
		return []backendtest.Value{backendtest.Of(tensor.Int32, []int64{rows, int64(len(v)) / rows}, v...)}
	}
	backendtest.Run(t, newFactory(t), backends.Options{},
		backendtest.Fixture{
			Name: "inline", Settings: settings(t, "step", "shift"), Rows: 2, In: i32(2, 1, 2, 3, 4), Want: i32(2, 2, 3, 4, 5),
			Bad: []backendtest.Bad{{Name: "negative", In: i32(2, 1, -2), Code: status.InvalidArg}},
		},
		backendtest.Fixture{
			Name: "parameter", Settings: settings(t, "step", "slow_shift", "by", "40"), Rows: 1, In: i32(1, 2), Want: i32(1, 42),
		},
	)
}
