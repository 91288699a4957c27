package config

import (
	"cmp"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// SignatureOf returns the signature that cfg declares: ports in its order, no labels, version 0.
func SignatureOf(cfg *modelconfig.ModelConfig) *Signature {
	return signatureOf(cfg, int(cfg.GetMaxBatchSize()))
}

func signatureOf(cfg *modelconfig.ModelConfig, maxBatch int) *Signature {
	sig := &Signature{Model: cfg.GetName(), MaxBatch: maxBatch, Decoupled: cfg.GetModelTransactionPolicy().GetDecoupled()}
	for _, in := range cfg.GetInput() {
		p := declared(in, maxBatch)
		p.Optional, p.Unbatched = in.GetOptional(), in.GetAllowRaggedBatch()
		sig.Inputs = append(sig.Inputs, p)
	}
	for _, out := range cfg.GetOutput() {
		sig.Outputs = append(sig.Outputs, declared(out, maxBatch))
	}
	sig.batchIO(cfg)
	sig.AnyPlace = cfg.GetBackend() == pythonBackend && cfg.GetParameters()[AnyPlaceParam].GetStringValue() == "no"
	return sig
}

// AnyPlaceParam is the parameter of Python models that says whether inputs at GPUs are copied to the host: "yes" or "no".
const AnyPlaceParam = "FORCE_CPU_ONLY_INPUT_TENSORS"

func declared(p port, maxBatch int) Port {
	d := Port{
		Name: p.GetName(), DType: tensor.DType(p.GetDataType()), Dims: tensor.Of(p.GetDims()...), ShapeTensor: p.GetIsShapeTensor(),
	}
	if r := p.GetReshape(); r != nil {
		d.Reshape, _ = NewReshaping(d.Dims, tensor.Of(r.GetShape()...), maxBatch > 0) // Check rejected shapes that do not fit
	}
	return d
}

// Complete returns a copy of cfg completed from the model's signature: max_batch_size, the outputs if cfg lists
// none, the inputs that it does not list, and missing data types and dims. A list of outputs is kept, because it
// selects the outputs that are served. As in Triton, an ONNX Runtime model that batches and left out its inputs or
// outputs gets dynamic batching unless it has a scheduler.
func Complete(cfg *modelconfig.ModelConfig, sig *Signature) *modelconfig.ModelConfig {
	done := proto.CloneOf(cfg)
	whole := len(cfg.GetInput()) > 0 && len(cfg.GetOutput()) > 0
	completeInputs(done, sig)
	completeOutputs(done, sig)
	done.MaxBatchSize = cmp.Or(done.MaxBatchSize, int32(sig.MaxBatch))
	if !whole && done.Backend == onnxRuntime && done.MaxBatchSize > 1 && done.SchedulingChoice == nil {
		done.SchedulingChoice = &modelconfig.ModelConfig_DynamicBatching{DynamicBatching: &modelconfig.ModelDynamicBatching{}}
	}
	normaliseBatching(done)
	return done
}

func completeInputs(cfg *modelconfig.ModelConfig, sig *Signature) {
	for _, in := range cfg.Input {
		if at := sig.Input(in.Name); at >= 0 {
			fillGaps(&in.DataType, &in.Dims, &sig.Inputs[at])
			in.IsShapeTensor = in.IsShapeTensor || sig.Inputs[at].ShapeTensor
		}
	}
	none := len(cfg.Input) == 0
	for i := range sig.Inputs {
		p := &sig.Inputs[i]
		listed := slices.ContainsFunc(cfg.Input, func(in *modelconfig.ModelInput) bool { return in.Name == p.Name })
		if !listed && (none || !p.Optional) {
			cfg.Input = append(cfg.Input, &modelconfig.ModelInput{
				Name: p.Name, DataType: modelconfig.DataType(p.DType), Dims: dimsOf(p), Optional: p.Optional, IsShapeTensor: p.ShapeTensor,
			})
		}
	}
}

func completeOutputs(cfg *modelconfig.ModelConfig, sig *Signature) {
	for _, out := range cfg.Output {
		if at := sig.Output(out.Name); at >= 0 {
			fillGaps(&out.DataType, &out.Dims, &sig.Outputs[at])
			out.IsShapeTensor = out.IsShapeTensor || sig.Outputs[at].ShapeTensor
		}
	}
	if len(cfg.Output) > 0 {
		return
	}
	for i := range sig.Outputs {
		p := &sig.Outputs[i]
		cfg.Output = append(cfg.Output, &modelconfig.ModelOutput{
			Name: p.Name, DataType: modelconfig.DataType(p.DType), Dims: dimsOf(p), IsShapeTensor: p.ShapeTensor,
		})
	}
}

func fillGaps(d *modelconfig.DataType, dims *[]int64, p *Port) {
	*d = cmp.Or(*d, modelconfig.DataType(p.DType))
	if len(*dims) == 0 {
		*dims = dimsOf(p)
	}
}

func dimsOf(p *Port) []int64 { return slices.Clone(p.Dims.Dims()) }

// Agree merges a configuration with the signature of its model. Every declared input and output must exist in sig,
// with the same data type and with dims that fit, where -1 on either side fits any extent. For example, [-1,16] and
// [8,-1] give [8,16]. The result has the ports of sig in its order, with the narrower dims of both. A type, dims or
// max_batch_size that cfg leaves out is taken from sig.
func Agree(cfg *modelconfig.ModelConfig, sig *Signature) (*Signature, error) {
	maxBatch := cmp.Or(int(cfg.GetMaxBatchSize()), sig.MaxBatch) // as the backend completed it
	a := &agreement{want: signatureOf(cfg, maxBatch), have: sig}
	if sig.OwnBatchIO {
		a.want.dropBatchIO()
	}
	out := &Signature{Model: cfg.GetName(), Version: sig.Version, MaxBatch: maxBatch, Decoupled: a.want.Decoupled, AnyPlace: a.want.AnyPlace}
	given, err := a.computed(sig.Inputs)
	if err != nil {
		return nil, err
	}
	if out.Inputs, err = a.ports("input", a.want.Inputs, given); err != nil {
		return nil, err
	}
	if out.Outputs, err = a.ports("output", a.want.Outputs, sig.Outputs); err != nil {
		return nil, err
	}
	if sig.OwnBatchIO {
		return out, nil
	}
	out.batchIO(cfg)
	for i := range out.Computed {
		out.Computed[i].At = sig.Input(out.Computed[i].Name)
	}
	return out, out.checkBatchIO(cfg)
}

// agreement compares the configuration (want) with the model (have).
type agreement struct{ want, have *Signature }

func (a *agreement) ports(kind string, want, have []Port) ([]Port, error) {
	both := slices.Clone(have)
	for i := range want {
		at := indexOf(both, want[i].Name)
		if at < 0 {
			return nil, a.unexpected(kind, want[i].Name, have)
		}
		if err := a.port(kind, &want[i], &both[at]); err != nil {
			return nil, err
		}
	}
	return both, nil
}

func (a *agreement) refuse(c status.Code, format string, args ...any) error {
	return status.Prefixf(status.Errorf(c, format, args...), "unable to load model '%s', ", a.want.Model)
}

func (a *agreement) unexpected(kind, name string, have []Port) error {
	names := make([]string, len(have))
	for i := range have {
		names[i] = have[i].Name
	}
	return a.refuse(status.InvalidArg, "unexpected inference %s '%s', allowed %ss are: %s", kind, name, kind, strings.Join(names, ", "))
}

func (a *agreement) wrongType(kind, name string, want, have tensor.DType) error {
	return a.refuse(status.InvalidArg, "unexpected datatype %s for inference %s '%s', expecting %s", want.ConfigName(), kind, name, have.ConfigName())
}

// port checks want against p and stores the merged port in p.
func (a *agreement) port(kind string, want, p *Port) error {
	if want.DType != tensor.Invalid && want.DType != p.DType {
		return a.wrongType(kind, p.Name, want.DType, p.DType)
	}
	if want.Optional && !p.Optional {
		return a.refuse(status.InvalidArg, "input '%s' is configured as optional, but the model requires it", p.Name)
	}
	if want.Unbatched || p.Unbatched {
		return a.unbatched(kind, want, p)
	}
	if want.Dims.Rank() == 0 {
		want.Dims = p.Dims // left out: a declaration always has dims
	}
	dims, ok := Narrow(want.ModelDims(), p.Dims)
	if !ok {
		return a.shapeError(want, p)
	}
	p.Dims, p.Optional, p.ShapeTensor = dims, want.Optional, want.ShapeTensor || p.ShapeTensor
	if want.Reshape != nil {
		p.Reshape, p.Dims = want.Reshape.narrow(dims, a.want.MaxBatch > 0)
	}
	return nil
}

func (a *agreement) shapeError(want, p *Port) error {
	found, expects, note := want.ModelDims(), p.FullDims(a.want.MaxBatch), ""
	if a.want.MaxBatch > 0 {
		found = found.Prepend(-1)
		note = "an initial batch dimension because max_batch_size > 0 followed by the explicit tensor shape, making complete "
	}
	return status.Errorf(status.InvalidArg,
		"model '%s', tensor '%s': the model expects %d dimensions (shape %s) but the model configuration specifies %d dimensions (%sshape %s)",
		a.want.Model, p.Name, expects.Rank(), expects, found.Rank(), note, found)
}

// Narrow returns the dims that fit both declarations, where -1 fits any extent. It reports false if none fit.
func Narrow(a, b tensor.Shape) (tensor.Shape, bool) {
	if a.Rank() != b.Rank() {
		return a, false
	}
	for i, d := range b.Dims() {
		switch have := a.Dim(i); {
		case d == -1 || d == have:
		case have == -1:
			a.SetDim(i, d)
		default:
			return a, false
		}
	}
	return a, true
}

// batchIO adds batch_input and batch_output to the signature, as far as it has the ports that they name.
func (s *Signature) batchIO(cfg *modelconfig.ModelConfig) {
	s.Computed, s.Scattered = nil, nil
	for _, in := range cfg.GetBatchInput() {
		source := s.source(in.GetSourceInput())
		for _, name := range in.GetTargetName() {
			s.Computed = append(s.Computed, Computed{Name: name, DType: tensor.DType(in.GetDataType()), Kind: in.GetKind(), Source: source, At: -1})
		}
	}
	for _, out := range cfg.GetBatchOutput() {
		source := s.source(out.GetSourceInput())
		for _, name := range out.GetTargetName() {
			if at := s.Output(name); at >= 0 {
				s.Outputs[at].Unbatched = true
				s.Scattered = append(s.Scattered, Scattered{Output: at, Source: source})
			}
		}
	}
}

// dropBatchIO removes what batchIO has added.
func (s *Signature) dropBatchIO() {
	for _, x := range s.Scattered {
		s.Outputs[x.Output].Unbatched = false
	}
	s.Computed, s.Scattered = nil, nil
}

// source returns the index of the one source input, or -1.
func (s *Signature) source(names []string) int {
	if len(names) == 0 {
		return -1
	}
	return s.Input(names[0])
}

// Dims returns the dims of a computed input, which has no batch dimension.
func (c *Computed) Dims() tensor.Shape {
	if c.Kind == modelconfig.BatchInput_BATCH_ITEM_SHAPE {
		return tensor.Of(-1, -1)
	}
	return tensor.Of(-1)
}

// checkBatchIO rejects settings that only the model's own ports show to be impossible.
func (s *Signature) checkBatchIO(cfg *modelconfig.ModelConfig) error {
	for i := range s.Computed {
		if c := &s.Computed[i]; c.Source < 0 {
			return status.Errorf(status.InvalidArg, "unable to load model '%s', batch input '%s' has an unknown source input name", s.Model, c.Name)
		}
	}
	for _, out := range cfg.GetBatchOutput() {
		for _, name := range out.GetTargetName() {
			if s.Output(name) < 0 {
				return status.Errorf(status.InvalidArg, "unable to load model '%s', unknown target output name '%s'", s.Model, name)
			}
		}
	}
	for _, x := range s.Scattered {
		if err := s.checkScattered(x); err != nil {
			return err
		}
	}
	return nil
}

func (s *Signature) checkScattered(x Scattered) error {
	out := &s.Outputs[x.Output]
	if x.Source < 0 {
		return status.Errorf(status.InvalidArg, "unable to load model '%s', batch output '%s' has an unknown source input name", s.Model, out.Name)
	}
	in := &s.Inputs[x.Source]
	dims, from := out.ModelDims(), in.ModelDims()
	if i := slices.Index(dims.Dims()[min(from.Rank(), dims.Rank()):], -1); i >= 0 {
		return status.Errorf(status.InvalidArg,
			"unable to load model '%s', batch output '%s' has variable dimension %d, which its source input '%s' with dims %s does not have",
			s.Model, out.Name, from.Rank()+i, in.Name, from)
	}
	if s.Decoupled {
		return status.Errorf(status.Unsupported, "unable to load model '%s', batch output '%s' of a decoupled model is not supported", s.Model, out.Name)
	}
	return nil
}

// computed checks that the model has the computed inputs with suitable types, and returns its other inputs.
func (a *agreement) computed(have []Port) ([]Port, error) {
	given := slices.Clone(have)
	for i := range a.want.Computed {
		c := &a.want.Computed[i]
		at := indexOf(given, c.Name)
		if at < 0 {
			return nil, a.unexpected("input", c.Name, have)
		}
		p := &given[at]
		if p.DType != c.DType {
			return nil, a.wrongType("input", c.Name, c.DType, p.DType)
		}
		if !p.Unbatched {
			return nil, a.notUnbatched("batch_input", "input", c.Name)
		}
		given = slices.Delete(given, at, at+1)
	}
	return given, nil
}

// unbatched merges a tensor without a batch dimension. Its dims are those of requests.
func (a *agreement) unbatched(kind string, want, p *Port) error {
	field := "allow_ragged_batch"
	if kind == "output" {
		field = "batch_output"
	}
	switch {
	case !p.Unbatched:
		return a.notUnbatched(field, kind, want.Name)
	case !want.Unbatched:
		return a.refuse(status.InvalidArg, "%s '%s' expects %s", kind, want.Name, field)
	case want.Dims.Rank() == 0:
		return a.refuse(status.InvalidArg, "%s '%s' with %s must specify 'dims'", kind, want.Name, field)
	}
	p.Dims, p.Reshape, p.Optional = want.Dims, want.Reshape, want.Optional
	return nil
}

// notUnbatched rejects batch_input and batch_output for a backend that does not support them.
func (a *agreement) notUnbatched(field, kind, name string) error {
	return a.refuse(status.Unsupported, "%s of %s '%s' is not supported by its backend", field, kind, name)
}
