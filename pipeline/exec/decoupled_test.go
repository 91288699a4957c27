package exec_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/pipeline/exec"
	"github.com/tutti-server/tutti/pipeline/plan"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/dynamic"
)

// count responds to a request of the row [n] with 0, 1, ... n-1. The last response is marked final when n is even.
func count(b *backends.Batch) error {
	for i := range b.Requests {
		n := tensor.Slice[float32](&b.In[0])[b.Requests[i].First]
		for v := float32(0); v < n; v++ {
			t, err := tensor.New(b.Allocator, tensor.FP32, tensor.Of(1, 1))
			if err != nil {
				return err
			}
			tensor.Slice[float32](&t)[0] = v
			if err := b.Send(i, []tensor.Tensor{t}, v == n-1 && int(n)%2 == 0); err != nil {
				b.Requests[i].Err = err
				break
			}
		}
	}
	return nil
}

// stream is a sink of many responses. It accepts as many as room has tokens and then blocks.
type stream struct {
	room   chan struct{} // nil: unlimited
	mu     sync.Mutex
	values []float32
	final  int
	done   chan error
}

var _ infer.Pacer = (*stream)(nil)

func (s *stream) Send(r *infer.Response) {
	defer r.Release()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(r.Outputs) > 0 {
		s.values = append(s.values, tensor.Slice[float32](&r.Outputs[0].Tensor)[0])
	}
	if r.Final {
		s.final++
	}
}

func (s *stream) Close(err error) { s.done <- err }

func (s *stream) Full() bool { return s.room != nil }

func (s *stream) Pace(ctx context.Context) error {
	if s.room == nil {
		return nil
	}
	select {
	case <-s.room:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func decoupled(b *bench, batch bool, f model) *exec.Executor {
	sig := signature("m", 1, 8)
	sig.Decoupled = true
	return single(b, sig, batch, f)
}

func single(b *bench, sig *config.Signature, batch bool, f model) *exec.Executor {
	var s scheduler.Scheduler
	if batch {
		s = b.batching(sig, dynamic.Rules{MaxBatch: 8, Delay: time.Millisecond}, f)
	} else {
		s = b.scheduler(fake{sig: sig, run: f, queued: true, alone: true}, b.device.decide())
	}
	return b.executor(plan.Single(sig), s)
}

func TestDecoupled(t *testing.T) {
	t.Parallel()
	for name, batch := range map[string]bool{"direct": false, "dynamic": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			x := decoupled(b, batch, count)
			want := [][]float32{nil, {0}, {0, 1}, {0, 1, 2}}
			streams := make([]*stream, len(want))
			for n := range want {
				req := b.request(float32(n))
				req.Async = true
				streams[n] = &stream{done: make(chan error, 1)}
				x.Submit(t.Context(), req, streams[n])
			}
			for n, s := range streams {
				if err := <-s.done; err != nil {
					t.Error(err)
				}
				if diff := cmp.Diff(want[n], s.values); diff != "" {
					t.Errorf("request %d (-want +got):\n%s", n, diff)
				}
				if final := n > 0 && n%2 == 0; final != (s.final == 1) {
					t.Errorf("request %d had %d final responses", n, s.final)
				}
			}
		})
	}
}

// failing is a stream that receives errors at once.
type failing struct {
	stream
	failed chan error
}

var _ infer.Failer = (*failing)(nil)

func (s *failing) Fail(err error, final bool) {
	if !final {
		err = errors.New("not the last response")
	}
	s.failed <- err
}

// TestSendError checks that a failed request of a batch ends while the others of the batch still execute.
func TestSendError(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	leave := make(chan struct{})
	x := decoupled(b, true, func(b *backends.Batch) error {
		for i := range b.Requests {
			if tensor.Slice[float32](&b.In[0])[b.Requests[i].First] != 0 {
				continue
			}
			b.SendError(i, status.Errorf(status.NotFound, "no such row"), true)
			b.SendError(i, status.Errorf(status.Internal, "a second time"), true)
			<-leave
		}
		return nil
	})
	first, second := &failing{stream{done: make(chan error, 1)}, make(chan error, 2)}, &stream{done: make(chan error, 1)}
	for i, s := range []infer.Sink{first, second} {
		req := b.request(float32(i))
		req.Async = true
		x.Submit(t.Context(), req, s)
	}
	if err := <-first.failed; status.CodeOf(err) != status.NotFound || status.Text(err) != "no such row" {
		t.Errorf("the client learned of %v", err)
	}
	select {
	case err := <-first.done:
		t.Errorf("the request ended with %v before its batch", err)
	default:
	}
	close(leave)
	if err := <-first.done; status.CodeOf(err) != status.NotFound {
		t.Errorf("the request ended with %v", err)
	}
	if err := <-second.done; err != nil {
		t.Error(err)
	}
	if len(first.failed) > 0 {
		t.Error("the client learned of two errors")
	}
}

// TestDecoupledReturnsOutputs checks a decoupled model that returns outputs instead of sending responses.
func TestDecoupledReturnsOutputs(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := &stream{done: make(chan error, 1)}
	decoupled(b, true, share).Submit(t.Context(), b.request(5), s)
	if err := <-s.done; err != nil || len(s.values) != 1 || s.values[0] != 5 || s.final != 1 {
		t.Errorf("%v, %v, %d final", err, s.values, s.final)
	}
}

// TestSlowClient checks that a model is cancelled when its client disconnects after two responses.
func TestSlowClient(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ctx, cancel := context.WithCancel(t.Context())
	s := &stream{room: make(chan struct{}), done: make(chan error, 1)}
	req := b.request(1e6)
	req.Async = true
	decoupled(b, false, count).Submit(ctx, req, s)
	s.room <- struct{}{}
	s.room <- struct{}{}
	cancel()
	if err := <-s.done; status.CodeOf(err) != status.Cancelled {
		t.Errorf("%v, want a cancellation", err)
	}
	if len(s.values) > 2 {
		t.Errorf("%d responses, the client accepted 2", len(s.values))
	}
}

// TestSendChecks checks that invalid responses of a model fail.
func TestSendChecks(t *testing.T) {
	t.Parallel()
	send := func(i int, shape ...int64) model {
		return func(b *backends.Batch) error {
			t, err := tensor.New(b.Allocator, tensor.FP32, tensor.Of(shape...))
			if err != nil {
				return err
			}
			return b.Send(i, []tensor.Tensor{t}, false)
		}
	}
	for name, tt := range map[string]struct {
		f     model
		plain bool
		want  string
	}{
		"rows":    {send(0, 2, 1), false, "output 'OUTPUT0' of model 'm' has shape [2,1] for a batch of 1, expected [-1,-1]"},
		"rank":    {send(0, 1), false, "output 'OUTPUT0' of model 'm' has shape [1] for a batch of 1, expected [-1,-1]"},
		"request": {send(1, 1, 1), false, "model 'm' responds to request 1 of a batch of 1"},
		"count":   {func(b *backends.Batch) error { return b.Send(0, nil, true) }, false, "model 'm' responds with 0 outputs, expected 1"},
		"coupled": {send(0, 1, 1), true, "the model sends several responses, expected 'model_transaction_policy { decoupled: true }' in its configuration"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			sig := signature("m", 1, 8)
			sig.Decoupled = !tt.plain
			s := &stream{done: make(chan error, 1)}
			single(b, sig, false, tt.f).Submit(t.Context(), b.request(1), s)
			if err := <-s.done; err == nil || err.Error() != tt.want {
				t.Errorf("%v, want %s", err, tt.want)
			}
		})
	}
}

// TestAsync checks that Submit of an Async request returns while the model blocks.
func TestAsync(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	open := make(chan struct{})
	x := single(b, signature("m", 1, 8), false, func(b *backends.Batch) error {
		<-open
		return share(b)
	})
	req := b.request(1)
	req.Async = true
	s := &stream{done: make(chan error, 1)}
	x.Submit(t.Context(), req, s)
	close(open)
	if err := <-s.done; err != nil || s.final != 1 {
		t.Errorf("%v, %d final responses", err, s.final)
	}
}
