package guarded_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/direct"
	"github.com/tutti-server/tutti/scheduler/dynamic"
	"github.com/tutti-server/tutti/scheduler/guarded"
	"github.com/tutti-server/tutti/scheduler/schedtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// owned drains and closes the inner scheduler, too.
type owned struct {
	*guarded.Scheduler

	inner scheduler.Scheduler
}

func (o owned) Close() error { return errors.Join(o.Scheduler.Close(), o.inner.Close()) }

func (o owned) Drain(ctx context.Context) error {
	return errors.Join(o.Scheduler.Drain(ctx), o.inner.Drain(ctx))
}

// TestContract checks the contract of schedulers with guards that do nothing: no attempt takes an hour, and no failure may be repeated.
func TestContract(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]guarded.Settings{
		"timeout": {Timeout: time.Hour},
		"breaker": {Breaker: &config.Breaker{Failures: 1 << 30, ProbeAfter: time.Hour}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			schedtest.Run(t, func(b *schedtest.Bench, instances []backends.Instance) scheduler.Scheduler {
				s := s
				s.Inner = dynamic.New(dynamic.Settings{Runner: b.Runner, Instances: instances, Workers: b.Workers}, dynamic.Rules{MaxBatch: 8})
				s.Workers = b.Workers
				return owned{guarded.New(s), s.Inner}
			})
		})
	}
}

// scene is a guarded model whose executions a test ends one by one.
type scene struct {
	*schedtest.Bench
	s     owned
	runs  atomic.Int32
	enter chan struct{}     // receives when an execution begins
	leave chan func() error // how it ends
}

func newScene(t *testing.T, s guarded.Settings) *scene {
	t.Helper()
	x := &scene{Bench: schedtest.NewBench(t, schedtest.Signature(8), nil), enter: make(chan struct{}, 16), leave: make(chan func() error, 16)}
	m := schedtest.Model(func(b *backends.Batch) error {
		x.runs.Add(1)
		x.enter <- struct{}{}
		if err := (<-x.leave)(); err != nil {
			return err
		}
		return schedtest.Copy(b)
	})
	s.Inner = direct.New(direct.Settings{Runner: x.Runner, Instances: []backends.Instance{m, m}, Workers: x.Workers})
	s.Step, s.Workers = "detailed", x.Workers
	x.s = owned{guarded.New(s), s.Inner}
	t.Cleanup(func() {
		if err := errors.Join(x.s.Drain(context.Background()), x.s.Close()); err != nil {
			t.Error(err)
		}
	})
	return x
}

func (x *scene) job(v float32) *schedtest.Job { return x.Job(1, x.Floats([]int64{1, 1}, v)) }

// start submits a job on a goroutine of its own.
func (x *scene) start(j *schedtest.Job) *schedtest.Job {
	go x.Submit(x.s, j)
	return j
}

func ends(err error) func() error { return func() error { return err } }

// TestLate checks that a timeout fails the task while the model still executes, that the late result is not used, and that all memory is
// released: schedtest.Memory reports what is not.
func TestLate(t *testing.T) {
	t.Parallel()
	x := newScene(t, guarded.Settings{Timeout: time.Millisecond})
	j := x.start(x.job(1))
	<-x.enter
	schedtest.Wait(j)
	if want := "step 'detailed' took longer than its timeout of 1ms"; j.Err == nil || j.Err.Error() != want || status.CodeOf(j.Err) != status.Unavailable {
		t.Errorf("%v, want %s", j.Err, want)
	}
	for x.s.InFlight() != 0 { // the task is counted until a moment after its response
		runtime.Gosched()
	}
	x.leave <- ends(nil)
	if err := x.s.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if j.Times.Load() != 1 || j.Out[0].Present() {
		t.Errorf("completed %d times, with a late output: %v", j.Times.Load(), j.Out[0].Present())
	}
}

// TestLateRetry checks that a second attempt is made while the first still executes, and that its outputs are those of the task.
func TestLateRetry(t *testing.T) {
	t.Parallel()
	x := newScene(t, guarded.Settings{Timeout: 20 * time.Millisecond, Retries: 1})
	release := make(chan error)
	x.leave <- func() error { return <-release }
	x.leave <- ends(nil)
	j := x.start(x.job(3))
	<-x.enter
	<-x.enter
	schedtest.Wait(j)
	schedtest.Numbers(t, j, 0, []int64{1, 1}, float32(3))
	if j.Retries != 1 {
		t.Errorf("%d retries", j.Retries)
	}
	j.Release()
	release <- nil
}

// TestRetries checks which errors are repeated and how often.
func TestRetries(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		code    status.Code
		counts  bool
		runs    int32
		retries int32
	}{
		"unavailable": {status.Unavailable, true, 3, 2},
		"internal":    {status.Internal, true, 3, 2},
		"unknown":     {status.Unknown, true, 3, 2},
		"not found":   {status.NotFound, true, 1, 0},
		"invalid":     {status.InvalidArg, false, 1, 0},
		"unsupported": {status.Unsupported, false, 1, 0},
		"exists":      {status.AlreadyExists, false, 1, 0},
		"cancelled":   {status.Cancelled, false, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := newScene(t, guarded.Settings{Retries: 2})
			why := status.Errorf(tc.code, "broken")
			for range tc.runs {
				x.leave <- ends(why)
			}
			j := x.job(1)
			x.Submit(x.s, j)
			schedtest.Wait(j)
			if status.CodeOf(j.Err) != tc.code || x.runs.Load() != tc.runs || j.Retries != tc.retries || guarded.Counts(why) != tc.counts {
				t.Errorf("%v after %d executions and %d retries, counts: %v", j.Err, x.runs.Load(), j.Retries, guarded.Counts(why))
			}
		})
	}
	for reason, want := range map[status.Reason]bool{status.RequestCrashes: false, status.RuntimeMissing: false, status.QueueFull: true, status.InstanceLost: true, status.StepFailed: true} {
		if why := status.Reasonf(reason, "broken"); guarded.Retryable(why) != want || !guarded.Counts(why) {
			t.Errorf("%s: may be repeated: %v, counts: %v; want %v and true", reason, guarded.Retryable(why), guarded.Counts(why), want)
		}
	}
	x := newScene(t, guarded.Settings{Retries: 2})
	x.leave <- ends(status.Errorf(status.Unavailable, "busy"))
	x.leave <- ends(nil)
	j := x.job(7)
	x.Submit(x.s, j)
	schedtest.Wait(j)
	schedtest.Numbers(t, j, 0, []int64{1, 1}, float32(7))
	if j.Retries != 1 {
		t.Errorf("%d retries", j.Retries)
	}
	j.Release()
}

// TestEnded checks that nothing is repeated for a request that is cancelled or whose deadline has passed.
func TestEnded(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(j *schedtest.Job, cancel func()){
		"cancelled": func(_ *schedtest.Job, cancel func()) { cancel() },
		"deadline":  func(j *schedtest.Job, _ func()) { j.Meta.Deadline = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := newScene(t, guarded.Settings{Retries: 2})
			ctx, cancel := context.WithCancel(t.Context())
			j := x.job(1).For(ctx)
			x.leave <- func() error {
				end(j, cancel)
				return status.Errorf(status.Unavailable, "busy")
			}
			x.Submit(x.s, j)
			schedtest.Wait(j)
			cancel()
			if j.Err == nil || x.runs.Load() != 1 {
				t.Errorf("%v after %d executions", j.Err, x.runs.Load())
			}
		})
	}
}

// TestBreaker checks that an open breaker refuses tasks without an execution, with a time to retry, and that a probe closes it.
func TestBreaker(t *testing.T) {
	t.Parallel()
	x := newScene(t, guarded.Settings{Breaker: &config.Breaker{Failures: 2, ProbeAfter: time.Hour}})
	run := func(err error) *schedtest.Job {
		x.leave <- ends(err)
		j := x.job(1)
		x.Submit(x.s, j)
		schedtest.Wait(j)
		return j
	}
	broken := status.Errorf(status.Internal, "broken")
	run(broken)
	run(broken)
	j := run(nil)
	if x.runs.Load() != 2 || status.CodeOf(j.Err) != status.Unavailable || status.RetryAfter(j.Err) < 59*time.Minute {
		t.Errorf("%v, retry after %v, after %d executions", j.Err, status.RetryAfter(j.Err), x.runs.Load())
	}
}
