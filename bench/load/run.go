package load

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Plan says how much load there is.
type Plan struct {
	// Duration is how long requests arrive, unless Requests says how many there are.
	Duration time.Duration
	Requests int
	// Least is how many requests there are at least, however long a slow server takes for them.
	Least int
	// Rate makes the loop an open one: requests arrive at random, so many a second on average, with exponential gaps, and
	// wait for a free client. Their latency counts from their arrival. At 0 the loop is closed: each client sends its next
	// request when the last one is answered.
	Rate float64
	// Seed sets the gaps.
	Seed uint64
}

const (
	// hopeless is how many errors in a row a client takes before it stops.
	hopeless = 100
	// patience is how long a request waits for a free client, at least; the duration if that is longer.
	patience = 5 * time.Second
)

var errLate = errors.New("no client was free in time")

// Run sends requests through the clients and sums up their answers. It fails when there are no clients to send through.
func Run(clients []Client, p Plan) (Result, error) {
	if len(clients) == 0 || p.Duration <= 0 && p.Requests <= 0 {
		return Result{}, fmt.Errorf("%d clients for %v or %d requests are no load", len(clients), p.Duration, p.Requests)
	}
	workers := make([]worker, len(clients))
	var next atomic.Int64
	var arrivals chan arrival
	var wg sync.WaitGroup
	start := time.Now()
	if p.Rate > 0 {
		arrivals = make(chan arrival, 1<<16)
		wg.Go(func() { p.arrive(start, arrivals) })
	}
	for i := range workers {
		w := &workers[i]
		w.client = clients[i]
		wg.Go(func() {
			if p.Rate > 0 {
				w.open(arrivals, max(patience, p.Duration))
			} else {
				w.closed(&next, &p, start.Add(p.Duration))
			}
		})
	}
	wg.Wait()
	elapsed := time.Since(start)
	var samples []time.Duration
	failed, first := 0, error(nil)
	for i := range workers {
		samples, failed = append(samples, workers[i].samples...), failed+workers[i].failed
		if first == nil {
			first = workers[i].first
		}
	}
	r := newResult(samples, elapsed)
	r.Errors, r.First = failed, first
	return r, nil
}

// worker is what one client sees.
type worker struct {
	client  Client
	samples []time.Duration
	failed  int
	row     int // of errors
	first   error
	_       [64]byte // neighbours are written to all the time
}

// do sends a request that arrived at the given time. It returns false when there is no hope.
func (w *worker) do(i int, arrived time.Time) bool {
	if err := w.client.Do(i); err != nil {
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
	return w.row < hopeless
}

// closed sends requests one after the other; one at least, however short the time.
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

// arrival is a request to send.
type arrival struct {
	index int
	at    time.Time
}

// open sends what arrives. Requests that waited for too long count as failed, so that a server which is too slow for the
// rate still comes to an end.
func (w *worker) open(arrivals <-chan arrival, patience time.Duration) {
	hope := true
	for a := range arrivals {
		if !hope || time.Since(a.at) > patience {
			w.fail(errLate)
			continue
		}
		hope = w.do(a.index, a.at)
	}
}

// arrive lets requests arrive at their times, one at least. It sleeps on a thread of its own: the runtime's timers are late by up to a
// millisecond on an idle machine, more than most requests take.
func (p *Plan) arrive(start time.Time, to chan<- arrival) {
	runtime.LockOSThread()
	defer close(to) // a thread that stays locked ends with its goroutine, and its timer slack with it
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	gaps := p.gaps()
	at := time.Duration(0)
	for i := 0; ; i++ {
		at += gaps()
		if p.Requests > 0 && i >= p.Requests || p.Requests <= 0 && i > 0 && i >= p.Least && at >= p.Duration {
			return
		}
		when := start.Add(at)
		for wait := time.Until(when); wait > 0; wait = time.Until(when) {
			ts := unix.NsecToTimespec(int64(wait))
			_ = unix.Nanosleep(&ts, nil) // a signal wakes it early: then it sleeps again
		}
		to <- arrival{index: i, at: when}
	}
}

// gaps returns a source of exponential gaps.
func (p *Plan) gaps() func() time.Duration {
	r := rand.New(rand.NewPCG(p.Seed, 0x9e3779b97f4a7c15)) //nolint:gosec // the same arrivals in every run are wanted
	return func() time.Duration { return time.Duration(r.ExpFloat64() / p.Rate * float64(time.Second)) }
}
