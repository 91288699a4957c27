package openvino

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
	// fixed is the file's batch size where that is not variable; 0 where it is, or there is none.
	fixed int64
}

// boundPort is one port of the model file as the signature uses it.
type boundPort struct {
	port
	// ones is how many dimensions of extent 1 the signature has after those of the file: it cannot say none.
	ones int
	// known says that an output's shape is the file's with the batch for its first dimension.
	known bool
	// lent says that an output stays in memory of the request, which does not take any for it: the runtime resizes no
	// strings, and an input that is handed through shares one tensor with its output.
	lent bool
}

// declaredIO is what config.pbtxt says about an input or output.
type declaredIO interface {
	GetName() string
	GetDataType() modelconfig.DataType
	GetDims() []int64
	GetReshape() *modelconfig.ModelTensorReshape
}

// completeMaxBatch gives a model whose every first dimension is variable the default batch size, where the
// configuration leaves the rest to the model too.
func completeMaxBatch(cfg *modelconfig.ModelConfig, g *graph, byDefault int) (int, error) {
	size := int(cfg.GetMaxBatchSize())
	if len(cfg.GetInput()) > 0 && len(cfg.GetOutput()) > 0 {
		return size, nil
	}
	batches := !slices.ContainsFunc(slices.Concat(g.ins, g.outs), func(p port) bool { return len(p.shape) == 0 || p.shape[0] != -1 })
	switch {
	case size > 0 && !batches:
		return 0, status.Errorf(status.InvalidArg,
			"autofill failed for model '%s': model does not support batching while non-zero max_batch_size is specified", cfg.GetName())
	case size == 0 && batches:
		return byDefault, nil
	}
	return size, nil
}

// bind checks the configuration against the model file, and takes from the file what the configuration leaves out.
func bind(cfg *modelconfig.ModelConfig, g *graph, maxBatch int) (*binding, error) {
	b := &binding{sig: &config.Signature{Model: cfg.GetName(), MaxBatch: maxBatch}}
	cfg = b.fillGaps(cfg, g)
	if n := len(cfg.GetInput()); n > 0 && n != len(g.ins) {
		return nil, status.Errorf(status.InvalidArg, "unable to load model '%s', configuration expects %d inputs, model provides %d", b.sig.Model, n, len(g.ins))
	}
	for _, io := range cfg.GetInput() {
		p, bound, err := b.match(io, g, false)
		if err != nil {
			return nil, err
		}
		if io.GetOptional() {
			return nil, status.Errorf(status.Unsupported, "unable to load model '%s', input '%s' is optional, but every input of the model is needed", b.sig.Model, p.Name)
		}
		b.sig.Inputs, b.in = append(b.sig.Inputs, p), append(b.in, bound)
	}
	for _, io := range cfg.GetOutput() {
		p, bound, err := b.match(io, g, true)
		if err != nil {
			return nil, err
		}
		b.sig.Outputs, b.out = append(b.sig.Outputs, p), append(b.out, bound)
	}
	if len(b.in) == 0 {
		b.sig.Inputs, b.in = b.complete(g.ins)
	}
	if len(b.out) == 0 {
		b.sig.Outputs, b.out = b.complete(g.outs)
	}
	b.foresee(g)
	return b, b.agree()
}

// fillGaps adds what a configuration that declares inputs or outputs leaves out of them.
func (b *binding) fillGaps(cfg *modelconfig.ModelConfig, g *graph) *modelconfig.ModelConfig {
	short := len(cfg.GetInput()) > 0 && len(cfg.GetInput()) < len(g.ins)
	if !short && len(config.CheckComplete(cfg)) == 0 {
		return cfg
	}
	// A tensor without a batch dimension in a model that batches is refused later.
	unfit := func(p port) bool { return p.unranked || len(p.shape) < len(b.batched(nil)) }
	sig := &config.Signature{}
	sig.Inputs, _ = b.complete(slices.DeleteFunc(slices.Clone(g.ins), unfit))
	sig.Outputs, _ = b.complete(slices.DeleteFunc(slices.Clone(g.outs), unfit))
	return config.Complete(cfg, sig)
}

// match finds the port that io declares and checks its type and shape.
func (b *binding) match(io declaredIO, g *graph, output bool) (config.Port, boundPort, error) {
	name, want := io.GetName(), tensor.DType(io.GetDataType())
	p, err := b.find(name, want, g, output)
	if err != nil {
		return config.Port{}, boundPort{}, err
	}
	dims := io.GetDims()
	if r := io.GetReshape(); r != nil {
		dims = r.GetShape() // tensors come and go in the model's shape
	}
	bound := boundPort{port: p}
	model := b.batched(dims)
	if rest := len(b.batched(nil)); !p.unranked && len(p.shape) == rest && !slices.ContainsFunc(dims, func(d int64) bool { return d != 1 }) {
		bound.ones = len(dims)
		model = model[:rest]
	}
	if err := b.compare(p, model, output); err != nil {
		return config.Port{}, boundPort{}, err
	}
	return config.Port{Name: name, DType: want, Dims: tensor.Of(dims...)}, bound, nil
}

// find returns the model file's port of a name and checks its type.
func (b *binding) find(name string, want tensor.DType, g *graph, output bool) (port, error) {
	kind, ports := side(output), g.ins
	if output {
		ports = g.outs
	}
	var p port
	if i := slices.IndexFunc(ports, func(p port) bool { return p.name == name }); i >= 0 {
		p = ports[i]
	} else if alias, ok := g.named(output, name); ok {
		p = alias
	} else {
		return port{}, status.Errorf(status.InvalidArg, "unable to load model '%s', unexpected inference %s '%s', allowed %ss are: %s",
			b.sig.Model, kind, name, kind, names(ports))
	}
	if want != p.dtype {
		return port{}, status.Errorf(status.InvalidArg,
			"unable to load model '%s', configuration expects datatype %s for %s '%s', model provides %s",
			b.sig.Model, want.ConfigName(), kind, name, p.dtype.ConfigName())
	}
	return p, nil
}

// batched returns dims with the batch dimension that requests carry.
func (b *binding) batched(dims []int64) []int64 {
	if b.sig.MaxBatch > 0 {
		return append([]int64{-1}, dims...)
	}
	return dims
}

// compare checks the dimensions the configuration gives the model's tensor. An input may be narrower than the model
// allows; an output may not promise more than the model does.
func (b *binding) compare(p port, dims []int64, output bool) error {
	batch := b.sig.MaxBatch > 0
	if p.unranked {
		return nil
	}
	if batch && len(p.shape) == 0 {
		return status.Errorf(status.InvalidArg, "model '%s', tensor '%s': for the model to support batching the shape should have at "+
			"least 1 dimension and the first dimension must be -1; but shape expected by the model is %s", b.sig.Model, p.name, tensor.Of(p.shape...))
	}
	ok := len(dims) == len(p.shape)
	for i := 0; ok && i < len(dims); i++ {
		// How large a batch the file has is checked by agree.
		ok = batch && i == 0 || dims[i] == p.shape[i] || (p.shape[i] == -1 && !output)
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
func (b *binding) complete(ports []port) ([]config.Port, []boundPort) {
	var sig []config.Port
	var bound []boundPort
	for _, p := range ports {
		dims := p.shape[min(len(p.shape), len(b.batched(nil))):]
		bp := boundPort{port: p}
		if len(dims) == 0 && !p.unranked {
			dims, bp.ones = []int64{1}, 1
		}
		sig = append(sig, config.Port{Name: p.name, DType: p.dtype, Dims: tensor.Of(dims...)})
		bound = append(bound, bp)
	}
	return sig, bound
}

// agree checks that all ports have the batch alike: variable, or of one size that holds the largest batch.
func (b *binding) agree() error {
	for _, p := range slices.Concat(b.in, b.out) {
		if b.sig.MaxBatch == 0 || p.unranked || len(p.shape) == 0 {
			continue
		}
		if p.shape[0] != -1 && b.fixed == 0 && p.shape[0] >= int64(b.sig.MaxBatch) {
			b.fixed = p.shape[0]
		}
		if p.shape[0] != -1 && p.shape[0] != b.fixed {
			return status.Errorf(status.InvalidArg, "model '%s', tensor '%s': for the model to support batching the shape should have at "+
				"least 1 dimension and the first dimension must be -1 or at least max_batch_size %d, and the same of all tensors; but shape expected by the model is %s",
				b.sig.Model, p.name, b.sig.MaxBatch, tensor.Of(p.shape...))
		}
	}
	return nil
}

// foresee marks the outputs whose shape is known before a run: every dimension is fixed, or the batch.
func (b *binding) foresee(g *graph) {
	for i := range b.out {
		p := &b.out[i]
		_, handed := g.named(false, p.name)
		p.lent = handed || p.dtype == tensor.Bytes
		rest := p.shape
		if b.sig.MaxBatch > 0 && len(rest) > 0 {
			rest = rest[1:]
		}
		p.known = !p.unranked && !p.lent && !slices.Contains(rest, -1)
	}
}

func names(ports []port) string {
	list := make([]string, len(ports))
	for i, p := range ports {
		list[i] = p.name
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}
