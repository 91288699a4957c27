package tune

import (
	"fmt"
	"log/slog"
	"runtime"
	"slices"

	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/pipeline/plan"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/batch"
)

// network makes the network of an ensemble, without costs. It fails for ensembles that tune does not support.
func (l *bench) network(ensemble string) (*Network, *plan.Plan, error) {
	p, err := l.Plan(ensemble, 0)
	if err != nil {
		return nil, nil, err
	}
	n := &Network{Ensemble: ensemble}
	producer := make([]int, p.Slots)
	for i := range producer {
		producer[i] = -1
	}
	for i := range p.Nodes {
		node := &p.Nodes[i]
		if err := l.unsupported(node); err != nil {
			return nil, nil, err
		}
		k := slices.IndexFunc(n.Models, func(m Model) bool { return m.Name == node.Model })
		if k < 0 {
			m, err := l.model(node)
			if err != nil {
				return nil, nil, err
			}
			k, n.Models = len(n.Models), append(n.Models, m)
		}
		added := Node{Name: node.Name, Model: k}
		for _, slot := range node.In {
			if slot != plan.None && producer[slot] >= 0 && !slices.Contains(added.After, producer[slot]) {
				added.After = append(added.After, producer[slot])
			}
		}
		for _, slot := range node.Out {
			if slot != plan.None {
				producer[slot] = i
			}
		}
		n.Nodes = append(n.Nodes, added)
	}
	return n, p, nil
}

// unsupported returns why a step cannot be simulated, nil if it can.
func (l *bench) unsupported(node *plan.Node) error {
	if node.Operation != nil {
		return fmt.Errorf("the ensemble has the %s '%s': tune supports ensembles whose steps all run for every request", node.Kind(), node.Label())
	}
	cfg, err := l.Config(node.Model, max(node.Version, 0))
	switch {
	case err != nil:
		return err
	case node.Signature.Decoupled:
		return fmt.Errorf("model '%s' is decoupled: tune supports models with one response to a request", node.Model)
	case cfg.GetSequenceBatching() != nil:
		return fmt.Errorf("model '%s' has sequence_batching: tune supports models without sequences", node.Model)
	case node.OnDevice || slices.ContainsFunc(node.Places, func(p tensor.Place) bool { return p.Kind == tensor.Device }):
		return fmt.Errorf("model '%s' executes on a GPU: tune supports models on the CPU (KIND_CPU)", node.Model)
	}
	return nil
}

// model describes the model of a step.
func (l *bench) model(node *plan.Node) (Model, error) {
	cfg, err := l.Config(node.Model, max(node.Version, 0))
	if err != nil {
		return Model{}, err
	}
	m := Model{Name: node.Model, Config: cfg, Current: settingOf(cfg, runtime.GOMAXPROCS(0)), Largest: cfg.GetMaxBatchSize()}
	padding, err := paddingOf(node, cfg.GetParameters())
	m.Padded = padding != nil
	// Steps in Go execute on the goroutine of the step before, unless they batch requests.
	m.Inline = slices.Contains([]string{"native", "identity", "query"}, cfg.GetBackend()) && !m.Current.Batching
	return m, err
}

func paddingOf[P interface{ GetStringValue() string }](node *plan.Node, parameters map[string]P) (*batch.Padding, error) {
	params := map[string]string{}
	for key, p := range parameters {
		params[key] = p.GetStringValue()
	}
	return batch.NewPadding(node.Signature, params)
}

// sizes returns the sizes of a sample at each node, as the server's batcher measures them.
func (l *bench) sizes(p *plan.Plan, inputs [][]client.Tensor) (sizes []Size, err error) {
	for i := range p.Nodes {
		node := &p.Nodes[i]
		cfg, err := l.Config(node.Model, max(node.Version, 0))
		if err != nil {
			return nil, err
		}
		padding, err := paddingOf(node, cfg.GetParameters())
		if err != nil {
			return nil, err
		}
		runner := batch.NewRunner(batch.Settings{
			Signature: node.Signature, Padding: padding, Alloc: l.Alloc, Stats: &telemetry.Model{}, Log: slog.New(slog.DiscardHandler),
		})
		w := &scheduler.Task{}
		w.Rows = 1
		w.In = make([]tensor.Tensor, len(node.Signature.Inputs))
		c, err := l.NewCall(node.Model, node.Version, inputs[i], 1)
		if err != nil {
			return nil, err
		}
		for k := range c.Inputs {
			port := node.Signature.Input(c.Inputs[k].Name)
			w.In[port] = c.Inputs[k].Tensor
			if node.Signature.MaxBatch > 0 {
				w.Rows = int32(c.Inputs[k].Tensor.Shape.Dims()[0]) //nolint:gosec // at most max_batch_size
			}
		}
		runner.Measure(w)
		c.Release()
		sizes = append(sizes, Size{Rows: w.Rows, Length: w.Length, Elements: w.Elements, Shape: w.Shape})
	}
	return sizes, nil
}
