package servertest

import (
	"context"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// lookupStream finds the models for generate requests and streams.
func lookupStream(name string) (model, bool) {
	switch name {
	case "repeat", "endless":
		return model{0, []port{{"IN", tensor.Int32, []int64{-1}}}}, true
	case "prompt":
		return model{0, []port{
			{"TEXT", tensor.Bytes, []int64{1}},
			{"TEXTS", tensor.Bytes, []int64{-1, 1}},
			{"FLAG", tensor.Bool, []int64{-1}},
			{"I8", tensor.Int8, []int64{-1}},
			{"I64", tensor.Int64, []int64{-1}},
			{"U8", tensor.Uint8, []int64{-1}},
			{"U64", tensor.Uint64, []int64{-1}},
			{"F16", tensor.FP16, []int64{-1}},
			{"F32", tensor.FP32, []int64{2, -1}},
			{"F64", tensor.FP64, []int64{-1, -1}},
			{"ONE", tensor.Int32, nil},
			{"NONE", tensor.Int32, []int64{0, -1}},
		}}, true
	}
	return model{}, false
}

func decoupled(name string) bool { return name == "repeat" || name == "endless" }

func (e *Echo) submitFlow(ctx context.Context, req *infer.Request, sink infer.Sink) {
	if req.Async {
		go e.flow(ctx, req, sink)
		return
	}
	e.flow(ctx, req, sink)
}

func (e *Echo) flow(ctx context.Context, req *infer.Request, sink infer.Sink) {
	meta := req.Meta
	meta.Params = append(infer.Params(nil), req.Params...)
	e.Last.Store(&meta)
	err := e.ModelReady(req.Model, req.Version)
	if err == nil {
		err = e.emit(ctx, req, sink)
	}
	req.Release() // before the end is visible to a test that checks for leaks
	if ctx.Err() != nil {
		select {
		case e.Cancelled <- struct{}{}:
		default:
		}
	}
	sink.Close(err)
}

func (e *Echo) emit(ctx context.Context, req *infer.Request, sink infer.Sink) error {
	in := req.Input("IN")
	if in == nil {
		return status.Errorf(status.InvalidArg, "%sexpected 1 inputs but got %d inputs for model '%s'",
			infer.IDPrefix(req.ID), len(req.Inputs), req.Model)
	}
	list := tensor.Slice[int32](in)
	for i := 0; req.Model == "endless" || i < len(list); i++ {
		value := int32(i)
		if i < len(list) {
			value = list[i]
		}
		if value < 0 {
			return status.Errorf(status.Internal, "element %d is negative", i)
		}
		if p, ok := sink.(infer.Pacer); ok {
			if err := p.Pace(ctx); err != nil {
				return status.ErrCancelled
			}
		}
		if ctx.Err() != nil {
			return status.ErrCancelled
		}
		resp, err := newScalar(req, value)
		if err != nil {
			return err
		}
		e.Sent.Add(1)
		sink.Send(resp)
	}
	return nil
}

// newScalar returns a response with one element, in memory from an allocator as that of inputs.
func newScalar(req *infer.Request, value int32) (*infer.Response, error) {
	t, err := tensor.New(heap, tensor.Int32, tensor.Of(1))
	if err != nil {
		return nil, err
	}
	tensor.Slice[int32](&t)[0] = value
	resp := infer.NewResponse()
	resp.ID, resp.Model, resp.Version = req.ID, req.Model, 1
	resp.Params = append(resp.Params, req.Params...)
	resp.Outputs = append(resp.Outputs, infer.Named{Name: "OUT", Tensor: t})
	return resp, nil
}

// heap allocates the responses of decoupled models.
var heap = tensor.NewPool()
