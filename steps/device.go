package steps

import (
	"context"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/compute"
)

// DeviceStep is a Step that can also run at a device, so that the tensors of an ensemble stay there between models.
//
// Lifecycle, after that of Step:
//
//  1. HostOnly is called once. A step that returns a reason runs on the host, and AtDevice is not called.
//  2. AtDevice is called for each instance at a device. It must not use the device yet.
//  3. DeviceRunner.Run is called for each batch of the instance, by one goroutine at a time.
//  4. DeviceRunner.Close is called once no Run is under way.
//
// At a device a step gives the outputs that it gives on the host. Where sums are added in another order, the last place of a number
// may differ: the documentation of the step says so.
type DeviceStep interface {
	Step
	// HostOnly returns why the step cannot run at a device with its parameters, in words that follow "on the host because". It
	// returns "" if it can. For example, "labels are text".
	HostOnly() string
	// AtDevice returns the step for one instance at a device.
	AtDevice(d *Device) (DeviceRunner, error)
}

// Device is where an instance of a DeviceStep runs.
type Device struct {
	// Stream executes the instance's work. It is also the allocator of memory at the device.
	Stream tensor.Stream
	// Pinned allocates host memory for copies to the device.
	Pinned tensor.Allocator
	// Load returns the device's functions. It starts the device on the first call.
	Load func() (compute.Kernels, error)

	_ struct{}
}

// DeviceRunner is a DeviceStep at one device.
type DeviceRunner interface {
	// Run is Step.Run with inputs and outputs at the device; BYTES tensors are on the host. It puts the work into the stream and must not
	// wait for it. Batch.Stream is Device.Stream. Memory besides inputs and outputs must be released behind the work (Release).
	Run(ctx context.Context, b *backends.Batch) error
	// Close releases what the runner holds.
	Close() error
}

// DeviceFunc is a DeviceRunner that holds nothing.
type DeviceFunc func(b *backends.Batch, k compute.Kernels) error

// On returns f as the runner of an instance at d.
func (f DeviceFunc) On(d *Device) DeviceRunner { return &deviceFunc{f, d} }

type deviceFunc struct {
	run DeviceFunc
	d   *Device
}

// Run calls the function with the kernels of the device.
func (f *deviceFunc) Run(_ context.Context, b *backends.Batch) error {
	k, err := f.d.Load()
	if err != nil {
		return err
	}
	return f.run(b, k)
}

// Close does nothing.
func (*deviceFunc) Close() error { return nil }

// Release releases device memory behind the work that is in stream s now. Nil buffers are skipped.
func Release(s tensor.Stream, buffers ...*tensor.Buffer) {
	e := s.Record()
	for _, b := range buffers {
		if b != nil {
			b.UsedUntil(e)
			b.Release()
		}
	}
}
