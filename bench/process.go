package main

import (
	"context"
	"errors"
	"time"

	"github.com/tutti-server/tutti/bench/proc"
	"github.com/tutti-server/tutti/internal/load"
)

// process is a server under measurement.
type process struct {
	*proc.Process
	echo bool // it is the echo
}

// start runs a command and waits until the server is ready.
func start(addr, grpc, name string, args ...string) (*process, error) {
	p, err := proc.Start(context.Background(), &proc.Settings{Command: append([]string{name}, args...), HTTP: addr, GRPC: grpc})
	return &process{Process: p}, err
}

// serve starts the server over the given repositories.
func (b *bench) serve(repositories ...string) (*process, error) {
	ports, err := freePorts()
	if err != nil {
		return nil, err
	}
	p, err := start("127.0.0.1:"+ports[0], "127.0.0.1:"+ports[1], b.tutti, tuttiArgs(ports, repositories...)...)
	return p, err
}

// tuttiArgs returns our server's arguments for two ports of this machine.
func tuttiArgs(ports [2]string, repositories ...string) []string {
	args := []string{
		"serve", "--http-address=127.0.0.1", "--http-port=" + ports[0], "--grpc-address=127.0.0.1", "--grpc-port=" + ports[1],
		"--allow-metrics=false",
	}
	for _, r := range repositories {
		args = append(args, "--model-repository="+r)
	}
	return args
}

// freePorts returns two free ports, for HTTP and for gRPC.
func freePorts() (ports [2]string, err error) {
	for ports[0] == ports[1] {
		for i := range ports {
			if ports[i], err = proc.FreePort(); err != nil {
				return ports, err
			}
		}
	}
	return ports, nil
}

// load sends n requests through the clients of a group, closes the group, and returns the server's CPU time per
// request.
func (p *process) load(g *load.Group, n int) (each time.Duration, err error) {
	defer func() { err = errors.Join(err, g.Close()) }()
	before, err := p.CPU()
	if err != nil {
		return 0, err
	}
	r, err := load.Run(g.Clients, load.Plan{Requests: n})
	if err = errors.Join(err, r.First); err != nil {
		return 0, err
	}
	after, err := p.CPU()
	return (after - before) / time.Duration(n), err
}

// resident returns the process's resident memory in MiB.
func (p *process) resident() (float64, error) {
	m, err := p.Memory()
	return float64(m.Resident) / (1 << 20), err
}
