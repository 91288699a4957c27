package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
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
	var requests [][]byte
	for line := range strings.Lines(string(mix)) {
		text := strings.TrimSuffix(line, "\n")
		data := append(binary.LittleEndian.AppendUint32(nil, uint32(len(text))), text...)
		header := fmt.Sprintf(`{"inputs":[{"name":"TEXT","datatype":"BYTES","shape":[1,1],"parameters":{"binary_data_size":%d}}],"parameters":{"binary_data_output":true}}`, len(data))
		requests = append(requests, post("/v2/models/ensemble/infer", header, data))
	}
	packages, err := exec.Command("scripts/prepare-peers").Output()
	if err != nil {
		return fmt.Errorf("the Python peer cannot be prepared: %w", err)
	}
	ours, err := b.serve("examples/ensembles/text")
	if err != nil {
		return err
	}
	defer func() { fail(ours.stop()) }()
	if _, err := ours.load(requests, concurrency, len(requests)); err != nil {
		return err // and a warm-up
	}
	var a, two, one []float64
	for range b.rounds {
		us, err := ours.load(requests, concurrency, textRequests)
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

// memory reports the resident memory of the three examples after some traffic.
func (b *bench) memory() error {
	p, err := b.serve("examples/ensembles/text", "examples/ensembles/digits", "examples/ensembles/parallel")
	if err != nil {
		return err
	}
	defer func() { fail(p.stop()) }()
	idle, err := p.resident()
	if err != nil {
		return err
	}
	data := append(binary.LittleEndian.AppendUint32(nil, 5), "hello"...)
	header := fmt.Sprintf(`{"inputs":[{"name":"TEXT","datatype":"BYTES","shape":[1,1],"parameters":{"binary_data_size":%d}}]}`, len(data))
	if _, err := p.load([][]byte{post("/v2/models/ensemble/infer", header, data)}, concurrency, textRequests); err != nil {
		return err
	}
	busy, err := p.resident()
	if err != nil {
		return err
	}
	fmt.Fprintf(b.table, "resident memory, three examples\tidle %.0f MiB\tafter %d requests %.0f MiB\t(at most %d)\n", idle, textRequests, busy, memoryLimit)
	return nil
}
