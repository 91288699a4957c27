package remote

import (
	"context"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/inference"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// description is what a far server says of its model.
type description struct {
	inputs, outputs []farPort
	// known says that the server has the method ModelConfig, from which the rest is.
	known     bool
	maxBatch  int
	decoupled bool
	sequence  bool
}

// farPort is an input or output of the far model. Its shape includes the batch dimension.
type farPort struct {
	name     string
	dtype    tensor.DType
	shape    tensor.Shape
	optional bool
}

// The most inputs, outputs and dimensions that the metadata may list.
const (
	maxPorts = 4096
	maxDims  = 64
)

// describe asks for the metadata and the configuration of the far model. A server without ModelConfig gives the former only.
func describe(ctx context.Context, conn grpc.ClientConnInterface, set *settings) (*description, error) {
	stub := inference.NewGRPCInferenceServiceClient(conn)
	meta, err := stub.ModelMetadata(ctx, &inference.ModelMetadataRequest{Name: set.model, Version: set.version})
	if err != nil {
		return nil, set.callError(ctx, err, nil)
	}
	far := &description{}
	if far.inputs, err = set.farPorts("input", meta.GetInputs()); err != nil {
		return nil, err
	}
	if far.outputs, err = set.farPorts("output", meta.GetOutputs()); err != nil {
		return nil, err
	}
	resp, err := stub.ModelConfig(ctx, &inference.ModelConfigRequest{Name: set.model, Version: set.version})
	if grpcstatus.Code(err) == codes.Unimplemented {
		return far, nil
	}
	if err != nil {
		return nil, set.callError(ctx, err, nil)
	}
	cfg := resp.GetConfig()
	far.known, far.maxBatch = true, int(cfg.GetMaxBatchSize())
	far.decoupled = cfg.GetModelTransactionPolicy().GetDecoupled()
	far.sequence = cfg.GetSequenceBatching() != nil
	for _, in := range cfg.GetInput() {
		if i := portOf(far.inputs, in.GetName()); i >= 0 {
			far.inputs[i].optional = in.GetOptional()
		}
	}
	return far, nil
}

func portOf(list []farPort, name string) int {
	return slices.IndexFunc(list, func(p farPort) bool { return p.name == name })
}

// farPorts checks the metadata of inputs or outputs.
func (s *settings) farPorts(kind string, list []*inference.ModelMetadataResponse_TensorMetadata) ([]farPort, error) {
	if len(list) > maxPorts {
		return nil, status.Errorf(status.Internal, "%s has %d %ss, expected at most %d", s.where(nil), len(list), kind, maxPorts)
	}
	var ports []farPort
	for _, t := range list {
		d := tensor.ParseDType(t.GetDatatype())
		switch {
		case d == tensor.Invalid:
			return nil, status.Errorf(status.Unsupported, "%s has %s '%s' of the unknown data type '%s'", s.where(nil), kind, t.GetName(), t.GetDatatype())
		case t.GetName() == "" || portOf(ports, t.GetName()) >= 0:
			return nil, status.Errorf(status.Internal, "%s has two %ss with the name '%s', or one without a name", s.where(nil), kind, t.GetName())
		case len(t.GetShape()) > maxDims || slices.ContainsFunc(t.GetShape(), func(n int64) bool { return n < -1 }):
			return nil, status.Errorf(status.Internal, "%s has %s '%s' of the shape %v, expected at most %d dimensions of -1 or more", s.where(nil), kind, t.GetName(), t.GetShape(), maxDims)
		}
		ports = append(ports, farPort{name: t.GetName(), dtype: d, shape: tensor.Of(t.GetShape()...)})
	}
	return ports, nil
}

// complete reports whether a model can be loaded by its configuration alone.
func complete(cfg *modelconfig.ModelConfig) bool {
	return len(cfg.GetInput()) > 0 && len(cfg.GetOutput()) > 0 && len(config.CheckComplete(cfg)) == 0
}

// merger compares a configuration with the far model.
type merger struct {
	cfg    *modelconfig.ModelConfig
	far    *description
	set    *settings
	strict bool
}

// merge returns the signature of a model with the configuration cfg, completed by the far model, and the completed
// configuration. Contradictions are errors that name both sides.
func (m *merger) merge() (*config.Signature, *modelconfig.ModelConfig, error) {
	batch, err := m.maxBatch()
	if err != nil {
		return nil, nil, err
	}
	cfg := proto.CloneOf(m.cfg)
	cfg.MaxBatchSize = int32(batch)
	if err := m.policy(cfg); err != nil {
		return nil, nil, err
	}
	sig := &config.Signature{Model: cfg.GetName(), MaxBatch: batch, Decoupled: cfg.GetModelTransactionPolicy().GetDecoupled()}
	for i := range m.far.inputs {
		p, err := m.port("input", &m.far.inputs[i], batch)
		if err != nil {
			return nil, nil, err
		}
		sig.Inputs = append(sig.Inputs, p)
	}
	for i := range m.far.outputs {
		name := m.far.outputs[i].name
		if list := cfg.GetOutput(); len(list) > 0 && !slices.ContainsFunc(list, func(o *modelconfig.ModelOutput) bool { return o.GetName() == name }) {
			continue // not served
		}
		p, err := m.port("output", &m.far.outputs[i], batch)
		if err != nil {
			return nil, nil, err
		}
		sig.Outputs = append(sig.Outputs, p)
	}
	return sig, cfg, m.declared(sig)
}

// policy completes the transaction policy.
func (m *merger) policy(cfg *modelconfig.ModelConfig) error {
	if !m.far.known {
		return nil
	}
	if cfg.GetModelTransactionPolicy() == nil && m.far.decoupled && !m.strict {
		cfg.ModelTransactionPolicy = &modelconfig.ModelTransactionPolicy{Decoupled: true}
	}
	if have := cfg.GetModelTransactionPolicy().GetDecoupled(); have != m.far.decoupled {
		return m.contradiction("model_transaction_policy", "'decoupled' is %t, but %s has %t", have, m.set.where(nil), m.far.decoupled)
	}
	return nil
}

// maxBatch returns max_batch_size: the configuration's, or the far model's if that is 0 and the declared shapes have no batch
// dimension.
func (m *merger) maxBatch() (int, error) {
	want := int(m.cfg.GetMaxBatchSize())
	switch {
	case want == 0 && (m.strict || m.declaresBatch()):
		return 0, nil
	case want == 0:
		return m.far.maxBatch, nil
	case m.far.known && m.far.maxBatch > 0 && want > m.far.maxBatch:
		return 0, m.contradiction("max_batch_size", "'max_batch_size' is %d, but that of %s is %d", want, m.set.where(nil), m.far.maxBatch)
	}
	return want, nil
}

// declaresBatch reports whether a declared shape includes the far model's batch dimension.
func (m *merger) declaresBatch() bool {
	for i := range m.far.inputs {
		f := &m.far.inputs[i]
		for _, in := range m.cfg.GetInput() {
			if in.GetName() == f.name && len(in.GetDims()) > 0 {
				return len(in.GetDims()) == f.shape.Rank()
			}
		}
	}
	return false
}

// port returns the port of a far one.
func (m *merger) port(kind string, f *farPort, batch int) (config.Port, error) {
	p := config.Port{Name: f.name, DType: f.dtype, Dims: f.shape, Optional: f.optional}
	if batch == 0 {
		return p, nil
	}
	if f.shape.Rank() == 0 || f.shape.Dim(0) != -1 {
		return p, m.contradiction("max_batch_size", "'max_batch_size' is %d, but %s '%s' of %s has shape %s, expected -1 as its first dimension",
			batch, kind, f.name, m.set.where(nil), f.shape)
	}
	p.Dims = tensor.Of(f.shape.Dims()[1:]...)
	return p, nil
}

// declared compares the declared inputs and outputs with the far ones.
func (m *merger) declared(sig *config.Signature) error {
	want := config.SignatureOf(m.cfg)
	for i := range want.Inputs {
		if err := m.compare("input", &want.Inputs[i], sig.Inputs); err != nil {
			return err
		}
	}
	for i := range want.Outputs {
		if err := m.compare("output", &want.Outputs[i], sig.Outputs); err != nil {
			return err
		}
	}
	return nil
}

func (m *merger) compare(kind string, want *config.Port, have []config.Port) error {
	i := slices.IndexFunc(have, func(p config.Port) bool { return p.Name == want.Name })
	if i < 0 {
		var names []string
		for j := range have {
			names = append(names, have[j].Name)
		}
		return m.contradiction(kind, "%s '%s' is declared, but %s has %s", kind, want.Name, m.set.where(nil), strings.Join(names, ", "))
	}
	_, fits := config.Narrow(want.ModelDims(), have[i].Dims)
	if want.DType != tensor.Invalid && want.DType != have[i].DType || want.Dims.Rank() > 0 && !fits {
		return m.contradiction(kind, "%s '%s' is declared as %s %s, but that of %s is %s %s",
			kind, want.Name, want.DType, want.ModelDims(), m.set.where(nil), have[i].DType, have[i].Dims)
	}
	return nil
}

func (m *merger) contradiction(field, format string, args ...any) error {
	err := config.Errorf(config.Mismatch, field, "model '%s': in its configuration "+format, append([]any{m.cfg.GetName()}, args...)...)
	return config.WithFix(err, "correct the configuration, or leave this out: it is taken from the far model then")
}

// loadError is the reason why a model cannot be loaded without its endpoint.
func loadError(model string, err error) error {
	if status.CodeOf(err) != status.Unavailable {
		return status.Prefixf(err, "unable to load model '%s': ", model)
	}
	return status.Reasonf(status.RemoteUnavailable, "unable to load model '%s': %w; it could load without its endpoint if its configuration had all inputs and outputs", model, err)
}

// differences returns how the far model of now contradicts the signature that a model was loaded with, or "".
func differences(loaded, now *config.Signature) string {
	switch {
	case loaded.Decoupled != now.Decoupled:
		return "it was decoupled or is so now, which differs"
	case loaded.MaxBatch > 0 && now.MaxBatch < loaded.MaxBatch:
		return "max_batch_size was larger, " + tensor.Of(int64(loaded.MaxBatch)).String() + ", and is " + tensor.Of(int64(now.MaxBatch)).String()
	}
	for i := range now.Inputs {
		if p := &now.Inputs[i]; !p.Optional && loaded.Input(p.Name) < 0 {
			return "input '" + p.Name + "' is new"
		}
	}
	if text := portDifferences("input", loaded.Inputs, now.Inputs); text != "" {
		return text
	}
	return portDifferences("output", loaded.Outputs, now.Outputs)
}

func portDifferences(kind string, loaded, now []config.Port) string {
	for i := range loaded {
		p := &loaded[i]
		at := slices.IndexFunc(now, func(q config.Port) bool { return q.Name == p.Name })
		if at < 0 {
			return kind + " '" + p.Name + "' is gone"
		}
		q := &now[at]
		if _, fits := config.Narrow(p.Dims, q.Dims); p.DType != q.DType || !fits {
			return kind + " '" + p.Name + "' was " + p.DType.String() + " " + p.Dims.String() + " and is " + q.DType.String() + " " + q.Dims.String()
		}
	}
	return ""
}
