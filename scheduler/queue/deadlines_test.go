package queue_test

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/deadline"
	"github.com/tutti-server/tutti/scheduler/device"
	"github.com/tutti-server/tutti/scheduler/queue"
	"github.com/tutti-server/tutti/scheduler/schedtest"
)

// atMost is a policy of batches of at most so many tasks.
type atMost int

func (n atMost) Decide(_ int64, v scheduler.View, scratch []int32) scheduler.Decision {
	for i := range v.Items[:min(int(n), len(v.Items))] {
		scratch = append(scratch, int32(i)) //nolint:gosec // few
	}
	return scheduler.Decision{Take: scratch}
}

// dated is a queue of one instance, whose first execution waits until leave is called, with tasks of which each is numbered.
type dated struct {
	b     *schedtest.Bench
	s     scheduler.Scheduler
	jobs  []*schedtest.Job
	path  *scheduler.Path
	now   int64
	begun chan struct{}
	wg    sync.WaitGroup
	leave func()

	mu   sync.Mutex
	runs [][]int // the tasks of each execution, guarded by mu
	ran  func(run []int)

	reached, goOn chan struct{} // of hold
}

// hold has the fifth execution after the first say so and wait.
func (d *dated) hold(reached, goOn chan struct{}) { d.reached, d.goOn = reached, goOn }

func newDated(t *testing.T, most int) *dated {
	t.Helper()
	return newDatedBy(t, atMost(most))
}

func newDatedBy(t *testing.T, policy scheduler.Policy) *dated {
	t.Helper()
	return newDatedAt(t, policy, nil)
}

// newDatedAt is newDatedBy with a limiter.
func newDatedAt(t *testing.T, policy scheduler.Policy, at []scheduler.Limiter) *dated {
	t.Helper()
	d := &dated{b: schedtest.NewBench(t, schedtest.Mirror(8, schedtest.Port("INPUT0", tensor.FP32, 1)), nil), now: telemetry.Now()}
	m, entered, leave := blocking(func(batch *backends.Batch) error {
		var run []int
		for _, v := range tensor.Slice[float32](&batch.In[0]) {
			run = append(run, int(v))
		}
		d.mu.Lock()
		d.runs = append(d.runs, run)
		if d.ran != nil {
			d.ran(run)
		}
		n := len(d.runs)
		d.mu.Unlock()
		if n == 6 && d.reached != nil {
			close(d.reached)
			<-d.goOn
		}
		if run[0] < 0 {
			return errors.New("nothing is learned from a failure")
		}
		return schedtest.Share(batch)
	})
	d.s = queue.New(queue.Settings{Runner: d.b.Runner, Policy: policy, Instances: []backends.Instance{m}, Limiters: at, Workers: d.b.Workers})
	d.begun, d.leave = entered, sync.OnceFunc(func() { close(leave) })
	return d
}

// busy has the instance execute a task until leave is called.
func (d *dated) busy() {
	j := d.b.Job(1, d.b.Floats([]int64{1, 1}, -1))
	d.jobs = append(d.jobs, j)
	d.wg.Go(func() { d.b.Submit(d.s, j) })
	<-d.begun
}

// add enqueues a task that is due after a time, 0 for none.
func (d *dated) add(number int, due time.Duration) *schedtest.Job {
	j := d.b.Job(1, d.b.Floats([]int64{1, 1}, float32(number)))
	j.Path = d.path
	if due > 0 {
		j.Meta.Deadline = d.now + int64(due)
	}
	d.jobs = append(d.jobs, j)
	d.b.Submit(d.s, j)
	return j
}

// executed returns the tasks in the order of their executions, after all have ended.
func (d *dated) executed(t *testing.T) (runs [][]int) {
	t.Helper()
	d.leave()
	schedtest.Wait(d.jobs...)
	d.wg.Wait()
	for _, j := range d.jobs {
		j.Release()
	}
	if err := d.s.Close(); err != nil {
		t.Error(err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.DeleteFunc(d.runs, func(r []int) bool { return r[0] < 0 })
}

// missed fails the test unless a task was refused because of its deadline.
func missed(t *testing.T, j *schedtest.Job) {
	t.Helper()
	<-j.Done()
	if !status.MissesDeadline(j.Err) || status.CodeOf(j.Err) != status.Unavailable || status.RetryAfter(j.Err) <= 0 ||
		!strings.Contains(j.Err.Error(), "Request deadline cannot be met: 'm' has too much to do.") {
		t.Errorf("got error %v, want one of its deadline", j.Err)
	}
}

// TestOrderBySlack checks that tasks are executed in the order in which they are due, and those without a deadline as if they had the
// usual one: not before what is due earlier, not after what is due much later.
func TestOrderBySlack(t *testing.T) {
	t.Parallel()
	d := newDated(t, 1)
	d.busy()
	d.add(1, 0) // came before any deadline
	d.add(2, 100*time.Second)
	d.add(3, 50*time.Second)
	d.add(4, 0)
	d.add(5, 80*time.Second)
	d.add(6, 1000*time.Second)
	d.add(7, 0)
	d.add(8, 20*time.Second)
	got := d.executed(t)
	want := [][]int{{1}, {8}, {3}, {5}, {4}, {2}, {7}, {6}}
	if !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("executed in the order %v, want %v", got, want)
	}
}

// TestEarlyDrop checks that a batch leaves out what it would complete too late, with the rest of the path, and executes the others.
func TestEarlyDrop(t *testing.T) {
	t.Parallel()
	d := newDated(t, 8)
	d.path = new(scheduler.Path)
	d.path.Rest.Store(int64(30 * time.Second))
	queue.Observe(d.s, 1, int64(10*time.Second))
	d.busy()
	late := []*schedtest.Job{d.add(1, 35*time.Second), d.add(2, 39*time.Second)}
	d.add(3, 90*time.Second)
	d.add(4, 0)
	got := d.executed(t)
	if want := [][]int{{4, 3}}; !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("executed %v, want %v", got, want)
	}
	for _, j := range late {
		missed(t, j)
	}
}

// TestRoomToSpare checks that requests which would just make it are left out while others fill the batch, and executed when none do.
func TestRoomToSpare(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		due  []time.Duration // of the tasks 1, 2, ...
		want [][]int
	}{
		"others fill the batch": {[]time.Duration{105 * time.Second, 108 * time.Second, 200 * time.Second, 210 * time.Second}, [][]int{{3, 4}, {1, 2}}},
		"others do not":         {[]time.Duration{105 * time.Second, 108 * time.Second, 200 * time.Second}, [][]int{{1, 2}, {3}}},
		"there are none":        {[]time.Duration{105 * time.Second, 108 * time.Second}, [][]int{{1, 2}}},
	} {
		d := newDated(t, 2)
		d.path = new(scheduler.Path)
		queue.Observe(d.s, 1, int64(100*time.Second))
		d.busy()
		for i, due := range c.due {
			d.add(i+1, due)
		}
		if got := d.executed(t); !slices.EqualFunc(got, c.want, slices.Equal) {
			t.Errorf("%s: executed %v, want %v", name, got, c.want)
		}
	}
}

// reluctant is a policy of batches of two, which wants to wait for more when two or three are queued.
type reluctant struct{}

func (reluctant) Decide(now int64, v scheduler.View, scratch []int32) scheduler.Decision {
	if n := len(v.Items); (n == 2 || n == 3) && !v.Flush {
		return scheduler.Decision{Wait: time.Hour}
	}
	return atMost(2).Decide(now, v, scratch)
}

// TestRoomToSpareNow checks that the requests with room to spare execute when others would have, though the policy would wait for more of
// them alone.
func TestRoomToSpareNow(t *testing.T) {
	t.Parallel()
	d := newDatedBy(t, reluctant{})
	d.path = new(scheduler.Path)
	queue.Observe(d.s, 1, int64(100*time.Second))
	d.busy()
	d.add(1, 105*time.Second)
	d.add(2, 108*time.Second)
	d.add(3, 200*time.Second)
	d.add(4, 210*time.Second)
	d.leave()
	<-d.jobs[3].Done()
	<-d.jobs[4].Done()
	scheduler.Flush(d.s)
	if got, want := d.executed(t), [][]int{{3, 4}, {1, 2}}; !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("executed %v, want %v", got, want)
	}
}

// TestRefusedAtOnce checks that a request of a plain model whose turn would come too late is refused before it is queued; a more urgent one
// is not behind those that have time.
func TestRefusedAtOnce(t *testing.T) {
	t.Parallel()
	d := newDated(t, 1)
	queue.Observe(d.s, 1, int64(10*time.Second))
	d.busy()
	d.add(1, 900*time.Second)
	d.add(2, 900*time.Second)
	d.add(3, 900*time.Second)
	missed(t, d.add(4, 8*time.Second))
	d.add(5, 60*time.Second)
	got := d.executed(t)
	if want := [][]int{{5}, {1}, {2}, {3}}; !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("executed %v, want %v", got, want)
	}
}

// TestProbe checks that an estimate which is far too long does not refuse everything for ever: a request is executed while nothing else is
// there, and the estimate follows.
func TestProbe(t *testing.T) {
	t.Parallel()
	d := newDated(t, 1)
	d.leave()
	queue.Observe(d.s, 1, int64(time.Hour))
	refused := 0
	for range 50 {
		if j := d.add(1, 60*time.Second); j.Err != nil {
			refused++
			missed(t, j)
		}
	}
	d.add(2, 60*time.Second)
	got := d.executed(t)
	if last := got[len(got)-1]; last[0] != 2 || refused > 25 {
		t.Errorf("%d of 50 were refused, and the last execution was of %v", refused, last)
	}
}

// TestProbeOfStep is TestProbe for a step of an ensemble, whose requests were let in.
func TestProbeOfStep(t *testing.T) {
	t.Parallel()
	d := newDated(t, 8)
	d.path = new(scheduler.Path)
	d.leave()
	queue.Observe(d.s, 1, int64(time.Hour))
	for range 50 {
		d.add(1, 60*time.Second)
	}
	d.add(2, 60*time.Second)
	got := d.executed(t)
	if len(got) == 0 || got[len(got)-1][0] != 2 {
		t.Errorf("executed %v, want 2 at the end", got)
	}
}

// TestSharedDevice has two queues share a device, whose batches take a second. The first has a full batch that may wait, the second one
// task: it lets the full batch go first as long as that does not cost it its deadline, unless it is at a later step.
func TestSharedDevice(t *testing.T) {
	t.Parallel()
	const second = int64(time.Second)
	for name, c := range map[string]struct {
		due  time.Duration // of the task of the second queue
		path *scheduler.Path
		want []int // the first task of each batch
	}{
		"it can wait":               {10 * time.Second, nil, []int{1, 100}},
		"its window closes":         {2050 * time.Millisecond, nil, []int{100, 1}},
		"it has none, and its turn": {0, nil, []int{100, 1}},
		"it is at a later step":     {10 * time.Second, &scheduler.Path{Depth: 1}, []int{100, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := device.New(device.Settings{Executions: 1})
			var mu sync.Mutex
			var got []int // guarded by mu
			ran := func(run []int) {
				mu.Lock()
				defer mu.Unlock()
				if run[0] >= 0 {
					got = append(got, run[0])
				}
			}
			first, other := newDatedAt(t, atMost(8), limiters(t, a, 1, 1)), newDatedAt(t, atMost(8), limiters(t, a, 1, 1))
			first.ran, other.ran, other.path = ran, ran, c.path
			other.leave()
			first.busy()
			queue.Observe(first.s, 1, second)
			queue.Observe(other.s, 1, second)
			for i := range 8 {
				first.add(i+1, 20*time.Second)
			}
			other.add(100, c.due)
			if runs := first.executed(t); len(runs) != 1 || len(runs[0]) != 8 {
				t.Errorf("the first queue executed %v, expected one batch of 8", runs)
			}
			if runs := other.executed(t); len(runs) != 1 {
				t.Errorf("the other queue executed %v, expected one batch", runs)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("batches began with %v, expected %v", got, c.want)
			}
		})
	}
}

// TestBusyWithOneBatch checks that an instance is expected to be busy with the batch that it executes, however much longer than they took the
// ones before it were expected to take.
func TestBusyWithOneBatch(t *testing.T) {
	t.Parallel()
	d := newDated(t, 1)
	d.leave()
	queue.Observe(d.s, 1, int64(time.Second))
	executions := 0
	d.ran = func([]int) {
		executions++
		stage, ok := scheduler.ForecastOf(d.s, telemetry.Now(), deadline.NoDeadline, nil)
		if takes := stage.Latency.Rows(1); !ok || stage.Busy > takes {
			t.Errorf("busy for %v, expected at most the %v of a batch", time.Duration(stage.Busy), time.Duration(takes))
		}
	}
	for i := range 8 {
		schedtest.Wait(d.add(i+1, 0))
	}
	if runs := d.executed(t); len(runs) != 8 || executions != 8 {
		t.Errorf("%d batches, of which %d asked, expected 8", len(runs), executions)
	}
}

// thenStep completes tasks as an ensemble does: with a step that follows.
type thenStep struct {
	*schedtest.Bench
	then func()
}

func (s *thenStep) Complete(list scheduler.TaskList, t *scheduler.RunLoop) {
	s.then()
	s.Bench.Complete(list, t)
}

// TestHeldForNextStep has two steps share a device with a third model that always waits for it. What the first step has begun goes to the second
// one at once: the device stays the batch's until its tasks are complete, and the next step has asked by then.
func TestHeldForNextStep(t *testing.T) {
	t.Parallel()
	const second = int64(time.Second)
	a := device.New(device.Settings{Executions: 1})
	var mu sync.Mutex
	var got []int // guarded by mu
	ran := func(run []int) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, run[0])
	}
	path := &scheduler.Path{Prompt: true}
	path.Rest.Store(second)
	first, next, other := newDatedAt(t, atMost(8), limiters(t, a, 1, 1)), newDatedAt(t, atMost(8), limiters(t, a, 1, 1)), newDatedAt(t, atMost(8), limiters(t, a, 1, 1))
	for _, d := range []*dated{next, other} {
		d.leave()
	}
	for _, d := range []*dated{first, next, other} {
		d.ran = ran
		queue.Observe(d.s, 1, second)
	}
	scheduler.ForecastOf(first.s, first.now, deadline.NoDeadline, nil) // which has the device watched
	first.path, next.path = path, &scheduler.Path{Depth: 1, Prompt: true}
	stepped := make(chan struct{})
	job := first.b.Job(1, first.b.Floats([]int64{1, 1}, 1))
	job.Path, job.Meta.Deadline = path, first.now+60*second
	job.To = &thenStep{first.b, func() {
		next.add(2, time.Minute)
		close(stepped)
	}}
	first.jobs = append(first.jobs, job)
	first.wg.Go(func() { first.b.Submit(first.s, job) })
	<-first.begun
	other.add(3, time.Minute)
	first.leave()
	<-stepped
	first.executed(t)
	next.executed(t)
	other.executed(t)
	if want := []int{1, 2, 3}; !slices.Equal(got, want) {
		t.Errorf("batches in the order %v, expected %v", got, want)
	}
}
