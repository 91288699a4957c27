package sim

import (
	"context"
	"errors"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/simdev"
)

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
