package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/inspect"
	"github.com/tutti-server/tutti/internal/repository"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/internal/tracing"
	"github.com/tutti-server/tutti/internal/tracing/ring"
)

const (
	// taxLeast is the smallest allowed throughput of an ensemble, relative to its slowest step alone.
	taxLeast = 0.95
	// taxSpan is the approximate time of each side in a round.
	taxSpan = 300 * time.Millisecond
)

// tax measures the cost of running models as an ensemble. For models on simulated devices it compares the
// ensemble's throughput with that of its slowest step alone. TestTax compares the CPU time for real models with
// that of the steps called directly; it is a test because only tests may import backends.
func (b *bench) tax() error {
	over := false
	for _, g := range taxGraphs() {
		for _, concurrency := range taxLoads() {
			ratio, err := b.taxOf(&g, concurrency)
			if err != nil {
				return fmt.Errorf("%s: %w", g.name, err)
			}
			over = over || ratio < taxLeast
		}
	}
	if err := b.table.Flush(); err != nil {
		return err
	}
	cmd := exec.Command("go", "-C", "bench", "test", "-v", "-count=1", "-timeout", "10m", "-run", "^TestTax$", ".", "-args", "-tax", "-tax-rounds", strconv.Itoa(b.rounds))
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	err := cmd.Run()
	if over {
		return errors.Join(errSlow, err)
	}
	return err
}

// taxLoad is the number of concurrent callers and the largest batch of the models. The callers are enough for a
// full batch in each of three steps at the same time. For example, {32, 8} has 32 callers for batches of 8.
type taxLoad struct{ callers, batch int }

func taxLoads() []taxLoad { return []taxLoad{{8, 2}, {32, 8}, {128, 32}} }

// String describes the load.
func (c taxLoad) String() string {
	return fmt.Sprintf("%d callers, batches of %d", c.callers, c.batch)
}

// taxGraph is an ensemble of models on simulated devices.
type taxGraph struct {
	name  string
	steps []taxStep
}

// taxStep is one model. A batch takes a fixed time and a time per row.
type taxStep struct {
	fixed, row time.Duration
	in         []string
	out        string
}

func taxGraphs() []taxGraph {
	fast := func(out string, in ...string) taxStep {
		return taxStep{200 * time.Microsecond, 20 * time.Microsecond, in, out}
	}
	slow := func(out string, in ...string) taxStep {
		return taxStep{500 * time.Microsecond, 50 * time.Microsecond, in, out}
	}
	return []taxGraph{
		{"chain of 3 alike", []taxStep{fast("a", "IN"), fast("b", "a"), fast("OUT", "b")}},
		{"chain of 3, the second slow", []taxStep{fast("a", "IN"), slow("b", "a"), fast("OUT", "b")}},
		{"diamond, a branch slow", []taxStep{fast("a", "IN"), fast("b", "a"), slow("c", "a"), fast("OUT", "b", "c")}},
	}
}

// slowest returns the index of the step that takes longest.
func (g *taxGraph) slowest() int {
	at := 0
	for i := range g.steps {
		if g.steps[i].fixed > g.steps[at].fixed {
			at = i
		}
	}
	return at
}

// most returns the largest number of requests per second that the slowest step can execute in full batches.
func (g *taxGraph) most(batch int) float64 {
	s := &g.steps[g.slowest()]
	return float64(batch) / (s.fixed + time.Duration(batch)*s.row).Seconds()
}

// write writes a repository of the graph.
func (g *taxGraph) write(root string, batch int) error {
	var e strings.Builder
	fmt.Fprintf(&e, "platform: \"ensemble\"\nmax_batch_size: %d\n%s\nensemble_scheduling {\n", batch, taxPorts("input", "IN")+taxPorts("output", "OUT"))
	for i := range g.steps {
		s := &g.steps[i]
		name := taxModel(i)
		fmt.Fprintf(&e, "step { model_name: %q model_version: -1 output_map { key: \"OUT\" value: %q }", name, s.out)
		var ports strings.Builder
		for j, in := range s.in {
			fmt.Fprintf(&e, " input_map { key: \"IN%d\" value: %q }", j, in)
			ports.WriteString(taxPorts("input", fmt.Sprintf("IN%d", j)))
		}
		e.WriteString(" }\n")
		ports.WriteString(taxPorts("output", "OUT"))
		text := fmt.Sprintf("backend: \"bench\"\nmax_batch_size: %d\n%sdynamic_batching { }\ninstance_group { count: 1 kind: KIND_CPU }\n%s%s",
			batch, ports.String(), taxParameter("fixed", s.fixed), taxParameter("row", s.row))
		if err := taxWrite(root, name, text); err != nil {
			return err
		}
	}
	return taxWrite(root, "ensemble", e.String()+"}\n")
}

func taxModel(i int) string { return fmt.Sprintf("step%d", i) }

func taxPorts(kind, name string) string {
	return fmt.Sprintf("%s { name: %q data_type: TYPE_FP32 dims: [ 16 ] }\n", kind, name)
}

func taxParameter(key string, d time.Duration) string {
	return fmt.Sprintf("parameters { key: %q value { string_value: %q } }\n", key, d)
}

func taxWrite(root, name, text string) error {
	if err := os.MkdirAll(filepath.Join(root, name, "1"), 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, name, "config.pbtxt"), []byte(text), 0o600)
}

// taxOf measures and prints one ratio.
func (b *bench) taxOf(g *taxGraph, concurrency taxLoad) (ratio float64, err error) {
	root, err := os.MkdirTemp("", "bench-tax")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(root)) }()
	if err := g.write(root, concurrency.batch); err != nil {
		return 0, err
	}
	repo, end, err := taxOpen([]string{root}, taxDevices(newKernelTimer))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, end()) }()
	rate := g.most(concurrency.batch)
	n := int(rate * taxSpan.Seconds())
	var whole, alone, ratios, cpus []float64
	for round := range b.rounds + 1 {
		w, cpu := repo.rate("ensemble", []string{"IN"}, concurrency.callers, n)
		a, _ := repo.rate(taxModel(g.slowest()), []string{"IN0"}, concurrency.callers, n)
		if round > 0 { // the first round fills pools
			whole, alone, ratios, cpus = append(whole, w), append(alone, a), append(ratios, w/a), append(cpus, cpu)
		}
	}
	ratio, verdict := median(ratios), ""
	if ratio < taxLeast {
		verdict = "\tOVER"
	}
	fmt.Fprintf(b.table, "%s, %v\tensemble %.0f/s\tslowest step alone %.0f/s (device: %.0f/s)\tratio %.3f (at least %.2f), %.1f us of CPU\t%s\n",
		g.name, concurrency, median(whole), median(alone), rate, ratio, taxLeast, median(cpus), verdict)
	return ratio, nil
}

// taxRepository is a repository as in the server, with statistics and the trace store.
type taxRepository struct {
	*repository.Repository
	alloc tensor.Allocator
}

// taxOpen opens repositories with the given backends.
func taxOpen(roots []string, list ...backends.Factory) (*taxRepository, func() error, error) {
	const stored, every, atMost = 64 << 20, 100, 2000 // the server's defaults
	registry, err := backends.NewRegistry(list...)
	if err != nil {
		return nil, nil, err
	}
	store, err := ring.New(stored, inspect.Sampling{Failed: true, Slow: true, Every: every})
	if err != nil {
		return nil, nil, err
	}
	tracer, err := tracing.New(tracing.Options{Sinks: []tracing.Sink{store}, All: true, AtMost: atMost})
	if err != nil {
		return nil, nil, errors.Join(err, store.Close())
	}
	alloc := tensor.NewPool()
	repo, err := repository.Open(context.Background(), repository.Settings{
		Roots: roots, Backends: registry, Alloc: alloc, Metrics: telemetry.NewMetrics(), Tracer: tracer, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, nil, errors.Join(err, store.Close())
	}
	end := func() error {
		return errors.Join(repo.Close(context.Background()), tracer.Close(), store.Close())
	}
	if failed := repo.Failures(); len(failed) > 0 {
		return nil, nil, errors.Join(fmt.Errorf("a model was not loaded: %v", failed), end())
	}
	return &taxRepository{Repository: repo, alloc: alloc}, end, nil
}

// rate sends n requests from the given number of callers and returns the responses per second and the CPU time of
// one request in us.
func (r *taxRepository) rate(model string, inputs []string, callers, n int) (perSecond, cpu float64) {
	began, before := time.Now(), processCPU()
	r.infer(model, inputs, callers, n)
	return float64(n) / time.Since(began).Seconds(), float64(processCPU()-before) / 1000 / float64(n)
}

// infer sends n requests from the given number of callers, each with FP32[1, 16] for every input.
func (r *taxRepository) infer(model string, inputs []string, callers, n int) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			ctx, cancel := context.WithCancel(context.Background()) // can be cancelled, as a front end's context can
			defer cancel()
			in, err := tensor.New(r.alloc, tensor.FP32, tensor.Of(1, 16))
			fail(err)
			defer in.Release()
			clear(tensor.Slice[float32](&in))
			for next.Add(1) <= int64(n) {
				req := infer.NewRequest()
				req.Model = model
				for _, name := range inputs {
					req.Inputs = append(req.Inputs, infer.Named{Name: name, Tensor: in.Retain()})
				}
				call := infer.NewCall()
				r.Submit(ctx, req, call)
				resp, err := call.Wait()
				fail(err)
				resp.Release()
			}
		})
	}
	wg.Wait()
}
