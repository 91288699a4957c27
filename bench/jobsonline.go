package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	corejob "github.com/tutti-server/tutti/core/job"
	"github.com/tutti-server/tutti/internal/load"
)

const (
	// onlineMost is the largest allowed p99 of online requests beside a job, relative to that without one.
	onlineMost = 1.10
	// onlineTime is how long requests arrive in each half of a round, onlineClients how many can be in flight.
	onlineTime    = 15 * time.Second
	onlineClients = 16
)

// jobOnline compares the p99 of single online requests, which arrive at random at a fixed rate, with and without a job on the same
// ensemble, in pairs. Both halves of a pair have the same arrivals, and each is the first one in every other pair. The limit holds for
// the p99 of the requests of all pairs together: that of a half is set by its 30 slowest requests, so those of single pairs scatter.
func (b *bench) jobOnline(s *jobServer, l *jobLoad, rate float64, requests []load.Request) error {
	var all [2][]time.Duration // without a job and with one
	var ratios, rows []float64
	for round := range b.rounds + 1 {
		var p99 [2]float64
		var done int64
		for half := range 2 {
			withJob := (half + round) % 2
			r, n, err := s.onlineLoad(l, rate, uint64(round), requests, withJob == 1)
			if err != nil {
				return err
			}
			if round > 0 { // the first round fills pools
				all[withJob] = append(all[withJob], r.Latencies...)
			}
			p99[withJob], done = r.P99.Seconds(), done+n
		}
		if round > 0 {
			ratios, rows = append(ratios, p99[1]/p99[0]), append(rows, float64(done)/onlineTime.Seconds())
		}
	}
	slices.Sort(all[0])
	slices.Sort(all[1])
	alone, beside := load.Percentile(all[0], 0.99), load.Percentile(all[1], 0.99)
	ratio, verdict := float64(beside)/float64(alone), fmt.Sprintf("at most %.2f", onlineMost)
	if ratio > onlineMost {
		verdict += ", OVER"
	}
	fmt.Fprintf(b.table, "online requests, %s at %.0f/s, %d\tp99 %.2f ms\tbeside a job %.2f ms (%.0f rows/s)\tratio %.2f (%s); of single pairs %.2f to %.2f, median %.2f\n",
		l.model, rate, len(all[0]), alone.Seconds()*1e3, beside.Seconds()*1e3, median(rows), ratio, verdict, slices.Min(ratios), slices.Max(ratios), median(ratios))
	if ratio > onlineMost {
		return fmt.Errorf("the p99 of online requests of '%s' is %.2f times as long beside a job, expected at most %.2f", l.model, ratio, onlineMost)
	}
	return nil
}

// onlineLoad measures online requests, with a job or without, and returns how many rows of the job were executed meanwhile.
func (s *jobServer) onlineLoad(l *jobLoad, rate float64, seed uint64, requests []load.Request, withJob bool) (r load.Result, rows int64, err error) {
	ctx, done := context.WithTimeout(context.Background(), jobPatience)
	defer done()
	g, err := load.Dial(load.Target{HTTP: s.HTTP, GRPC: s.GRPC}, load.Binary, requests, onlineClients)
	if err != nil {
		return r, 0, err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	if withJob {
		id, err := s.begin(ctx, l)
		if err != nil {
			return r, 0, err
		}
		defer func() {
			n, failed := s.cancel(ctx, id)
			rows, err = n, errors.Join(err, failed)
		}()
	}
	r, err = load.Run(g.Clients, load.Plan{Duration: onlineTime, Rate: rate, Seed: seed})
	return r, rows, errors.Join(err, r.First)
}

// begin submits a job, and returns its id when chunks are executed.
func (s *jobServer) begin(ctx context.Context, l *jobLoad) (id string, err error) {
	s.next++
	out := filepath.Join(s.root, fmt.Sprintf("out-%d", s.next))
	st, err := s.submit(ctx, &corejob.Spec{ID: fmt.Sprintf("online-%d", s.next), Model: l.model, Input: l.input, Output: corejob.Place{URI: out, Format: l.format}})
	for err == nil && st.State != corejob.Running {
		if st.State.Final() {
			return "", fmt.Errorf("job '%s' is %s before a request arrived: %s", st.ID, st.State, st.Reason)
		}
		time.Sleep(5 * time.Millisecond)
		st, err = s.jobs.Show(ctx, st.ID)
	}
	if err != nil {
		return "", err
	}
	return st.ID, nil
}

// cancel ends a job that is still running, removes its output and returns the rows that it has executed.
func (s *jobServer) cancel(ctx context.Context, id string) (rows int64, err error) {
	st, err := s.jobs.Show(ctx, id)
	if err != nil {
		return 0, err
	}
	if st.State.Final() {
		return 0, fmt.Errorf("job '%s' is %s before the last request arrived, expected more rows", id, st.State)
	}
	rows = st.Rows.Done
	for err = s.jobs.Cancel(ctx, id); err == nil && !st.State.Final(); st, err = s.jobs.Show(ctx, id) {
		time.Sleep(20 * time.Millisecond)
	}
	return rows, errors.Join(err, os.RemoveAll(filepath.Join(s.root, "out-"+id[len("online-"):])))
}

// jobsOnline measures what jobs cost online requests of the same ensembles: a chain of native steps, and one with a model.
func (b *bench) jobsOnline() (err error) {
	s, err := b.serveJobs("bench/repository/identities", textRepository)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	defer func() { err = errors.Join(err, b.table.Flush()) }() // also when a job is in the way
	vectors, err := s.vectors(jobManyRows, "jsonl")
	if err != nil {
		return err
	}
	texts, err := s.texts()
	if err != nil {
		return err
	}
	if err = s.repeatRows(texts, 20); err != nil {
		return err
	}
	data := make([]byte, 4*16)
	vector := []load.Request{{Model: vectors.model, Outputs: []string{"OUTPUT0"}, Inputs: []load.Tensor{{Name: "INPUT0", Datatype: "FP32", Shape: []int64{1, 16}, Data: data}}}}
	text := []load.Request{{Model: texts.model, Outputs: []string{"embedding"}, Inputs: []load.Tensor{load.Bytes("TEXT", []int64{1, 1}, []byte("a sentence of a client"))}}}
	return errors.Join(b.jobOnline(s, vectors, 200, vector), b.jobOnline(s, texts, 40, text))
}

// repeatRows makes the dataset of a job n times as long.
func (*jobServer) repeatRows(l *jobLoad, n int) error {
	text, err := os.ReadFile(l.input.URI)
	if err != nil {
		return err
	}
	l.rows *= n
	return os.WriteFile(l.input.URI, slices.Repeat(text, n), 0o600)
}
