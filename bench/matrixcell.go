package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tutti-server/tutti/internal/load"
)

const (
	// reference is the concurrency whose closed-loop throughput sets the rates of the open loops.
	reference = 32
	// openClients is the number of clients of an open loop, and so the most requests in flight.
	openClients = 128
	// tolerated is the share of requests that may fail in a valid measurement.
	tolerated = 0.001
)

// shares returns the rates of the open loops, as shares of the closed loop's throughput.
func shares() []float64 { return []float64{0.5, 0.8} }

// cell is one point of the matrix, with the figures of each server.
type cell struct {
	Scenario string    `json:"scenario"`
	Protocol string    `json:"protocol"`
	Loop     string    `json:"loop"`
	Clients  int       `json:"clients"`
	Rate     float64   `json:"rate,omitempty"` // requests per second of an open loop
	Servers  []figures `json:"servers"`        // our server first
}

// figures are the medians of a server's rounds.
type figures struct {
	Server     string  `json:"server"`
	Missing    string  `json:"missing,omitempty"` // why there are no figures
	Throughput float64 `json:"throughput"`        // requests per second
	P50        float64 `json:"p50_ms"`
	P99        float64 `json:"p99_ms"`
	P999       float64 `json:"p999_ms"`
	CPU        float64 `json:"cpu_seconds_per_1000"` // of all processes of the server; 0 if unknown
	Resident   float64 `json:"resident_mib"`
	// Spread is the distance between the rounds, as a share of the median, in throughput and in CPU time.
	Spread    float64 `json:"spread"`
	SpreadCPU float64 `json:"spread_cpu"`
	Errors    int     `json:"errors"`
	Rounds    []round `json:"rounds"`
}

// round is one measurement.
type round struct {
	Throughput float64 `json:"throughput"`
	P50        float64 `json:"p50_ms"`
	P99        float64 `json:"p99_ms"`
	P999       float64 `json:"p999_ms"`
	Mean       float64 `json:"mean_ms"`
	CPU        float64 `json:"cpu_seconds_per_1000"`
	Resident   float64 `json:"resident_mib"`
	Requests   int     `json:"requests"`
	Errors     int     `json:"errors"`
}

// protocol measures all cells of a scenario over one protocol.
func (m *matrix) protocol(ctx context.Context, s *scenario, protocol string, servers []*server) error {
	var at cell
	for _, n := range m.concurrency {
		if !slices.Contains(m.loops, closed) {
			break
		}
		c := cell{Scenario: s.name, Protocol: protocol, Loop: closed, Clients: n}
		if err := m.cell(ctx, &c, s.requests, servers); err != nil {
			return err
		}
		m.report.Cells = append(m.report.Cells, c)
		if n == reference {
			at = c
		}
		if err := m.keepProfile(&c, s, servers[0]); err != nil {
			return err
		}
	}
	if !slices.Contains(m.loops, poisson) {
		return nil
	}
	if at.Servers == nil {
		at = cell{Scenario: s.name, Protocol: protocol, Loop: closed, Clients: reference}
		if err := m.cell(ctx, &at, s.requests, servers); err != nil {
			return err
		}
	}
	if err := m.open(ctx, s, &at, servers); err != nil {
		return err
	}
	return m.fixed(ctx, s, &at, servers)
}

// fixed measures the open loops whose rates were given: all servers at the same rate, with the same arrivals. A rate above the
// throughput of the slowest one's closed loop is left out, because its queue would only grow.
func (m *matrix) fixed(ctx context.Context, s *scenario, at *cell, servers []*server) error {
	for _, rate := range m.rates {
		i := slices.IndexFunc(at.Servers, func(f figures) bool { return f.Missing == "" && f.Throughput < float64(rate) })
		if i >= 0 {
			logf("%s %s: without %d requests/s, because %s serves %.0f", s.name, at.Protocol, rate, at.Servers[i].Server, at.Servers[i].Throughput)
			continue
		}
		c := cell{Scenario: s.name, Protocol: at.Protocol, Loop: poisson, Clients: openClients, Rate: float64(rate)}
		if err := m.cell(ctx, &c, s.requests, servers); err != nil {
			return err
		}
		m.report.Cells = append(m.report.Cells, c)
	}
	return nil
}

// open measures the open loops: our server against each other server, at rates that are shares of the slower one's
// throughput.
func (m *matrix) open(ctx context.Context, s *scenario, at *cell, servers []*server) error {
	for i, v := range servers {
		pair := []*server{servers[0], v}
		if i == 0 {
			pair = pair[:1]
		}
		alone := i == 0 && len(servers) > 1 // our server is measured again with each other server
		if alone || at.Servers[i].Missing != "" || at.Servers[0].Missing != "" {
			continue
		}
		slower := min(at.Servers[0].Throughput, at.Servers[i].Throughput)
		for _, share := range shares() {
			c := cell{Scenario: s.name, Protocol: at.Protocol, Loop: poisson, Clients: openClients, Rate: share * slower}
			if err := m.cell(ctx, &c, s.requests, pair); err != nil {
				return err
			}
			m.report.Cells = append(m.report.Cells, c)
		}
	}
	return nil
}

// cell measures one point: the servers alternate, round after round.
func (m *matrix) cell(ctx context.Context, c *cell, requests []load.Request, servers []*server) (err error) {
	logf("%s %s %s, %d clients%s", c.Scenario, c.Protocol, c.Loop, c.Clients, rated(c.Rate))
	groups := make([]*load.Group, len(servers))
	defer func() {
		for _, g := range groups {
			if g != nil {
				err = errors.Join(err, g.Close())
			}
		}
	}()
	for i, v := range servers {
		c.Servers = append(c.Servers, figures{Server: v.name})
		if !v.can[c.Protocol] {
			c.Servers[i].Missing = "cannot"
			continue
		}
		if groups[i], err = load.Dial(v.target(), c.Protocol, requests, c.Clients); err != nil {
			return err
		}
	}
	for n := range m.rounds {
		for i, v := range servers {
			if groups[i] == nil {
				continue
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			r, err := measure(v, groups[i], load.Plan{Duration: m.time, Least: m.least, Rate: c.Rate, Seed: uint64(n)}) //nolint:gosec // few rounds
			if err != nil {
				return fmt.Errorf("%s over %s, %d clients: %w", v.name, c.Protocol, c.Clients, err)
			}
			c.Servers[i].Rounds = append(c.Servers[i].Rounds, r)
		}
	}
	for i := range c.Servers {
		c.Servers[i].sum()
	}
	return nil
}

func rated(rate float64) string {
	if rate == 0 {
		return ""
	}
	return fmt.Sprintf(", %.0f requests/s", rate)
}

// measure measures a server once, after a warm-up that is not counted.
func measure(v *server, g *load.Group, p load.Plan) (r round, err error) {
	warm := p
	warm.Least, warm.Duration = 0, min(max(p.Duration/8, 50*time.Millisecond), p.Duration)
	if _, err := load.Run(g.Clients, warm); err != nil {
		return r, err
	}
	var before, after time.Duration
	if v.Measured() {
		if before, err = v.CPU(); err != nil {
			return r, err
		}
	}
	got, err := load.Run(g.Clients, p)
	if err != nil {
		return r, err
	}
	if got.Requests == 0 || float64(got.Errors) > tolerated*float64(got.Requests) {
		return r, fmt.Errorf("%d of %d requests failed: %w", got.Errors, got.Requests+got.Errors, cmp.Or(got.First, errors.New("no response in time")))
	}
	r = round{
		Throughput: got.Throughput, P50: ms(got.P50), P99: ms(got.P99), P999: ms(got.P999), Mean: ms(got.Mean),
		Requests: got.Requests, Errors: got.Errors,
	}
	if !v.Measured() {
		return r, nil
	}
	if after, err = v.CPU(); err != nil {
		return r, err
	}
	mem, err := v.Memory()
	r.CPU, r.Resident = (after-before).Seconds()/float64(got.Requests)*1e3, mib(mem.Resident)
	return r, err
}

func ms(d time.Duration) float64 { return d.Seconds() * 1e3 }

// sum computes the medians.
func (f *figures) sum() {
	if len(f.Rounds) == 0 {
		return
	}
	of := func(get func(r *round) float64) (mid, spread float64) {
		var all []float64
		for i := range f.Rounds {
			all = append(all, get(&f.Rounds[i]))
		}
		mid = median(all)
		if mid > 0 {
			spread = (slices.Max(all) - slices.Min(all)) / mid
		}
		return mid, spread
	}
	f.Throughput, f.Spread = of(func(r *round) float64 { return r.Throughput })
	f.CPU, f.SpreadCPU = of(func(r *round) float64 { return r.CPU })
	f.P50, _ = of(func(r *round) float64 { return r.P50 })
	f.P99, _ = of(func(r *round) float64 { return r.P99 })
	f.P999, _ = of(func(r *round) float64 { return r.P999 })
	f.Resident, _ = of(func(r *round) float64 { return r.Resident })
	for i := range f.Rounds {
		f.Errors += f.Rounds[i].Errors
	}
}
