package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/pipeline/plan"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// timing is a response with its times from the server's statistics.
type timing struct {
	resp *client.Response
	took time.Duration // measured by the client
	// models have the difference of their statistics. If alone is true, the differences come from this request
	// only: no other request ran meanwhile.
	models []modelTime
	alone  bool
}

// modelTime is the time of the requests to one model.
type modelTime struct {
	model                 string
	requests              uint64
	queue, compute, total time.Duration
}

// timedInfer sends one request and measures its times.
func timedInfer(ctx context.Context, c client.Client, req *client.Request) (*timing, error) {
	return measure(ctx, c, req.Model, func() (*client.Response, error) { return c.Infer(ctx, req) })
}

// measure reads the statistics before and after a request, so that it works with every server that has statistics.
// If a server refuses them, the result has no times of steps.
func measure(ctx context.Context, c client.Client, model string, request func() (*client.Response, error)) (*timing, error) {
	before, err := c.Statistics(ctx, "")
	_, none := errors.AsType[*client.Error](err)
	if err != nil && !none {
		return nil, err
	}
	began := time.Now()
	resp, err := request()
	t := &timing{resp: resp, took: time.Since(began)}
	if err != nil || none {
		return t, err
	}
	return t, t.awaitCounted(ctx, c, model, before)
}

const (
	settleTries = 50
	settleWait  = 2 * time.Millisecond
)

// awaitCounted reads the statistics until they include the request: a server may count it after it has responded.
func (t *timing) awaitCounted(ctx context.Context, c client.Client, model string, before []infer.Statistics) error {
	for range settleTries {
		after, err := c.Statistics(ctx, "")
		if err != nil {
			return err
		}
		t.models = difference(before, after)
		requests := uint64(0)
		for _, m := range t.models {
			if m.model == model {
				requests += m.requests
			}
		}
		t.alone = requests == 1
		if requests > 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(settleWait):
		}
	}
	return nil
}

// difference returns the difference between two readings of the statistics, in the order of the later.
func difference(before, after []infer.Statistics) []modelTime {
	old := map[[2]string]infer.InferenceStats{}
	for i := range before {
		old[[2]string{before[i].Name, before[i].Version}] = before[i].Inference
	}
	var list []modelTime
	for i := range after {
		now, was := &after[i].Inference, old[[2]string{after[i].Name, after[i].Version}]
		if now.Success.Count == was.Success.Count {
			continue
		}
		list = append(list, modelTime{
			model:    after[i].Name,
			requests: now.Success.Count - was.Success.Count,
			total:    since(now.Success, was.Success),
			queue:    since(now.Queue, was.Queue),
			compute: since(now.ComputeInput, was.ComputeInput) + since(now.ComputeInfer, was.ComputeInfer) +
				since(now.ComputeOutput, was.ComputeOutput),
		})
	}
	return list
}

func since(now, was infer.Duration) time.Duration { return time.Duration(now.Ns - was.Ns) } //nolint:gosec // a difference of counters

// rows returns the table of the times of the steps; the requested model is last. order, unless nil, has the other
// models in order.
func (t *timing) rows(model string, order []string) [][]string {
	if order == nil {
		for i := range t.models {
			order = append(order, t.models[i].model)
		}
		order = slices.Compact(order)
	}
	order = slices.DeleteFunc(slices.Clone(order), func(name string) bool { return name == model })
	rows := [][]string{{"step", "requests", "queue", "compute", "total"}}
	for _, name := range append(order, model) {
		for i := range t.models {
			if m := &t.models[i]; m.model == name {
				row := []string{name, "n/a", "n/a", "n/a", "n/a"}
				if t.alone {
					row = []string{name, strconv.FormatUint(m.requests, 10), micros(m.queue), micros(m.compute), micros(m.total)}
				}
				rows = append(rows, row)
			}
		}
	}
	return rows
}

func micros(d time.Duration) string {
	return fmt.Sprintf("%.0f us", float64(d)/float64(time.Microsecond))
}

// planOrder returns the models of the steps of an ensemble in the order of its plan, each model once. It returns nil for a model that
// is no ensemble, and when a configuration cannot be read.
func planOrder(ctx context.Context, c client.Client, model string) []string {
	p, _, err := serverPlan(ctx, c, model)
	if err != nil || !p.Ensemble {
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

// serverPlan compiles the plan of a model from the configurations of its server, and returns these by model.
func serverPlan(ctx context.Context, c client.Client, model string) (*plan.Plan, map[string]*modelconfig.ModelConfig, error) {
	cfg, err := c.Config(ctx, model)
	if err != nil {
		return nil, nil, err
	}
	configs := map[string]*modelconfig.ModelConfig{model: cfg}
	if !config.IsEnsemble(cfg) {
		p := plan.Single(config.SignatureOf(cfg))
		p.Nodes[0].Name, p.Nodes[0].Model = model, model
		return p, configs, nil
	}
	p, err := plan.Compile(cfg, 0, lookup(func(name string) (plan.Model, error) {
		cfg, err := c.Config(ctx, name)
		if err != nil {
			return plan.Model{}, err
		}
		configs[name] = cfg
		m := plan.Model{Signature: config.SignatureOf(cfg)}
		if config.IsEnsemble(cfg) {
			m.Ensemble = cfg
		}
		return m, nil
	}))
	return p, configs, err
}

// lookup is a plan.Lookup that ignores versions.
type lookup func(name string) (plan.Model, error)

// Model implements plan.Lookup.
func (f lookup) Model(name string, _ int64) (plan.Model, error) { return f(name) }
