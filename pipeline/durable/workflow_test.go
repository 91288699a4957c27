package durable

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/interceptor"
	sdklog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/tutti-server/tutti/core/job"
)

// simulation runs workflows on a clock that skips waiting. Its activities take their time on that clock.
type simulation struct {
	plan   plan
	chunk  func(number int64, attempt int32) (*chunkDone, error)
	finish func(call int) *finished
	before func(env *testsuite.TestWorkflowEnvironment, run int) // of each run

	mu        sync.Mutex    // activities run at the same time, and after the end of their workflow
	scheduled map[int64]int // chunks by their results
	finishes  int
	runs      []runSize
	last      *progress
}

// runSize is what a run puts into its history.
type runSize struct{ activities, bytes int }

// perActivity are the events of an activity, and of the workflow task that its result starts.
const perActivity = 6

// run executes a job until it ends, through all runs that continue it.
func (s *simulation) run(t *testing.T, o *order) error {
	t.Helper()
	s.scheduled = map[int64]int{}
	for {
		suite := &testsuite.WorkflowTestSuite{}
		suite.SetLogger(sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler)))
		env := suite.NewTestWorkflowEnvironment()
		env.SetTestTimeout(5 * time.Minute)
		env.SetWorkerOptions(worker.Options{DeadlockDetectionTimeout: 5 * time.Minute, Interceptors: []interceptor.WorkerInterceptor{&withoutHeartbeats{}}})
		env.RegisterWorkflowWithOptions(runJob, workflow.RegisterOptions{Name: workflowType})
		size := runSize{}
		count := func(v any) {
			payload, err := converter.GetDefaultDataConverter().ToPayload(v)
			if err != nil {
				t.Error(err)
			}
			size.bytes += payload.Size()
		}
		env.RegisterActivityWithOptions(func(context.Context, checkOrder) (*checked, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			size.activities++
			return &checked{Version: 3, Fingerprint: "f", ChunkRows: 2000}, nil
		}, activity.RegisterOptions{Name: activityCheck})
		env.RegisterActivityWithOptions(func(context.Context, place) (*plan, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			size.activities++
			return &s.plan, nil
		}, activity.RegisterOptions{Name: activityCut})
		env.RegisterActivityWithOptions(func(ctx context.Context, o chunkOrder) (*chunkDone, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			d, err := s.chunk(o.Number, activity.GetInfo(ctx).Attempt)
			if err == nil {
				size.activities++
				count(o)
				count(d)
				if !d.Paused {
					s.scheduled[o.Number]++
				}
			}
			return d, err
		}, activity.RegisterOptions{Name: activityChunk})
		env.RegisterActivityWithOptions(func(context.Context, finishOrder) (*finished, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			size.activities++
			s.finishes++
			return s.finish(s.finishes), nil
		}, activity.RegisterOptions{Name: activityFinish})
		if s.before != nil {
			s.before(env, len(s.runs))
		}
		s.mu.Lock()
		count(o)
		s.mu.Unlock()
		env.ExecuteWorkflow(workflowType, o)
		s.mu.Lock()
		s.runs = append(s.runs, size)
		s.mu.Unlock()
		if v, err := env.QueryWorkflow(queryProgress); err == nil {
			s.last = &progress{}
			if err = v.Get(s.last); err != nil {
				t.Error(err)
			}
		}
		err := env.GetWorkflowError()
		next, more := errors.AsType[*workflow.ContinueAsNewError](err)
		if !more {
			return err
		}
		o = &order{}
		if err := converter.GetDefaultDataConverter().FromPayloads(next.Input, o); err != nil {
			t.Fatal(err)
		}
	}
}

// withoutHeartbeats removes the heartbeat timeout of activities, which the environment measures in real time: on a slow machine an
// activity times out whose result waits for its turn.
type withoutHeartbeats struct {
	interceptor.WorkerInterceptorBase
	interceptor.WorkflowInboundInterceptorBase
	interceptor.WorkflowOutboundInterceptorBase
}

func (*withoutHeartbeats) InterceptWorkflow(_ workflow.Context, next interceptor.WorkflowInboundInterceptor) interceptor.WorkflowInboundInterceptor {
	i := &withoutHeartbeats{}
	i.WorkflowInboundInterceptorBase.Next = next
	return i
}

func (i *withoutHeartbeats) Init(next interceptor.WorkflowOutboundInterceptor) error {
	i.WorkflowOutboundInterceptorBase.Next = next
	return i.WorkflowInboundInterceptorBase.Next.Init(i)
}

func (i *withoutHeartbeats) ExecuteActivity(ctx workflow.Context, name string, args ...any) workflow.Future {
	o := workflow.GetActivityOptions(ctx)
	o.HeartbeatTimeout = 0
	return i.WorkflowOutboundInterceptorBase.Next.ExecuteActivity(workflow.WithActivityOptions(ctx, o), name, args...)
}

func newOrder() *order {
	return &order{Queue: "q", Spec: job.Spec{ID: "j", Model: "m", Output: job.Place{URI: "/out"}}}
}

// counted returns the result of finish for a plan whose rows have all succeeded.
func counted(p plan) *finished {
	return &finished{Rows: job.Rows{Total: p.Rows, Done: p.Rows}, Chunks: p.Chunks, Manifest: "/out/_manifest.json"}
}

// TestTenMillionRows runs a job of ten million rows. Each chunk is executed once, each run's history stays below 5,000
// events and 5 MB (a tenth of Temporal's limits), and what one run hands to the next does not grow.
func TestTenMillionRows(t *testing.T) {
	t.Parallel()
	const chunks, rows = 5000, 2000
	s := &simulation{plan: plan{Rows: chunks * rows, Chunks: chunks}}
	s.chunk = func(int64, int32) (*chunkDone, error) { return &chunkDone{Done: rows, Waited: 700, Took: 2500}, nil }
	s.finish = func(int) *finished { return counted(s.plan) }
	if err := s.run(t, newOrder()); err != nil {
		t.Fatal(err)
	}
	if len(s.scheduled) != chunks {
		t.Errorf("%d chunks were executed, want %d", len(s.scheduled), chunks)
	}
	for number, n := range s.scheduled {
		if n != 1 {
			t.Errorf("chunk %d was executed %d times", number, n)
		}
	}
	if want := (job.Rows{Total: chunks * rows, Done: chunks * rows}); s.last.Rows != want || s.last.State != job.Completed {
		t.Errorf("%s with %+v, want %+v", s.last.State, s.last.Rows, want)
	}
	if len(s.runs) < chunks/chunksPerRun {
		t.Errorf("%d runs", len(s.runs))
	}
	for i, r := range s.runs {
		if events := r.activities*perActivity + 100; events > 5000 || r.bytes > 1<<20 {
			t.Errorf("run %d has %d events and %d bytes of payloads", i, events, r.bytes)
		}
	}
	t.Logf("%d runs, the largest has %d events and %d bytes of payloads", len(s.runs), s.runs[0].activities*perActivity, s.runs[0].bytes)
}

// TestChunksThatAreBad executes those again whose results finish does not find.
func TestChunksThatAreBad(t *testing.T) {
	t.Parallel()
	s := &simulation{plan: plan{Rows: 100, Chunks: 10}}
	s.chunk = func(int64, int32) (*chunkDone, error) { return &chunkDone{Done: 10}, nil }
	s.finish = func(call int) *finished {
		if call == 1 {
			return &finished{Rows: job.Rows{Done: 80}, Chunks: 8, Bad: []int64{3, 7}}
		}
		return counted(s.plan)
	}
	if err := s.run(t, newOrder()); err != nil {
		t.Fatal(err)
	}
	for number := range s.plan.Chunks {
		want := 1
		if number == 3 || number == 7 {
			want = 2
		}
		if s.scheduled[number] != want {
			t.Errorf("chunk %d was executed %d times, want %d", number, s.scheduled[number], want)
		}
	}
	if s.last.Rows.Done != 100 || s.last.Finished != 10 {
		t.Errorf("%+v", s.last)
	}
}

// TestFailedRowsEndTheJob at the limit, and not before.
func TestFailedRowsEndTheJob(t *testing.T) {
	t.Parallel()
	for _, limit := range []int64{0, 9, 10} {
		s := &simulation{plan: plan{Rows: 100, Chunks: 10}}
		s.chunk = func(int64, int32) (*chunkDone, error) {
			return &chunkDone{Done: 9, Failed: 1, Error: "b.jsonl:17: too long"}, nil
		}
		s.finish = func(int) *finished { return counted(s.plan) }
		o := newOrder()
		o.Spec.MaxFailed = &limit
		err := s.run(t, o)
		if fails := limit < 10; (err != nil) != fails || (s.last.State == job.Failed) != fails || fails && !strings.Contains(s.last.Reason, "b.jsonl:17: too long") {
			t.Errorf("limit %d: %v, %s: %s", limit, err, s.last.State, s.last.Reason)
		}
	}
}

// TestErrorsThatEndTheJob and those that are tried again.
func TestErrorsThatEndTheJob(t *testing.T) {
	t.Parallel()
	s := &simulation{plan: plan{Rows: 4, Chunks: 4}}
	s.chunk = func(n int64, attempt int32) (*chunkDone, error) {
		if n == 2 && attempt < 9 { // the simulation stops after ten attempts, a Temporal server does not
			return nil, waits(errors.New("the disk is full"))
		}
		return &chunkDone{Done: 1, Retries: int64(attempt) - 1}, nil
	}
	s.finish = func(int) *finished { return counted(s.plan) }
	if err := s.run(t, newOrder()); err != nil || s.last.Retries != 8 {
		t.Errorf("%v, %d retries, want 8", err, s.last.Retries)
	}
	s = &simulation{plan: s.plan, finish: s.finish}
	s.chunk = func(n int64, _ int32) (*chunkDone, error) {
		if n == 2 {
			return nil, fatal(errors.New("the dataset changed"))
		}
		return &chunkDone{Done: 1}, nil
	}
	if err := s.run(t, newOrder()); err == nil || s.last.State != job.Failed || s.last.Reason != "the dataset changed" || s.finishes != 0 {
		t.Errorf("%v, %s: %s", err, s.last.State, s.last.Reason)
	}
}

// TestPauseStartsNothing pauses a job, whose chunks then go back to those that are left, and resumes it an hour later.
func TestPauseStartsNothing(t *testing.T) {
	t.Parallel()
	s := &simulation{plan: plan{Rows: 50, Chunks: 50}}
	paused, during := false, 0
	s.chunk = func(int64, int32) (*chunkDone, error) {
		if paused {
			during++
			return &chunkDone{Paused: true}, nil
		}
		return &chunkDone{Done: 1}, nil
	}
	s.finish = func(int) *finished { return counted(s.plan) }
	s.before = func(env *testsuite.TestWorkflowEnvironment, _ int) {
		env.SetOnActivityCompletedListener(func(info *activity.Info, _ converter.EncodedValue, _ error) {
			if info.ActivityID == chunkIDPrefix+"10" && !paused {
				s.mu.Lock()
				paused = true
				s.mu.Unlock()
				env.SignalWorkflow(signalPause, nil)
				env.RegisterDelayedCallback(func() {
					if p := query(t, env); !p.Paused || p.Finished >= 50 {
						t.Errorf("after half an hour: %+v", p)
					}
				}, 30*time.Minute)
				env.RegisterDelayedCallback(func() {
					s.mu.Lock()
					paused = false
					s.mu.Unlock()
					env.SignalWorkflow(signalResume, nil)
				}, time.Hour)
			}
		})
	}
	const window = 8
	o := newOrder()
	o.Spec.Chunks = window
	if err := s.run(t, o); err != nil {
		t.Fatal(err)
	}
	if len(s.scheduled) != 50 || s.last.Rows.Done != 50 || s.last.Paused {
		t.Errorf("%d chunks, %+v", len(s.scheduled), s.last)
	}
	if during > window { // one for each place in the window: its result comes after the signal
		t.Errorf("%d chunks were executed after the pause", during)
	}
}

func query(t *testing.T, env *testsuite.TestWorkflowEnvironment) (p progress) {
	t.Helper()
	v, err := env.QueryWorkflow(queryProgress)
	if err == nil {
		err = v.Get(&p)
	}
	if err != nil {
		t.Error(err)
	}
	return p
}

// TestCancelEndsTheJob while a chunk waits for a disk.
func TestCancelEndsTheJob(t *testing.T) {
	t.Parallel()
	s := &simulation{plan: plan{Rows: 50, Chunks: 50}}
	s.chunk = func(n int64, _ int32) (*chunkDone, error) {
		if n == 20 {
			return nil, waits(errors.New("the disk is full"))
		}
		return &chunkDone{Done: 1}, nil
	}
	s.before = func(env *testsuite.TestWorkflowEnvironment, _ int) {
		env.RegisterDelayedCallback(env.CancelWorkflow, 20*time.Second)
	}
	err := s.run(t, newOrder())
	if !temporal.IsCanceledError(err) || s.last.State != job.Cancelled || s.last.Rows.Done != 49 {
		t.Errorf("%v, %+v", err, s.last)
	}
}

// TestRunsWithAStuckChunk continues a job in new runs although one chunk fails for hours.
func TestRunsWithAStuckChunk(t *testing.T) {
	t.Parallel()
	s := &simulation{plan: plan{Rows: 1500, Chunks: 1500}}
	s.chunk = func(n int64, _ int32) (*chunkDone, error) {
		if n == 5 && len(s.scheduled) < 1499 {
			return nil, waits(errors.New("no worker has this model"))
		}
		return &chunkDone{Done: 1}, nil
	}
	s.finish = func(int) *finished { return counted(s.plan) }
	if err := s.run(t, newOrder()); err != nil {
		t.Fatal(err)
	}
	if len(s.scheduled) != 1500 || len(s.runs) < 3 || s.scheduled[5] != 1 {
		t.Errorf("%d chunks in %d runs, the stuck one %d times", len(s.scheduled), len(s.runs), s.scheduled[5])
	}
}

func TestFitTheWindow(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		window       int
		waited, took int64
		want         int
	}{
		{8, 0, 3000, 9},
		{8, 600, 3000, 9},
		{8, 1500, 3000, 8},
		{8, 4000, 3000, 7},
		{8, 300, 5, 9},
		{8, 1500, 5, 8},
		{8, 2500, 5, 7},
		{minWindow, 90000, 5, minWindow},
		{maxWindow, 0, 3000, maxWindow},
	} {
		if got := fit(c.window, &chunkDone{Waited: c.waited, Took: c.took}); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}
