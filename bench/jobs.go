package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/tutti-server/tutti/bench/proc"
	tutticlient "github.com/tutti-server/tutti/client"
	corejob "github.com/tutti-server/tutti/core/job"
	"github.com/tutti-server/tutti/internal/load"
	"github.com/tutti-server/tutti/internal/temporald"
)

const (
	// jobLeast is the smallest allowed throughput of a job, relative to the same requests of a client.
	jobLeast = 0.90
	// jobBatch is the number of rows of a request, of the job and of the client: the max_batch_size of the ensembles.
	jobBatch    = 32
	jobRows     = 100_000 // of identities
	jobTexts    = 2_000
	jobManyRows = 10 * jobRows
	jobPatience = 10 * time.Minute
	// jobPoll is how often a job is looked at, as tutti jobs wait does. Each look is a query of Temporal's, which takes 10 ms of CPU time.
	jobPoll = 300 * time.Millisecond
	// The server's memory may grow by jobMemoryTimes, or by jobMemoryMore MiB, from jobRows to jobManyRows rows.
	jobMemoryTimes = 1.2
	jobMemoryMore  = 32
)

// jobServer is a server with jobs, its Temporal server included, and the folder of its datasets.
type jobServer struct {
	*process
	root string
	jobs *tutticlient.Jobs
	next int
}

// serveJobs starts a server with jobs. The Temporal server is its child.
func (b *bench) serveJobs(repositories ...string) (*jobServer, error) {
	root, err := os.MkdirTemp("", "bench-jobs")
	if err != nil {
		return nil, err
	}
	ports, err := freePorts()
	if err != nil {
		return nil, err
	}
	args := append(tuttiArgs(ports, repositories...), "--jobs", "--data-dir="+filepath.Join(root, "data"))
	p, err := start("127.0.0.1:"+ports[0], "127.0.0.1:"+ports[1], b.tutti, args...)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(root))
	}
	return &jobServer{process: p, root: root, jobs: tutticlient.NewHTTP("http://"+p.HTTP, nil).Jobs()}, nil
}

// Stop ends the server and removes its files.
func (s *jobServer) Stop() error { return errors.Join(s.process.Stop(), os.RemoveAll(s.root)) }

// jobLoad is a dataset for a job, and the same rows as requests of a client.
type jobLoad struct {
	name, model, protocol string
	input                 corejob.Place
	format                string // of the output
	rows                  int
	requests              []load.Request
	// shown: the ratio has no limit. The client of binary tensors neither reads nor writes rows, and the job does both.
	shown bool
}

// jobRun is what one job took.
type jobRun struct {
	status *corejob.Status
	cpu    time.Duration // of the server, Temporal included
}

// run submits a job and waits for its end.
func (s *jobServer) run(l *jobLoad) (r *jobRun, err error) {
	ctx, done := context.WithTimeout(context.Background(), jobPatience)
	defer done()
	s.next++
	out := filepath.Join(s.root, fmt.Sprintf("out-%d", s.next))
	defer func() { err = errors.Join(err, os.RemoveAll(out)) }()
	before, err := s.CPU()
	if err != nil {
		return nil, err
	}
	st, err := s.submit(ctx, &corejob.Spec{ID: fmt.Sprintf("%s-%d", l.model, s.next), Model: l.model, Input: l.input, Output: corejob.Place{URI: out, Format: l.format}})
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(jobPoll)
	defer tick.Stop()
	for ; !st.State.Final(); <-tick.C {
		if st, err = s.jobs.Show(ctx, st.ID); err != nil {
			return nil, err
		}
	}
	r = &jobRun{status: st}
	after, err := s.CPU()
	r.cpu = after - before
	if err == nil && (st.State != corejob.Completed || st.Rows.Done != int64(l.rows)) {
		err = fmt.Errorf("job '%s' is %s with %d of %d rows: %s", st.ID, st.State, st.Rows.Done, l.rows, st.Reason)
	}
	return r, err
}

// submit submits a job, again while Temporal starts.
func (s *jobServer) submit(ctx context.Context, spec *corejob.Spec) (*corejob.Status, error) {
	for {
		st, err := s.jobs.Submit(ctx, spec)
		if err == nil || ctx.Err() != nil || s.next > 1 {
			return st, err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// direct sends the rows from a number of connections, and returns rows per second and the server's CPU time of a row.
func (s *jobServer) direct(l *jobLoad, connections int, requests []load.Request) (rate, cpu float64, err error) {
	g, err := load.Dial(load.Target{HTTP: s.HTTP, GRPC: s.GRPC}, l.protocol, requests, connections)
	if err != nil {
		return 0, 0, err
	}
	begin := time.Now()
	each, err := s.load(g, len(requests))
	if err != nil {
		return 0, 0, err
	}
	took := time.Since(begin)
	rows := 0
	for i := range requests {
		rows += int(requests[i].Inputs[0].Shape[0])
	}
	return float64(rows) / took.Seconds(), each.Seconds() * float64(len(requests)) / float64(rows) * 1e6, nil
}

// best returns the number of connections with the highest throughput.
func (s *jobServer) best(l *jobLoad) (int, error) {
	some := l.requests[:min(len(l.requests), max(len(l.requests)/3, 20))]
	best, most := 0, 0.0
	for _, connections := range []int{1, 2, 4, 8, 16} {
		var rates []float64
		for range 3 {
			rate, _, err := s.direct(l, connections, some)
			if err != nil {
				return 0, err
			}
			rates = append(rates, rate)
		}
		if m := median(rates); m > most {
			best, most = connections, m
		}
	}
	return best, nil
}

// jobThroughput measures and prints the throughput of a job and of a client with the same rows, in pairs.
func (b *bench) jobThroughput(s *jobServer, l *jobLoad) error {
	connections, err := s.best(l)
	if err != nil {
		return err
	}
	var jobRates, directRates, ratios, jobCPU, directCPU, elapsed []float64
	var last *jobHistory
	for round := range b.rounds + 1 {
		rate, cpu, err := s.direct(l, connections, l.requests)
		if err != nil {
			return err
		}
		r, err := s.run(l)
		if err != nil {
			return err
		}
		if last, err = s.history(r.status.ID); err != nil {
			return err
		}
		if round == 0 { // it fills pools
			continue
		}
		chunks := float64(l.rows) / last.took.Seconds()
		jobRates, directRates, ratios = append(jobRates, chunks), append(directRates, rate), append(ratios, chunks/rate)
		jobCPU, directCPU = append(jobCPU, r.cpu.Seconds()/float64(l.rows)*1e6), append(directCPU, cpu)
		elapsed = append(elapsed, r.status.Ended.Sub(r.status.Created).Seconds())
	}
	ratio, verdict := median(ratios), fmt.Sprintf("at least %.2f", jobLeast)
	over := ratio < jobLeast && !l.shown
	switch {
	case l.shown:
		verdict = "no limit"
	case over:
		verdict += ", OVER"
	}
	fmt.Fprintf(b.table, "job, %s\tchunks %.0f rows/s\tdirect, %d connections: %.0f rows/s\tratio %.2f (%.2f to %.2f; %s)\n",
		l.name, median(jobRates), connections, median(directRates), ratio, slices.Min(ratios), slices.Max(ratios), verdict)
	fmt.Fprintf(b.table, "  CPU of a row\tjob, Temporal included %.2f us\tdirect, without the client %.2f us\tsubmit to manifest %.2f s; %d chunks, history: %d events, %d bytes\n",
		median(jobCPU), median(directCPU), median(elapsed), last.chunks, last.events, last.bytes)
	if over {
		return fmt.Errorf("a job of %s has %.2f of the throughput of direct requests, expected at least %.2f", l.name, ratio, jobLeast)
	}
	return nil
}

// jobHistory is what Temporal has stored of a job.
type jobHistory struct {
	events, bytes int64
	chunks        int
	took          time.Duration // from the start of the first chunk to the end of the last
}

// history reads the history of a job's last run.
func (s *jobServer) history(id string) (h *jobHistory, err error) {
	conn, err := temporald.Open(temporald.Settings{DataDir: filepath.Join(s.root, "data"), Namespace: temporald.DefaultNamespace, Program: s.temporal()})
	if err != nil {
		return nil, err
	}
	ctx, done := context.WithTimeout(context.Background(), time.Minute)
	defer done()
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	d, err := conn.Client().DescribeWorkflowExecution(ctx, id, "")
	if err != nil {
		return nil, err
	}
	h = &jobHistory{events: d.GetWorkflowExecutionInfo().GetHistoryLength(), bytes: d.GetWorkflowExecutionInfo().GetHistorySizeBytes()}
	chunks := map[int64]bool{}
	var first, last time.Time
	for it := conn.Client().GetWorkflowHistory(ctx, id, "", false, 0); it.HasNext(); {
		e, err := it.Next()
		if err != nil {
			return nil, err
		}
		at := e.GetEventTime().AsTime()
		if a := e.GetActivityTaskScheduledEventAttributes(); a.GetActivityType().GetName() == "tutti.chunk" {
			chunks[e.GetEventId()] = true
		}
		if a := e.GetActivityTaskStartedEventAttributes(); a != nil && chunks[a.GetScheduledEventId()] && (first.IsZero() || at.Before(first)) {
			first = at
		}
		if a := e.GetActivityTaskCompletedEventAttributes(); a != nil && chunks[a.GetScheduledEventId()] && at.After(last) {
			last = at
		}
	}
	h.chunks, h.took = len(chunks), last.Sub(first)
	return h, nil
}

// temporal returns the path of the Temporal server's program, which is beside the measured one.
func (s *jobServer) temporal() string {
	self, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", s.PID()))
	if err != nil {
		return ""
	}
	return filepath.Join(filepath.Dir(self), "tutti-temporal")
}

// jobMemory compares the server's largest memory during a job with that during one of ten times the rows.
func (b *bench) jobMemory(s *jobServer) error {
	var peaks []float64
	for _, rows := range []int{jobRows, jobRows, jobManyRows} { // the first fills pools
		l, err := s.vectors(rows, "jsonl")
		if err != nil {
			return err
		}
		if err = proc.ResetPeak(s.PID()); err != nil {
			return err
		}
		if _, err = s.run(l); err != nil {
			return err
		}
		peak, err := proc.Peak(s.PID())
		if err != nil {
			return err
		}
		peaks = append(peaks, float64(peak)/(1<<20))
	}
	few, many := peaks[1], peaks[2]
	limit := max(few*jobMemoryTimes, few+jobMemoryMore)
	fmt.Fprintf(b.table, "job, largest memory of the server\t%d rows %.0f MiB\t%d rows %.0f MiB\tat most %.0f MiB\n", jobRows, few, jobManyRows, many, limit)
	if many > limit {
		return fmt.Errorf("a job of %d rows takes %.0f MiB, and one of %d %.0f MiB, expected at most %.0f", jobRows, few, jobManyRows, many, limit)
	}
	return nil
}

// jobs measures jobs: their throughput, against a client that sends the same rows in batches of the same size from its best
// number of connections, and the server's memory.
func (b *bench) jobs() (err error) {
	s, err := b.serveJobs("bench/repository/identities", textRepository)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	defer func() { err = errors.Join(err, b.table.Flush()) }() // also when a job is too slow
	for _, made := range []func() (*jobLoad, error){
		func() (*jobLoad, error) { return s.vectors(jobRows, "jsonl") },
		func() (*jobLoad, error) { return s.vectors(jobRows, "npz") },
		s.texts,
	} {
		l, failed := made()
		if failed == nil {
			failed = b.jobThroughput(s, l)
		}
		err = errors.Join(err, failed)
	}
	return errors.Join(err, b.jobMemory(s))
}
