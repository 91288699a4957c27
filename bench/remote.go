package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/tutti-server/tutti/internal/load"
)

const (
	remoteModel = "fp32x16"
	remoteCalls = 10000
	// remoteLimit is the CPU time, in microseconds, that a remote step may cost over both processes.
	remoteLimit = 120.0
)

// remote measures what a remote step on loopback costs for a small tensor: the CPU time of both servers for a request whose model is at the
// other one, less that of a request for the same model here.
func (b *bench) remote() (err error) {
	far, err := b.serve("bench/testdata/identity")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, far.Stop()) }()
	root, err := os.MkdirTemp("", "bench-remote")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(root)) }()
	text := fmt.Sprintf("backend: \"remote\"\n%s%s", taxText("endpoint", far.GRPC), taxText("remote_model", remoteModel))
	if err := taxWrite(root, farModel, text); err != nil {
		return err
	}
	near, err := b.serve("bench/testdata/identity", root)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, near.Stop()) }()
	defer func() { err = errors.Join(err, b.table.Flush()) }() // also when a step is too slow
	step := fmt.Sprintf("remote step (at most %.0f us)", remoteLimit)
	for _, protocol := range []string{load.Binary, load.GRPC} {
		for _, clients := range []int{1, concurrency} {
			if protocol == load.GRPC {
				err = errors.Join(err, b.remoteFloor(clients))
			}
			over, failed := b.remoteCost(near, far, step, protocol, clients)
			if err = errors.Join(err, failed); failed == nil && over > remoteLimit {
				err = errors.Join(err, fmt.Errorf("a remote step costs %.1f us of CPU, expected at most %.0f", over, remoteLimit))
			}
		}
	}
	return err
}

// remoteFloor measures the same for two echo servers of stock grpc-go, of which the first passes each request on to the second: what a
// remote call costs before a server does anything. It has no limit.
func (b *bench) remoteFloor(clients int) (err error) {
	far, err := startEcho()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, far.Stop()) }()
	if err := os.Setenv(envEchoFar, far.GRPC); err != nil {
		return err
	}
	near, err := startEcho()
	if err = errors.Join(err, os.Unsetenv(envEchoFar)); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, near.Stop()) }()
	_, err = b.remoteCost(near, far, "floor: echo servers of grpc-go", load.GRPC, clients)
	return err
}

func taxText(key, value string) string {
	return fmt.Sprintf("parameters { key: %q value { string_value: %q } }\n", key, value)
}

// remoteCost measures and prints the cost of the remote step, in microseconds.
func (b *bench) remoteCost(near, far *process, row, protocol string, clients int) (float64, error) {
	var here, there, costs []float64
	for round := range b.rounds + 1 {
		local, err := remoteLoad(near, far, protocol, remoteModel, clients)
		if err != nil {
			return 0, err
		}
		away, err := remoteLoad(near, far, protocol, farModel, clients)
		if err != nil {
			return 0, err
		}
		if round > 0 { // the first round fills pools
			here, there, costs = append(here, local), append(there, away), append(costs, away-local)
		}
	}
	cost := median(costs)
	fmt.Fprintf(b.table, "%s, FP32[16], %s, %d in flight: CPU per request of both servers\there %.1f us\tremote %.1f us\tdifference %.1f us\n",
		row, protocol, clients, median(here), median(there), cost)
	return cost, nil
}

// remoteLoad returns the CPU time of both servers for a request to a model of the first, in microseconds. Each client has one request in
// flight: with one client every goroutine and every processor on the way has gone to sleep before the next message.
func remoteLoad(near, far *process, protocol, model string, clients int) (float64, error) {
	g, err := load.Dial(load.Target{HTTP: near.HTTP, GRPC: near.GRPC}, protocol, []load.Request{ramp(model, 16)}, clients)
	if err != nil {
		return 0, err
	}
	before, err := far.CPU()
	if err != nil {
		return 0, errors.Join(err, g.Close())
	}
	each, err := near.load(g, remoteCalls)
	if err != nil {
		return 0, err
	}
	after, err := far.CPU()
	return float64(each+(after-before)/time.Duration(remoteCalls)) / 1e3, err
}
