// Package query implements the backend query, whose outputs name the memory that was chosen for them. Tests of
// memory placement use it; its texts are those of Triton's model of this name.
package query

import (
	"context"
	"os"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// failKey is the parameter that makes requests fail with the text.
const failKey = "fail_with_query_result"

// failVariable is the environment variable that does the same for all models, as in Triton.
const failVariable = "TEST_FAIL_WITH_QUERY_RESULT"

// NewFactory returns the factory of the backend query. Its models have no files and do not batch: config.pbtxt
// declares any inputs, which are ignored, and outputs TYPE_UINT8 [ -1 ]. Each output is a text of its name, the
// kind of memory that was chosen for it (CPU, CPU_PINNED, GPU) and the number of the device. For example, the
// output OUTPUT0 in host memory is "OUTPUT0 CPU 0".
//
// With the parameter fail_with_query_result "true" the request fails with these texts, separated by spaces, as
// Triton's model does. Without the parameter, setting the environment variable TEST_FAIL_WITH_QUERY_RESULT has the
// same effect.
func NewFactory() backends.Factory {
	return backends.Factory{
		Name:   "query",
		Guide:  backends.Guide{Doc: "Returns the place that was chosen for the memory of each output. For tests of clients."},
		Params: []string{failKey},
		New:    func(backends.Options) (backends.Backend, error) { return backends.Loader(load), nil },
	}
}

// load checks the outputs and the parameters.
func load(_ context.Context, s backends.Settings) (backends.Model, error) {
	cfg := s.Config
	m := &model{Ports: backends.Ports{Sig: &config.Signature{Model: s.Model, Version: s.Version}}}
	if n := cfg.GetMaxBatchSize(); n != 0 {
		return nil, status.Errorf(status.InvalidArg, "model '%s': backend 'query' does not batch, expected max_batch_size 0, found %d", s.Model, n)
	}
	if err := m.parse(cfg.GetParameters()); err != nil {
		return nil, err
	}
	for _, in := range cfg.GetInput() {
		m.Sig.Inputs = append(m.Sig.Inputs, config.Port{
			Name: in.GetName(), DType: tensor.DType(in.GetDataType()), Dims: tensor.Of(in.GetDims()...), Optional: in.GetOptional(),
		})
	}
	for _, out := range cfg.GetOutput() {
		if dims := out.GetDims(); out.GetDataType() != modelconfig.DataType_TYPE_UINT8 || len(dims) != 1 || dims[0] != -1 {
			return nil, status.Errorf(status.InvalidArg, "model '%s': output '%s' is %s %s, expected TYPE_UINT8 [-1] by backend 'query'",
				s.Model, out.GetName(), out.GetDataType(), tensor.Of(dims...))
		}
		m.Sig.Outputs = append(m.Sig.Outputs, config.Port{Name: out.GetName(), DType: tensor.Uint8, Dims: tensor.Of(-1)})
	}
	if len(m.Sig.Inputs) == 0 || len(m.Sig.Outputs) == 0 {
		return nil, status.Errorf(status.InvalidArg, "model '%s': backend 'query' expects inputs and outputs in its configuration, found %d and %d",
			s.Model, len(m.Sig.Inputs), len(m.Sig.Outputs))
	}
	return m, nil
}

// model is a loaded configuration. It is also its only instance because it has no state.
type model struct {
	backends.Ports
	fail bool
}

func (m *model) parse(params map[string]*modelconfig.ModelParameter) error {
	p, given := params[failKey]
	if !given {
		_, m.fail = os.LookupEnv(failVariable)
		return nil
	}
	var err error
	if m.fail, err = strconv.ParseBool(p.GetStringValue()); err != nil {
		return status.Errorf(status.InvalidArg, "model '%s': parameter '%s' is '%s', expected true or false", m.Sig.Model, failKey, p.GetStringValue())
	}
	return nil
}

// Inline reports true: an execution takes a microsecond.
func (*model) Inline() bool { return true }

// NewInstance returns the only instance, which writes outputs from the host. It rejects devices.
func (m *model) NewInstance(_ context.Context, at tensor.Place) (backends.Instance, error) {
	if at.Kind == tensor.Device {
		return nil, status.Errorf(status.Unsupported, "model '%s': backend 'query' on %s is not supported", m.Sig.Model, at)
	}
	return m, nil
}

// Execute sets each output to its text.
func (m *model) Execute(_ context.Context, b *backends.Batch) error {
	at := b.Allocator.Place()
	texts := make([]string, len(m.Sig.Outputs))
	for i := range texts {
		texts[i] = m.Sig.Outputs[i].Name + " " + kinds[at.Kind] + " " + strconv.Itoa(int(at.ID))
	}
	if m.fail {
		return status.Reasonf(status.ModelNotReady, "%s", strings.Join(texts, " "))
	}
	if at.Kind == tensor.Device {
		return status.Errorf(status.Unsupported, "model '%s': backend 'query' cannot write to %s", m.Sig.Model, at)
	}
	for i, text := range texts {
		out, err := b.Alloc(i, tensor.Uint8, tensor.Of(int64(len(text))))
		if err != nil {
			return err
		}
		copy(out.Bytes(), text)
	}
	return nil
}

// kinds are Triton's names for the kinds of memory.
var kinds = [...]string{tensor.Host: "CPU", tensor.Pinned: "CPU_PINNED", tensor.Device: "GPU"}
