package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tutti-server/tutti/core/job"
	"github.com/tutti-server/tutti/internal/temporald"
)

// killing is a job during which processes are killed.
type killing struct {
	t      *testing.T
	dir    string   // of Temporal
	common []string // the options of every process
	server *jobProcess
	at     addresses
	worker *jobProcess
}

func (k *killing) startServer() {
	k.t.Helper()
	k.server, k.at = startProcess(k.t, services, append(append([]string{"serve", "--jobs=true"}, k.common...), freePorts...)...)
}

func (k *killing) startWorker() {
	k.t.Helper()
	k.worker, _ = startProcess(k.t, 1, append([]string{"worker", "--metrics-address=127.0.0.1", "--metrics-port=0"}, k.common...)...)
}

// kill kills a process with SIGKILL and, unless another one does it, starts it again.
func (k *killing) kill(which int) {
	k.t.Helper()
	end := func(p *jobProcess) {
		if err := p.Process.Kill(); err != nil {
			k.t.Fatal(err)
		}
		_ = p.Wait() // it was killed
	}
	switch which {
	case 0:
		end(k.server)
		k.startServer()
	case 1:
		end(k.worker)
		k.startWorker()
	default:
		if pid, err := temporald.Owner(k.dir); err == nil && pid > 0 {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended with the process that started it
		}
	}
}

// done returns how many rows of a job have a result, when these are at least some, or the job has ended.
func (k *killing) done(id string, least int64) (st job.Status) {
	k.t.Helper()
	repeated(k.t, "job "+id, func(ctx context.Context) error {
		_, text, err := httpCall(ctx, http.MethodGet, "http://"+k.at.http+"/v2/jobs/"+id, nil)
		if err != nil {
			return err
		}
		st = job.Status{}
		if err := json.Unmarshal(text, &st); err != nil {
			return err
		}
		if st.State == job.Failed {
			k.t.Fatalf("the job failed: %s", st.Reason)
		}
		if !st.State.Final() && st.Rows.Done < least {
			return fmt.Errorf("%s", text)
		}
		return nil
	})
	return st
}

// TestJobKills kills the server, a worker and the Temporal server with SIGKILL, 50 times, at random, during a job of 20,000
// rows. The manifest must have every row once, and the sum of an undisturbed run. With -short there are 3 kills and 1,200 rows.
// A job that ends before the last kill is followed by the next one, so every kill meets a job.
func TestJobKills(t *testing.T) {
	t.Parallel()
	kills, rows := 50, 20_000
	if testing.Short() {
		kills, rows = 3, 1200
	}
	repository, first := identities(t, "line", rows)
	first.ChunkRows = 100
	k := &killing{t: t, dir: t.TempDir()}
	k.common = []string{"--model-repository", repository, "--data-dir", k.dir, "--temporal-program", temporalProgram(t), "--job-chunks=1"}
	k.startServer()
	k.startWorker()
	another := func(id string) *job.Spec {
		spec := *first
		spec.ID, spec.Output.URI = id, filepath.Join(filepath.Dir(first.Output.URI), id)
		submitJob(t, k.at.http, &spec)
		return &spec
	}
	disturbed := []*job.Spec{another("disturbed-0")}
	random, count, since := rand.New(rand.NewPCG(1, 2)), [3]int{}, 0 // since is the first kill of the newest job
	for i := range kills {
		st := k.done(disturbed[len(disturbed)-1].ID, int64((i-since)*rows/(kills+1)))
		if st.State.Final() {
			disturbed, since = append(disturbed, another(fmt.Sprintf("disturbed-%d", len(disturbed)))), i
		}
		which := random.IntN(len(count))
		count[which]++
		k.kill(which)
	}
	for _, spec := range disturbed {
		st := k.done(spec.ID, int64(rows)+1)
		t.Logf("%s: %d chunks, %d retries", spec.ID, st.Chunks, st.Retries)
	}
	t.Logf("killed %v (server, worker, Temporal)", count)
	calm := another("calm")
	k.done(calm.ID, int64(rows)+1)
	want := manifest(t, calm)
	for _, spec := range disturbed {
		got := manifest(t, spec)
		if got.Sum != want.Sum || got.Rows.Done != int64(rows) || got.Rows.Failed != 0 {
			t.Errorf("%s: %+v with the sum %s, want %d rows and %s", spec.ID, got.Rows, got.Sum, rows, want.Sum)
		}
		inOrder(t, spec, got, rows)
	}
}

// inOrder checks that the parts of a job have the rows 0 to n-1, each once.
func inOrder(t *testing.T, spec *job.Spec, m job.Manifest, n int) {
	t.Helper()
	next := 0
	for _, p := range m.Parts {
		text, err := os.ReadFile(filepath.Join(spec.Output.URI, p.Path))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			var row struct{ OUTPUT0 int }
			if err := json.Unmarshal([]byte(line), &row); err != nil || row.OUTPUT0 != next {
				t.Fatalf("%s has %s instead of row %d: %v", p.Path, line, next, err)
			}
			next++
		}
	}
	if next != n {
		t.Errorf("the parts of %s have %d rows, want %d", spec.ID, next, n)
	}
}

// manifest reads the manifest of a job.
func manifest(t *testing.T, spec *job.Spec) (m job.Manifest) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(spec.Output.URI, "_manifest.json"))
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	if err != nil {
		t.Fatal(err)
	}
	return m
}
