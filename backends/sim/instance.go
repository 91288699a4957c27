package sim

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/simdev"
)

// Traffic counts the copies that represent kernels at devices which count them as copies: the inputs and outputs of models. Simulated
// devices do not. It is safe for concurrent use.
type Traffic struct{ Up, UpBytes, Down, DownBytes atomic.Int64 }

// instance runs a host instance at a device.
type instance struct {
	inner   backends.Instance
	name    string
	host    tensor.Allocator
	traffic *Traffic
	weights *tensor.Buffer // nil for none

	mu     sync.Mutex // held while work is put into the stream, which responses of an execution do too
	stream tensor.Stream
}

// Wrap returns an instance that runs inner at a device. It takes over inner. name is used in errors; host allocates the memory of the
// represented kernels, and t counts their copies.
func Wrap(inner backends.Instance, d tensor.Accelerator, name string, host tensor.Allocator, t *Traffic) (backends.DeviceInstance, error) {
	i, err := wrap(inner, d, name, host, t)
	if err != nil {
		return nil, err
	}
	return i, nil
}

func wrap(inner backends.Instance, d tensor.Accelerator, name string, host tensor.Allocator, t *Traffic) (*instance, error) {
	s, err := d.NewStream(name)
	if err != nil {
		return nil, err
	}
	return &instance{inner: inner, stream: s, name: name, host: host, traffic: t}, nil
}

// Stream implements backends.DeviceInstance.
func (i *instance) Stream() tensor.Stream { return i.stream }

// Unwrap returns the instance on the host.
func (i *instance) Unwrap() backends.Instance { return i.inner }

// Execute runs the model once the stream reaches it, and enqueues the upload of the outputs on the stream without waiting.
func (i *instance) Execute(ctx context.Context, b *backends.Batch) error {
	in := make([]tensor.Tensor, len(b.In))
	defer tensor.ReleaseAll(in)
	if err := i.fetch(in, b.In); err != nil {
		return err
	}
	host := backends.Batch{Requests: b.Requests, Rows: b.Rows, In: in, Out: make([]tensor.Tensor, len(b.Out)), Allocator: i.host, Copied: b.Copied}
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
	return i.storeRequests(b)
}

// storeRequests moves the outputs of single requests to the device.
func (i *instance) storeRequests(b *backends.Batch) error {
	for k := range b.Requests {
		q := &b.Requests[k]
		if q.Out == nil || q.Err != nil {
			continue
		}
		own := q.Out
		out, err := i.store(own)
		if err != nil {
			return err // the server releases those of the request
		}
		tensor.ReleaseAll(own)
		copy(own, out)
	}
	return nil
}

// fetch copies the inputs to the host and waits for the copies.
func (i *instance) fetch(to, from []tensor.Tensor) error {
	var reads []int
	for port := range from {
		t := &from[port]
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
		reads = append(reads, port)
		to[port] = tensor.Tensor{DType: t.DType, Shape: t.Shape, Buf: b, Len: t.Len}
	}
	if reads == nil {
		return nil
	}
	i.mu.Lock()
	err := i.download(to, from, reads)
	done := i.stream.Record()
	i.mu.Unlock()
	if failed := done.Wait(); err == nil { // also when only some were put into the stream: they write host memory
		err = failed
	}
	return err
}

// download represents the start of a kernel: it reads the inputs of the ports.
func (i *instance) download(to, from []tensor.Tensor, ports []int) error {
	if s, ok := i.stream.(*simdev.Stream); ok {
		var reads []*tensor.Buffer
		for _, p := range ports {
			reads = append(reads, from[p].Buf)
		}
		return s.Launch(i.name, reads, nil, func(m simdev.Memory) error {
			for _, p := range ports {
				t := &from[p]
				copy(to[p].Bytes(), m.Bytes(t.Buf)[t.Off:t.Off+t.Len])
			}
			return nil
		})
	}
	for _, p := range ports {
		t := &from[p]
		if t.Len == 0 {
			continue
		}
		if err := i.stream.Copy(to[p].Buf, 0, t.Buf, t.Off, t.Len); err != nil {
			return err
		}
		i.traffic.Down.Add(1)
		i.traffic.DownBytes.Add(int64(t.Len))
	}
	return nil
}

// store moves the outputs to the device. BYTES stay on the host, and inputs that are returned where they are.
func (i *instance) store(from []tensor.Tensor) ([]tensor.Tensor, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	to := make([]tensor.Tensor, len(from))
	for port := range from {
		t := &from[port]
		switch {
		case !t.Present():
		case t.DType == tensor.Bytes, t.Buf.Place() == i.stream.Place():
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
	if err = i.write(b, t); err != nil {
		b.Release()
		return nil, err
	}
	return b, nil
}

func (i *instance) write(b *tensor.Buffer, t *tensor.Tensor) error {
	s, ok := i.stream.(*simdev.Stream)
	if !ok {
		if t.Len == 0 {
			return nil
		}
		i.traffic.Up.Add(1)
		i.traffic.UpBytes.Add(int64(t.Len))
		return i.stream.Copy(b, 0, t.Buf, t.Off, t.Len)
	}
	held := t.Retain()
	err := s.Launch(i.name, nil, []*tensor.Buffer{b}, func(m simdev.Memory) error {
		copy(m.Bytes(b), held.Bytes())
		held.Release()
		return nil
	})
	b.UsedUntil(s.Record())
	if err != nil {
		held.Release()
	}
	return err
}

// Close closes the model's instance and the stream, and releases the memory that represents weights.
func (i *instance) Close() error {
	err := errors.Join(i.inner.Close(), i.stream.Close())
	if i.weights != nil {
		i.weights.Release()
		i.weights = nil
	}
	return err
}

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
