package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/tutti-server/tutti/internal/load"
)

const (
	textRequests = 1024
	textLimit    = 0.9
	concurrency  = 8
	memoryLimit  = 350
)

// text compares the text example at concurrency 8 with the same chain in Python.
func (b *bench) text() error {
	mix, err := os.ReadFile("bench/testdata/text_mix.txt")
	if err != nil {
		return err
	}
	var requests []load.Request
	for line := range strings.Lines(string(mix)) {
		requests = append(requests, embed(strings.TrimSuffix(line, "\n")))
	}
	packages, err := exec.Command("scripts/prepare-peers").Output()
	if err != nil {
		return fmt.Errorf("the Python peer cannot be prepared: %w", err)
	}
	ours, err := b.serve("examples/ensembles/text")
	if err != nil {
		return err
	}
	defer func() { fail(ours.Stop()) }()
	send := func(n int) (time.Duration, error) {
		g, err := load.Dial(load.Target{HTTP: ours.HTTP}, load.Binary, requests, concurrency)
		if err != nil {
			return 0, err
		}
		return ours.load(g, n)
	}
	if _, err := send(len(requests)); err != nil {
		return err // and a warm-up
	}
	var a, two, one []float64
	for range b.rounds {
		us, err := send(textRequests)
		if err != nil {
			return err
		}
		a = append(a, us.Seconds()*1e3)
		for _, peer := range []struct {
			workers, threads int
			to               *[]float64
		}{{2, 1, &two}, {1, 2, &one}} {
			ms, err := python(strings.TrimSpace(string(packages)), peer.workers, peer.threads)
			if err != nil {
				return err
			}
			*peer.to = append(*peer.to, ms)
		}
	}
	b.row("text at concurrency 8: CPU per request against Python, 2 workers x 1 thread", "ms", a, two, textLimit)
	b.row("text at concurrency 8: CPU per request against Python, 1 worker x 2 threads", "ms", a, one, textLimit)
	return nil
}

// python runs the peer once and returns its CPU milliseconds per request.
func python(packages string, workers, threads int) (float64, error) {
	cmd := exec.Command("python3", "bench/peers/text_chain.py", "--workers", strconv.Itoa(workers), "--threads", strconv.Itoa(threads), "--requests", strconv.Itoa(textRequests))
	cmd.Env = append(os.Environ(), "PYTHONPATH="+packages)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return 0, err
	}
	var result struct {
		Requests int     `json:"requests"`
		CPU      float64 `json:"cpu_seconds"`
	}
	if err := json.NewDecoder(bytes.NewReader(out)).Decode(&result); err != nil {
		return 0, err
	}
	return result.CPU / float64(result.Requests) * 1e3, nil
}

// memory reports the resident memory of three examples after some requests.
func (b *bench) memory() error {
	p, err := b.serve("examples/ensembles/text", "examples/ensembles/digits", "examples/ensembles/parallel")
	if err != nil {
		return err
	}
	defer func() { fail(p.Stop()) }()
	idle, err := p.resident()
	if err != nil {
		return err
	}
	g, err := load.Dial(load.Target{HTTP: p.HTTP}, load.Binary, []load.Request{embed("hello")}, concurrency)
	if err != nil {
		return err
	}
	if _, err := p.load(g, textRequests); err != nil {
		return err
	}
	busy, err := p.resident()
	if err != nil {
		return err
	}
	fmt.Fprintf(b.table, "resident memory, three examples\tidle %.0f MiB\tafter %d requests %.0f MiB\t(at most %d)\n", idle, textRequests, busy, memoryLimit)
	return nil
}

// embed returns a request for the embedding of a text.
func embed(text string) load.Request {
	return load.Request{Model: "ensemble", Inputs: []load.Tensor{load.Bytes("TEXT", []int64{1, 1}, []byte(text))}}
}
