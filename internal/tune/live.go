package tune

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tutti-server/tutti"
	"github.com/tutti-server/tutti/internal/lab"
	"github.com/tutti-server/tutti/internal/load"
)

// live is a server of the ensemble in this process, with connected clients.
type live struct {
	t        *tuning
	s        *tutti.Server
	over     *lab.Overlay
	requests []load.Request
	target   load.Target
}

// open starts a server with settings. The caller must close it.
func (t *tuning) open(ctx context.Context, settings []Setting) (v *live, err error) {
	v = &live{t: t}
	if v.over, err = lab.NewOverlay(t.Root); err != nil {
		return nil, err
	}
	if err := v.start(ctx, settings); err != nil {
		return nil, errors.Join(err, v.close(ctx))
	}
	return v, nil
}

func (v *live) start(ctx context.Context, settings []Setting) (err error) {
	t := v.t
	for i := range t.network.Models {
		m := &t.network.Models[i]
		if len(Edits(m.Config, &m.Current, &settings[i])) == 0 {
			continue
		}
		if err := t.copyModel(v.over, m, m.Name, &settings[i]); err != nil {
			return err
		}
	}
	args := []string{
		"--model-repository=" + v.over.Dir, "--model-control-mode=explicit", "--load-model=" + t.Ensemble, "--http-address=127.0.0.1", "--http-port=0",
		"--allow-grpc=false", "--allow-metrics=false", "--log-info=false", "--log-warning=false",
	}
	for backend, values := range t.BackendConfig {
		for key, value := range values {
			args = append(args, "--backend-config="+backend+","+key+"="+value)
		}
	}
	var log strings.Builder
	if v.s, err = tutti.Open(ctx, tutti.Settings{Args: args, Components: t.Components, Stderr: &log}); err != nil {
		return fmt.Errorf("a server with %s cannot start: %w", t.describe(settings), err)
	}
	if err := v.s.Start(); err != nil { //nolint:contextcheck // close ends what it starts
		return err
	}
	v.target.HTTP = v.s.HTTPAddress()
	for _, sample := range t.requests {
		r := load.Request{Model: t.Ensemble}
		for i := range sample {
			in := &sample[i]
			r.Inputs = append(r.Inputs, load.Tensor{Name: in.Name, Datatype: in.DType.String(), Shape: in.Shape, Data: in.Data})
		}
		v.requests = append(v.requests, r)
	}
	_, err = v.run(ctx, load.Plan{Duration: v.t.length(warmUp)}, warmClients)
	return err
}

// The warm-up of a server: policies learn, and memory is allocated.
const (
	warmUp      = time.Second
	warmClients = 4
)

// describe returns the settings of the models that have a queue.
func (t *tuning) describe(settings []Setting) string { return t.network.describe(settings) }

func (n *Network) describe(settings []Setting) string {
	var list []string
	for i := range n.Models {
		if !n.Models[i].Inline {
			list = append(list, n.Models[i].Name+": "+settings[i].String())
		}
	}
	if len(list) == 0 {
		return "no models with queues"
	}
	return strings.Join(list, "; ")
}

func (v *live) close(ctx context.Context) (err error) {
	if v.s != nil {
		err = v.s.Close(ctx)
	}
	return errors.Join(err, v.over.Remove())
}

// measurement is the outcome of a run, with the cores that other processes used meanwhile.
type measurement struct {
	Outcome
	foreign float64
}

// run sends load and measures. It fails if requests fail: with load.ErrLate and the measurement if the server is too slow for
// the rate.
func (v *live) run(ctx context.Context, p load.Plan, clients int) (m measurement, err error) {
	g, err := load.Dial(v.target, load.Binary, v.requests, clients)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	type result struct {
		load.Result
		err error
	}
	done := make(chan result, 1)
	own, all, began := processTime(), machineTime(), time.Now()
	go func() {
		r, err := load.Run(g.Clients, p)
		done <- result{r, err}
	}()
	var r result
	select {
	case <-ctx.Done():
		return m, errors.Join(ctx.Err(), v.s.Close(ctx)) // the clients fail then
	case r = <-done:
	}
	wall := time.Since(began)
	own, all = processTime()-own, machineTime()-all
	if r.err != nil {
		return m, r.err
	}
	m.P50, m.P99, m.Mean, m.Throughput = r.P50, r.P99, r.Mean, r.Throughput
	m.CPU, m.foreign = own.Seconds()/wall.Seconds(), max(0, (all-own).Seconds()/wall.Seconds())
	if r.Errors > 0 {
		return m, fmt.Errorf("%d of %d requests to ensemble '%s' failed: %w", r.Errors, r.Errors+r.Requests, v.t.Ensemble, r.First)
	}
	return m, nil
}

// clients returns how many connections an open loop needs, so that no request waits for one.
func (t *tuning) clients(rate float64) int {
	return min(max(int(4*rate*t.Objective.Seconds()), 16), 256)
}
