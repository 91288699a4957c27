package queue_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/scheduler/queue"
	"github.com/tutti-server/tutti/scheduler/schedtest"
)

// shared is a dated queue with tasks of clients.
type shared struct {
	*dated
	clients *infer.Shares
}

func newShared(t *testing.T, most int, weights map[string]float64) *shared {
	t.Helper()
	s := &shared{newDated(t, most), infer.NewShares(infer.ByHeader, "client", weights)}
	queue.Observe(s.s, 1, int64(time.Second))
	return s
}

// of enqueues a task of a client, with rows, that is due after a time, 0 for none.
func (s *shared) of(client string, number, rows int, due time.Duration) *schedtest.Job {
	values := slices.Repeat([]float32{float32(number)}, rows)
	j := s.b.Job(rows, s.b.Floats([]int64{int64(rows), 1}, values...))
	j.Path = s.path
	j.Meta.Client = s.clients.Of([]string{client}, "", "", telemetry.Now())
	if due > 0 {
		j.Meta.Deadline = s.now + int64(due)
	}
	s.jobs = append(s.jobs, j)
	s.b.Submit(s.s, j)
	return j
}

// flood enqueues n tasks of a client, numbered from a number on.
func (s *shared) flood(client string, from, n int) {
	for i := range n {
		s.of(client, from+i, 1, 0)
	}
}

// overShare fails the test unless a task was refused because its client is over its share.
func overShare(t *testing.T, j *schedtest.Job, client string) {
	t.Helper()
	<-j.Done()
	if d := status.DetailsOf(j.Err); d.Reason != status.OverShare || !d.Retryable || d.RetryAfter <= 0 || status.CodeOf(j.Err) != status.ResourceExhausted ||
		!strings.Contains(j.Err.Error(), "client '"+client+"' is over its share") {
		t.Errorf("got error %v, want that %s is over its share", j.Err, client)
	}
}

// TestSharesOfClients checks that tasks of a client which floods the queue wait behind those of others, that each client's own keep their
// order, and that the flood fills the rest of each batch.
func TestSharesOfClients(t *testing.T) {
	t.Parallel()
	s := newShared(t, 4, nil)
	s.busy()
	s.flood("flood", 100, 10)
	s.of("b", 1, 1, 0)
	s.of("c", 2, 1, 0)
	s.of("b", 3, 1, 0)
	got := s.executed(t)
	want := [][]int{{100, 1, 2, 101}, {3, 102, 103, 104}, {105, 106, 107, 108}, {109}}
	if !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("executed %v, want %v", got, want)
	}
}

// TestSharesAfterService checks that a client that comes back is in the next batch, before one that was served for long.
func TestSharesAfterService(t *testing.T) {
	t.Parallel()
	s := newShared(t, 4, nil)
	second, gate := make(chan struct{}), make(chan struct{})
	s.hold(second, gate)
	s.busy()
	s.flood("flood", 100, 40)
	s.leave()
	<-second // four batches of the flood are done
	s.flood("b", 1, 6)
	close(gate)
	got := s.executed(t)
	if want := [][]int{{1, 2, 3, 4}, {5, 6, 120, 121}}; !slices.EqualFunc(got[5:7], want, slices.Equal) {
		t.Errorf("after the fifth batch %v were executed, want %v", got[5:7], want)
	}
	if n := len(slices.Concat(got...)); n != 46 {
		t.Errorf("%d tasks were executed, want 46", n)
	}
}

// TestShareWeights checks that clients that want too much are served by their weights.
func TestShareWeights(t *testing.T) {
	t.Parallel()
	s := newShared(t, 4, map[string]float64{"a": 3})
	s.busy()
	s.flood("a", 100, 60)
	s.flood("b", 200, 60)
	got := slices.Concat(s.executed(t)...)[:60]
	a := len(slices.DeleteFunc(got, func(n int) bool { return n >= 200 }))
	if a < 44 || a > 46 {
		t.Errorf("%d of the first 60 tasks are of the client with three quarters", a)
	}
}

// TestSharesByWork checks that a client is served by what its tasks take, and not by their number.
func TestSharesByWork(t *testing.T) {
	t.Parallel()
	s := newShared(t, 1, nil)
	for range 10 {
		queue.Observe(s.s, 8, int64(8*time.Second))
		queue.Observe(s.s, 1, int64(time.Second))
	}
	s.busy()
	for i := range 20 {
		s.of("large", 100+i, 8, 0)
	}
	s.flood("small", 200, 100)
	large := 0
	for _, run := range s.executed(t)[:60] {
		if run[0] < 200 {
			large++
		}
	}
	if large < 6 || large > 8 {
		t.Errorf("of the first 60 tasks %d are eight times as large, want about a ninth", large)
	}
}

// TestOrderOfOneClient checks that a client alone has its tasks executed in the usual order, by deadline.
func TestOrderOfOneClient(t *testing.T) {
	t.Parallel()
	s := newShared(t, 1, nil)
	s.busy()
	s.of("a", 1, 1, 0)
	s.of("a", 2, 1, 2000*time.Second)
	s.of("a", 3, 1, 1000*time.Second)
	s.of("a", 4, 1, 3000*time.Second)
	if got, want := s.executed(t), [][]int{{1}, {3}, {2}, {4}}; !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("executed %v, want %v", got, want)
	}
}

// TestSharesOfFullQueue checks that a full queue takes a task of a client within its share, in place of the last one of the client that
// has most there; that one's own further tasks are refused; and that a client alone gets the error of a full queue.
func TestSharesOfFullQueue(t *testing.T) {
	t.Parallel()
	d := newShared(t, 4, nil)
	if err := d.s.Close(); err != nil {
		t.Fatal(err)
	}
	m, entered, leave := blocking(schedtest.Share)
	d.s = queue.New(queue.Settings{
		Runner: d.b.Runner, Policy: atMost(4), Instances: []backends.Instance{m}, Workers: d.b.Workers, Levels: queue.Levels{Policy: queue.Policy{MaxSize: 4}},
	})
	d.begun, d.leave = entered, func() { close(leave) }
	d.busy()
	var flood []*schedtest.Job
	for i := range 4 {
		flood = append(flood, d.of("flood", i, 1, 0))
	}
	if alone := d.of("flood", 4, 1, 0); status.ReasonOf(alone.Err) != status.QueueFull {
		t.Errorf("a client alone gets %v, want that the queue is full", alone.Err)
	}
	b := d.of("b", 5, 1, 0)
	overShare(t, flood[3], "flood")
	overShare(t, d.of("flood", 6, 1, 0), "flood")
	c := d.of("b", 7, 1, 0)
	overShare(t, flood[2], "flood")
	overShare(t, d.of("b", 8, 1, 0), "b") // both have half of it now
	d.leave()
	schedtest.Wait(d.jobs...)
	d.wg.Wait()
	for _, j := range []*schedtest.Job{flood[0], flood[1], b, c} {
		if j.Err != nil {
			t.Error(j.Err)
		}
	}
	for _, j := range d.jobs {
		j.Release()
	}
	if err := d.s.Close(); err != nil {
		t.Error(err)
	}
	refused := map[string]uint64{}
	d.clients.Refusals(func(name string, n uint64) { refused[name] = n })
	if refused["flood"] != 3 || refused["b"] != 1 {
		t.Errorf("refusals by client are %v, want 3 of flood and 1 of b", refused)
	}
}

// TestSharesWithDeadlines checks that what a client has queued beyond its share makes no request of others late: theirs are predicted
// without it, and its own are refused.
func TestSharesWithDeadlines(t *testing.T) {
	t.Parallel()
	s := newShared(t, 1, nil)
	queue.Observe(s.s, 1, int64(100*time.Second))
	s.busy()
	last, n := (*schedtest.Job)(nil), 0
	for ; n < 200 && (last == nil || last.Err == nil); n++ {
		last = s.of("flood", 100+n, 1, 1000*time.Second)
	}
	if last.Err == nil {
		t.Fatalf("%d tasks of a client alone are all accepted", n)
	}
	missed(t, last) // nobody else is there
	if j := s.of("b", 1, 1, 600*time.Second); j.Err != nil {
		t.Errorf("a client within its share: %v", j.Err)
	}
	overShare(t, s.of("flood", 200, 1, 1000*time.Second), "flood")
	got := s.executed(t)
	if len(got) < 2 || got[0][0] != 1 && got[1][0] != 1 {
		t.Errorf("executed %v, want that of b at once", got)
	}
}
