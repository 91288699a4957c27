package onnx

import (
	"slices"
	"strings"

	"tutti/core/config"
	"tutti/core/status"
	"tutti/core/tensor"
	"tutti/proto/modelconfig"
)

// binding ties the ports of a signature to those of the model file, in the signature's order.
type binding struct {
	sig     *config.Signature
	in, out []boundPort
}

// boundPort is one port of the model file as the signature uses it.
type boundPort struct {
	port
	// reshape makes the other side's shape out of this side's: the model's out of the request's for an input, the
	// response's out of the model's for an output. nil where both are the same.
	reshape []extent
	// known is an output's shape in terms of the inputs' shapes, nil where only a run can tell.
	known []extent
}

// extent is one dimension of a shape that follows others: axis of shape number from, or n where axis is negative.
type extent struct {
	n    int64
	from int
	axis int
}

// declaredIO is what config.pbtxt says about an input or output.
type declaredIO interface {
	GetName() string
	GetDataType() modelconfig.DataType
	GetDims() []int64
	GetReshape() *modelconfig.ModelTensorReshape
}

// bind checks the configuration against the model file, and takes from the file what the configuration leaves out.
func bind(cfg *modelconfig.ModelConfig, s *session, defaultMaxBatch int) (*binding, error) {
	b := &binding{sig: &config.Signature{Model: cfg.GetName(), MaxBatch: int(cfg.GetMaxBatchSize())}}
	if len(cfg.GetInput()) == 0 || len(cfg.GetOutput()) == 0 {
		if err := b.completeMaxBatch(s, defaultMaxBatch); err != nil {
			return nil, err
		}
	}
	ins := given(cfg, s.ins)
	cfg = b.fillGaps(cfg, ins, s.outs)
	if n := len(cfg.GetInput()); n > 0 && n != len(ins) {
		more := len(s.ins) - len(ins)
		return nil, status.Errorf(status.InvalidArg, "unable to load model '%s', configuration expects %d inputs, model provides %d",
			b.sig.Model, n+more, len(s.ins))
	}
	for _, io := range cfg.GetInput() {
		if io.GetAllowRaggedBatch() {
			if err := b.ragged(io, s.ins); err != nil {
				return nil, err
			}
			continue
		}
		p, bound, err := b.match(io, s.ins, false)
		if err != nil {
			return nil, err
		}
		p.Optional = io.GetOptional()
		b.sig.Inputs, b.in = append(b.sig.Inputs, p), append(b.in, bound)
	}
	for _, io := range cfg.GetOutput() {
		if scattered(cfg, io.GetName()) {
			if err := b.scattered(io, s.outs); err != nil {
				return nil, err
			}
			continue
		}
		p, bound, err := b.match(io, s.outs, true)
		if err != nil {
			return nil, err
		}
		b.sig.Outputs, b.out = append(b.sig.Outputs, p), append(b.out, bound)
	}
	if len(b.in) == 0 {
		b.sig.Inputs, b.in = b.complete(ins, false)
	}
	if err := b.computed(cfg, s.ins); err != nil {
		return nil, err
	}
	if len(b.out) == 0 {
		b.sig.Outputs, b.out = b.complete(s.outs, true)
	}
	b.infer()
	return b, nil
}

// fillGaps adds what a configuration that declares inputs or outputs leaves out of
// them: data types, dims and whole inputs. One without gaps stays as it is.
func (b *binding) fillGaps(cfg *modelconfig.ModelConfig, ins, outs []port) *modelconfig.ModelConfig {
	short := len(cfg.GetInput()) > 0 && len(cfg.GetInput()) < len(ins)
	if !short && len(config.CheckComplete(cfg)) == 0 {
		return cfg
	}
	// A tensor without a batch dimension in a model that batches is refused later.
	unfit := func(p port) bool { return len(p.shape) < len(b.batched(nil)) }
	sig := &config.Signature{}
	sig.Inputs, _ = b.complete(slices.DeleteFunc(slices.Clone(ins), unfit), false)
	sig.Outputs, _ = b.complete(slices.DeleteFunc(slices.Clone(outs), unfit), true)
	return config.Complete(cfg, sig)
}

// completeMaxBatch gives a model whose every first dimension is variable the default batch size.
func (b *binding) completeMaxBatch(s *session, byDefault int) error {
	batches := !slices.ContainsFunc(slices.Concat(s.ins, s.outs), func(p port) bool { return len(p.shape) == 0 || p.shape[0] != -1 })
	switch {
	case b.sig.MaxBatch > 0 && !batches:
		return status.Errorf(status.InvalidArg,
			"autofill failed for model '%s': model does not support batching while non-zero max_batch_size is specified", b.sig.Model)
	case b.sig.MaxBatch == 0 && batches:
		b.sig.MaxBatch = byDefault
	}
	return nil
}

// match finds the port that io declares and checks its type and shape.
func (b *binding) match(io declaredIO, ports []port, output bool) (config.Port, boundPort, error) {
	name, want := io.GetName(), tensor.DType(io.GetDataType())
	p, err := b.find(name, want, ports, output)
	if err != nil {
		return config.Port{}, boundPort{}, err
	}
	dims := io.GetDims()
	if r := io.GetReshape(); r != nil {
		dims = r.GetShape() // tensors come and go in the model's shape
	}
	api := b.batched(dims)
	model := api
	if b.scalar(p, api) {
		model = p.shape
	}
	if err := b.compare(p, model, output); err != nil {
		return config.Port{}, boundPort{}, err
	}
	bound := boundPort{port: p}
	if !slices.Equal(api, model) {
		var ok bool
		if bound.reshape, ok = reshape(api, model, output); !ok {
			return config.Port{}, boundPort{}, status.Errorf(status.InvalidArg, "model '%s', tensor '%s': shape %s cannot be reshaped to %s",
				b.sig.Model, name, tensor.Of(api...), tensor.Of(model...))
		}
	}
	return config.Port{Name: name, DType: want, Dims: tensor.Of(dims...)}, bound, nil
}

// find returns the model file's port of a name and checks its type.
func (b *binding) find(name string, want tensor.DType, ports []port, output bool) (port, error) {
	kind := side(output)
	i := slices.IndexFunc(ports, func(p port) bool { return p.name == name })
	if i < 0 {
		return port{}, status.Errorf(status.InvalidArg, "unable to load model '%s', unexpected inference %s '%s', allowed %ss are: %s",
			b.sig.Model, kind, name, kind, names(ports))
	}
	if p := ports[i]; want != p.dtype {
		return port{}, status.Errorf(status.InvalidArg,
			"unable to load model '%s', configuration expects datatype %s for %s '%s', model provides %s",
			b.sig.Model, want.ConfigName(), kind, name, p.dtype.ConfigName())
	}
	return ports[i], nil
}

// batched returns dims with the batch dimension that requests carry.
func (b *binding) batched(dims []int64) []int64 {
	if b.sig.MaxBatch > 0 {
		return append([]int64{-1}, dims...)
	}
	return dims
}

// scalar reports whether the model has no dimensions beside the batch and the configuration says ones: it cannot say none.
func (b *binding) scalar(p port, api []int64) bool {
	rest := len(b.batched(nil))
	return len(p.shape) == rest && len(api) > rest &&
		!slices.ContainsFunc(api[rest:], func(d int64) bool { return d != 1 })
}

// compare checks the dimensions the configuration gives the model's tensor. An input may be narrower than the model
// allows; an output may not promise more than the model does.
func (b *binding) compare(p port, dims []int64, output bool) error {
	batch := b.sig.MaxBatch > 0
	if batch && (len(p.shape) == 0 || p.shape[0] != -1) {
		return status.Errorf(status.InvalidArg, "model '%s', tensor '%s': for the model to support batching the shape should have at "+
			"least 1 dimension and the first dimension must be -1; but shape expected by the model is %s", b.sig.Model, p.name, tensor.Of(p.shape...))
	}
	ok := len(dims) == len(p.shape)
	for i := 0; ok && i < len(dims); i++ {
		ok = dims[i] == p.shape[i] || (p.shape[i] == -1 && !output)
	}
	if ok {
		return nil
	}
	how := "shape "
	if batch {
		how = "an initial batch dimension because max_batch_size > 0 followed by the explicit tensor shape, making complete shape "
	}
	return status.Errorf(status.InvalidArg,
		"model '%s', tensor '%s': the model expects %d dimensions (shape %s) but the model configuration specifies %d dimensions (%s%s)",
		b.sig.Model, p.name, len(p.shape), tensor.Of(p.shape...), len(dims), how, tensor.Of(dims...))
}

// complete makes the signature's ports out of the model file's. A port without dimensions is declared as [1].
func (b *binding) complete(ports []port, output bool) ([]config.Port, []boundPort) {
	var sig []config.Port
	var bound []boundPort
	for _, p := range ports {
		dims := p.shape[len(b.batched(nil)):]
		bp := boundPort{port: p}
		if len(dims) == 0 {
			dims = []int64{1}
			bp.reshape, _ = reshape(b.batched(dims), p.shape, output)
		}
		sig = append(sig, config.Port{Name: p.name, DType: p.dtype, Dims: tensor.Of(dims...)})
		bound = append(bound, bp)
	}
	return sig, bound
}

// reshape returns the model's shape in terms of the request's for an input, and the other way round for an output.
// Variable extents correspond in order.
func reshape(api, model []int64, output bool) ([]extent, bool) {
	from, to := api, model
	if output {
		from, to = model, api
	}
	out := make([]extent, 0, len(to))
	next := 0
	for _, d := range to {
		e := extent{n: d, axis: -1}
		if d == -1 {
			for next < len(from) && from[next] != -1 {
				next++
			}
			if next == len(from) {
				return nil, false
			}
			e.axis = next
			next++
		}
		out = append(out, e)
	}
	same := slices.Index(from[next:], -1) < 0 && product(from) == product(to)
	return out, same
}

// product multiplies the fixed dimensions.
func product(dims []int64) int64 {
	n := int64(1)
	for _, d := range dims {
		if d != -1 {
			n *= d
		}
	}
	return n
}

// infer finds the outputs whose shape follows from the inputs': every dimension is fixed, the batch, or has the name of
// an input's dimension.
func (b *binding) infer() {
	byName := map[string]extent{}
	for i, p := range slices.Backward(b.in) {
		for k, name := range p.symbols {
			if name != "" && p.shape[k] == -1 {
				byName[name] = extent{from: i, axis: k}
			}
		}
	}
	for i := range b.out {
		// A model that hands an input through leaves the caller's output memory unwritten.
		handed := slices.ContainsFunc(b.in, func(p boundPort) bool { return p.name == b.out[i].name })
		// Where strings end, only a run can tell.
		if !handed && !b.sig.Outputs[i].Whole && b.out[i].dtype != tensor.Bytes {
			b.out[i].known = b.known(b.out[i].port, byName)
		}
	}
}

func (b *binding) known(p port, byName map[string]extent) []extent {
	out := make([]extent, 0, len(p.shape))
	rows := b.rows()
	for k, d := range p.shape {
		e, named := byName[p.symbols[k]]
		switch {
		case d != -1:
			e = extent{n: d, axis: -1}
		case named:
		case k == 0 && rows >= 0:
			e = extent{from: rows} // every tensor's first dimension is the batch
		default:
			return nil
		}
		out = append(out, e)
	}
	return out
}

func names(ports []port) string {
	list := make([]string, len(ports))
	for i, p := range ports {
		list[i] = p.name
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}
