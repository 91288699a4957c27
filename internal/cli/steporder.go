package cli

import (
	"context"
	"slices"

	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/pipeline/plan"
)

// planOrder returns the models of the steps of an ensemble in the order of its plan, each model once. It compiles the plan
// from the configurations of the server. It returns nil for a model that is no ensemble, and when a configuration cannot
// be read.
func planOrder(ctx context.Context, c client.Client, model string) []string {
	cfg, err := c.Config(ctx, model)
	if err != nil || !config.IsEnsemble(cfg) {
		return nil
	}
	p, err := plan.Compile(cfg, 0, lookup(func(name string) (plan.Model, error) {
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
	var order []string
	for i := range p.Nodes {
		if !slices.Contains(order, p.Nodes[i].Model) {
			order = append(order, p.Nodes[i].Model)
		}
	}
	return order
}

// lookup is a plan.Lookup that ignores versions.
type lookup func(name string) (plan.Model, error)

// Model implements plan.Lookup.
func (f lookup) Model(name string, _ int64) (plan.Model, error) { return f(name) }
