package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/tutti-server/tutti/internal/load"
)

const (
	pgoFile = "bin/tutti.pgo"
	// pgoTurns is the number of rounds in which two builds are compared, and pgoTurn the number of requests in a
	// round.
	pgoTurns, pgoTurn = 160, 1000
)

// pgoCase is a repository, and the requests that measure it.
type pgoCase struct {
	name  string
	roots []string
	cases []func(p *process) (time.Duration, error)
}

// pgo measures the gain of a build that is optimised with the profiles of an earlier matrix run.
func (b *bench) pgo() error {
	profiles, err := filepath.Glob(filepath.Join(b.cells.profile, "*.pprof"))
	if err != nil {
		return err
	}
	if b.cells.profile == "" || len(profiles) == 0 {
		return fmt.Errorf("there are no profiles in '%s': run the matrix with -profile first", b.cells.profile)
	}
	dir, err := os.MkdirTemp("", "bench-pgo")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	with, without := *b, *b
	with.tutti, without.tutti = filepath.Join(dir, "tutti-with"), filepath.Join(dir, "tutti-without")
	for _, args := range [][]string{
		append([]string{"tool", "pprof", "-proto", "-output", pgoFile}, profiles...),
		{"build", "-pgo=" + pgoFile, "-o", with.tutti, "./cmd/tutti"},
		{"build", "-pgo=off", "-o", without.tutti, "./cmd/tutti"},
	} {
		if err := goTool(args...); err != nil {
			return err
		}
	}
	for _, c := range pgoCases() {
		if err := b.pgoCompare(&with, &without, &c); err != nil {
			return err
		}
	}
	return nil
}

// pgoCompare prints the CPU time of a request with and without the profiles, measured alternately.
func (b *bench) pgoCompare(with, without *bench, c *pgoCase) error {
	guided, err := with.serve(c.roots...)
	if err != nil {
		return err
	}
	plain, err := without.serve(c.roots...)
	if err != nil {
		return errors.Join(err, guided.Stop())
	}
	for i, measure := range c.cases {
		var x, y, ratios []float64
		for range pgoTurns {
			u, err := measure(guided)
			if err != nil {
				return errors.Join(err, guided.Stop(), plain.Stop())
			}
			v, err := measure(plain)
			if err != nil {
				return errors.Join(err, guided.Stop(), plain.Stop())
			}
			x, y, ratios = append(x, micros(u)), append(y, micros(v)), append(ratios, u.Seconds()/v.Seconds())
		}
		fmt.Fprintf(b.table, "%s, %s\twith the profile %.1f us of CPU\twithout %.1f us\tratio %.3f\n", c.name, pgoWays[i], median(x), median(y), median(ratios))
	}
	return errors.Join(guided.Stop(), plain.Stop())
}

func micros(d time.Duration) float64 { return d.Seconds() * 1e6 }

// goTool runs the go command.
func goTool(args ...string) error {
	cmd := exec.Command("go", args...)
	cmd.Stderr = os.Stderr
	return cmd.Run()
}

// pgoWays names the ways in which a case sends requests.
var pgoWays = [...]string{"HTTP binary", "HTTP JSON", "gRPC on an identity model"}

// pgoCases returns the cases in which the server does most of the work.
func pgoCases() []pgoCase {
	over := func(protocol string, r load.Request) func(*process) (time.Duration, error) {
		return func(p *process) (time.Duration, error) {
			g, err := load.Dial(load.Target{HTTP: p.HTTP, GRPC: p.GRPC}, protocol, []load.Request{r}, concurrency)
			if err != nil {
				return 0, err
			}
			return p.load(g, pgoTurn)
		}
	}
	row := func(model string) load.Request {
		r := ramp(model, 16)
		r.Inputs[0].Shape = []int64{1, 16}
		return r
	}
	return []pgoCase{
		{"identity3", []string{"bench/repository/identity3", "bench/testdata/identity"}, []func(*process) (time.Duration, error){
			over(load.Binary, row("identity3")), over(load.JSON, row("identity3")), over(load.GRPC, ramp("fp32x16", 16)),
		}},
		{"parallel", []string{"bench/repository/parallel"}, []func(*process) (time.Duration, error){over(load.Binary, row("parallel"))}},
	}
}
