// Package sim has the backend sim, which runs models of other backends at simulated devices (package simdev). It serves tests and
// experiments with the movement of tensors between devices; it makes nothing faster.
//
// --backend-config=sim,devices=N enables it with N devices. Other keys are latency_us and bandwidth_mb (the cost of a copy, which is
// only counted unless real=true), and memory_mb. A parameter of the model names the backend that executes it:
//
//	backend: "sim"
//	parameters { key: "sim.backend" value { string_value: "identity" } }
//
// Inputs are moved to the instance's device and outputs stay there, except BYTES. The model itself runs on the host, on copies that the
// simulated device does not count: they represent its kernels. Copies to the host use a pool that represents pinned memory.
package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tutti-server/tutti/backends"
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
)

// NewFactory returns the backend sim over the given backends.
func NewFactory(inner ...backends.Factory) backends.Factory {
	return backends.Factory{
		Name:       Name,
		Guide:      backends.Guide{Doc: "Runs the model of another backend, which the parameter `sim.backend` names, at simulated devices, to see how tensors travel."},
		ConfigKeys: []string{"bandwidth_mb", "devices", "latency_us", "memory_mb", "real"},
		New:        func(o backends.Options) (backends.Backend, error) { return newBackend(inner, o) },
		Devices: func(values map[string]string) (list []tensor.Place) {
			n, _, err := parse(values)
			for i := 0; err == nil && i < n; i++ { // opening the backend reports the error
				list = append(list, simdev.Place(i))
			}
			return list
		},
	}
}

// backend has the devices, and the opened backends of its models.
type backend struct {
	options backends.Options
	inner   []backends.Factory
	machine *simdev.Machine // nil: off

	mu     sync.Mutex
	opened map[string]backends.Backend // guarded by mu
}

func newBackend(inner []backends.Factory, o backends.Options) (backends.Backend, error) {
	b := &backend{options: o, inner: inner, opened: map[string]backends.Backend{}}
	n, device, err := parse(o.Config)
	if err != nil || n == 0 {
		return b, err
	}
	if o.Places == nil {
		return nil, status.Errorf(status.Unsupported, "backend '%s' needs a server that knows devices", Name)
	}
	if b.machine, err = simdev.New(n, device); err != nil {
		return nil, err
	}
	for _, d := range b.machine.Devices() {
		if err := o.Places.Add(d); err != nil {
			return nil, errors.Join(err, b.Close())
		}
	}
	o.Places.SetPinned(tensor.NewPinnedPool())
	return b, nil
}

// parse parses the values of --backend-config. 0 devices disable the backend.
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
	if text, given := values["real"]; given && err == nil {
		if o.Real, err = strconv.ParseBool(text); err != nil {
			err = status.Errorf(status.InvalidArg, "backend '%s': 'real' is '%s', expected true or false", Name, text)
		}
	}
	return n, o, err
}

// Load loads a model of the backend that the parameter sim.backend names.
func (b *backend) Load(ctx context.Context, s backends.Settings) (backends.Model, error) {
	if b.machine == nil {
		return nil, status.Errorf(status.Unsupported,
			"model '%s': backend '%s' is off, expected --backend-config=%s,devices=N with the number of simulated devices", s.Model, Name, Name)
	}
	name := s.Param(backendParam)
	of, err := b.open(s.Model, name)
	if err != nil {
		return nil, err
	}
	s.Config = proto.CloneOf(s.Config)
	for _, g := range s.Config.GetInstanceGroup() { // the executing backend's instances are on the host
		if g.GetKind() == modelconfig.ModelInstanceGroup_KIND_GPU {
			g.Kind, g.Gpus = modelconfig.ModelInstanceGroup_KIND_CPU, nil
		}
	}
	s.Config.Backend = name
	delete(s.Config.GetParameters(), backendParam)
	m, err := of.Load(ctx, s)
	if err != nil {
		return nil, err
	}
	return &model{Model: m, devices: b.machine.Devices(), name: s.Model, host: s.Alloc}, nil
}

// open returns the backend with the given name and opens it on first use.
func (b *backend) open(model, name string) (backends.Backend, error) {
	names := make([]string, len(b.inner))
	for i := range names {
		names[i] = b.inner[i].Name
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

// Close closes the backends and the devices.
func (b *backend) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var errs []error
	for name, of := range b.opened {
		errs = append(errs, of.Close())
		delete(b.opened, name)
	}
	if b.machine != nil {
		for _, d := range b.machine.Devices() {
			if b.options.Places.Device(d.Place()) == tensor.Accelerator(d) {
				b.options.Places.Remove(d.Place())
			}
		}
		b.options.Places.SetPinned(nil)
		errs = append(errs, b.machine.Close())
	}
	return errors.Join(errs...)
}

// model is a model of another backend at the devices.
type model struct {
	backends.Model
	devices []*simdev.Device
	name    string
	host    tensor.Allocator
}

// Places returns the simulated devices.
func (m *model) Places() []tensor.Place {
	list := make([]tensor.Place, len(m.devices))
	for i, d := range m.devices {
		list[i] = d.Place()
	}
	return list
}

// NewInstance returns an instance at one of the devices, with its own stream.
func (m *model) NewInstance(ctx context.Context, at tensor.Place) (backends.Instance, error) {
	i := slices.Index(m.Places(), at)
	if i < 0 {
		return nil, status.Errorf(status.Unsupported, "model '%s' of backend '%s' runs at %v only, not on %s", m.name, Name, m.Places(), at)
	}
	inst, err := m.Model.NewInstance(ctx, tensor.Place{})
	if err != nil {
		return nil, err
	}
	placed, err := Wrap(inst, m.devices[i], fmt.Sprintf("model '%s'", m.name), m.host)
	if err != nil {
		return nil, errors.Join(err, inst.Close())
	}
	return placed, nil
}
