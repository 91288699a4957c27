package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/tutti-server/tutti/internal/load"
)

const (
	// busyRate is the number of requests per second, which random arrivals spread evenly over the connections: of as many
	// connections, each sends one request a second.
	busyRate = 10000
	busyFew  = 100 // the connections of the small case
	busyTime = 3 * time.Second
	// busyP99 is the longest latency, in ms, that one in a hundred requests may exceed. It counts from the arrival.
	busyP99 = 10.0
)

// busyWay is a protocol, and what a connection may cost.
type busyWay struct {
	name, protocol string
	kib            float64 // resident memory of the server for each connection
	cpu            float64 // CPU of a request, as a multiple of that with few connections
}

// growthBusy compares 10,000 connections that send a request a second each with 100 that send as many together.
func (b *bench) growthBusy() error {
	var errs []error
	for _, way := range []busyWay{
		{"HTTP binary", load.Binary, 24, 1.35},
		{"gRPC", load.GRPC, 80, 1.35},
	} {
		if err := b.busy(&way); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", way.name, err))
		}
	}
	return errors.Join(errs...)
}

func (b *bench) busy(way *busyWay) (err error) {
	few, err := b.connected(way.protocol, busyFew)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, few.Close()) }()
	many, err := b.connected(way.protocol, busyRate)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, many.Close()) }()
	var cpu, p99 [2][]float64
	for round := range b.rounds + 1 {
		for i, c := range []*connections{few, many} {
			used, latency, err := c.send(uint64(round)) //nolint:gosec // few rounds
			if err != nil {
				return fmt.Errorf("%d connections: %w", len(c.clients), err)
			}
			if round > 0 {
				cpu[i], p99[i] = append(cpu[i], used), append(p99[i], latency)
			}
		}
	}
	each, err := many.memory()
	if err != nil {
		return err
	}
	ratio := median(cpu[1]) / median(cpu[0])
	fmt.Fprintf(b.table, "%s, %d requests/s over %d connections: CPU per request\t%.1f us\tover %d %.1f us\tratio %.2f (at most %.2f)\n",
		way.name, busyRate, busyFew, median(cpu[0]), busyRate, median(cpu[1]), ratio, way.cpu)
	fmt.Fprintf(b.table, "%s, the same: p99\t%.2f ms\t%.2f ms (at most %.0f)\t%.1f KiB a connection (at most %.0f)\n",
		way.name, median(p99[0]), median(p99[1]), busyP99, each, way.kib)
	return errors.Join(
		above("CPU of a request against few connections", ratio, way.cpu),
		above("p99 in ms", median(p99[1]), busyP99),
		above("KiB of a connection", each, way.kib),
	)
}

// connections are those to one server, each with one client.
type connections struct {
	*process
	groups  []*load.Group
	clients []load.Client
	before  float64 // the server's resident memory without connections, in MiB
}

// connected starts a server and opens n connections to it, each with a first request.
func (b *bench) connected(protocol string, n int) (c *connections, err error) {
	p, err := b.serve(identities)
	if err != nil {
		return nil, err
	}
	c = &connections{process: p}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	if c.before, err = p.resident(); err != nil {
		return nil, err
	}
	for i := range n {
		g, err := load.Dial(load.Target{HTTP: p.HTTP, GRPC: p.GRPC}, protocol, []load.Request{ramp("fp32x16", 16)}, 1)
		if err != nil {
			return nil, err
		}
		c.groups, c.clients = append(c.groups, g), append(c.clients, g.Clients...)
		if err := g.Clients[0].Do(0); err != nil {
			return nil, fmt.Errorf("connection %d: %w", i, err)
		}
	}
	return c, nil
}

// send sends requests for a while and returns the server's CPU time of a request in us, and the p99 in ms.
func (c *connections) send(seed uint64) (cpu, p99 float64, err error) {
	before, err := c.CPU()
	if err != nil {
		return 0, 0, err
	}
	r, err := load.Run(c.clients, load.Plan{Duration: busyTime, Rate: busyRate, Seed: seed})
	if err = errors.Join(err, r.First); err != nil {
		return 0, 0, err
	}
	after, err := c.CPU()
	return (after - before).Seconds() * 1e6 / float64(r.Requests), ms(r.P99), err
}

// memory returns the resident memory of the server for each connection, in KiB.
func (c *connections) memory() (float64, error) {
	now, err := c.resident()
	return (now - c.before) * 1024 / float64(len(c.clients)), err
}

// Close closes the connections and stops the server.
func (c *connections) Close() error {
	var errs []error
	for _, g := range c.groups {
		errs = append(errs, g.Close())
	}
	return errors.Join(append(errs, c.Stop())...)
}
