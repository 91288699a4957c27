package servertest

import (
	"context"
	"sync/atomic"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// Streams serves the models of Echo and the following ones for streams, whose X is any tensor of fixed-size elements:
//
//   - held: as echo, after a token in Hold
//   - repeat: decoupled, one response for each element of X
//   - marked: as repeat; the last response is marked final
//   - broken: as repeat; fails at the end
//   - stumbling: reports a failure at once, then as repeat; ends after a token in Hold
//   - endless: decoupled, responds with X until it is cancelled, at the pace of its sink
//
// Async requests run on new goroutines.
type Streams struct {
	*Echo
	// Hold releases held and stumbling.
	Hold chan struct{}
	// Full gets the number of responses that endless has sent each time it has to wait.
	Full chan int64
	sent atomic.Int64
}

var (
	_ infer.Inferer = (*Streams)(nil)
	_ infer.Catalog = (*Streams)(nil)
)

// NewStreams returns a Streams.
func NewStreams() *Streams {
	return &Streams{Echo: NewEcho(), Hold: make(chan struct{}), Full: make(chan int64, 1)}
}

// Describe implements infer.Catalog.
func (s *Streams) Describe(name string, version int64) (*infer.Description, error) {
	switch name {
	case "held":
		return &infer.Description{Model: name, Version: 1}, nil
	case "repeat", "marked", "broken", "stumbling", "endless":
		return &infer.Description{Model: name, Version: 1, Decoupled: true}, nil
	}
	return s.Echo.Describe(name, version)
}

// Submit implements infer.Inferer.
func (s *Streams) Submit(ctx context.Context, req *infer.Request, sink infer.Sink) {
	if req.Async {
		go s.run(ctx, req, sink)
		return
	}
	s.run(ctx, req, sink)
}

func (s *Streams) run(ctx context.Context, req *infer.Request, sink infer.Sink) {
	switch req.Model {
	case "held":
		defer req.Release()
		select {
		case <-s.Hold:
			resp, err := echo(req)
			if err == nil {
				sink.Send(resp)
			}
			sink.Close(err)
		case <-ctx.Done():
			s.Cancelled <- struct{}{}
			sink.Close(status.ErrCancelled)
		}
	case "repeat", "marked", "broken":
		defer req.Release()
		repeat(req, sink)
		sink.Close(ending(req.Model))
	case "stumbling":
		defer req.Release()
		if f, ok := sink.(infer.Failer); ok {
			f.Fail(errStumbled, false)
		}
		repeat(req, sink)
		<-s.Hold
		sink.Close(errStumbled)
	case "endless":
		defer req.Release()
		sink.Close(s.endless(ctx, req, sink))
	default:
		s.Echo.Submit(ctx, req, sink)
	}
}

func repeat(req *infer.Request, sink infer.Sink) {
	x := &req.Inputs[0].Tensor
	size := x.DType.Size()
	n := x.Len / size
	for i := range n {
		resp := infer.NewResponse()
		resp.ID, resp.Model, resp.Version = req.ID, req.Model, 1
		resp.Final = req.Model == "marked" && i == n-1
		one := x.Retain()
		one.Shape, one.Off, one.Len = tensor.Of(1), x.Off+i*size, size
		resp.Outputs = append(resp.Outputs, infer.Named{Name: req.Inputs[0].Name, Tensor: one})
		sink.Send(resp)
	}
}

var errStumbled = status.Errorf(status.InvalidArg, "stumbled")

// ending returns the error with which a model like repeat ends.
func ending(model string) error {
	if model == "broken" {
		return status.Errorf(status.InvalidArg, "no more")
	}
	return nil
}

func (s *Streams) endless(ctx context.Context, req *infer.Request, sink infer.Sink) error {
	pacer, ok := sink.(infer.Pacer)
	if !ok {
		return status.Errorf(status.Internal, "%T has no pace", sink)
	}
	over, cancel := context.WithCancel(ctx)
	cancel()
	for {
		if pacer.Pace(over) != nil { // there is no room
			select {
			case s.Full <- s.sent.Load():
			case <-ctx.Done():
			}
			if err := pacer.Pace(ctx); err != nil {
				return err
			}
		}
		resp := infer.NewResponse()
		resp.ID, resp.Model, resp.Version = req.ID, req.Model, 1
		resp.Outputs = append(resp.Outputs, infer.Named{Name: req.Inputs[0].Name, Tensor: req.Inputs[0].Tensor.Retain()})
		s.sent.Add(1)
		sink.Send(resp)
	}
}
