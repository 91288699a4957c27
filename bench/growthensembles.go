package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
)

const (
	manyEnsembles = 1000
	ensembleSteps = 10
	// ensemblesReady is the longest time until a server of that many ensembles is ready.
	ensemblesReady = 2 * time.Second
	// ensembleHeap is the most live heap that an ensemble without requests may take, in KiB.
	ensembleHeap = 20.0
)

// growthEnsembles checks what a thousand ensembles of ten steps cost a server that has their models already: the time until it is
// ready, and the memory of each.
func (b *bench) growthEnsembles() (err error) {
	models, err := os.MkdirTemp("", "bench-growth")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(models)) }()
	ensembles, err := os.MkdirTemp("", "bench-growth")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(ensembles)) }()
	for i := range ensembleSteps {
		if err := taxWrite(models, taxModel(i), identityConfig); err != nil {
			return err
		}
	}
	for i := range manyEnsembles {
		if err := taxWrite(ensembles, fmt.Sprintf("ensemble%04d", i), longChain()); err != nil {
			return err
		}
	}
	return errors.Join(b.ensemblesStart(models, ensembles), b.ensemblesHeap(models, ensembles))
}

// longChain returns the configuration of an ensemble that passes INPUT0 through all models in turn.
func longChain() string {
	var s strings.Builder
	s.WriteString("platform: \"ensemble\"\nmax_batch_size: 32\n" + taxPorts("input", "INPUT0") + taxPorts("output", "OUTPUT0") + "ensemble_scheduling {\n")
	from := "INPUT0"
	for i := range ensembleSteps {
		to := fmt.Sprintf("after%d", i)
		if i == ensembleSteps-1 {
			to = "OUTPUT0"
		}
		fmt.Fprintf(&s, "  step { model_name: %q model_version: -1 input_map { key: \"INPUT0\" value: %q } output_map { key: \"OUTPUT0\" value: %q } }\n", taxModel(i), from, to)
		from = to
	}
	return s.String() + "}\n"
}

// ensemblesStart starts the server without the ensembles and with them, in turns.
func (b *bench) ensemblesStart(models, ensembles string) error {
	var few, many, resident []float64
	for range b.rounds {
		alone, small, err := b.startOnce(models)
		if err != nil {
			return err
		}
		all, large, err := b.startOnce(models, ensembles)
		if err != nil {
			return err
		}
		few, many, resident = append(few, alone), append(many, all), append(resident, (large-small)*1024/manyEnsembles)
	}
	fmt.Fprintf(b.table, "start with %d models\t%.2f s\twith %d ensembles of %d steps more %.2f s (at most %.0f s)\t%.1f KiB resident each\n",
		ensembleSteps, median(few), manyEnsembles, ensembleSteps, median(many), ensemblesReady.Seconds(), median(resident))
	return above("the start with the ensembles in seconds", median(many), ensemblesReady.Seconds())
}

// startOnce returns the time until a server is ready, in seconds, and its resident memory then, in MiB.
func (b *bench) startOnce(repositories ...string) (seconds, resident float64, err error) {
	p, err := b.serve(repositories...)
	if err != nil {
		return 0, 0, err
	}
	resident, err = p.resident()
	return p.Ready.Seconds(), resident, errors.Join(err, p.Stop())
}

// ensemblesHeap opens the repositories in this process, with statistics, metrics and traces as in the server, and compares the live heap.
func (b *bench) ensemblesHeap(models, ensembles string) error {
	var sizes []float64
	for _, roots := range [][]string{{models}, {models, ensembles}} {
		before := liveHeap()
		repo, end, err := taxOpen(roots, passing())
		if err != nil {
			return err
		}
		sizes = append(sizes, liveHeap()-before)
		runtime.KeepAlive(repo)
		if err := end(); err != nil {
			return err
		}
	}
	each := (sizes[1] - sizes[0]) / 1024 / manyEnsembles
	fmt.Fprintf(b.table, "an ensemble of %d steps without requests\t%.1f KiB of live heap (at most %.0f)\n", ensembleSteps, each, ensembleHeap)
	return above("the live heap of an ensemble in KiB", each, ensembleHeap)
}

// liveHeap returns the bytes of this process's heap that are in use.
func liveHeap() float64 {
	runtime.GC()
	runtime.GC() // the first one moves what pools hold to where the second one frees it
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// passing declares a backend "identity" whose models return their inputs.
func passing() backends.Factory {
	load := func(_ context.Context, s backends.Settings) (backends.Model, error) {
		sig := config.ModelOf(config.SignatureOf(s.Config))
		sig.Model, sig.Version = s.Model, s.Version
		return &passingModel{backends.Ports{Sig: sig}}, nil
	}
	return backends.Factory{Name: "identity", New: func(backends.Options) (backends.Backend, error) { return backends.Loader(load), nil }}
}

type passingModel struct{ backends.Ports }

// NewInstance returns the model, which has no state.
func (m *passingModel) NewInstance(context.Context, tensor.Place) (backends.Instance, error) {
	return m, nil
}

// Execute makes the outputs share the memory of the inputs.
func (*passingModel) Execute(_ context.Context, b *backends.Batch) error {
	for port := range b.Out {
		b.SetOutput(port, b.In[port].Retain())
	}
	return nil
}
