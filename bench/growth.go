package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/tutti-server/tutti/internal/load"
)

const (
	growthLimit = 1.15 // the most that the large case may cost, as a multiple of the small one
	growthCalls = 10000
	manyModels  = 1000
)

// growth checks that a request's cost does not grow with things that are unrelated to it: the number of loaded
// models, the number of connections, and the size of the request for the cost of each byte. For example, a
// small request must cost the same with 2 and with 1,002 models loaded. It also bounds what a thousand ensembles, ten
// thousand busy connections and tensors of 100 MB take. Finally it sends the server more bytes than it may hold.
// A figure beyond its limit fails the command, after all were measured.
func (b *bench) growth() error {
	parts := []struct {
		name string
		run  func() error
	}{
		{"models", b.growthModels},
		{"ensembles", b.growthEnsembles},
		{"idle", b.growthIdle},
		{"busy", b.growthBusy},
		{"bytes", b.growthBytes},
		{"copies", b.growthCopies},
		{"memory", b.growthMemory},
	}
	var errs []error
	for _, part := range parts {
		if len(b.parts) > 0 && !slices.Contains(b.parts, part.name) {
			continue
		}
		if err := errors.Join(part.run(), b.table.Flush()); err != nil {
			errs = append(errs, fmt.Errorf("growth of %s: %w", part.name, err))
		}
	}
	return errors.Join(errs...)
}

// above returns an error when a figure is beyond its limit.
func above(what string, found, limit float64) error {
	if found <= limit {
		return nil
	}
	return fmt.Errorf("%s: %.3g, expected at most %.3g", what, found, limit)
}

// serveAs starts the server with additional options.
func (b *bench) serveAs(options []string, repositories ...string) (*process, error) {
	ports, err := freePorts()
	if err != nil {
		return nil, err
	}
	return start("127.0.0.1:"+ports[0], "127.0.0.1:"+ports[1], b.tutti, append(tuttiArgs(ports, repositories...), options...)...)
}

// printRatio prints the small case, the large one, and their ratio, which is an error beyond the limit.
func (b *bench) printRatio(what, unit string, small, large []float64) error {
	ratio := median(large) / median(small)
	fmt.Fprintf(b.table, "%s\tsmall %.3g %s\tlarge %.3g %s\tratio %.2f (at most %.2f)\n", what, median(small), unit, median(large), unit, ratio, growthLimit)
	return above(what+", the large case against the small one", ratio, growthLimit)
}

// growthModels compares a server of two models with a server of a thousand more.
func (b *bench) growthModels() (err error) {
	many, err := manyIdentities(manyModels)
	if err != nil {
		return err
	}
	defer os.RemoveAll(many)
	few, err := b.serve(identities)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, few.Stop()) }()
	began := time.Now()
	lots, err := b.serve(identities, many)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lots.Stop()) }()
	fmt.Fprintf(b.table, "start-up with %d models\t%.2f s\n", manyModels+2, time.Since(began).Seconds())
	return b.compareSmall("with "+strconv.Itoa(manyModels)+" models more", few, lots)
}

const identities = "bench/testdata/identity"

// manyIdentities writes a repository of n identity models.
func manyIdentities(n int) (string, error) {
	config, err := os.ReadFile(identities + "/fp32x16/config.pbtxt")
	if err != nil {
		return "", err
	}
	root, err := os.MkdirTemp("", "bench-growth")
	if err != nil {
		return "", err
	}
	for i := range n {
		dir := filepath.Join(root, fmt.Sprintf("more%04d", i))
		if err := os.MkdirAll(filepath.Join(dir, "1"), 0o750); err != nil {
			return root, err
		}
		if err := os.WriteFile(filepath.Join(dir, "config.pbtxt"), config, 0o600); err != nil {
			return root, err
		}
	}
	return root, nil
}

// compareSmall sends small requests to both servers in alternating rounds, after a warm-up round that is not
// counted.
func (b *bench) compareSmall(what string, small, large *process) error {
	var errs []error
	for _, c := range []struct{ name, protocol string }{{"HTTP binary", load.Binary}, {"gRPC", load.GRPC}} {
		send := func(p *process) (time.Duration, error) {
			g, err := p.dial(c.protocol, ramp("fp32x16", 16), concurrency)
			if err != nil {
				return 0, err
			}
			return p.load(g, growthCalls)
		}
		var s, l []float64
		for round := range b.rounds + 1 {
			first, err := send(small)
			if err != nil {
				return fmt.Errorf("%s, %s: small: %w", c.name, what, err)
			}
			second, err := send(large)
			if err != nil {
				return fmt.Errorf("%s, %s: large: %w", c.name, what, err)
			}
			if round > 0 {
				s, l = append(s, first.Seconds()*1e6), append(l, second.Seconds()*1e6)
			}
		}
		errs = append(errs, b.printRatio(c.name+", FP32[16], "+what+": CPU per request", "us", s, l))
	}
	return errors.Join(errs...)
}
