package cached_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/cache"
	"github.com/tutti-server/tutti/internal/cache/local"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/cached"
	"github.com/tutti-server/tutti/scheduler/direct"
	"github.com/tutti-server/tutti/scheduler/dynamic"
	"github.com/tutti-server/tutti/scheduler/schedtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// forgetful is a cache that stores nothing.
type forgetful struct{}

func (forgetful) Lookup(context.Context, *cache.Key, []tensor.Tensor) bool { return false }
func (forgetful) Insert(*cache.Key, []tensor.Tensor)                       {}
func (forgetful) Remote() bool                                             { return false }
func (forgetful) Counts() telemetry.CacheCounts                            { return telemetry.CacheCounts{} }
func (forgetful) Close() error                                             { return nil }

// afar is a local cache that reports to be remote.
type afar struct{ *local.Cache }

func (afar) Remote() bool { return true }

func before(b *schedtest.Bench, c cache.Cache, instances []backends.Instance) *cached.Scheduler {
	inner := direct.New(direct.Settings{Runner: b.Runner, Instances: instances, Workers: b.Workers})
	return cached.New(cached.Settings{Inner: inner, Cache: c, Stats: b.Stats, Workers: b.Workers})
}

// TestContract checks the contract of schedulers with a cache that never hits.
func TestContract(t *testing.T) {
	t.Parallel()
	schedtest.Run(t, func(b *schedtest.Bench, instances []backends.Instance) scheduler.Scheduler {
		rules := dynamic.Rules{MaxBatch: 8}
		return cached.New(cached.Settings{
			Inner: dynamic.New(dynamic.Settings{Runner: b.Runner, Instances: instances, Workers: b.Workers}, rules),
			Cache: forgetful{}, Stats: b.Stats, Workers: b.Workers,
		})
	})
}

// scene is a model behind a local cache.
type scene struct {
	*schedtest.Bench
	s     *cached.Scheduler
	runs  atomic.Int32
	enter chan struct{} // receives when the model begins
	leave chan error    // its result
}

func newScene(t *testing.T, remote bool) *scene {
	t.Helper()
	x := &scene{Bench: schedtest.NewBench(t, schedtest.Signature(8), nil), enter: make(chan struct{}, 8), leave: make(chan error, 8)}
	store := local.New(local.Settings{Size: 1 << 20, Alloc: x.Alloc})
	var c cache.Cache = store
	if remote {
		c = afar{store}
	}
	x.s = before(x.Bench, c, []backends.Instance{schedtest.Model(func(b *backends.Batch) error {
		x.runs.Add(1)
		x.enter <- struct{}{}
		if err := <-x.leave; err != nil {
			return err
		}
		return schedtest.Share(b)
	})})
	t.Cleanup(func() {
		if err := errors.Join(x.s.Drain(context.Background()), x.s.Close(), c.Close()); err != nil {
			t.Error(err)
		}
	})
	return x
}

func (x *scene) job(v float32) *schedtest.Job { return x.Job(1, x.Floats([]int64{1, 1}, v)) }

// submit sends a job on its own goroutine.
func (x *scene) submit(j *schedtest.Job) *schedtest.Job {
	go x.Submit(x.s, j)
	return j
}

// following waits until n tasks follow another one.
func (x *scene) following(n int64) {
	for x.Stats.Pending() < n {
		<-tick()
	}
}

func tick() <-chan struct{} {
	c := make(chan struct{})
	go close(c)
	return c
}

func (x *scene) counts(t *testing.T, runs int32, hits, misses uint64) {
	t.Helper()
	h, _ := x.Stats.Hits.Load()
	m, _ := x.Stats.Misses.Load()
	if got := x.runs.Load(); got != runs || h != hits || m != misses {
		t.Errorf("%d executions, %d hits, %d misses; want %d, %d, %d", got, h, m, runs, hits, misses)
	}
}

func finish(t *testing.T, want error, jobs ...*schedtest.Job) {
	t.Helper()
	schedtest.Wait(jobs...)
	for _, j := range jobs {
		if (want == nil) != (j.Err == nil) {
			t.Errorf("ended with %v, want %v", j.Err, want)
		}
		j.Release()
	}
}

func TestHit(t *testing.T) {
	t.Parallel()
	for _, remote := range []bool{false, true} {
		x := newScene(t, remote)
		for _, v := range []float32{1, 1, 2, 1, 2} {
			x.leave <- nil
			finish(t, nil, x.submit(x.job(v)))
			select {
			case <-x.leave:
			default:
			}
		}
		x.counts(t, 2, 3, 2)
		if n := x.Stats.Responses(); n != 5 {
			t.Errorf("%d requests answered, want 5", n)
		}
	}
}

// TestFlight checks that identical tasks in flight execute once.
func TestFlight(t *testing.T) {
	t.Parallel()
	x := newScene(t, false)
	lead := x.submit(x.job(1))
	<-x.enter
	jobs := []*schedtest.Job{lead}
	for range 5 {
		jobs = append(jobs, x.submit(x.job(1)))
	}
	x.following(5)
	x.leave <- nil
	finish(t, nil, jobs...)
	x.counts(t, 1, 5, 1)
}

// TestFlightFails checks that each follower of a failed task is computed by itself.
func TestFlightFails(t *testing.T) {
	t.Parallel()
	x := newScene(t, false)
	lead := x.submit(x.job(1))
	<-x.enter
	a, b := x.submit(x.job(1)), x.submit(x.job(1))
	x.following(2)
	x.leave <- errors.New("out of luck")
	x.leave <- nil
	x.leave <- nil
	finish(t, errors.ErrUnsupported, lead)
	finish(t, nil, a, b)
	x.counts(t, 3, 0, 2)
}

// TestFlightCancelled checks that the next task leads when the client of the leader disconnects.
func TestFlightCancelled(t *testing.T) {
	t.Parallel()
	x := newScene(t, false)
	busy := x.submit(x.job(9)) // occupies the only instance
	<-x.enter
	ctx, cancel := context.WithCancel(t.Context())
	lead := x.submit(x.job(1).For(ctx))
	x.following(1)
	a, b := x.submit(x.job(1)), x.submit(x.job(1))
	x.following(3)
	cancel()
	x.leave <- nil
	x.leave <- nil
	finish(t, nil, busy, a, b)
	finish(t, context.Canceled, lead)
	x.counts(t, 2, 1, 2)
}

// TestFollowerCancelled checks that a follower ends before its leader when its client disconnects.
func TestFollowerCancelled(t *testing.T) {
	t.Parallel()
	x := newScene(t, false)
	lead := x.submit(x.job(1))
	<-x.enter
	ctx, cancel := context.WithCancel(t.Context())
	f := x.submit(x.job(1).For(ctx))
	x.following(1)
	cancel()
	finish(t, context.Canceled, f)
	x.leave <- nil
	finish(t, nil, lead)
	x.counts(t, 1, 0, 1)
	if n, _ := x.Stats.Failures[telemetry.Canceled].Load(); n != 1 {
		t.Errorf("%d cancelled, want 1", n)
	}
}

// TestUrgency checks that a task with another timeout is computed by itself.
func TestUrgency(t *testing.T) {
	t.Parallel()
	x := newScene(t, false)
	lead := x.submit(x.job(1))
	<-x.enter
	hasty := x.job(1)
	hasty.Meta.Timeout = 7
	x.submit(hasty)
	x.following(1)
	x.leave <- nil
	x.leave <- nil
	finish(t, nil, lead, hasty)
	x.counts(t, 2, 0, 2)
}
