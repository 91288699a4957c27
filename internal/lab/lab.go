// Package lab loads models of a repository without a server, to execute single requests: for tune, which measures their time, and for
// quantize, which compares their outputs.
//
//	lab.go      the loaded repository, and requests that are submitted directly
//	overlay.go  a folder of links to models with other configurations
//	walk.go     an ensemble, executed step by step
//	samples.go  sample requests from files
package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/tutti-server/tutti"
	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/options"
	"github.com/tutti-server/tutti/internal/repository"
	"github.com/tutti-server/tutti/internal/telemetry"
)

// Settings are what a Lab is opened with.
type Settings struct {
	Components    tutti.Components
	BackendConfig options.BackendConfig
	// Accelerators are the GPUs that a server would use.
	Accelerators []tensor.Accelerator
}

// Lab is a loaded repository without a server, to which requests are submitted directly.
type Lab struct {
	*repository.Repository
	Alloc *tensor.Pool
}

// Open loads models with the models that they use. It fails if one of them cannot be loaded.
func Open(ctx context.Context, s *Settings, root string, models ...string) (*Lab, error) {
	registry, err := s.Components.Registry()
	if err != nil {
		return nil, err
	}
	configured, _ := s.BackendConfig.Settings(registry)
	l := &Lab{Alloc: tensor.NewPool()}
	if l.Repository, err = repository.Open(ctx, settings(s, registry, configured, l.Alloc, root, models)); err != nil {
		return nil, err
	}
	for _, f := range l.Failures() {
		if slices.Contains(models, f.Model) || len(models) == 1 {
			return nil, errors.Join(fmt.Errorf("model '%s' cannot be loaded: %w", f.Model, f.Err), l.Close(ctx))
		}
	}
	return l, nil
}

func settings(
	s *Settings, registry *backends.Registry, configured map[string]map[string]string, alloc tensor.Allocator, root string, models []string,
) repository.Settings {
	return repository.Settings{
		Roots: []string{root}, Only: models, Backends: registry, BackendConfig: configured, Alloc: alloc,
		Accelerators: s.Accelerators, Metrics: telemetry.NewMetrics(), Log: slog.New(slog.DiscardHandler),
	}
}

// Call is a request that can be submitted any number of times.
type Call struct {
	model   string
	version int64
	Inputs  []infer.Named // owned
}

// NewCall copies tensors into memory of the lab. Each input is repeated so many times along its batch dimension. The caller must call Release.
func (l *Lab) NewCall(model string, version int64, inputs []client.Tensor, times int) (*Call, error) {
	c := &Call{model: model, version: max(version, 0)}
	for i := range inputs {
		in := &inputs[i]
		shape := slices.Clone(in.Shape)
		if times > 1 {
			shape[0] *= int64(times)
		}
		buf, err := l.Alloc.Alloc(times * len(in.Data))
		if err != nil {
			c.Release()
			return nil, err
		}
		for k := range times {
			copy(buf.Bytes()[k*len(in.Data):], in.Data)
		}
		c.Inputs = append(c.Inputs, infer.Named{Name: in.Name, Tensor: tensor.Tensor{DType: in.DType, Shape: tensor.Of(shape...), Buf: buf, Len: times * len(in.Data)}})
	}
	return c, nil
}

// Release releases the tensors.
func (c *Call) Release() {
	for i := range c.Inputs {
		c.Inputs[i].Tensor.Release()
	}
}

// Do submits the request and waits for its response, which the caller must release.
func (l *Lab) Do(ctx context.Context, c *Call) (*infer.Response, error) {
	req := infer.NewRequest()
	req.Model, req.Version = c.model, c.version
	for i := range c.Inputs {
		req.Inputs = append(req.Inputs, infer.Named{Name: c.Inputs[i].Name, Tensor: c.Inputs[i].Tensor.Retain()})
	}
	w := infer.NewCall()
	l.Submit(ctx, req, w)
	resp, err := w.Wait()
	if err == nil && resp == nil {
		err = errors.New("it sent no response")
	}
	if err != nil {
		return nil, cmp.Or(ctx.Err(), fmt.Errorf("model '%s' failed with a sample request: %w", c.model, err))
	}
	return resp, nil
}

// Once executes a request and drops its response.
func (l *Lab) Once(ctx context.Context, c *Call) error {
	resp, err := l.Do(ctx, c)
	if err != nil {
		return err
	}
	resp.Release()
	return nil
}

// Outputs executes a request and copies its outputs.
func (l *Lab) Outputs(ctx context.Context, c *Call) ([]client.Tensor, error) {
	resp, err := l.Do(ctx, c)
	if err != nil {
		return nil, err
	}
	defer resp.Release()
	list := make([]client.Tensor, len(resp.Outputs))
	for i := range resp.Outputs {
		t := &resp.Outputs[i].Tensor
		list[i] = client.Tensor{Name: resp.Outputs[i].Name, DType: t.DType, Shape: slices.Clone(t.Shape.Dims()), Data: slices.Clone(t.Bytes())}
	}
	return list, nil
}

var _ infer.Inferer = (*Lab)(nil)
