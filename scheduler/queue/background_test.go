package queue_test

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/queue"
	"github.com/tutti-server/tutti/scheduler/schedtest"
)

// filling is a policy of single tasks whose batches take as many background tasks as fit.
type filling struct{ most int32 }

func (filling) Decide(_ int64, _ scheduler.View, scratch []int32) scheduler.Decision {
	return scheduler.Decision{Take: append(scratch, 0)}
}

func (f filling) Fill(b scheduler.Formed, items []scheduler.Item, take []int32) []int32 {
	for i := range items {
		if b.Rows += items[i].Rows; b.Rows > f.most {
			break
		}
		take = append(take, int32(i))
	}
	return take
}

// rig is a queue with a model that notes its batches, on a virtual clock.
type rig struct {
	*schedtest.Bench
	process *scheduler.Background
	queue   *queue.Queue
	running sync.WaitGroup
	takes   time.Duration
	fails   bool // batches of several rows

	mu   sync.Mutex
	rows []int // of each execution, guarded by mu
}

func newRig(t *testing.T, s queue.Settings) *rig {
	t.Helper()
	<-time.After(time.Duration(max(1-telemetry.Now(), 1))) // the bubble's clock begins before the program
	r := &rig{Bench: schedtest.NewBench(t, schedtest.Signature(8), nil), takes: 10 * time.Millisecond}
	s.Runner, s.Workers = r.Runner, r.Workers
	if s.Policy == nil {
		s.Policy = filling{4}
	}
	s.Instances = []backends.Instance{schedtest.Model(r.execute)}
	r.queue, r.process = queue.New(s), r.Workers.Background()
	return r
}

func (r *rig) execute(b *backends.Batch) error {
	r.mu.Lock()
	r.rows = append(r.rows, b.Rows)
	r.mu.Unlock()
	if r.fails && b.Rows > 1 {
		return errors.New("too many rows")
	}
	<-time.After(r.takes)
	return schedtest.Share(b)
}

func (r *rig) executed() []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.rows)
}

// send enqueues a task of one row.
func (r *rig) send(background bool) *schedtest.Job {
	j := r.Job(1, r.Floats([]int64{1, 1}, 7))
	j.Meta.Background = background
	r.running.Go(func() { r.Submit(r.queue, j) })
	synctest.Wait()
	return j
}

// end checks that the queue is empty and that its counters are true, and closes it.
func (r *rig) end(t *testing.T, jobs ...*schedtest.Job) {
	t.Helper()
	schedtest.Wait(jobs...)
	r.running.Wait()
	if err := r.queue.Drain(t.Context()); err != nil || r.Stats.Pending() != 0 {
		t.Errorf("drained with %v, %d pending", err, r.Stats.Pending())
	}
	for _, j := range jobs {
		j.Release()
	}
	if err := r.queue.Close(); err != nil {
		t.Error(err)
	}
	r.Workers.Close()
}

func done(j *schedtest.Job) bool { return j.Times.Load() > 0 }

// TestBackgroundWaits checks that a background task executes when the process has been quiet, and an online task at once.
func TestBackgroundWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, queue.Settings{Policy: schedtest.Everything{}})
		r.process.Begin(telemetry.Now())
		r.process.Arrive(telemetry.Now())
		low := r.send(true)
		<-time.After(time.Minute)
		synctest.Wait()
		if done(low) {
			t.Error("a background task executed beside an online request")
		}
		if n := r.Stats.Pending(); n != 1 {
			t.Errorf("%d tasks are counted as queued, want the background one", n)
		}
		begin := time.Now()
		high := r.send(false)
		schedtest.Wait(high)
		if took := time.Since(begin); took != r.takes {
			t.Errorf("the online task took %v, want %v", took, r.takes)
		}
		r.process.Leave(telemetry.Now())
		<-time.After(5 * time.Second)
		synctest.Wait()
		if !done(low) {
			t.Error("the background task did not execute in a quiet process")
		}
		r.end(t, low, high)
	})
}

// TestBackgroundFills checks that background tasks ride along in a batch, of a handed-off task and of one from the queue.
func TestBackgroundFills(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, queue.Settings{})
		r.process.Begin(telemetry.Now())
		r.process.Arrive(telemetry.Now())
		var jobs []*schedtest.Job
		for range 7 {
			jobs = append(jobs, r.send(true))
		}
		jobs = append(jobs, r.send(false), r.send(false), r.send(false))
		<-time.After(time.Minute)
		synctest.Wait()
		if got, want := r.executed(), []int{4, 4, 2}; !slices.Equal(got, want) {
			t.Errorf("batches of %v rows, want %v", got, want)
		}
		r.end(t, jobs...)
	})
}

// TestFailedFill checks that online tasks succeed when the batch fails that background tasks joined, and have no such company for a while.
func TestFailedFill(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, queue.Settings{})
		r.fails = true
		r.process.Begin(telemetry.Now())
		r.process.Arrive(telemetry.Now())
		jobs := []*schedtest.Job{r.send(true), r.send(false)}
		schedtest.Wait(jobs...)
		jobs = append(jobs, r.send(true), r.send(false))
		schedtest.Wait(jobs[3])
		if got, want := r.executed(), []int{2, 1, 1, 1}; !slices.Equal(got, want) {
			t.Errorf("batches of %v rows, want %v", got, want)
		}
		for _, j := range jobs[:2] {
			if j.Err != nil {
				t.Errorf("unexpected error %v", j.Err)
			}
		}
		r.process.Leave(telemetry.Now())
		r.end(t, jobs...)
	})
}

// TestBackgroundLimits checks that the size of a queue holds for background tasks by themselves, and a timeout not at all.
func TestBackgroundLimits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, queue.Settings{
			Policy: schedtest.Everything{}, Ordered: true,
			Levels: queue.Levels{Policy: queue.Policy{MaxSize: 2, Timeout: 50 * time.Millisecond}},
		})
		r.process.Begin(telemetry.Now())
		r.process.Arrive(telemetry.Now())
		jobs := []*schedtest.Job{r.send(true), r.send(true), r.send(true)}
		if err := jobs[2].Err; !done(jobs[2]) || status.CodeOf(err) != status.Unavailable {
			t.Errorf("the third background task has %v, want one that names the full queue", err)
		}
		for range 3 { // one executes, two wait
			jobs = append(jobs, r.send(false))
		}
		schedtest.Wait(jobs[3:]...) // although responses leave in order, and background tasks came first
		for _, j := range jobs[3:] {
			if j.Err != nil {
				t.Errorf("unexpected error %v of an online task", j.Err)
			}
		}
		<-time.After(time.Second)
		r.process.Leave(telemetry.Now())
		schedtest.Wait(jobs[:2]...)
		if jobs[0].Err != nil || jobs[1].Err != nil {
			t.Errorf("background tasks that waited failed: %v, %v", jobs[0].Err, jobs[1].Err)
		}
		r.end(t, jobs...)
	})
}

// TestBackgroundAlone checks that background tasks execute at full speed in a quiet process, in batches that are bounded in time.
func TestBackgroundAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, queue.Settings{Policy: schedtest.Everything{}})
		r.takes = 40 * time.Millisecond
		begin := time.Now()
		var jobs []*schedtest.Job
		for range 12 {
			jobs = append(jobs, r.send(true))
		}
		schedtest.Wait(jobs...)
		if got, want := r.executed(), []int{1, 1, 1}; len(got) < 4 || !slices.Equal(got[:2], want[:2]) {
			t.Errorf("batches of %v rows, want them to grow from 1", got)
		}
		if took, want := time.Since(begin), time.Duration(len(r.executed()))*r.takes; took != want {
			t.Errorf("%v for batches that take %v: the instance was idle", took, want)
		}
		r.end(t, jobs...)
	})
}

// TestFlushBackground checks that background tasks do not keep a model from being unloaded.
func TestFlushBackground(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, queue.Settings{Policy: schedtest.Everything{}})
		r.process.Begin(telemetry.Now())
		r.process.Arrive(telemetry.Now())
		low := r.send(true)
		r.queue.Flush()
		<-time.After(time.Second)
		synctest.Wait()
		if !done(low) {
			t.Error("a background task waits although the queue is flushed")
		}
		r.process.Leave(telemetry.Now())
		r.end(t, low)
	})
}
