package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/internal/load"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// taxed is the number of requests that are recorded for the steps alone.
const taxed = 16

// step is a model of an ensemble, and the requests that the ensemble sends it.
type step struct {
	model    string
	requests []load.Request
}

// tax compares an ensemble with its slowest step alone, through the socket.
type tax struct {
	Scenario string  `json:"scenario"`
	Server   string  `json:"server"`
	Protocol string  `json:"protocol"`
	Clients  int     `json:"clients"`
	Ensemble figures `json:"ensemble"`
	Steps    []struct {
		Model string `json:"model"`
		figures
	} `json:"steps"`
	Slowest string  `json:"slowest"`
	Ratio   float64 `json:"ratio"`     // the ensemble's throughput over its slowest step's
	CPU     float64 `json:"cpu_ratio"` // the ensemble's CPU per request over the sum of its steps'
}

// taxes measures the ensemble and its steps alternately, for each server that has the steps as separate models.
func (m *matrix) taxes(ctx context.Context, s *scenario, servers []*server) error {
	protocol := load.Binary
	if !servers[0].can[protocol] {
		protocol = m.protocols[0]
	}
	var steps []step
	for _, v := range servers {
		if !v.can[protocol] {
			continue
		}
		if steps == nil {
			var err error
			if steps, err = s.steps(v, protocol); err != nil {
				return err
			}
		}
		if slices.ContainsFunc(steps, func(t step) bool { return !v.has(t.model) }) {
			logf("%s: %s has no steps to measure alone", s.name, v.name)
			continue
		}
		for _, n := range m.concurrency {
			if err := m.taxOf(ctx, s, v, protocol, n, steps); err != nil {
				return err
			}
		}
	}
	return nil
}

// has reports whether a server has a ready model of that name.
func (v *server) has(model string) bool {
	resp, err := http.Get("http://" + v.HTTP + "/v2/models/" + model + "/ready")
	if err != nil {
		return false
	}
	return resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
}

// taxOf measures one server at one concurrency.
func (m *matrix) taxOf(ctx context.Context, s *scenario, v *server, protocol string, n int, steps []step) (err error) {
	logf("%s: the tax of %s over %s, %d clients", s.name, v.name, protocol, n)
	t := tax{Scenario: s.name, Server: v.name, Protocol: protocol, Clients: n}
	all := append([]step{{model: s.ensemble, requests: s.requests[:min(taxed, len(s.requests))]}}, steps...)
	of := make([]figures, len(all))
	groups := make([]*load.Group, len(all))
	defer func() {
		for _, g := range groups {
			if g != nil {
				err = errors.Join(err, g.Close())
			}
		}
	}()
	for i := range all {
		if groups[i], err = load.Dial(v.target(), protocol, all[i].requests, n); err != nil {
			return err
		}
	}
	for range m.rounds {
		for i := range all {
			if err := ctx.Err(); err != nil {
				return err
			}
			r, err := measure(v, groups[i], load.Plan{Duration: m.time, Least: m.least})
			if err != nil {
				return fmt.Errorf("%s, model '%s': %w", v.name, all[i].model, err)
			}
			of[i].Rounds = append(of[i].Rounds, r)
		}
	}
	t.fill(all, of)
	m.report.Taxes = append(m.report.Taxes, t)
	return nil
}

// fill sets the figures of the ensemble and its steps.
func (t *tax) fill(all []step, of []figures) {
	cpu, least := 0.0, 0.0
	for i := range all {
		of[i].Server = t.Server
		of[i].sum()
		if i == 0 {
			continue
		}
		t.Steps = append(t.Steps, struct {
			Model string `json:"model"`
			figures
		}{all[i].model, of[i]})
		cpu += of[i].CPU
		if least == 0 || of[i].Throughput < least {
			least, t.Slowest = of[i].Throughput, all[i].model
		}
	}
	t.Ensemble, t.Ratio = of[0], of[0].Throughput/least
	if cpu > 0 {
		t.CPU = of[0].CPU / cpu
	}
}

// steps finds the steps of a scenario's ensemble and the requests that the ensemble sends them. A server runs the
// steps one after another.
func (s *scenario) steps(v *server, protocol string) ([]step, error) {
	cfg, err := config.Load(filepath.Join(s.dir, s.ensemble))
	if err != nil {
		return nil, err
	}
	nodes := cfg.GetEnsembleScheduling().GetStep()
	steps := make([]step, len(nodes))
	for i, n := range nodes {
		steps[i].model = n.GetModelName()
	}
	for i := range min(taxed, len(s.requests)) {
		known := map[string]load.Tensor{}
		for _, t := range s.requests[i].Inputs {
			known[t.Name] = t
		}
		left := len(nodes)
		for range nodes { // each pass runs at least one step, or the rest can never run
			for j, n := range nodes {
				if len(steps[j].requests) > i || !supplied(n, known) {
					continue
				}
				r := load.Request{Model: n.GetModelName(), Outputs: outputsOf(n)}
				if err := steps[j].run(v, protocol, &r, n, known); err != nil {
					return nil, fmt.Errorf("model '%s': %w", r.Model, err)
				}
				left--
			}
		}
		if left > 0 {
			return nil, fmt.Errorf("%d steps of '%s' have inputs that no step and no request provides", left, s.ensemble)
		}
	}
	return steps, nil
}

func supplied(n *modelconfig.ModelEnsembling_Step, known map[string]load.Tensor) bool {
	for _, name := range n.GetInputMap() {
		if _, ok := known[name]; !ok {
			return false
		}
	}
	return true
}

func outputsOf(n *modelconfig.ModelEnsembling_Step) []string {
	var names []string
	for name := range n.GetOutputMap() {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// run sends a step's request and adds its outputs to known.
func (t *step) run(v *server, protocol string, r *load.Request, n *modelconfig.ModelEnsembling_Step, known map[string]load.Tensor) error {
	var names []string
	for name := range n.GetInputMap() {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		in := known[n.GetInputMap()[name]]
		in.Name = name
		r.Inputs = append(r.Inputs, in)
	}
	t.requests = append(t.requests, *r)
	got, err := load.Infer(v.target(), protocol, r)
	if err != nil {
		return err
	}
	for i := range got {
		out, err := got[i].Tensor(got[i].Name)
		if err != nil {
			return err
		}
		known[n.GetOutputMap()[got[i].Name]] = out
	}
	return nil
}
