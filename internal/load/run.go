package load

import (
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Plan describes the load of one run.
type Plan struct {
	// Duration is the time during which requests arrive. It has no effect when Requests is set.
	Duration time.Duration
	Requests int
	// Least is the smallest number of requests, even if a slow server needs longer than Duration for them.
	Least int
	// Rate selects the loop. At 0 the loop is closed: each client sends its next request when the last one is
	// complete. Above 0 it is open: requests arrive at random with exponential gaps, Rate per second on average,
	// and wait for a free client. Their latency counts from arrival.
	Rate float64
	// Seed makes the gaps repeatable.
	Seed uint64
	// Times are the times of an open loop's arrivals, after the start of the run, instead of random ones.
	Times []time.Duration
}

// open reports whether the loop is open.
func (p *Plan) open() bool { return p.Rate > 0 || len(p.Times) > 0 }

const (
	// maxErrors is the number of consecutive errors after which a client stops.
	maxErrors = 100
	// patience is the shortest time that a request waits for a free client before it fails. If the run's duration
	// is longer, that is used.
	patience = 5 * time.Second
)

// ErrLate is the error of a request for which no client was free in time.
var ErrLate = errors.New("no client was free in time")

// Run sends requests through the clients and summarises the responses. It fails without clients.
func Run(clients []Client, p Plan) (Result, error) {
	if len(clients) == 0 || p.Duration <= 0 && p.Requests <= 0 && len(p.Times) == 0 {
		return Result{}, fmt.Errorf("%d clients for %v or %d requests are no load", len(clients), p.Duration, p.Requests)
	}
	workers := make([]worker, len(clients))
	var next atomic.Int64
	var arrivals chan arrival
	var wg sync.WaitGroup
	start := time.Now()
	if p.open() {
		arrivals = make(chan arrival, 1<<16)
		wg.Go(func() { p.arrive(start, arrivals) })
	}
	for i := range workers {
		w := &workers[i]
		w.client = clients[i]
		wg.Go(func() {
			if p.open() {
				w.open(arrivals, max(patience, p.Duration))
			} else {
				w.closed(&next, &p, start.Add(p.Duration))
			}
		})
	}
	wg.Wait()
	elapsed := time.Since(start)
	var samples, failures, sent []time.Duration
	failed, first := 0, error(nil)
	for i := range workers {
		samples, failed = append(samples, workers[i].samples...), failed+workers[i].failed
		failures, sent = append(failures, workers[i].failures...), append(sent, workers[i].sent...)
		if first == nil {
			first = workers[i].first
		}
	}
	r := newResult(samples, elapsed)
	r.Errors, r.First = failed, first
	slices.Sort(failures)
	slices.Sort(sent)
	r.Failures, r.FailuresSent = failures, sent
	return r, nil
}

// worker holds the results of one client.
type worker struct {
	client  Client
	samples []time.Duration
	// failures are as samples, of the requests that the client has sent and that failed, and sent counts from when it has sent them.
	failures, sent []time.Duration
	failed         int
	row            int // consecutive errors
	first          error
	_              [64]byte // padding: the neighbours are written all the time
}

// do sends a request that arrived at the given time. It returns false when the client should stop.
func (w *worker) do(i int, arrived time.Time) bool {
	sent := time.Now()
	if err := w.client.Do(i); err != nil {
		now := time.Now()
		w.failures, w.sent = append(w.failures, now.Sub(arrived)), append(w.sent, now.Sub(sent))
		return w.fail(err)
	}
	w.samples, w.row = append(w.samples, time.Since(arrived)), 0
	return true
}

func (w *worker) fail(err error) bool {
	w.failed++
	w.row++
	if w.first == nil {
		w.first = err
	}
	return w.row < maxErrors
}

// closed sends requests one after another, at least one.
func (w *worker) closed(next *atomic.Int64, p *Plan, end time.Time) {
	for sent := 0; ; sent++ {
		i, now := int(next.Add(1)-1), time.Now()
		if sent > 0 && i >= p.Least && !now.Before(end) && p.Requests <= 0 || p.Requests > 0 && i >= p.Requests {
			return
		}
		if !w.do(i, now) {
			return
		}
	}
}

// arrival is a request of an open loop.
type arrival struct {
	index int
	at    time.Time
}

// open sends requests as they arrive. A request that waited longer than patience counts as failed, so the run ends
// even if the server is too slow for the rate.
func (w *worker) open(arrivals <-chan arrival, patience time.Duration) {
	hope := true
	for a := range arrivals {
		if !hope || time.Since(a.at) > patience {
			w.fail(ErrLate)
			continue
		}
		hope = w.do(a.index, a.at)
	}
}

// arrive sends requests to the clients at their arrival times, at least one. It sleeps on a locked thread, because
// the runtime's timers are up to a millisecond late on an idle machine, which is longer than most requests take.
func (p *Plan) arrive(start time.Time, to chan<- arrival) {
	runtime.LockOSThread()
	defer close(to) // a thread that stays locked ends with its goroutine, and its timer slack with it
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	i := -1
	for at := range p.times() {
		i++
		when := start.Add(at)
		for wait := time.Until(when); wait > 0; wait = time.Until(when) {
			ts := unix.NsecToTimespec(int64(wait))
			_ = unix.Nanosleep(&ts, nil) // a signal wakes it early: then it sleeps again
		}
		to <- arrival{index: i, at: when}
	}
}

// times yields the times of the arrivals.
func (p *Plan) times() iter.Seq[time.Duration] {
	if len(p.Times) > 0 {
		return slices.Values(p.Times)
	}
	return func(yield func(time.Duration) bool) {
		gaps := p.gaps()
		at := gaps()
		for i := 0; p.Requests > 0 && i < p.Requests || p.Requests <= 0 && (i == 0 || i < p.Least || at < p.Duration); i++ {
			if !yield(at) {
				return
			}
			at += gaps()
		}
	}
}

// gaps returns a source of exponentially distributed gaps.
func (p *Plan) gaps() func() time.Duration {
	r := rand.New(rand.NewPCG(p.Seed, 0x9e3779b97f4a7c15)) //nolint:gosec // the same arrivals in every run are wanted
	return func() time.Duration { return time.Duration(r.ExpFloat64() / p.Rate * float64(time.Second)) }
}
