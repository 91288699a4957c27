package tune

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/procfs"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/repository"
	"github.com/tutti-server/tutti/internal/telemetry"
)

// lab is a loaded repository without a server, to which requests are submitted directly.
type lab struct {
	*repository.Repository
	alloc *tensor.Pool
	s     *Settings
}

// openLab loads models with the models that they use. It fails if one of them cannot be loaded.
func openLab(ctx context.Context, s *Settings, root string, models ...string) (*lab, error) {
	registry, err := s.Components.Registry()
	if err != nil {
		return nil, err
	}
	configured, _ := s.BackendConfig.Settings(registry)
	l := &lab{alloc: tensor.NewPool(), s: s}
	if l.Repository, err = repository.Open(ctx, labSettings(s, registry, configured, l.alloc, root, models)); err != nil {
		return nil, err
	}
	for _, f := range l.Failures() {
		if slices.Contains(models, f.Model) || len(models) == 1 {
			return nil, errors.Join(fmt.Errorf("model '%s' cannot be loaded: %w", f.Model, f.Err), l.Close(ctx))
		}
	}
	return l, nil
}

func labSettings(
	s *Settings, registry *backends.Registry, configured map[string]map[string]string, alloc tensor.Allocator, root string, models []string,
) repository.Settings {
	return repository.Settings{
		Roots: []string{root}, Only: models, Backends: registry, BackendConfig: configured, Alloc: alloc,
		Accelerators: s.Accelerators, Metrics: telemetry.NewMetrics(), Log: slog.New(slog.DiscardHandler),
	}
}

// call is a request that can be submitted any number of times.
type call struct {
	model   string
	version int64
	inputs  []infer.Named // owned
}

// newCall copies tensors into memory of the lab. Each input is repeated so many times along its batch dimension.
func (l *lab) newCall(model string, version int64, inputs []client.Tensor, times int) (*call, error) {
	c := &call{model: model, version: max(version, 0)}
	for i := range inputs {
		in := &inputs[i]
		shape := slices.Clone(in.Shape)
		if times > 1 {
			shape[0] *= int64(times)
		}
		buf, err := l.alloc.Alloc(times * len(in.Data))
		if err != nil {
			c.release()
			return nil, err
		}
		for k := range times {
			copy(buf.Bytes()[k*len(in.Data):], in.Data)
		}
		c.inputs = append(c.inputs, infer.Named{Name: in.Name, Tensor: tensor.Tensor{DType: in.DType, Shape: tensor.Of(shape...), Buf: buf, Len: times * len(in.Data)}})
	}
	return c, nil
}

func (c *call) release() {
	for i := range c.inputs {
		c.inputs[i].Tensor.Release()
	}
}

// do submits the request and waits for its response, which the caller must release.
func (l *lab) do(ctx context.Context, c *call) (*infer.Response, error) {
	req := infer.NewRequest()
	req.Model, req.Version = c.model, c.version
	for i := range c.inputs {
		req.Inputs = append(req.Inputs, infer.Named{Name: c.inputs[i].Name, Tensor: c.inputs[i].Tensor.Retain()})
	}
	w := infer.NewCall()
	l.Submit(ctx, req, w)
	resp, err := w.Wait()
	if err == nil && resp == nil {
		err = errors.New("it sent no response")
	}
	return resp, err
}

// once executes a request and drops its response.
func (l *lab) once(ctx context.Context, c *call) error {
	resp, err := l.do(ctx, c)
	if err != nil {
		return cmp.Or(ctx.Err(), fmt.Errorf("model '%s' failed with a sample request: %w", c.model, err))
	}
	resp.Release()
	return nil
}

// outputs executes a request and copies its outputs.
func (l *lab) outputs(ctx context.Context, c *call) ([]client.Tensor, error) {
	resp, err := l.do(ctx, c)
	if err != nil {
		return nil, cmp.Or(ctx.Err(), fmt.Errorf("model '%s' failed with a sample request: %w", c.model, err))
	}
	defer resp.Release()
	list := make([]client.Tensor, len(resp.Outputs))
	for i := range resp.Outputs {
		t := &resp.Outputs[i].Tensor
		list[i] = client.Tensor{Name: resp.Outputs[i].Name, DType: t.DType, Shape: slices.Clone(t.Shape.Dims()), Data: slices.Clone(t.Bytes())}
	}
	return list, nil
}

// leastTimed is how long something is executed again and again to measure its time.
const leastTimed = 10 * time.Millisecond

// timed executes a request so often that the time can be measured, and returns the mean wall and processor time.
func (l *lab) timed(ctx context.Context, c *call) (wall, cpu time.Duration, err error) {
	least := l.s.length(leastTimed)
	n := 0
	before, began := processTime(), time.Now()
	for ; n == 0 || time.Since(began) < least; n++ {
		if err := l.once(ctx, c); err != nil {
			return 0, 0, err
		}
	}
	return time.Since(began) / time.Duration(n), (processTime() - before) / time.Duration(n), nil
}

// machineTime returns the processor time of all processes of the machine; 0 where it is not known.
func machineTime() time.Duration {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return 0
	}
	s, err := fs.Stat()
	if err != nil {
		return 0
	}
	t := &s.CPUTotal
	return time.Duration((t.User + t.Nice + t.System + t.IRQ + t.SoftIRQ + t.Steal) * float64(time.Second))
}

// variant is the name of a copy of a model that executes with so many threads.
func variant(model string, threads int) string { return model + "--threads-" + strconv.Itoa(threads) }
