package tensorflow

import (
	"slices"

	"github.com/tutti-server/tutti/backends/bind"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// port is an input or output of the model.
type port = bind.Port[native]

// boundPort is a port of the model that is bound to a port of the signature.
type boundPort = bind.Bound[native]

// native is the backend's own data about a port.
type native struct {
	tf int    // element type, by number of the runtime
	at string // operation and index of its output, for example "dense/BiasAdd:0"
}

// bound binds the configuration to the model.
func bound(cfg *modelconfig.ModelConfig, ins, outs []port, byDefault int) (*bind.Binding[native], error) {
	// The output shapes of graphs are often not reliable.
	m := &bind.Model[native]{Ins: ins, Outs: outs, WholeBatch: true, LooseOutputs: true}
	maxBatch, err := m.MaxBatch(cfg, byDefault)
	if err != nil {
		return nil, err
	}
	if err := shaped(cfg, m.RequestInputs(cfg), outs); err != nil {
		return nil, err
	}
	return bind.Bind(cfg, m, maxBatch)
}

// shaped refuses a configuration that leaves out ports of unknown rank.
func shaped(cfg *modelconfig.ModelConfig, ins, outs []port) error {
	var missing []port
	if len(cfg.GetInput()) == 0 {
		missing = append(missing, ins...)
	}
	if len(cfg.GetOutput()) == 0 {
		missing = append(missing, outs...)
	}
	if i := slices.IndexFunc(missing, func(p port) bool { return p.AnyRank }); i >= 0 {
		return status.Errorf(status.InvalidArg, "autofill failed for model '%s': the configuration must declare tensor '%s', whose shape the model does not say",
			cfg.GetName(), missing[i].Name)
	}
	return nil
}
