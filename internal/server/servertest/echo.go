// Package servertest has a small implementation of the interfaces behind the protocol servers, for their tests: models that
// return their inputs.
package servertest

import (
	"context"
	"strconv"
	"sync/atomic"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// Echo serves models whose outputs are their inputs of the same names: the requested ones in the order of the request, or all. It
// is safe for concurrent use. The model's name selects more behaviour:
//
//   - echo: any inputs; two: two inputs, X and Y
//   - ensemble: its responses are those of an ensemble
//   - params: its responses have the request's parameters
//   - fail: fails; silent: has no response; wait: waits until its request is cancelled
//   - short: its response is a tensor with fewer elements than its shape
//   - raw, raw_batch, raw_bytes, raw_strings, raw_wide: one input, for raw requests
//   - unready: known, but not ready
//   - prompt: one input of many types and shapes, all optional
//   - repeat: decoupled, one response for each element of its input IN; fails at the first negative one
//   - endless: decoupled, responds until its request is cancelled
type Echo struct {
	// NotReady makes the server as a whole not ready.
	NotReady atomic.Bool
	// Waiting gets a token when a request of the model wait begins, Cancelled one when it is cancelled.
	Waiting, Cancelled chan struct{}
	// Last is the meta data of the last request.
	Last atomic.Pointer[infer.Meta]
	// Sent counts the responses of decoupled models.
	Sent atomic.Int64
}

var (
	_ infer.Inferer = (*Echo)(nil)
	_ infer.Catalog = (*Echo)(nil)
)

// NewEcho returns an Echo.
func NewEcho() *Echo {
	return &Echo{Waiting: make(chan struct{}, 16), Cancelled: make(chan struct{}, 16)}
}

type port struct {
	name  string
	dtype tensor.DType
	dims  []int64
}

type model struct {
	batch int32
	ports []port
}

func lookup(name string) (model, bool) {
	switch name {
	case "echo", "ensemble", "params", "fail", "silent", "wait", "short", "unready":
		return model{0, []port{{"X", tensor.FP32, []int64{-1}}}}, true
	case "two":
		return model{0, []port{{"X", tensor.FP32, []int64{-1}}, {"Y", tensor.FP32, []int64{-1}}}}, true
	case "raw":
		return model{0, []port{{"X", tensor.FP32, []int64{2, -1}}}}, true
	case "raw_batch":
		return model{8, []port{{"X", tensor.Int32, []int64{-1}}}}, true
	case "raw_bytes":
		return model{0, []port{{"X", tensor.Bytes, []int64{1}}}}, true
	case "raw_strings":
		return model{0, []port{{"X", tensor.Bytes, []int64{-1}}}}, true
	case "raw_wide":
		return model{0, []port{{"X", tensor.FP32, []int64{-1, -1}}}}, true
	}
	return lookupStream(name)
}

// Submit responds on the calling goroutine. A decoupled model runs on a new goroutine if the request is Async.
func (e *Echo) Submit(ctx context.Context, req *infer.Request, sink infer.Sink) {
	if decoupled(req.Model) {
		e.submitFlow(ctx, req, sink)
		return
	}
	defer req.Release()
	resp, err := e.respond(ctx, req)
	if resp != nil {
		sink.Send(resp)
	}
	sink.Close(err)
}

func (e *Echo) respond(ctx context.Context, req *infer.Request) (*infer.Response, error) {
	if err := e.ModelReady(req.Model, req.Version); err != nil {
		return nil, err
	}
	meta := req.Meta
	meta.Params = append(infer.Params(nil), req.Params...)
	e.Last.Store(&meta)
	switch req.Model {
	case "fail":
		return nil, status.Errorf(status.Internal, "in ensemble 'fail', it went \"wrong\"")
	case "silent":
		return nil, nil
	case "wait":
		e.Waiting <- struct{}{}
		<-ctx.Done()
		e.Cancelled <- struct{}{}
		return nil, status.ErrCancelled
	}
	return echo(req)
}

func echo(req *infer.Request) (*infer.Response, error) {
	resp := infer.NewResponse()
	resp.ID, resp.Model, resp.Version, resp.Final = req.ID, req.Model, 1, true
	resp.Ensemble, resp.Sequence = req.Model == "ensemble", req.Sequence
	if req.Model == "params" {
		resp.Params = append(resp.Params, req.Params...)
	}
	for i := range req.Inputs {
		if len(req.Outputs) == 0 {
			resp.Outputs = append(resp.Outputs, infer.Named{Name: req.Inputs[i].Name, Tensor: req.Inputs[i].Tensor.Move()})
		}
	}
	for _, name := range req.Outputs {
		t := req.Input(name)
		if t == nil || !t.Present() {
			resp.Release()
			return nil, status.Errorf(status.InvalidArg, "unexpected inference output '%s' for model '%s'", name, req.Model)
		}
		resp.Outputs = append(resp.Outputs, infer.Named{Name: name, Tensor: t.Move()})
	}
	if req.Model == "short" && len(resp.Outputs) > 0 {
		resp.Outputs[0].Tensor.Shape = resp.Outputs[0].Tensor.Shape.Prepend(2)
	}
	return resp, nil
}

// Ready reports the opposite of NotReady.
func (e *Echo) Ready() bool { return !e.NotReady.Load() }

// ModelReady implements infer.Catalog for version 1 of every model.
func (*Echo) ModelReady(name string, version int64) error {
	if _, ok := lookup(name); !ok {
		return status.Errorf(status.InvalidArg, "Request for unknown model: '%s' is not found", name)
	}
	if version > 1 {
		return status.Errorf(status.NotFound, "Request for unknown model: '%s' version %d is not found", name, version)
	}
	if name == "unready" {
		return status.Reasonf(status.ModelNotReady, "Request for unknown model: '%s' version 1 is not at ready state", name)
	}
	return nil
}

// Describe implements infer.Catalog.
func (e *Echo) Describe(name string, version int64) (*infer.Description, error) {
	if err := e.ModelReady(name, version); err != nil {
		return nil, err
	}
	m, _ := lookup(name)
	d := &infer.Description{Model: name, Version: 1, MaxBatch: int(m.batch), Decoupled: decoupled(name)}
	for _, p := range m.ports {
		shape := tensor.Of(p.dims...)
		if m.batch > 0 {
			shape = shape.Prepend(-1)
		}
		port := infer.Port{Name: p.name, DType: p.dtype, Shape: shape}
		d.Inputs, d.Outputs = append(d.Inputs, port), append(d.Outputs, port)
	}
	return d, nil
}

// Metadata implements infer.Catalog.
func (e *Echo) Metadata(name string, version int64) (*infer.Metadata, error) {
	if err := e.ModelReady(name, version); err != nil {
		return nil, err
	}
	m, _ := lookup(name)
	md := &infer.Metadata{Name: name, Versions: []string{"1"}, Platform: "echo"}
	for _, p := range m.ports {
		shape := append([]int64(nil), p.dims...)
		if m.batch > 0 {
			shape = append([]int64{-1}, shape...)
		}
		t := infer.TensorMetadata{Name: p.name, Datatype: p.dtype.String(), Shape: shape}
		md.Inputs, md.Outputs = append(md.Inputs, t), append(md.Outputs, t)
	}
	return md, nil
}

// Config returns a model's configuration.
func (e *Echo) Config(name string, version int64) (*modelconfig.ModelConfig, error) {
	if err := e.ModelReady(name, version); err != nil {
		return nil, err
	}
	m, _ := lookup(name)
	cfg := &modelconfig.ModelConfig{Name: name, Backend: "echo", MaxBatchSize: m.batch}
	if decoupled(name) {
		cfg.ModelTransactionPolicy = &modelconfig.ModelTransactionPolicy{Decoupled: true}
	}
	for _, p := range m.ports {
		d := modelconfig.DataType(p.dtype)
		cfg.Input = append(cfg.Input, &modelconfig.ModelInput{Name: p.name, DataType: d, Dims: p.dims})
		cfg.Output = append(cfg.Output, &modelconfig.ModelOutput{Name: p.name, DataType: d, Dims: p.dims})
	}
	return cfg, nil
}

// Statistics returns fixed figures.
func (e *Echo) Statistics(name string, version int64) ([]infer.Statistics, error) {
	names := []string{name}
	if name == "" {
		names = []string{"echo", "two"}
	} else if e.ModelReady(name, version) != nil {
		return nil, status.Errorf(status.InvalidArg, "requested model '%s' is not available", name)
	}
	var list []infer.Statistics
	for i, n := range names {
		d := infer.Duration{Count: uint64(i + 1), Ns: 1000}
		list = append(list, infer.Statistics{
			Name: n, Version: strconv.Itoa(1), LastInference: 7, InferenceCount: 3, ExecutionCount: 2,
			Inference: infer.InferenceStats{Success: d},
			Batches:   []infer.BatchStats{{BatchSize: 4, ComputeInfer: d}},
		})
	}
	return list, nil
}
