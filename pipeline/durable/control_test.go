package durable

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tutti-server/tutti/core/job"
	"github.com/tutti-server/tutti/core/status"
)

// held makes the model wait with every request until the function that it returns is called.
func (m *doubler) held() (release func()) {
	hold := make(chan struct{})
	m.hold.Store(&hold)
	return func() {
		m.hold.Store(nil)
		close(hold)
	}
}

func (r *rig) spec(id string, rows int) job.Spec {
	return job.Spec{ID: id, Input: job.Place{URI: r.dataset(numbers(1, rows)...)}, Output: job.Place{URI: filepath.Join(r.t.TempDir(), id)}, Keep: []string{"id"}, ChunkRows: 10}
}

// TestWithoutWorker shows what a job waits for that no worker takes, and executes it when there is one.
func TestWithoutWorker(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.service.patience = 100 * time.Millisecond
	st := r.submit(r.spec("alone", 30))
	st = r.await(st.ID, "waiting", func(st *job.Status) bool { return st.State == job.Waiting })
	if !strings.Contains(st.Reason, "no worker has taken task queue 'tutti' for") || st.Spec.Model != "double" {
		t.Errorf("%+v", st)
	}
	r.work()
	if st = r.finished("alone"); st.State != job.Completed || st.Rows.Done != 30 {
		t.Errorf("%+v", st)
	}
}

// TestPauseAndResume pauses a job in the middle. What was scheduled does not start.
func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.work()
	spec := r.spec("paused", 2000)
	spec.Chunks = 8
	r.submit(spec)
	r.await("paused", "running", func(st *job.Status) bool { return st.Finished > 2 })
	release := r.model.held()
	for range 2 {
		if err := r.service.Pause(t.Context(), "paused"); err != nil {
			t.Fatal(err)
		}
	}
	r.await("paused", "paused", func(st *job.Status) bool { return st.State == job.Paused })
	release()
	var before int64
	r.await("paused", "still", func(st *job.Status) bool { // no chunk is in execution
		still := st.Finished == before
		before = st.Finished
		<-time.After(time.Second)
		return still
	})
	st, err := r.service.Show(t.Context(), "paused")
	if err != nil || st.State != job.Paused || st.Finished >= 200 {
		t.Errorf("%+v, %v", st, err)
	}
	if err := r.service.Resume(t.Context(), "paused"); err != nil {
		t.Fatal(err)
	}
	if st := r.finished("paused"); st.State != job.Completed || st.Rows.Done != 2000 {
		t.Errorf("%+v", st)
	}
	if err := r.service.Pause(t.Context(), "paused"); status.CodeOf(err) != status.InvalidArg || !strings.Contains(err.Error(), "it is completed") {
		t.Errorf("pausing what has ended: %v", err)
	}
}

// TestCancel ends a job whose results are then reused.
func TestCancel(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.work()
	spec := r.spec("cancelled", 2000)
	r.submit(spec)
	r.await("cancelled", "running", func(st *job.Status) bool { return st.Finished > 2 })
	if err := r.service.Cancel(t.Context(), "cancelled"); err != nil {
		t.Fatal(err)
	}
	if st := r.finished("cancelled"); st.State != job.Cancelled || st.Ended.IsZero() {
		t.Errorf("%+v", st)
	}
	if err := r.service.Cancel(t.Context(), "cancelled"); err != nil {
		t.Errorf("cancelled twice: %v", err)
	}
	if err := r.service.Cancel(t.Context(), "nobody"); status.CodeOf(err) != status.NotFound {
		t.Errorf("an unknown job: %v", err)
	}
	st, m := r.run(spec) // the same ID: it goes on
	if st.Rows.Done != 2000 || st.Rows.Reused < 30 {
		t.Errorf("%+v", st.Rows)
	}
	if got := doubles(t, spec.Output.URI, m); len(got) != 2000 {
		t.Errorf("%d results", len(got))
	}
}

// TestModelAway waits for a model and goes on by itself.
func TestModelAway(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.work()
	spec := r.spec("away", 3000)
	r.submit(spec)
	r.await("away", "running", func(st *job.Status) bool { return st.Finished > 2 })
	r.model.away.Store(true)
	st := r.await("away", "waiting", func(st *job.Status) bool { return st.State == job.Waiting && len(st.Problems) > 0 })
	if !strings.Contains(st.Reason, "model 'double' is not ready") || st.Problems[0].Chunk < 0 || st.Problems[0].Attempt < 1 || st.Problems[0].Worker == "" || st.Retries < 1 {
		t.Errorf("%+v", st)
	}
	r.model.away.Store(false)
	if st = r.finished("away"); st.State != job.Completed || st.Rows.Done != 3000 || st.Retries < 1 {
		t.Errorf("%+v", st)
	}
}

// TestOtherModel reloads another model in the middle of a job, which waits or fails as asked.
func TestOtherModel(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.work()
	for _, policy := range []string{otherFail, otherWait} {
		r.model.content.Store("content-1")
		spec := r.spec(policy, 3000)
		spec.OtherModel = policy
		r.submit(spec)
		r.await(policy, "running", func(st *job.Status) bool { return st.Finished > 2 })
		r.model.content.Store("content-2")
		if policy == otherFail {
			if st := r.finished(policy); st.State != job.Failed || !strings.Contains(st.Reason, "content-2, and the job was started with content-1") {
				t.Errorf("%+v", st)
			}
			continue
		}
		st := r.await(policy, "waiting", func(st *job.Status) bool { return st.State == job.Waiting })
		if !strings.Contains(st.Reason, "it waits for a worker with that content") {
			t.Errorf("%+v", st)
		}
		r.model.content.Store("content-1")
		if st := r.finished(policy); st.State != job.Completed || st.Rows.Done != 3000 {
			t.Errorf("%+v", st)
		}
	}
}

// TestTemporalKilled kills the Temporal server in the middle of a job, and starts it again on its database.
func TestTemporalKilled(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.work()
	spec := r.spec("killed", 4000)
	r.submit(spec)
	r.await("killed", "running", func(st *job.Status) bool { return st.Finished > 2 })
	r.kill()
	if _, err := r.service.Show(t.Context(), "killed"); status.CodeOf(err) != status.Unavailable || !strings.Contains(err.Error(), "Temporal cannot be reached") {
		t.Errorf("without Temporal: %v", err)
	}
	was := r.address
	r.start()
	if r.address != was {
		t.Fatalf("the server was at %s and is at %s", was, r.address)
	}
	if st := r.finished("killed"); st.State != job.Completed || st.Rows.Done != 4000 {
		t.Errorf("%+v", st)
	}
	m, err := r.service.Result(t.Context(), "killed")
	if err != nil {
		t.Fatal(err)
	}
	if got := doubles(t, spec.Output.URI, m); len(got) != 4000 {
		t.Errorf("%d results", len(got))
	}
}

// TestWorkerStops stops a worker in the middle of a chunk that takes long. The next one continues behind the parts.
func TestWorkerStops(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.segment = time.Nanosecond // a part for each unit
	r.work()
	spec := r.spec("stopped", 800)
	spec.ChunkRows = 800
	r.submit(spec)
	sidecars := func() (n int64) {
		files, _ := filepath.Glob(filepath.Join(spec.Output.URI, "_index", "*", "*.rows"))
		for _, f := range files {
			text, _ := os.ReadFile(f)
			line, _, _ := strings.Cut(string(text), "\n")
			var s sidecar
			if json.Unmarshal([]byte(line), &s) == nil {
				n = s.Next
			}
		}
		return n
	}
	r.await("stopped", "in its chunk", func(*job.Status) bool { return sidecars() > 80 })
	r.stop()
	had := sidecars()
	before := r.model.rows.Load()
	r.work()
	st := r.finished("stopped")
	if st.State != job.Completed || st.Rows.Done != 800 {
		t.Errorf("%+v", st)
	}
	if again := r.model.rows.Load() - before; had < 800 && again > 800-had {
		t.Errorf("%d rows were executed after %d had results", again, had)
	}
	m, err := r.service.Result(t.Context(), "stopped")
	if err != nil {
		t.Fatal(err)
	}
	if got := doubles(t, spec.Output.URI, m); len(got) != 800 {
		t.Errorf("%d results", len(got))
	}
	t.Logf("stopped after %d rows", had)
}

// TestWorkerStopsBetweenParts stops a worker in the middle of a chunk, long before its first part would end. The rows that are done
// are recorded, and the next worker continues behind them.
func TestWorkerStopsBetweenParts(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	hold := make(chan struct{})
	r.model.from = 81
	r.model.hold.Store(&hold)
	r.work()
	spec := r.spec("between", 800)
	spec.ChunkRows = 800
	r.submit(spec)
	r.await("between", "in its chunk", func(*job.Status) bool { return r.model.rows.Load() >= 80 })
	r.stop()
	var s sidecar
	for _, f := range glob(t, filepath.Join(spec.Output.URI, "_index", "*", "*.rows")) {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		line, _, _ := strings.Cut(string(text), "\n")
		if err := json.Unmarshal([]byte(line), &s); err != nil {
			t.Fatal(err)
		}
	}
	if s.Next != 80 || len(s.Parts) != 1 {
		t.Fatalf("recorded %d rows in %d parts", s.Next, len(s.Parts))
	}
	before := r.model.rows.Load()
	r.model.hold.Store(nil)
	r.work()
	if st := r.finished("between"); st.State != job.Completed || st.Rows.Done != 800 {
		t.Errorf("%+v", st)
	}
	if again := r.model.rows.Load() - before; again != 800-s.Next {
		t.Errorf("%d rows were executed after %d of 800 had results", again, s.Next)
	}
	m, err := r.service.Result(t.Context(), "between")
	if err != nil {
		t.Fatal(err)
	}
	if got := doubles(t, spec.Output.URI, m); len(got) != 800 {
		t.Errorf("%d results", len(got))
	}
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestDamagedPart executes a chunk again whose part changes before the job ends.
func TestDamagedPart(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.work()
	spec := r.spec("damaged", 2000)
	r.submit(spec)
	r.await("damaged", "running", func(st *job.Status) bool { return st.Finished > 2 })
	parts, _ := filepath.Glob(filepath.Join(spec.Output.URI, partPrefix+"00000001-*"))
	if len(parts) == 0 {
		parts, _ = filepath.Glob(filepath.Join(spec.Output.URI, partPrefix+"*"))
	}
	if err := os.WriteFile(parts[0], []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if st := r.finished("damaged"); st.State != job.Completed || st.Rows.Done != 2000 || st.Finished != 200 {
		t.Errorf("%+v", st)
	}
	m, err := r.service.Result(t.Context(), "damaged")
	if err != nil {
		t.Fatal(err)
	}
	if got := doubles(t, spec.Output.URI, m); len(got) != 2000 {
		t.Errorf("%d results", len(got))
	}
}
