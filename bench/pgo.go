package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"tutti/bench/load"
)

const (
	pgoMain = "bench/testdata/profiled_main.go.txt" // what takes the place of the program's main.go
	pgoFile = "bin/tutti.pgo"
	pgoSpan = 5 * time.Second // of load, for each way to ask
	pgoEnv  = "TUTTI_CPU_PROFILE"
	// pgoTurns is how often two builds are compared, in turns of so many requests.
	pgoTurns, pgoTurn = 160, 1000
)

// pgoCase is one repository under load, and what it is asked.
type pgoCase struct {
	name  string
	roots []string
	ask   []func(p *process, n int) error
}

// pgo tells what a build gains that a profile guides: the profile is the CPU time of a
// server under each of the loads that servers are compared on.
func (b *bench) pgo() error {
	dir, err := os.MkdirTemp("", "bench-pgo")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	cases, err := pgoCases()
	if err != nil {
		return err
	}
	if err := b.pgoProfile(dir, cases); err != nil {
		return err
	}
	with, without := *b, *b
	with.tutti, without.tutti = filepath.Join(dir, "tutti-with"), filepath.Join(dir, "tutti-without")
	if err := goTool("build", "-pgo="+pgoFile, "-o", with.tutti, "./cmd/tutti"); err != nil {
		return err
	}
	if err := goTool("build", "-pgo=off", "-o", without.tutti, "./cmd/tutti"); err != nil {
		return err
	}
	for i := range cases[:2] { // those where the server is most of the work
		if err := b.pgoCompare(&with, &without, &cases[i]); err != nil {
			return err
		}
	}
	return nil
}

// pgoProfile writes the profiles of all loads, merged.
func (b *bench) pgoProfile(dir string, cases []pgoCase) error {
	profiled := *b
	profiled.tutti = filepath.Join(dir, "tutti")
	if err := pgoBuild(dir, profiled.tutti); err != nil {
		return err
	}
	args := []string{"tool", "pprof", "-proto", "-output", pgoFile}
	for i := range cases {
		profile := filepath.Join(dir, cases[i].name)
		if err := profiled.profile(&cases[i], profile); err != nil {
			return fmt.Errorf("%s: %w", cases[i].name, err)
		}
		args = append(args, profile)
	}
	return goTool(args...)
}

// pgoCompare prints the CPU time of a request with and without, measured in turns.
func (b *bench) pgoCompare(with, without *bench, c *pgoCase) error {
	guided, err := with.serve(c.roots...)
	if err != nil {
		return err
	}
	plain, err := without.serve(c.roots...)
	if err != nil {
		return errors.Join(err, guided.Stop())
	}
	for i, ask := range c.ask {
		var x, y, ratios []float64
		for range pgoTurns {
			u, err := pgoCost(guided, ask)
			if err != nil {
				return errors.Join(err, guided.Stop(), plain.Stop())
			}
			v, err := pgoCost(plain, ask)
			if err != nil {
				return errors.Join(err, guided.Stop(), plain.Stop())
			}
			x, y, ratios = append(x, u), append(y, v), append(ratios, u/v)
		}
		fmt.Fprintf(b.table, "%s, %s\twith the profile %.1f us of CPU\twithout %.1f us\tratio %.3f\n", c.name, pgoWays[i], median(x), median(y), median(ratios))
	}
	return errors.Join(guided.Stop(), plain.Stop())
}

// pgoCost is a server's CPU time for a request, in us.
func pgoCost(p *process, ask func(*process, int) error) (float64, error) {
	before, err := p.CPU()
	if err != nil {
		return 0, err
	}
	if err := ask(p, pgoTurn); err != nil {
		return 0, err
	}
	after, err := p.CPU()
	return (after - before).Seconds() * 1e6 / pgoTurn, err
}

// goTool runs the go command.
func goTool(args ...string) error {
	cmd := exec.Command("go", args...)
	cmd.Stderr = os.Stderr
	return cmd.Run()
}

// pgoBuild builds the program with a main function that writes a profile.
func pgoBuild(dir, to string) error {
	replaced, err := filepath.Abs("cmd/tutti/main.go")
	if err != nil {
		return err
	}
	by, err := filepath.Abs(pgoMain)
	if err != nil {
		return err
	}
	text, err := json.Marshal(map[string]map[string]string{"Replace": {replaced: by}})
	if err != nil {
		return err
	}
	overlay := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, text, 0o600); err != nil {
		return err
	}
	return goTool("build", "-pgo=off", "-overlay", overlay, "-o", to, "./cmd/tutti")
}

// pgoWays names the ways to ask of a case.
var pgoWays = [...]string{"HTTP binary", "HTTP JSON", "gRPC on an identity model"}

// profile writes what a server spends its time on under a load.
func (b *bench) profile(c *pgoCase, to string) error {
	if err := os.Setenv(pgoEnv, to); err != nil {
		return err
	}
	p, err := b.serve(c.roots...)
	if err != nil {
		return err
	}
	for _, ask := range c.ask {
		if err := pgoAsk(p, ask); err != nil {
			return errors.Join(err, p.Stop())
		}
	}
	return p.Stop()
}

// pgoAsk sends requests until the time is over.
func pgoAsk(p *process, ask func(p *process, n int) error) error {
	n := 16
	for began := time.Now(); time.Since(began) < pgoSpan; n = min(2*n, 20_000) {
		if err := ask(p, n); err != nil {
			return err
		}
	}
	return nil
}

func pgoCases() ([]pgoCase, error) {
	picture, err := pgoPicture()
	if err != nil {
		return nil, err
	}
	mix, err := os.ReadFile("bench/testdata/text_mix.txt")
	if err != nil {
		return nil, err
	}
	var texts []load.Request
	for line := range strings.Lines(string(mix)) {
		texts = append(texts, embed(strings.TrimSuffix(line, "\n")))
	}
	over := func(protocol string, requests ...load.Request) func(*process, int) error {
		return func(p *process, n int) error {
			g, err := load.Dial(load.Target{HTTP: p.HTTP, GRPC: p.GRPC}, protocol, requests, concurrency)
			if err != nil {
				return err
			}
			_, err = p.load(g, n)
			return err
		}
	}
	row := func(model string) load.Request {
		r := ramp(model, 16)
		r.Inputs[0].Shape = []int64{1, 16}
		return r
	}
	seen := load.Request{Model: "image", Inputs: []load.Tensor{load.Bytes("IMAGE", []int64{1, 1}, picture)}}
	return []pgoCase{
		{"identity3", []string{"bench/repository/identity3", "bench/testdata/identity"}, []func(*process, int) error{
			over(load.Binary, row("identity3")), over(load.JSON, row("identity3")), over(load.GRPC, ramp("fp32x16", 16)),
		}},
		{"parallel", []string{"bench/repository/parallel"}, []func(*process, int) error{over(load.Binary, row("parallel"))}},
		{"text", []string{"examples/ensembles/text"}, []func(*process, int) error{over(load.Binary, texts...)}},
		{"image", []string{"bench/repository/image"}, []func(*process, int) error{over(load.Binary, seen)}},
		{"python3", []string{"bench/repository/python3"}, []func(*process, int) error{over(load.Binary, row("python3"))}},
	}, nil
}

// pgoPicture is a JPEG of 640 x 480 with something to see everywhere.
func pgoPicture() ([]byte, error) {
	m := image.NewRGBA(image.Rect(0, 0, 640, 480))
	for y := range 480 {
		for x := range 640 {
			m.SetRGBA(x, y, color.RGBA{R: uint8(x * y), G: uint8(x + 3*y), B: uint8(x ^ y), A: 255})
		}
	}
	var b bytes.Buffer
	err := jpeg.Encode(&b, m, nil)
	return b.Bytes(), err
}
