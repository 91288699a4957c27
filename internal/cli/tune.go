package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"github.com/tutti-server/tutti/internal/lab"
	"github.com/tutti-server/tutti/internal/options"
	"github.com/tutti-server/tutti/internal/tune"
)

func tuneCommand() command {
	return command{
		name: "tune", usage: "DIR ENSEMBLE --slo-ms N [--rate R] [--data FILE] [--write] [-o table|json|yaml]", summary: "Find the settings that serve the most requests within a latency objective",
		notes: `The command serves the ensemble in its own process for some minutes and takes the whole machine: it measures each model,
simulates settings, and validates the best ones beside the current ones. It prints the changes as a diff.`,
		examples: []string{"tutti tune models text --slo-ms 50", "tutti tune models text --slo-ms 50 --rate 200 --data requests.jsonl --write"},
		run:      (*program).tune,
	}
}

// tuneCall is the arguments of the command tune.
type tuneCall struct {
	slo, rate float64
	data      list
	picture   string
	write     bool
	brief     bool
	out       *output
}

// tune finds the settings of an ensemble's models that serve the most requests within an objective.
func (p *program) tune(ctx context.Context, args []string) (err error) {
	fs, a, backend := p.flags("tune"), &tuneCall{}, options.BackendConfig{}
	fs.Float64Var(&a.slo, "slo-ms", 0, "the objective: the latency in `milliseconds` that 99 of 100 requests must not exceed")
	fs.Float64Var(&a.rate, "rate", 0, "traffic in `requests` per second, to serve with the least processor time; by default the highest rate is searched")
	fs.Var(&a.data, "data", "`file` or folder with sample requests, as --input of bench; may be repeated; by default the golden requests of the ensemble, or expected.json")
	fs.StringVar(&a.picture, "picture", "", "`file` to write a picture of the operating points to, as SVG")
	fs.BoolVar(&a.write, "write", false, "write the changes to config.pbtxt, if they held in the validation")
	fs.BoolVar(&a.brief, "brief", false, "shorten every run to a fraction of a second: to see a report soon, whose figures are not exact")
	backendFlags(fs, backend)
	a.out = outputFlag(fs, formatTable, formatJSON, formatYAML)
	rest, err := arguments(fs, args, 2, 2, "a repository and an ensemble")
	switch {
	case err != nil:
		return err
	case a.slo <= 0:
		return usagef("--slo-ms is %s, expected the objective in milliseconds, for example --slo-ms 50", sloText(fs, a.slo))
	case a.rate < 0:
		return usagef("--rate is %v, expected requests per second", a.rate)
	}
	gpus, _ := openGPUs() // without GPUs, models that ask for one fail with the reason
	defer func() { err = errors.Join(err, gpus.Close()) }()
	debug.SetGCPercent(heapGrowth) // as a server
	r, err := tune.Run(ctx, tune.Settings{
		Root: rest[0], Ensemble: rest[1], Data: a.data, Objective: time.Duration(a.slo * float64(time.Millisecond)), Rate: a.rate,
		Components: p.components, BackendConfig: backend, Accelerators: gpus.Accelerators(), Progress: p.phases(), Brief: a.brief,
	})
	switch none, ok := errors.AsType[*lab.NoSamplesError](err); {
	case ok:
		return &failure{exitNotFound, none}
	case err != nil:
		return err
	}
	return a.finish(p, r)
}

// sloText returns the objective as an error has it.
func sloText(fs *flag.FlagSet, slo float64) string {
	text := "missing"
	fs.Visit(func(f *flag.Flag) {
		if f.Name == "slo-ms" {
			text = fmt.Sprint(slo)
		}
	})
	return text
}

// finish prints the report, and writes the picture and the changes.
func (a *tuneCall) finish(p *program, r *tune.Report) error {
	if err := a.out.print(p.stdout, r.Data(), func() error { return r.Write(p.stdout) }); err != nil {
		return err
	}
	if a.picture != "" {
		if err := writePicture(a.picture, r); err != nil {
			return err
		}
	}
	if len(r.Changes) == 0 || !a.write {
		return nil
	}
	if ok, reason := r.Holds(); !ok {
		return fmt.Errorf("nothing is written, because the advice did not hold: %s", reason)
	}
	for i := range r.Changes {
		if err := r.Changes[i].Write(); err != nil {
			return err
		}
		fmt.Fprintf(p.stderr, "wrote %s\n", r.Changes[i].Path)
	}
	return nil
}

func writePicture(path string, r *tune.Report) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(r.SVG(f), f.Close())
}

// phases returns a function that prints each phase of tune once it begins.
func (p *program) phases() func(phase string, share float64) {
	last := ""
	return func(phase string, _ float64) {
		if phase != last {
			last = phase
			fmt.Fprintf(p.stderr, "%s ...\n", phase)
		}
	}
}
