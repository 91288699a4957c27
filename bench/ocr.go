package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tutti-server/tutti/bench/proc"
	"github.com/tutti-server/tutti/internal/load"
)

const (
	// ocrLeast is the smallest allowed throughput of the ensemble ocr, relative to the same work in one Python model with BLS.
	ocrLeast    = 3.0
	ocrClients  = 8
	ocrTime     = 2 * time.Second // of each side of a round: other load changes little between the two
	ocrTrial    = 2 * time.Second // of each number of instances
	ocrExample  = "examples/ensembles/ocr"
	ocrPeer     = "bench/repository/ocr_bls/ocr_bls"
	ocrPictures = "bench/testdata/ocr/*.jpg"
)

// ocrInstances are the numbers of instances of the Python model that are tried; the fastest is the peer.
func ocrInstances() []int { return []int{1, 2, 4} }

// ocrSide is one of the compared models, with what its rounds took.
type ocrSide struct {
	model    string
	requests []load.Request

	rates     []float64 // of each round: pictures per second
	cpu       []float64 // of each round: the server's CPU time for a picture, in ms
	latencies []time.Duration
}

// ocr compares the ensemble ocr with one Python model that does the same work by BLS: 8 clients in a closed loop, in turns, on one server.
// It fails when a text differs, or when the ensemble has less than ocrLeast times the throughput.
func (b *bench) ocr() (err error) {
	packages, err := output(nil, "scripts/prepare-peers", "bench/peers/ocr/requirements.txt")
	if err != nil {
		return err
	}
	root, err := os.MkdirTemp("", "bench-ocr")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(root)) }()
	sides := []*ocrSide{{model: "ocr"}}
	for _, n := range ocrInstances() {
		name := fmt.Sprintf("ocr_bls_%d", n)
		if err = copyOCRPeer(filepath.Join(root, name), name, n); err != nil {
			return err
		}
		sides = append(sides, &ocrSide{model: name})
	}
	ports, err := freePorts()
	if err != nil {
		return err
	}
	s, err := proc.Start(context.Background(), &proc.Settings{
		Command: append([]string{b.tutti}, tuttiArgs(ports, ocrExample, root)...), HTTP: "127.0.0.1:" + ports[0], GRPC: "127.0.0.1:" + ports[1],
		Env: []string{"PYTHONPATH=" + strings.TrimSpace(packages)},
	})
	if err != nil {
		return err
	}
	p := &process{Process: s}
	defer func() { err = errors.Join(err, p.Stop()) }()
	defer func() { err = errors.Join(err, b.table.Flush()) }() // also when the ensemble is too slow
	if err = p.sameTexts(sides); err != nil {
		return err
	}
	peer, err := p.bestOCRPeer(sides[1:])
	if err != nil {
		return err
	}
	return b.ocrRounds(p, sides[0], peer)
}

// copyOCRPeer copies the Python model to a folder, with another name and another number of instances, and adds the example's file of characters.
func copyOCRPeer(to, name string, instances int) error {
	if err := os.CopyFS(to, os.DirFS(ocrPeer)); err != nil {
		return err
	}
	config, err := os.ReadFile(filepath.Join(to, "config.pbtxt"))
	if err != nil {
		return err
	}
	characters, err := os.ReadFile(filepath.Join(ocrExample, "ocr_text/characters.txt"))
	if err != nil {
		return err
	}
	text := strings.NewReplacer(`name: "ocr_bls"`, `name: "`+name+`"`, "count: 1", fmt.Sprintf("count: %d", instances)).Replace(string(config))
	return errors.Join(
		os.WriteFile(filepath.Join(to, "config.pbtxt"), []byte(text), 0o600),
		os.WriteFile(filepath.Join(to, "1/characters.txt"), characters, 0o600),
	)
}

// sameTexts builds the requests of each side. It checks that all sides read the same texts from the pictures of the bench and from those of the example.
func (p *process) sameTexts(sides []*ocrSide) error {
	files, err := filepath.Glob(ocrPictures)
	if err != nil || len(files) == 0 {
		return errors.Join(err, fmt.Errorf("no file matches '%s', expected pictures", ocrPictures))
	}
	measured := len(files)
	for _, kind := range []string{"*.png", "*.jpg"} {
		more, err := filepath.Glob(filepath.Join(ocrExample, kind))
		if err != nil {
			return err
		}
		files = append(files, more...)
	}
	want := make([][]string, len(files))
	for _, s := range sides {
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			s.requests = append(s.requests, load.Request{Model: s.model, Inputs: []load.Tensor{load.Bytes("IMAGE", []int64{1, 1}, data)}})
		}
		for i, file := range files {
			texts, err := p.texts(s.requests[i])
			if err != nil {
				return fmt.Errorf("%s of %s: %w", s.model, file, err)
			}
			if want[i] == nil {
				want[i] = texts
			}
			if !slices.Equal(texts, want[i]) {
				return fmt.Errorf("%s reads %q from %s, expected %q as %s does", s.model, texts, file, want[i], sides[0].model)
			}
		}
		s.requests = s.requests[:measured] // the example's pictures are not measured: they have few lines
	}
	return nil
}

// texts sends a picture to a model and returns the texts of the response.
func (p *process) texts(r load.Request) (texts []string, err error) {
	g, err := load.Dial(load.Target{HTTP: p.HTTP}, load.Binary, []load.Request{r}, 1)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	if err = g.Clients[0].Do(0); err != nil {
		return nil, err
	}
	all, err := g.Clients[0].Outputs()
	if err != nil {
		return nil, err
	}
	for _, out := range all {
		if out.Name == "TEXT" {
			return append([]string{}, out.Strings...), nil
		}
	}
	return nil, errors.New("the response has no output TEXT")
}

// read sends the pictures of a side from all clients for the time d, and notes throughput, CPU time and latencies.
func (p *process) read(s *ocrSide, d time.Duration) (err error) {
	g, err := load.Dial(load.Target{HTTP: p.HTTP}, load.Binary, s.requests, ocrClients)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	before, err := p.CPU()
	if err != nil {
		return err
	}
	r, err := load.Run(g.Clients, load.Plan{Duration: d, Least: 2 * len(s.requests)})
	if err = errors.Join(err, r.First); err != nil {
		return err
	}
	after, err := p.CPU()
	s.rates = append(s.rates, r.Throughput)
	s.cpu = append(s.cpu, (after-before).Seconds()*1e3/float64(r.Requests))
	s.latencies = append(s.latencies, r.Latencies...)
	return err
}

// bestOCRPeer returns the number of instances with the highest throughput.
func (p *process) bestOCRPeer(list []*ocrSide) (*ocrSide, error) {
	for range 2 { // the first trial fills pools
		for _, s := range list {
			if err := p.read(s, ocrTrial); err != nil {
				return nil, err
			}
		}
	}
	best := slices.MaxFunc(list, func(a, b *ocrSide) int { return cmp.Compare(a.rates[1], b.rates[1]) })
	best.rates, best.cpu, best.latencies = nil, nil, nil
	return best, nil
}

// ocrRounds measures both sides in turns and prints the comparison. Each side is the first one in every other round.
func (b *bench) ocrRounds(p *process, ours, peer *ocrSide) error {
	pair := []*ocrSide{ours, peer}
	for _, s := range pair {
		if err := p.read(s, ocrTrial); err != nil {
			return err
		}
		s.rates, s.cpu, s.latencies = nil, nil, nil
	}
	var ratios []float64
	for round := range b.rounds {
		for i := range pair {
			if err := p.read(pair[(i+round)%2], ocrTime); err != nil {
				return err
			}
		}
		ratios = append(ratios, ours.rates[round]/peer.rates[round])
	}
	for _, s := range pair {
		slices.Sort(s.latencies)
		fmt.Fprintf(b.table, "%s, %d clients\t%.1f pictures/s\t%.1f ms of CPU per picture\tp50 %.0f ms\tp99 %.0f ms\n",
			s.model, ocrClients, median(s.rates), median(s.cpu), load.Percentile(s.latencies, 0.5).Seconds()*1e3, load.Percentile(s.latencies, 0.99).Seconds()*1e3)
	}
	ratio, verdict := median(ratios), fmt.Sprintf("at least %.1f", ocrLeast)
	if ratio < ocrLeast {
		verdict += ", UNDER"
	}
	fmt.Fprintf(b.table, "ocr against one Python model with BLS\tratio %.2f (%.2f to %.2f; %s)\n", ratio, slices.Min(ratios), slices.Max(ratios), verdict)
	if ratio < ocrLeast {
		return fmt.Errorf("the ensemble ocr has %.2f times the throughput of %s, expected at least %.1f", ratio, peer.model, ocrLeast)
	}
	return nil
}
