package tensorflow

import (
	"slices"

	"github.com/tutti-server/tutti/backends/bind"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// port is one input or output as the model's files have it.
type port = bind.Port[native]

// boundPort is one port of the model as the signature uses it.
type boundPort = bind.Bound[native]

// native is how the runtime knows a port.
type native struct {
	tf int    // the runtime's number of the element type
	at string // the operation and the position of its result
}

// bound checks the configuration against the model, and takes from the file what the configuration leaves out.
func bound(cfg *modelconfig.ModelConfig, ins, outs []port, byDefault int) (*bind.Binding[native], error) {
	// Graphs often do not know what their results turn out to be.
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

// shaped refuses to complete ports of which the model does not say how many dimensions they have.
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
