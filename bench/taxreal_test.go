package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"text/tabwriter"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/onnx"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/runtimes"
)

var (
	taxOn     = flag.Bool("tax", false, "compare ensembles with their models called directly")
	taxRounds = flag.Int("tax-rounds", 6, "how often each side is measured")
)

const (
	// taxStepMost is the CPU time that a step may take on top of its model, in us.
	taxStepMost = 1.5
	taxRuntime  = "onnxruntime"
	taxRequests = 8000 // per round
)

// TestTax checks that an ensemble adds little CPU time to its models called directly, in this process. It needs the
// flag -tax: make bench-tax.
func TestTax(t *testing.T) { //nolint:paralleltest // it measures
	if !*taxOn {
		t.Skip("needs -tax: make bench-tax")
	}
	library, err := runtimes.Find(taxRuntime, filepath.Join("..", runtimes.Folder))
	if err != nil {
		t.Fatal(err)
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', 0)
	for _, ensemble := range []string{"identity3", "parallel"} {
		taxOfModels(t, table, ensemble, library)
	}
	if err := table.Flush(); err != nil {
		t.Fatal(err)
	}
}

// taxOfModels prints the CPU time that an ensemble adds to its models.
func taxOfModels(t *testing.T, table *tabwriter.Writer, ensemble, library string) {
	t.Helper()
	root := filepath.Join("repository", ensemble)
	repo, end, err := taxOpen([]string{root}, taxRuntimeAt(library))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := end(); err != nil {
			t.Error(err)
		}
	}()
	for _, c := range []struct{ callers, processors int }{{1, 1}, {1, runtime.NumCPU()}, {8, 1}, {8, runtime.NumCPU()}} {
		direct, err := openTaxDirect(root, library, c.callers)
		if err != nil {
			t.Fatal(err)
		}
		before := runtime.GOMAXPROCS(c.processors)
		var whole, parts, tax []float64
		for round := range *taxRounds + 1 {
			_, w := repo.rate(ensemble, []string{"INPUT0"}, c.callers, taxRequests)
			began := processCPU()
			direct.run(taxRequests)
			p := float64(processCPU()-began) / 1000 / taxRequests
			if round > 0 {
				whole, parts, tax = append(whole, w), append(parts, p), append(tax, (w-p)/float64(direct.steps()))
			}
		}
		runtime.GOMAXPROCS(before)
		verdict := ""
		if median(tax) > taxStepMost {
			verdict = "\tOVER"
			t.Fail()
		}
		fmt.Fprintf(table, "%s, %d callers, %d processors\tensemble %.1f us of CPU\tits models directly %.1f us\ta step adds %.2f us (at most %.2f)%s\n",
			ensemble, c.callers, c.processors, median(whole), median(parts), median(tax), taxStepMost, verdict)
		if err := direct.close(); err != nil {
			t.Error(err)
		}
	}
}

// taxRuntimeAt declares the backend over the given library.
func taxRuntimeAt(library string) backends.Factory {
	f := onnx.NewFactory()
	open := f.New
	f.New = func(o backends.Options) (backends.Backend, error) {
		o.Config = map[string]string{"library-path": library}
		return open(o)
	}
	return f
}

// taxDirect holds the models of an ensemble without a scheduler or an executor: a set of instances for every
// caller.
type taxDirect struct {
	backend backends.Backend
	models  []backends.Model
	sets    [][]backends.Instance
	alloc   tensor.Allocator
}

// openTaxDirect loads the models of a repository except its ensembles.
func openTaxDirect(root, library string, callers int) (*taxDirect, error) {
	f := taxRuntimeAt(library)
	b, err := f.New(backends.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	d := &taxDirect{backend: b, alloc: tensor.NewPool()}
	files, err := filepath.Glob(filepath.Join(root, "*", "config.pbtxt"))
	if err != nil {
		return nil, errors.Join(err, d.close())
	}
	for _, file := range files {
		if err := d.load(file, callers); err != nil {
			return nil, errors.Join(err, d.close())
		}
	}
	d.sets = make([][]backends.Instance, callers)
	for i := range d.sets {
		for _, m := range d.models {
			inst, err := m.NewInstance(context.Background(), tensor.Place{})
			if err != nil {
				return nil, errors.Join(err, d.close())
			}
			d.sets[i] = append(d.sets[i], inst)
		}
	}
	return d, nil
}

func (d *taxDirect) load(file string, callers int) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	cfg, err := config.Parse(file, text)
	if err != nil || cfg.GetPlatform() == "ensemble" {
		return err
	}
	dir := filepath.Dir(file)
	m, err := d.backend.Load(context.Background(), backends.Settings{
		Model: cfg.GetName(), Version: 1, ModelDir: dir, Dir: filepath.Join(dir, "1"), Config: cfg, Instances: callers, Alloc: d.alloc, Log: slog.New(slog.DiscardHandler),
	})
	if err == nil {
		d.models = append(d.models, m)
	}
	return err
}

func (d *taxDirect) steps() int { return len(d.models) }

// run executes every model n times, from one goroutine per set of instances.
func (d *taxDirect) run(n int) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for _, set := range d.sets {
		wg.Go(func() {
			batches := make([]*backends.Batch, len(set))
			for i, m := range d.models {
				batches[i] = d.batch(m.Signature())
			}
			for next.Add(1) <= int64(n) {
				for i, inst := range set {
					fail(inst.Execute(context.Background(), batches[i]))
					tensor.ReleaseAll(batches[i].Out)
				}
			}
			for _, b := range batches {
				tensor.ReleaseAll(b.In)
			}
		})
	}
	wg.Wait()
}

// batch returns a batch of one request, FP32[1, 16].
func (d *taxDirect) batch(sig *config.Signature) *backends.Batch {
	b := &backends.Batch{
		Requests: []backends.Request{{Meta: &infer.Meta{}, Ctx: context.Background(), Rows: 1}}, Rows: 1,
		Out: make([]tensor.Tensor, len(sig.Outputs)), Allocator: d.alloc,
	}
	for range sig.Inputs {
		in, err := tensor.New(d.alloc, tensor.FP32, tensor.Of(1, 16))
		fail(err)
		clear(tensor.Slice[float32](&in))
		b.In = append(b.In, in)
	}
	return b
}

func (d *taxDirect) close() error {
	var errs []error
	for _, set := range d.sets {
		for _, inst := range set {
			errs = append(errs, inst.Close())
		}
	}
	for _, m := range d.models {
		errs = append(errs, m.Close())
	}
	return errors.Join(append(errs, d.backend.Close())...)
}
