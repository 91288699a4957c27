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
	"github.com/tutti-server/tutti/core/infer"
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
	var list []tensor.Place
	for _, d := range m.devices {
		list = append(list, d.Place())
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

// instance runs a host instance at a device.
type instance struct {
	inner  backends.Instance
	stream *simdev.Stream
	name   string
	host   tensor.Allocator
}

// Wrap returns an instance that runs inner at a device. It takes over inner. name is used in errors; host allocates the memory of the
// simulated kernels.
func Wrap(inner backends.Instance, d *simdev.Device, name string, host tensor.Allocator) (backends.DeviceInstance, error) {
	s, err := d.Open(name)
	if err != nil {
		return nil, err
	}
	return &instance{inner: inner, stream: s, name: name, host: host}, nil
}

// Stream implements backends.DeviceInstance.
func (i *instance) Stream() tensor.Stream { return i.stream }

// Execute runs the model once the stream reaches it, and enqueues the upload of the outputs on the stream without waiting.
func (i *instance) Execute(ctx context.Context, b *backends.Batch) error {
	in := make([]tensor.Tensor, len(b.In))
	defer tensor.ReleaseAll(in)
	if err := i.fetch(in, b.In); err != nil {
		return err
	}
	host := backends.Batch{Requests: b.Requests, Rows: b.Rows, In: in, Out: make([]tensor.Tensor, len(b.Out)), Allocator: i.host}
	if b.Responses != nil {
		host.Responses = &responses{to: b.Responses, from: i}
	}
	defer tensor.ReleaseAll(host.Out)
	if err := i.inner.Execute(ctx, &host); err != nil {
		return err
	}
	out, err := i.store(host.Out)
	if err != nil {
		return err
	}
	for port := range out {
		if out[port].Present() {
			b.SetOutput(port, out[port])
		}
	}
	return nil
}

// fetch copies the inputs to the host and waits for the copies.
func (i *instance) fetch(to, from []tensor.Tensor) error {
	var reads []*tensor.Buffer
	for port := range from {
		t := from[port]
		switch {
		case !t.Present():
			continue
		case t.Buf.Place() != i.stream.Place():
			to[port] = t.Retain() // BYTES
			continue
		}
		b, err := i.host.Alloc(t.Len)
		if err != nil {
			return err
		}
		reads = append(reads, t.Buf)
		to[port] = tensor.Tensor{DType: t.DType, Shape: t.Shape, Buf: b, Len: t.Len}
	}
	if reads == nil {
		return nil
	}
	err := i.stream.Launch(i.name, reads, nil, func(m simdev.Memory) error {
		for port := range from {
			if t := from[port]; t.Present() && t.Buf.Place() == i.stream.Place() {
				copy(to[port].Bytes(), m.Bytes(t.Buf)[t.Off:t.Off+t.Len])
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return i.stream.Record().Wait()
}

// store moves the outputs to the device. BYTES stay on the host.
func (i *instance) store(from []tensor.Tensor) ([]tensor.Tensor, error) {
	to := make([]tensor.Tensor, len(from))
	for port := range from {
		t := &from[port]
		switch {
		case !t.Present():
		case t.DType == tensor.Bytes:
			to[port] = t.Move()
		default:
			b, err := i.upload(t)
			if err != nil {
				tensor.ReleaseAll(to)
				return nil, err
			}
			to[port] = tensor.Tensor{DType: t.DType, Shape: t.Shape, Buf: b, Len: t.Len}
		}
	}
	return to, nil
}

// upload represents the end of a kernel: it writes one output to device memory.
func (i *instance) upload(t *tensor.Tensor) (*tensor.Buffer, error) {
	b, err := i.stream.Alloc(t.Len)
	if err != nil {
		return nil, err
	}
	held := t.Retain()
	err = i.stream.Launch(i.name, nil, []*tensor.Buffer{b}, func(m simdev.Memory) error {
		copy(m.Bytes(b), held.Bytes())
		held.Release()
		return nil
	})
	b.UsedUntil(i.stream.Record())
	if err != nil {
		held.Release()
		b.Release()
		return nil, err
	}
	return b, nil
}

// Close closes the model's instance and the stream.
func (i *instance) Close() error { return errors.Join(i.inner.Close(), i.stream.Close()) }

// responses moves the responses of a decoupled model to the device.
type responses struct {
	to   backends.Responses
	from *instance
}

// Respond implements backends.Responses.
func (a *responses) Respond(req int, out []tensor.Tensor, params infer.Params, final bool) error {
	defer tensor.ReleaseAll(out)
	stored, err := a.from.store(out)
	if err != nil {
		return err
	}
	return a.to.Respond(req, stored, params, final)
}

// RespondError implements backends.ErrorResponder.
func (a *responses) RespondError(req int, err error, final bool) {
	if to, ok := a.to.(backends.ErrorResponder); ok {
		to.RespondError(req, err, final)
	}
}

// Detach does nothing: the stream serves one batch at a time.
func (*responses) Detach() {}
