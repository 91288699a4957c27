package tutti

import (
	"context"
	"slices"

	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/pipeline/plan"
)

// stepModels returns the models of a plan's steps, each once, in the order of the plan.
func stepModels(p *plan.Plan) []string {
	var order []string
	for i := range p.Nodes {
		if !slices.Contains(order, p.Nodes[i].Model) {
			order = append(order, p.Nodes[i].Model)
		}
	}
	return order
}

// remoteOrder is stepModels of a model of a server, whose plan is made of the
// configurations that the server answers with. It is nil when they do not tell, and for
// a model that is no ensemble.
func remoteOrder(ctx context.Context, c client.Client, model string) []string {
	cfg, err := c.Config(ctx, model)
	if err != nil || !config.IsEnsemble(cfg) {
		return nil
	}
	p, err := plan.Compile(cfg, 0, configured(func(name string) (plan.Model, error) {
		cfg, err := c.Config(ctx, name)
		if err != nil {
			return plan.Model{}, err
		}
		m := plan.Model{Signature: config.SignatureOf(cfg)}
		if config.IsEnsemble(cfg) {
			m.Ensemble = cfg
		}
		return m, nil
	}))
	if err != nil {
		return nil
	}
	return stepModels(p)
}

// configured is a plan.Lookup of models by name alone.
type configured func(name string) (plan.Model, error)

// Model implements plan.Lookup.
func (f configured) Model(name string, _ int64) (plan.Model, error) { return f(name) }
