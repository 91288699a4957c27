package durable

import (
	"bytes"
	"compress/gzip"
	"flag"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/client"
	sdklog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/tutti-server/tutti/core/job"
)

var record = flag.Bool("record", false, "store the histories of TestRecord")

// TestReplay executes the workflow again from histories of jobs of earlier versions. A change of the workflow that
// these jobs would not survive fails here: it needs workflow.GetVersion. TestRecord records new ones.
func TestReplay(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join("testdata", "*.json.gz"))
	if err != nil || len(files) < 6 {
		t.Fatalf("%d histories, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			h := readHistory(t, file)
			if err := replay(h); err != nil {
				t.Error(err)
			}
			for _, e := range h.GetEvents() { // the history of another workflow
				if a := e.GetActivityTaskScheduledEventAttributes(); a != nil {
					a.ActivityType = &commonpb.ActivityType{Name: "tutti.other"}
					break
				}
			}
			if replay(h) == nil {
				t.Error("a history with another activity is accepted")
			}
		})
	}
}

func replay(h *historypb.History) error {
	r := worker.NewWorkflowReplayer()
	r.RegisterWorkflowWithOptions(runJob, workflow.RegisterOptions{Name: workflowType})
	return r.ReplayWorkflowHistory(sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler)), h)
}

func readHistory(t *testing.T, file string) *historypb.History {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	h, err := client.HistoryFromJSON(bytes.NewReader(text), client.HistoryJSONOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// history returns a run of a job.
func (r *rig) history(id, run string) *historypb.History {
	r.t.Helper()
	h := &historypb.History{}
	for events := r.client.GetWorkflowHistory(r.t.Context(), id, run, false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); events.HasNext(); {
		e, err := events.Next()
		if err != nil {
			r.t.Fatal(err)
		}
		h.Events = append(h.Events, e)
	}
	return h
}

// runs returns the runs of a job, the last first.
func (r *rig) runs(id string) (ids []string) {
	for run := ""; ; {
		h := r.history(id, run)
		first := h.GetEvents()[0].GetWorkflowExecutionStartedEventAttributes()
		ids = append(ids, first.GetOriginalExecutionRunId())
		if run = first.GetContinuedExecutionRunId(); run == "" {
			return ids
		}
	}
}

// TestRecord executes jobs whose histories TestReplay needs, and checks that their sizes are far below Temporal's limits.
// With -record it stores them.
func TestRecord(t *testing.T) {
	t.Parallel()
	if testing.Short() && !*record {
		t.Skip("600 chunks take half a minute")
	}
	r := newRig(t)
	r.work()
	histories := map[string]*historypb.History{}
	last := func(id string) { histories[id] = r.history(id, "") }

	small := r.spec("completed", 40)
	r.run(small)
	last("completed")

	failing := r.spec("failed", 40)
	failing.Input.URI, failing.MaxFailed = r.dataset(1, 2, -3, 4, -5), new(int64)
	if st := r.finished(r.submit(failing).ID); st.State != job.Failed || !strings.Contains(st.Reason, "has no double") {
		t.Errorf("%+v", st)
	}
	last("failed")

	paused := r.spec("paused", 500)
	r.submit(paused)
	r.await("paused", "running", func(st *job.Status) bool { return st.Finished > 2 })
	for _, do := range []func() error{
		func() error { return r.service.Pause(t.Context(), "paused") },
		func() error { return r.service.Resume(t.Context(), "paused") },
	} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
	}
	r.finished("paused")
	last("paused")

	long := r.spec("continued", chunksPerRun+50)
	long.ChunkRows = 1
	r.run(long)
	runs := r.runs("continued")
	if len(runs) != 2 {
		t.Errorf("%d runs, want 2", len(runs))
	}
	for i, run := range runs {
		h := r.history("continued", run)
		histories["continued-"+string(rune('a'+i))] = h
		size := 0
		for _, e := range h.GetEvents() {
			size += e.Size()
		}
		if len(h.GetEvents()) > 5000 || size > 5<<20 {
			t.Errorf("run %d has %d events and %d bytes", i, len(h.GetEvents()), size)
		}
		t.Logf("run %d has %d events and %d bytes", i, len(h.GetEvents()), size)
	}

	cancelled := r.spec("cancelled", 3000)
	r.submit(cancelled)
	r.await("cancelled", "running", func(st *job.Status) bool { return st.Finished > 2 })
	if err := r.service.Cancel(t.Context(), "cancelled"); err != nil {
		t.Fatal(err)
	}
	r.finished("cancelled")
	last("cancelled")

	for _, name := range slices.Sorted(maps.Keys(histories)) {
		if err := replay(histories[name]); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if *record {
			writeHistory(t, name, histories[name])
		}
	}
}

var ofMachine = regexp.MustCompile(`("identity": *)"[^"]*"`)

// writeHistory stores a history without what it says of this machine.
func writeHistory(t *testing.T, name string, h *historypb.History) {
	t.Helper()
	text, err := protojson.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	text = ofMachine.ReplaceAll(text, []byte(`${1}"worker"`))
	var b bytes.Buffer
	z, _ := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if _, err = z.Write(text); err == nil {
		err = z.Close()
	}
	if err == nil {
		err = os.WriteFile(filepath.Join("testdata", name+".json.gz"), b.Bytes(), 0o644) //nolint:gosec // committed files are for everybody
	}
	if err != nil {
		t.Fatal(err)
	}
}
