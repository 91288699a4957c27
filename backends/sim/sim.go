// Package sim has the backend sim, which runs models of other backends "at" devices. It serves tests and experiments with the movement
// of tensors between devices; it makes nothing faster.
//
// The devices are the GPUs of the server, or with --backend-config=sim,devices=N simulated ones (package simdev). Other keys for
// those are latency_us and bandwidth_mb (the cost of a copy, which is only counted unless real=true), and memory_mb. A parameter of
// the model names the backend that executes it:
//
//	backend: "sim"
//	parameters { key: "sim.backend" value { string_value: "identity" } }
//
// With the parameter sim.weights each instance holds that many bytes of its device, as weights would.
//
// Inputs are moved to the instance's device and outputs stay there, except BYTES. The model itself runs on the host, on copies that
// represent its kernels: they are in no ledger of the server. Traffic counts them, because a GPU's driver counts them too. Copies to
// the host use a pool that represents pinned memory at simulated devices.
//
// # All models of a repository
//
// --backend-config=sim,all=true runs every model of the other backends so, without a change to its files and whatever its
// instance groups say; groups with gpus keep those. It is for tests: a repository whose models run on the CPU then has all its steps at
// devices. except=NAME+NAME leaves out backends, for example those with instances at GPUs of their own. Without any device it has no effect.
package sim

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/simdev"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

const (
	// Name is the value of the field backend in config.pbtxt.
	Name = "sim"
	// backendParam is the parameter that names the executing backend.
	backendParam = "sim.backend"
	// weightsParam is the parameter with the bytes of device memory that each instance holds, to represent weights.
	weightsParam = "sim.weights"
)

// NewFactory returns the backend sim over the given backends.
func NewFactory(inner ...backends.Factory) backends.Factory {
	return NewCountingFactory(&Traffic{}, inner...)
}

// NewCountingFactory is NewFactory with a count of the copies that represent kernels.
func NewCountingFactory(t *Traffic, inner ...backends.Factory) backends.Factory {
	m := &machines{traffic: t}
	return backends.Factory{
		Name: Name,
		Guide: backends.Guide{Doc: "Runs the model of another backend, which the parameter `sim.backend` names, at devices, to see how tensors travel. " +
			"With the parameter `sim.weights` each instance holds that many bytes of its device."},
		ConfigKeys: []string{"all", "bandwidth_mb", "devices", "except", "latency_us", "memory_mb", "real"},
		New: func(o backends.Options) (backends.Backend, error) {
			b := &backend{options: o, inner: inner, machines: m, opened: map[string]backends.Backend{}}
			return b, m.open(o.Places, o.Config)
		},
		Devices: func(values map[string]string) (list []tensor.Place) {
			n, _, err := parse(values)
			for i := 0; err == nil && i < n; i++ { // opening the backend reports the error
				list = append(list, simdev.Place(i))
			}
			return list
		},
		Around: m.around,
	}
}

// machines opens the simulated devices at the first use, and closes them after the last.
type machines struct {
	traffic *Traffic

	mu      sync.Mutex
	users   int             // guarded by mu
	machine *simdev.Machine // nil: none, or off; guarded by mu
}

// open adds the simulated devices to places, if there are any. The caller must call close, unless open fails.
func (m *machines) open(places *tensor.Places, values map[string]string) error {
	n, device, err := parse(values)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if n > 0 && m.machine == nil {
		if places == nil {
			return status.Errorf(status.Unsupported, "backend '%s' needs a server that knows devices", Name)
		}
		machine, err := simdev.New(n, device)
		if err != nil {
			return err
		}
		for _, d := range machine.Devices() {
			if err := places.Add(d); err != nil {
				removeFrom(places, machine)
				return errors.Join(err, machine.Close())
			}
		}
		places.SetPinned(tensor.NewPinnedPool())
		m.machine = machine
	}
	m.users++
	return nil
}

func (m *machines) close(places *tensor.Places) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.users--; m.users > 0 || m.machine == nil {
		return nil
	}
	removeFrom(places, m.machine)
	places.SetPinned(nil)
	machine := m.machine
	m.machine = nil
	return machine.Close()
}

func removeFrom(places *tensor.Places, machine *simdev.Machine) {
	for _, d := range machine.Devices() {
		if places.Device(d.Place()) == tensor.Accelerator(d) {
			places.Remove(d.Place())
		}
	}
}

// backend has the opened backends of its models.
type backend struct {
	options  backends.Options
	inner    []backends.Factory
	machines *machines

	mu     sync.Mutex
	opened map[string]backends.Backend // guarded by mu
	closed bool                        // guarded by mu
}

// parse parses the values of --backend-config. 0 devices: there are only those of the server.
func parse(values map[string]string) (n int, o simdev.Options, err error) {
	number := func(key string, most int64) int64 {
		text, given := values[key]
		if !given || err != nil {
			return 0
		}
		v, bad := strconv.ParseInt(text, 10, 64)
		if bad != nil || v < 0 || v > most {
			err = status.Errorf(status.InvalidArg, "backend '%s': '%s' is '%s', expected a number from 0 to %d", Name, key, text, most)
		}
		return v
	}
	n = int(number("devices", 64))
	o.Latency = time.Duration(number("latency_us", 1e9)) * time.Microsecond
	o.Bandwidth = number("bandwidth_mb", 1<<30) << 20
	o.Memory = int(number("memory_mb", 1<<16)) << 20
	if err == nil {
		o.Real, err = truth(values, "real")
	}
	return n, o, err
}

func truth(values map[string]string, key string) (bool, error) {
	text, given := values[key]
	if !given {
		return false, nil
	}
	v, err := strconv.ParseBool(text)
	if err != nil {
		err = status.Errorf(status.InvalidArg, "backend '%s': '%s' is '%s', expected true or false", Name, key, text)
	}
	return v, err
}

// Load loads a model of the backend that the parameter sim.backend names.
func (b *backend) Load(ctx context.Context, s backends.Settings) (backends.Model, error) {
	if b.options.Places == nil || !b.options.Places.Any() {
		return nil, status.Errorf(status.Unsupported,
			"model '%s': backend '%s' is off, expected a GPU, or --backend-config=%s,devices=N with the number of simulated devices", s.Model, Name, Name)
	}
	name := s.Param(backendParam)
	of, err := b.open(s.Model, name)
	if err != nil {
		return nil, err
	}
	whole := s.Config
	s.EditConfigs(func(cfg *modelconfig.ModelConfig) {
		placeOnHost(cfg)
		cfg.Backend = name
		delete(cfg.GetParameters(), backendParam)
	})
	if _, err := weightsOf(s.Config); err != nil {
		return nil, err
	}
	m, err := of.Load(ctx, s)
	if err != nil {
		return nil, err
	}
	at := newModel(m, devicesOf(b.options.Places), s, b.machines.traffic)
	if at.completed != nil { // for the executing backend
		at.completed.Backend, at.completed.Parameters = whole.GetBackend(), whole.GetParameters()
	}
	return at, nil
}

// weightsOf returns the value of weightsParam, 0 if there is none.
func weightsOf(cfg *modelconfig.ModelConfig) (int, error) {
	text := cfg.GetParameters()[weightsParam].GetStringValue()
	if text == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, status.Errorf(status.InvalidArg, "model '%s': parameter '%s' is '%s', expected a number of bytes", cfg.GetName(), weightsParam, text)
	}
	return n, nil
}

// placeOnHost moves the instances of a configuration to the host: a backend that supports devices would look for them.
func placeOnHost(cfg *modelconfig.ModelConfig) {
	for _, g := range cfg.GetInstanceGroup() {
		if g.GetKind() == modelconfig.ModelInstanceGroup_KIND_GPU {
			g.Kind, g.Gpus = modelconfig.ModelInstanceGroup_KIND_CPU, nil
		}
	}
}

func devicesOf(places *tensor.Places) (list []tensor.Accelerator) {
	for _, at := range places.Devices() {
		list = append(list, places.Device(at))
	}
	return list
}

// open returns the backend with the given name and opens it on first use.
func (b *backend) open(model, name string) (backends.Backend, error) {
	var names []string
	for i := range b.inner {
		names = append(names, b.inner[i].Name)
	}
	i := slices.Index(names, name)
	if i < 0 {
		return nil, status.Errorf(status.InvalidArg, "model '%s': parameter '%s' is '%s', expected a backend: %s", model, backendParam, name, names)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if of := b.opened[name]; of != nil {
		return of, nil
	}
	o := b.options
	o.Config = o.Others[name]
	of, err := b.inner[i].New(o)
	if err == nil {
		b.opened[name] = of
	}
	return of, err
}

// Close closes the backends and the simulated devices.
func (b *backend) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil
	}
	b.closed = true
	var errs []error
	for name, of := range b.opened {
		errs = append(errs, of.Close())
		delete(b.opened, name)
	}
	return errors.Join(append(errs, b.machines.close(b.options.Places))...)
}

// around returns the factory of another backend whose models run at devices, if the values say so. See the package comment.
func (m *machines) around(values map[string]string, of backends.Factory) backends.Factory {
	if all, err := truth(values, "all"); err == nil && !all || slices.Contains(strings.Split(values["except"], "+"), of.Name) {
		return of
	}
	open := of.New
	if of.Params != nil {
		of.Params = append(slices.Clone(of.Params), weightsParam)
	}
	of.Auto = func(map[string]string) config.Auto { return config.AutoGPU }
	of.New = func(o backends.Options) (backends.Backend, error) {
		if _, err := truth(values, "all"); err != nil {
			return nil, err
		}
		if err := m.open(o.Places, values); err != nil {
			return nil, err
		}
		inner, err := open(o)
		if err != nil {
			return nil, errors.Join(err, m.close(o.Places))
		}
		return &wrapped{Backend: inner, machines: m, places: o.Places}, nil
	}
	return of
}

// wrapped is a backend whose models run at devices.
type wrapped struct {
	backends.Backend
	machines *machines
	places   *tensor.Places
	once     sync.Once
}

// Load loads a model at the devices, or on the host when there are none.
func (w *wrapped) Load(ctx context.Context, s backends.Settings) (backends.Model, error) {
	if w.places == nil || !w.places.Any() {
		return w.Backend.Load(ctx, s)
	}
	if _, err := weightsOf(s.Config); err != nil {
		return nil, err
	}
	s.EditConfigs(placeOnHost)
	m, err := w.Backend.Load(ctx, s)
	if err != nil {
		return nil, err
	}
	return At(m, devicesOf(w.places), s, w.machines.traffic), nil
}

// Describe returns what the backend says of its runtime.
func (w *wrapped) Describe() string {
	if d, ok := w.Backend.(backends.Describer); ok {
		return d.Describe()
	}
	return ""
}

// Check returns the dependency that the backend misses.
func (w *wrapped) Check() error {
	if c, ok := w.Backend.(backends.Checker); ok {
		return c.Check()
	}
	return nil
}

// Close closes the backend, and the simulated devices after the last one.
func (w *wrapped) Close() (err error) {
	err = w.Backend.Close()
	w.once.Do(func() { err = errors.Join(err, w.machines.close(w.places)) })
	return err
}
