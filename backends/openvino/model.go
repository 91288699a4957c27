//go:build cgo

package openvino

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/bind"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// model is one compiled model file.
type model struct {
	*binding
	compiled *compiled
	own      *core // the core of a model with an extension, else nil
	fixed    int64 // the batch size of the file when it is not variable, else 0
	pad      bool
	threads  int
	// unsure is set when an output's shape did not depend on the batch as expected. The runtime then allocates all outputs.
	unsure atomic.Bool
}

var _ backends.ThreadedModel = (*model)(nil)

// load reads the file, adapts it to the configuration and compiles it.
func (m *model) load(s *backends.Settings, from *core, path string, set *settings, byDefault int) error {
	g, err := readGraph(from, path)
	if err != nil {
		err = bind.UnreadableFile(err, "a model that OpenVINO reads", path)
		return status.Prefixf(err, "unable to load model '%s' from '%s': ", s.Model, path)
	}
	defer g.close()
	if err := m.bind(s.Config, g, set, byDefault); err != nil {
		return status.Errorf(status.CodeOf(err), "%w (in '%s')", err, path)
	}
	m.Sig.Model, m.Sig.Version = s.Model, s.Version
	if m.compiled, err = g.compile(set); err == nil {
		err = m.connect()
	}
	if err != nil {
		return status.Prefixf(err, "unable to load model '%s' from '%s': ", s.Model, path)
	}
	return nil
}

// bind adapts the shapes of the file to the configuration, and binds the ports.
func (m *model) bind(cfg *modelconfig.ModelConfig, g *graph, set *settings, byDefault int) error {
	maxBatch, err := (&bind.Model[native]{Ins: g.ins, Outs: g.outs}).MaxBatch(cfg, byDefault)
	if err == nil {
		err = adapt(cfg, g, set)
	}
	if err != nil {
		return err
	}
	b, err := bind.Bind(cfg, &bind.Model[native]{Ins: g.ins, Outs: g.outs, FindAlias: g.named, FixedBatch: true}, maxBatch)
	if err != nil {
		return err
	}
	m.binding = b
	for _, p := range b.Sig.Inputs {
		if p.Optional {
			return status.Errorf(status.Unsupported, "unable to load model '%s', input '%s' is optional, but every input of the model is needed", b.Sig.Model, p.Name)
		}
	}
	for i := range b.Out { // known: all dimensions are fixed or the batch
		p, own := &b.Out[i], &b.Out[i].Native
		_, handed := g.named(p.Name, false)
		own.lent = handed || p.DType == tensor.Bytes
		rest := p.Shape[min(len(p.Shape), min(1, b.Sig.MaxBatch)):]
		own.known = !p.AnyRank && !own.lent && !slices.Contains(rest, -1)
	}
	m.fixed, err = batchOf(b)
	return err
}

// batchOf returns the batch size of the file, or 0 when it is variable or the model does not batch. It must be the same for all
// ports, and at least max_batch_size.
func batchOf(b *binding) (fixed int64, err error) {
	for _, p := range slices.Concat(b.In, b.Out) {
		if b.Sig.MaxBatch == 0 || p.AnyRank || len(p.Shape) == 0 {
			continue
		}
		if p.Shape[0] != -1 && fixed == 0 && p.Shape[0] >= int64(b.Sig.MaxBatch) {
			fixed = p.Shape[0]
		}
		if p.Shape[0] != -1 && p.Shape[0] != fixed {
			return 0, status.Errorf(status.InvalidArg, "model '%s', tensor '%s': for the model to support batching the shape should have at "+
				"least 1 dimension and the first dimension must be -1 or at least max_batch_size %d, and the same of all tensors; but shape expected by the model is %s",
				b.Sig.Model, p.Name, b.Sig.MaxBatch, tensor.Of(p.Shape...))
		}
	}
	return fixed, nil
}

// adapt changes the shapes of the file as Triton does: a fixed batch dimension becomes variable, and with RESHAPE_IO_LAYOUT the
// inputs get their configured dimensions.
func adapt(cfg *modelconfig.ModelConfig, g *graph, o *settings) error {
	shapes, texts, changed := make([][]int64, len(g.ins)), make([]string, len(g.ins)), false
	for i, p := range g.ins {
		shape := slices.Clone(p.Shape)
		if o.reshape || p.AnyRank {
			if d := configured(cfg, p.Name); d != nil {
				shape = d
			} else if p.AnyRank {
				return status.Errorf(status.InvalidArg,
					"unable to load model '%s', the model leaves the number of dimensions of input '%s' open, expected them in the configuration", cfg.GetName(), p.Name)
			}
		}
		if cfg.GetMaxBatchSize() > 0 && !o.fixed && len(shape) > 0 {
			shape[0] = -1
		}
		changed = changed || !slices.Equal(shape, p.Shape)
		shapes[i], texts[i] = shape, tensor.Of(shape...).String()
	}
	if !changed {
		return nil
	}
	if err := g.reshape(shapes); err != nil {
		return status.Prefixf(err, "unable to load model '%s', the model cannot take inputs of shapes %s: ", cfg.GetName(), strings.Join(texts, " "))
	}
	return nil
}

// configured returns the configured dimensions of an input including the batch, or nil.
func configured(cfg *modelconfig.ModelConfig, name string) []int64 {
	for _, io := range cfg.GetInput() {
		if io.GetName() != name {
			continue
		}
		dims := io.GetDims()
		if r := io.GetReshape(); r != nil {
			dims = r.GetShape()
		}
		if cfg.GetMaxBatchSize() > 0 {
			return append([]int64{-1}, dims...)
		}
		return append([]int64{}, dims...)
	}
	return nil
}

// connect looks up the ports of the compiled model and its number of threads.
func (m *model) connect() error {
	for k, bound := range [][]bind.Bound[native]{m.In, m.Out} {
		for i := range bound {
			if err := m.compiled.find(&bound[i].Port, k == 1); err != nil {
				return err
			}
		}
	}
	m.threads = max(1, m.compiled.property(keyThreads)/max(1, m.compiled.property(keyStreams)))
	return nil
}

// Threads implements backends.ThreadedModel.
func (m *model) Threads() int { return m.threads }

// NewInstance returns an executor on the host.
func (m *model) NewInstance(_ context.Context, at tensor.Place) (backends.Instance, error) {
	if err := bind.CheckHost("openvino", m.Sig.Model, at); err != nil {
		return nil, err
	}
	return newInstance(m)
}

// Close unloads the model.
func (m *model) Close() error {
	m.compiled.close()
	if m.own != nil {
		m.own.close()
		m.own = nil
	}
	return nil
}
