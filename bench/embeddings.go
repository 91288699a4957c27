package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tutti-server/tutti/bench/proc"
)

const (
	// embeddingsLimit is the CPU time of /v1/embeddings, in that of a v2 request of the same texts.
	embeddingsLimit = 1.15
	// infinityGoal is the throughput, in that of Infinity on the same model.
	infinityGoal = 1.5
	// embeddingsTime is the length of a measurement.
	embeddingsTime = 4 * time.Second
)

// embeddings compares /v1/embeddings with v2 requests, by the CPU time of the server, and with Infinity, by the throughput. All have the same
// client and the same texts.
func (b *bench) embeddings() (err error) {
	mix, err := os.ReadFile("bench/testdata/text_mix.txt")
	if err != nil {
		return err
	}
	texts := strings.Split(strings.TrimSpace(string(mix)), "\n")
	ours, err := b.serve("examples/ensembles/text")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ours.Stop()) }()
	defer func() { err = errors.Join(err, b.table.Flush()) }() // also when a goal is missed
	err = b.embeddingsCost(ours, texts)
	peer, failed := startInfinity()
	if failed != nil {
		return errors.Join(err, failed)
	}
	defer func() { err = errors.Join(err, peer.Stop()) }()
	if failed := sameEmbeddings(ours, peer, texts); failed != nil {
		return errors.Join(err, failed)
	}
	return errors.Join(err, b.embeddingsRate(ours, peer, texts))
}

// startInfinity starts the peer, which has /v1/embeddings, too.
func startInfinity() (*process, error) {
	port, err := proc.FreePort()
	if err != nil {
		return nil, err
	}
	prepare := exec.Command("bench/peers/infinity/start", "--prepare")
	prepare.Stderr = os.Stderr
	if err := prepare.Run(); err != nil {
		return nil, fmt.Errorf("the peer Infinity cannot be prepared: %w", err)
	}
	p, err := proc.Start(context.Background(), &proc.Settings{
		Command: []string{"bench/peers/infinity/start", port}, HTTP: "127.0.0.1:" + port, Ready: "/health", Patience: 5 * time.Minute, Output: os.Stderr,
	})
	return &process{Process: p}, err
}

// embeddingsBody returns a request for the embeddings of texts.
func embeddingsBody(texts []string, format string) []byte {
	return encoded(map[string]any{"model": "ensemble", "input": texts, "encoding_format": format})
}

// v2Body returns the same as a request in JSON of the v2 protocol.
func v2Body(texts []string) []byte {
	return encoded(map[string]any{
		"inputs":  []any{map[string]any{"name": "TEXT", "datatype": "BYTES", "shape": []int{len(texts), 1}, "data": texts}},
		"outputs": []any{map[string]any{"name": "embedding"}},
	})
}

func encoded(v any) []byte {
	b, err := json.Marshal(v)
	fail(err) // of maps and strings
	return b
}

// bodies returns a request for each group of texts.
func bodies(texts []string, group int, body func([]string) []byte) (list [][]byte) {
	for part := range slices.Chunk(texts, group) {
		list = append(list, body(part))
	}
	return list
}

// embeddingsCost compares the CPU time of the routes.
func (b *bench) embeddingsCost(ours *process, texts []string) (err error) {
	for _, group := range []int{1, 32} {
		v2 := caller{url: "http://" + ours.HTTP + "/v2/models/ensemble/infer", bodies: bodies(texts, group, v2Body)}
		for _, format := range []string{"float", "base64"} {
			v1 := caller{url: "http://" + ours.HTTP + "/v1/embeddings", bodies: bodies(texts, group, func(t []string) []byte { return embeddingsBody(t, format) })}
			var pairs []pair
			for round := range b.rounds + 1 {
				one, err := v1.run(ours, concurrency)
				if err != nil {
					return err
				}
				other, err := v2.run(ours, concurrency)
				if err != nil {
					return err
				}
				if round > 0 { // the first round fills pools
					pairs = append(pairs, pair{one.cpu, other.cpu})
				}
			}
			what := fmt.Sprintf("/v1/embeddings (%s) over a v2 request in JSON, %d texts a request, %d in flight: CPU of a request", format, group, concurrency)
			if ratio := b.pairs(what, "us", pairs, fmt.Sprintf("at most %.2f", embeddingsLimit)); ratio > embeddingsLimit {
				err = errors.Join(err, fmt.Errorf("%s: %.2f times, expected at most %.2f", what, ratio, embeddingsLimit))
			}
		}
	}
	return err
}

// embeddingsRate compares the throughput with that of Infinity.
func (b *bench) embeddingsRate(ours, peer *process, texts []string) (err error) {
	for _, load := range []struct{ group, clients int }{{1, concurrency}, {1, 32}, {32, 4}} {
		list := bodies(texts, load.group, func(t []string) []byte { return embeddingsBody(t, "float") })
		var pairs []pair
		for round := range b.rounds + 1 {
			var rates [2]float64
			for i, p := range []*process{ours, peer} {
				r, err := (&caller{url: "http://" + p.HTTP + "/v1/embeddings", bodies: list}).run(p, load.clients)
				if err != nil {
					return err
				}
				rates[i] = r.rate * float64(load.group)
			}
			if round > 0 {
				pairs = append(pairs, pair{rates[0], rates[1]})
			}
		}
		what := fmt.Sprintf("/v1/embeddings over Infinity, %d texts a request, %d in flight: texts per second", load.group, load.clients)
		if ratio := b.pairs(what, "/s", pairs, fmt.Sprintf("at least %.1f", infinityGoal)); ratio < infinityGoal {
			err = errors.Join(err, fmt.Errorf("%s: %.2f times, expected at least %.1f", what, ratio, infinityGoal))
		}
	}
	return err
}

// pair is what two sides measured in one round.
type pair struct{ ours, theirs float64 }

// pairs prints the medians, and the median, the least and the largest ratio of the rounds, and returns the median ratio.
func (b *bench) pairs(what, unit string, list []pair, limit string) float64 {
	var ours, theirs, ratios []float64
	for _, p := range list {
		ours, theirs, ratios = append(ours, p.ours), append(theirs, p.theirs), append(ratios, p.ours/p.theirs)
	}
	fmt.Fprintf(b.table, "%s\ttutti %.1f %s\tpeer %.1f %s\tratio %.2f (%.2f to %.2f; %s)\n",
		what, median(ours), unit, median(theirs), unit, median(ratios), slices.Min(ratios), slices.Max(ratios), limit)
	return median(ratios)
}

// caller sends requests one after the other from a number of clients.
type caller struct {
	url    string
	bodies [][]byte
}

// outcome is what a measurement found.
type outcome struct {
	rate float64 // requests per second
	cpu  float64 // of the server, for a request, in microseconds
}

// run sends requests for a while and measures the server.
func (c *caller) run(p *process, clients int) (outcome, error) {
	transport := &http.Transport{MaxIdleConnsPerHost: clients, DisableCompression: true}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	var sent atomic.Int64
	before, err := p.CPU()
	if err != nil {
		return outcome{}, err
	}
	began := time.Now()
	var wg sync.WaitGroup
	failures := make([]error, clients)
	for i := range clients {
		wg.Go(func() {
			for time.Since(began) < embeddingsTime && failures[i] == nil {
				n := sent.Add(1)
				_, failures[i] = c.send(client, c.bodies[int(n)%len(c.bodies)])
			}
		})
	}
	wg.Wait()
	took := time.Since(began)
	after, err := p.CPU()
	n := float64(sent.Load())
	return outcome{n / took.Seconds(), (after - before).Seconds() * 1e6 / n}, errors.Join(err, errors.Join(failures...))
}

// send returns the response to one request.
func (c *caller) send(client *http.Client, body []byte) ([]byte, error) {
	resp, err := client.Post(c.url, "application/json", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %.200s", c.url, resp.Status, b)
	}
	return b, err
}

// sameEmbeddings checks that both sides compute the same: the cosine of their embeddings is near 1.
func sameEmbeddings(ours, peer *process, texts []string) error {
	var both [2][]float64
	for i, p := range []*process{ours, peer} {
		c := caller{url: "http://" + p.HTTP + "/v1/embeddings"}
		b, err := c.send(http.DefaultClient, embeddingsBody(texts[:1], "float"))
		if err != nil {
			return err
		}
		var got struct {
			Data []struct{ Embedding []float64 }
		}
		if err := json.Unmarshal(b, &got); err != nil || len(got.Data) != 1 {
			return fmt.Errorf("%s: %.200s: %w", p.HTTP, b, err)
		}
		both[i] = got.Data[0].Embedding
	}
	if len(both[0]) != len(both[1]) {
		return fmt.Errorf("the embeddings have %d and %d elements, expected as many", len(both[0]), len(both[1]))
	}
	cosine := 0.0 // both have the length 1
	for i := range both[0] {
		cosine += both[0][i] * both[1][i]
	}
	if cosine < 0.999 {
		return fmt.Errorf("the cosine of both embeddings is %.5f, expected at least 0.999: the models differ", cosine)
	}
	return nil
}
