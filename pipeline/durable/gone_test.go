package durable

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/worker"

	"github.com/tutti-server/tutti/core/job"
	"github.com/tutti-server/tutti/internal/logtest"
)

// TestGoneWorker shows a job as waiting whose task queue a worker polled shortly before it was killed.
func TestGoneWorker(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.service.patience = 100 * time.Millisecond
	r.work()
	if st, _ := r.run(r.spec("before", 20)); st.Rows.Done != 20 { // Temporal and its task queues are there
		t.Errorf("%+v", st)
	}
	queue := modelQueue(defaultQueue, "double", deviceGPU) // that no worker takes
	ctx, kill := context.WithTimeout(t.Context(), pollAge)
	var wait sync.WaitGroup
	wait.Go(func() {
		_, err := r.client.WorkflowService().PollActivityTaskQueue(ctx, &workflowservice.PollActivityTaskQueueRequest{
			Namespace: "default", Identity: "killed", TaskQueue: &taskqueue.TaskQueue{Name: queue, Kind: enums.TASK_QUEUE_KIND_NORMAL},
		})
		if ctx.Err() == nil {
			t.Errorf("the poll has ended: %v", err)
		}
	})
	defer wait.Wait()
	defer kill()
	for {
		d, err := r.client.DescribeTaskQueue(t.Context(), queue, enums.TASK_QUEUE_TYPE_ACTIVITY)
		if err != nil {
			t.Fatal(err)
		}
		if len(d.GetPollers()) > 0 {
			break
		}
		<-time.After(50 * time.Millisecond) // Temporal has no other way
	}
	kill()
	wait.Wait()
	spec := r.spec("gone", 20)
	spec.Device = deviceGPU
	r.submit(spec)
	r.await("gone", "waiting", func(st *job.Status) bool {
		return st.State == job.Waiting && strings.Contains(st.Reason, "no worker has taken task queue 'tutti-double/gpu' for") && strings.Contains(st.Reason, "its workers have stopped")
	})
	r.gpu = true
	r.work()
	if st := r.finished("gone"); st.State != job.Completed || st.Rows.Done != 20 {
		t.Errorf("%+v", st)
	}
}

// TestWorkersEnd ends all workers as the SDK does when the server refuses them for minutes. They are replaced, with one warning.
func TestWorkersEnd(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	set := r.settings()
	var lines logtest.Buffer
	set.Log = slog.New(slog.NewTextHandler(&lines, nil))
	w, err := NewWorker(set)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	end := map[string]func(error){}
	w.workers.New = func(queue string, o worker.Options) worker.Worker {
		one := w.serve(queue, o)
		mu.Lock()
		defer mu.Unlock()
		end[queue] = func(err error) { o.OnFatalError(err); one.Stop() } // in this order, as the SDK
		return one
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wait sync.WaitGroup
	wait.Go(func() {
		if err := w.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	defer wait.Wait()
	defer cancel()
	if st, _ := r.run(r.spec("before", 20)); st.Rows.Done != 20 {
		t.Errorf("%+v", st)
	}
	mu.Lock()
	ends := end
	end = map[string]func(error){}
	mu.Unlock()
	for _, f := range ends {
		f(serviceerror.NewNamespaceNotFound("ml"))
	}
	if st, _ := r.run(r.spec("after", 20)); st.Rows.Done != 20 {
		t.Errorf("%+v", st)
	}
	mu.Lock()
	again := len(end)
	mu.Unlock()
	if again < 2 {
		t.Errorf("%d workers were started, and %d again", len(ends), again)
	}
	if text := lines.String(); strings.Count(text, "level=WARN") != 1 || !strings.Contains(text, "Temporal has no namespace 'ml'; create it, or name another one with --temporal-namespace") {
		t.Errorf("the log: %s", text)
	}
}

// TestPriority runs two jobs on one task queue, whose worker has one place: the chunks of the one with the higher priority go first,
// though it was submitted later.
func TestPriority(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.chunks = 1
	const first = 100_000 // the rows of the urgent job
	var mu sync.Mutex
	var order []bool // whether a request is one of the urgent job
	r.model.seen = func(x float32) {
		mu.Lock()
		defer mu.Unlock()
		order = append(order, x >= first)
	}
	r.work()
	patient := r.spec("patient", 600)
	patient.Priority, patient.Chunks = 5, 8
	r.submit(patient)
	r.await("patient", "running", func(st *job.Status) bool { return st.Finished > 2 })
	urgent := r.spec("urgent", 0)
	urgent.Input = job.Place{URI: r.dataset(numbers(first, 200)...)}
	urgent.Priority, urgent.Chunks = 1, 8
	r.submit(urgent)
	if st := r.finished("urgent"); st.State != job.Completed || st.Rows.Done != 200 {
		t.Errorf("%+v", st)
	}
	st, err := r.service.Show(t.Context(), "patient")
	if err != nil || st.State.Final() {
		t.Fatalf("%+v, %v: it has ended before the urgent one", st, err)
	}
	mu.Lock()
	var mine, others, since int
	for _, is := range order {
		switch {
		case is:
			mine, others, since = mine+1, others+since, 0
		case mine > 8: // behind those of the check
			since++
		}
	}
	mu.Unlock()
	if others > mine/2 {
		t.Errorf("%d requests of the patient job between %d of the urgent one", others, mine)
	}
	if st := r.finished("patient"); st.State != job.Completed || st.Rows.Done != 600 {
		t.Errorf("%+v", st)
	}
	t.Logf("%d requests of the patient job between %d of the urgent one", others, mine)
}
