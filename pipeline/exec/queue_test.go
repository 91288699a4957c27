package exec_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/pipeline/plan"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/dynamic"
)

// responseLog records responses in the order in which they were sent.
type responseLog struct {
	mu  sync.Mutex
	all []string // guarded by mu
}

// TestOrderedStreams checks that the responses of two requests to a decoupled model are sent in request order,
// although the second request completes first.
func TestOrderedStreams(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	sig := signature("m", 1, 1)
	sig.Decoupled = true
	entered, second := make(chan struct{}), make(chan struct{})
	f := model(func(batch *backends.Batch) error {
		if tensor.Slice[float32](&batch.In[0])[0] == 3 {
			close(entered)
			<-second
			return count(batch)
		}
		<-entered
		defer close(second)
		return count(batch)
	})
	x := b.executor(plan.Single(sig), b.batching(sig, dynamic.Rules{MaxBatch: 1, Ordered: true}, f, f))
	var seen responseLog
	first, last := &stream{done: make(chan error, 1)}, &stream{done: make(chan error, 1)}
	for i, s := range []*stream{first, last} {
		req := b.request(float32(3 - i))
		req.Async = true
		x.Submit(t.Context(), req, tagged{s, []string{"first", "last"}[i], &seen})
		if i == 0 {
			<-entered
		}
	}
	for _, s := range []*stream{first, last} {
		if err := <-s.done; err != nil {
			t.Error(err)
		}
	}
	if err := x.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	want := []string{"first", "first", "first", "first over", "last", "last", "last over"}
	if diff := cmp.Diff(want, seen.all); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([][]float32{{0, 1, 2}, {0, 1}}, [][]float32{first.values, last.values}); diff != "" {
		t.Error(diff)
	}
}

// TestOrderedBatch checks the response order when the requests of one batch respond alternately.
func TestOrderedBatch(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	sig := signature("m", 1, 8)
	sig.Decoupled = true
	x := b.executor(plan.Single(sig), b.batching(sig, dynamic.Rules{MaxBatch: 4, Preferred: []int32{4}, Delay: time.Hour, Ordered: true}, model(func(batch *backends.Batch) error {
		for i := range slices.Backward(batch.Requests) { // in reverse order
			out, err := tensor.New(batch.Allocator, tensor.FP32, tensor.Of(1, 1))
			if err != nil {
				return err
			}
			tensor.Slice[float32](&out)[0] = float32(i)
			if err := batch.Send(i, []tensor.Tensor{out}, true); err != nil {
				return err
			}
		}
		return nil
	})))
	var seen responseLog
	streams := make([]*stream, 4)
	for i := range streams {
		req := b.request(0)
		req.Async = true
		streams[i] = &stream{done: make(chan error, 1)}
		x.Submit(t.Context(), req, tagged{streams[i], string(rune('a' + i)), &seen})
	}
	for i, s := range streams {
		if err := <-s.done; err != nil || len(s.values) != 1 || s.values[0] != float32(i) {
			t.Errorf("request %d: %v, %v", i, s.values, err)
		}
	}
	if diff := cmp.Diff([]string{"a", "a over", "b", "b over", "c", "c over", "d", "d over"}, seen.all); diff != "" {
		t.Error(diff)
	}
}

// TestDeadline checks that a request with an expired deadline fails without being executed, for every scheduler,
// alone and in an ensemble.
func TestDeadline(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	sig := signature("m", 1, 8)
	never := model(func(*backends.Batch) error {
		t.Error("a request whose deadline has passed was executed")
		return nil
	})
	ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	for name, s := range map[string]scheduler.Scheduler{"inline": b.inline(sig, never), "dynamic": b.batching(sig, dynamic.Rules{MaxBatch: 8}, never)} {
		for _, p := range []*plan.Plan{plan.Single(sig), chain(3, sig)} {
			targets := make([]scheduler.Scheduler, len(p.Nodes))
			for i := range targets {
				targets[i] = s
			}
			x := b.executor(p, targets...)
			s := &stream{done: make(chan error, 1)}
			x.Submit(ctx, b.request(1), s)
			if err := <-s.done; err == nil || err.Error() != status.ErrDeadline.Error() || status.CodeOf(err) != status.Cancelled {
				t.Errorf("%s, %d nodes: got %v", name, len(p.Nodes), err)
			}
		}
	}
	if at := telemetry.At(time.Now()); at > telemetry.Now() {
		t.Errorf("a time that has passed is %d ns ahead", at-telemetry.Now())
	}
}

// tagged is a stream that adds its events to a responseLog.
type tagged struct {
	*stream
	name string
	log  *responseLog
}

// Send logs a response.
func (s tagged) Send(r *infer.Response) {
	s.log.add(s.name)
	s.stream.Send(r)
}

// Close logs the end.
func (s tagged) Close(err error) {
	s.log.add(s.name + " over")
	s.stream.Close(err)
}

func (l *responseLog) add(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, what)
}
