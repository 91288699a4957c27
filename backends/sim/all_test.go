package sim_test

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/identity"
	"github.com/tutti-server/tutti/backends/sim"
	"github.com/tutti-server/tutti/backends/square"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/simdev"
)

// loadAround loads a model of the backend identity with these values of backend sim. It returns the places of its instances.
func loadAround(t *testing.T, values map[string]string, places *tensor.Places) ([]tensor.Place, error) {
	t.Helper()
	inner := []backends.Factory{identity.NewFactory(), square.NewFactory()}
	registry, err := backends.NewRegistry(append(inner, sim.NewFactory(inner...))...)
	if err != nil {
		t.Fatal(err)
	}
	f := registry.Configured(map[string]map[string]string{sim.Name: values}).ByName("identity")
	b, err := f.New(backends.Options{Log: slog.New(slog.DiscardHandler), Places: places})
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		for range 2 {
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	cfg, err := config.Parse("config.pbtxt", []byte(`backend: "identity" instance_group { kind: KIND_CPU }
max_batch_size: 8 input { name: "INPUT0" data_type: TYPE_FP32 dims: [ 1 ] } output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 1 ] }`))
	if err != nil {
		t.Fatal(err)
	}
	m, err := b.Load(t.Context(), backends.Settings{Model: "m", Version: 1, Config: cfg, Alloc: places.At(tensor.Place{}), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = m.Close() })
	if d, ok := m.(backends.DeviceModel); ok {
		return d.Places(), nil
	}
	return nil, nil
}

// TestAll checks which models --backend-config=sim,all=true moves to devices.
func TestAll(t *testing.T) {
	t.Parallel()
	machine, err := simdev.New(2, simdev.Options{Memory: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := machine.Close(); err != nil {
			t.Error(err)
		}
	})
	devices := []tensor.Place{simdev.Place(0), simdev.Place(1)}
	for _, tc := range []struct {
		name   string
		values map[string]string
		given  bool // the server has devices
		want   []tensor.Place
		error  string
	}{
		{name: "nothing said", values: map[string]string{}, given: true},
		{name: "all", values: map[string]string{"all": "true"}, given: true, want: devices},
		{name: "not all", values: map[string]string{"all": "false"}, given: true},
		{name: "except", values: map[string]string{"all": "true", "except": "python+identity"}, given: true},
		{name: "except another", values: map[string]string{"all": "true", "except": "square"}, given: true, want: devices},
		{name: "no device", values: map[string]string{"all": "true"}},
		{name: "simulated", values: map[string]string{"all": "true", "devices": "1"}, want: devices[:1]},
		{name: "two kinds", values: map[string]string{"all": "true", "devices": "1"}, given: true, error: "there is a device at device:0 already"},
		{name: "no truth", values: map[string]string{"all": "x"}, given: true, error: "'all' is 'x', expected true or false"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			places := tensor.NewPlaces(tensor.NewPool())
			for _, d := range machine.Devices() {
				if tc.given {
					if err := places.Add(d); err != nil {
						t.Fatal(err)
					}
				}
			}
			got, err := loadAround(t, tc.values, places)
			if tc.error != "" && (err == nil || !strings.Contains(err.Error(), tc.error)) || tc.error == "" && err != nil {
				t.Errorf("got error %v, want %q", err, tc.error)
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("at %v, want %v", got, tc.want)
			}
		})
	}
}
