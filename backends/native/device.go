package native

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/compute"
	"github.com/tutti-server/tutti/steps"
)

// atDevices is a model whose step also runs at devices. Its instance on the host is the model itself.
type atDevices struct {
	*model
	step   steps.DeviceStep
	all    *tensor.Places
	places []tensor.Place // the host, then the devices with kernels
}

var (
	_ backends.DeviceModel     = (*atDevices)(nil)
	_ backends.ConcurrentModel = (*atDevices)(nil)
	_ backends.HostModel       = (*model)(nil)
)

// placed returns the model with the devices where its step can run; the model itself, with the reason, where there is none.
func (m *model) placed(all *tensor.Places) backends.Model {
	if all == nil {
		return m
	}
	places := []tensor.Place{{}}
	for _, at := range all.Devices() {
		if compute.Can(all.Device(at)) {
			places = append(places, at)
		}
	}
	on, ok := m.step.(steps.DeviceStep)
	switch {
	case len(places) == 1:
		return m
	case !ok:
		m.hostOnly = fmt.Sprintf("step '%s' has no kernel", m.name)
		return m
	}
	if m.hostOnly = on.HostOnly(); m.hostOnly != "" {
		return m
	}
	return &atDevices{m, on, all, places}
}

// WhyHost returns why the step does not run at the devices of the machine, "" where there are none.
func (m *model) WhyHost() string { return m.hostOnly }

// Places returns the host and the devices.
func (m *atDevices) Places() []tensor.Place { return m.places }

// NewInstance returns the model for the host. At a device it returns an instance with a stream of its own, which starts the device with its
// first batch.
func (m *atDevices) NewInstance(ctx context.Context, at tensor.Place) (backends.Instance, error) {
	if at.Kind != tensor.Device {
		return m.model.NewInstance(ctx, at)
	}
	if !slices.Contains(m.places, at) {
		return nil, status.Errorf(status.Unsupported, "model '%s' of backend '%s' runs at %v only, not on %s", m.sig.Model, Name, m.places, at)
	}
	device := m.all.Device(at)
	if device == nil {
		return nil, status.Reasonf(status.RuntimeMissing, "model '%s': there is no device at %s", m.sig.Model, at)
	}
	stream, err := device.NewStream(fmt.Sprintf("model '%s'", m.sig.Model))
	if err != nil {
		return nil, err
	}
	run, err := m.step.AtDevice(&steps.Device{
		Stream: stream, Pinned: m.all.At(tensor.Place{Kind: tensor.Pinned}), Load: func() (compute.Kernels, error) { return compute.Of(device) },
	})
	if err != nil {
		return nil, errors.Join(err, stream.Close())
	}
	return &deviceInstance{run: run, stream: stream}, nil
}

// deviceInstance is a step at a device.
type deviceInstance struct {
	run    steps.DeviceRunner
	stream tensor.Stream
	closed bool
}

var _ backends.DeviceInstance = (*deviceInstance)(nil)

// Stream returns the stream of the step's work.
func (i *deviceInstance) Stream() tensor.Stream { return i.stream }

// Execute puts the step's work into the stream.
//
// hot: one call.
func (i *deviceInstance) Execute(ctx context.Context, b *backends.Batch) error {
	return i.run.Run(ctx, b)
}

// Close releases what the step holds at the device, and ends the stream.
func (i *deviceInstance) Close() error {
	if i.closed {
		return nil
	}
	i.closed = true
	return errors.Join(i.run.Close(), i.stream.Close())
}
