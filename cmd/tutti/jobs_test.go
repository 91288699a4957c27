package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tutti-server/tutti/core/job"
	"github.com/tutti-server/tutti/core/tensor/cuda/cudatest"
	"github.com/tutti-server/tutti/internal/addresstest"
	"github.com/tutti-server/tutti/internal/preparedtest"
	"github.com/tutti-server/tutti/internal/temporald"
)

// temporalProgram is the path of tutti-temporal.
func temporalProgram(t *testing.T) string {
	t.Helper()
	return preparedtest.Program(t, "temporal", "tutti-temporal")
}

// jobProcess is a server or worker as a process of its own.
type jobProcess struct {
	*exec.Cmd

	log *watch
}

// startProcess runs a command of tutti until it has started n services.
func startProcess(t *testing.T, n int, args ...string) (*jobProcess, addresses) {
	t.Helper()
	return startProcessIn(t, nil, n, args...)
}

// startProcessIn is startProcess with more environment variables.
func startProcessIn(t *testing.T, env []string, n int, args ...string) (*jobProcess, addresses) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &jobProcess{&exec.Cmd{Path: exe, Args: append([]string{"tutti"}, args...), Env: append(append(os.Environ(), "GORACE="+raceOptions), env...)}, newWatch()}
	p.Stdout, p.Stderr = p.log, p.log
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Process.Kill()
		_ = p.Wait()
		if t.Failed() {
			t.Logf("log of %q:\n%s", args[0], p.log)
		}
	})
	if !p.log.await(func(text string) bool { return len(startedLine.FindAllString(text, -1)) == n }) {
		t.Fatalf("tutti %q ended: %s", args, p.log)
	}
	var a addresses
	for _, m := range startedLine.FindAllStringSubmatch(p.log.String(), -1) {
		switch m[1] {
		case "HTTPService":
			a.http = m[2]
		case "GRPCInferenceService":
			a.grpc = m[2]
		case "Metrics Service":
			a.metrics = m[2]
		}
	}
	return p, a
}

// terminated sends SIGTERM and expects status 0.
func (p *jobProcess) terminated(t *testing.T) {
	t.Helper()
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
}

// identities makes a repository with a model that takes a millisecond per request, and a dataset of n rows for it.
func identities(t *testing.T, model string, n int) (repository string, spec *job.Spec) {
	t.Helper()
	repository = t.TempDir()
	files := map[string]string{
		filepath.Join(repository, model, "1", "file"): "",
		filepath.Join(repository, model, "config.pbtxt"): `backend: "identity" max_batch_size: 16
input { name: "INPUT0" data_type: TYPE_INT32 dims: 1 } output { name: "OUTPUT0" data_type: TYPE_INT32 dims: 1 }
parameters { key: "execute_delay_ms" value { string_value: "1" } }`,
	}
	data := t.TempDir()
	var rows strings.Builder
	for i := range n {
		fmt.Fprintf(&rows, "{\"INPUT0\":[%d]}\n", i)
	}
	files[filepath.Join(data, "rows.jsonl")] = rows.String()
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return repository, &job.Spec{
		ID: "one", Model: model, ChunkRows: 50,
		Input: job.Place{URI: filepath.Join(data, "rows.jsonl")}, Output: job.Place{URI: filepath.Join(data, "out")},
	}
}

// httpCall sends a request and returns the status code and the body.
func httpCall(ctx context.Context, method, url string, body any) (int, []byte, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return 0, nil, err
	}
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(text))
	if err != nil {
		return 0, nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	return resp.StatusCode, got, err
}

// repeated repeats a check until it passes.
func repeated(t *testing.T, what string, check func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for {
		err := check(ctx)
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("%s: %v", what, err)
		}
		<-time.After(50 * time.Millisecond)
	}
}

func submitJob(t *testing.T, address string, spec *job.Spec) {
	t.Helper()
	repeated(t, "submit", func(ctx context.Context) error {
		code, text, err := httpCall(ctx, http.MethodPost, "http://"+address+"/v2/jobs", spec)
		if err == nil && code/100 != 2 {
			err = fmt.Errorf("status %d: %s", code, text)
		}
		return err
	})
}

// reached waits until a job has this many finished chunks, or has ended.
func reached(t *testing.T, address, id string, chunks int64) (st job.Status) {
	t.Helper()
	repeated(t, "job "+id, func(ctx context.Context) error {
		_, text, err := httpCall(ctx, http.MethodGet, "http://"+address+"/v2/jobs/"+id, nil)
		if err != nil {
			return err
		}
		st = job.Status{}
		if err := json.Unmarshal(text, &st); err != nil {
			return err
		}
		if st.State == job.Failed {
			t.Fatalf("the job failed: %s", st.Reason)
		}
		if st.State != job.Completed && (chunks == 0 || st.Finished < chunks) {
			return fmt.Errorf("it is %s: %s", st.State, text)
		}
		return nil
	})
	return st
}

// TestJobsSurviveKills kills the Temporal server and then the server with SIGKILL during a job, and expects that it
// completes, and that a third server still has it.
func TestJobsSurviveKills(t *testing.T) {
	t.Parallel()
	const rows = 2000
	dir := t.TempDir()
	repository, spec := identities(t, "line", rows)
	args := append([]string{"serve", "--model-repository", repository, "--jobs=true", "--data-dir", dir, "--temporal-program", temporalProgram(t), "--job-chunks=1"}, freePorts...)
	p, a := startProcess(t, services, args...)
	submitJob(t, a.http, spec)
	reached(t, a.http, spec.ID, 2)
	pid, err := temporald.Owner(dir)
	if err != nil || pid <= 0 {
		t.Fatalf("process %d serves: %v", pid, err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	reached(t, a.http, spec.ID, 4)
	if now, err := temporald.Owner(dir); err != nil || now == pid {
		t.Errorf("process %d serves after %d was killed: %v", now, pid, err)
	}
	if err := p.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.Wait()

	p, a = startProcess(t, services, args...)
	st := reached(t, a.http, spec.ID, 0)
	if st.State != job.Completed || st.Rows.Done != rows || st.Rows.Failed != 0 {
		t.Errorf("the job is %+v, expected %d completed rows", st, rows)
	}
	p.terminated(t)
	if now, err := temporald.Owner(dir); err != nil || now != 0 {
		t.Errorf("process %d of Temporal is there after the server has ended: %v", now, err)
	}

	_, a = startProcess(t, services, args...)
	if again := reached(t, a.http, spec.ID, 0); again.Fingerprint != st.Fingerprint || again.Rows != st.Rows {
		t.Errorf("another server has the job as %+v, expected %+v", again, st)
	}
}

// TestWorker checks that a worker executes the jobs of a server that has not their model, on the same data directory, and
// that it has health and metrics only.
func TestWorker(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	repository, spec := identities(t, "elsewhere", 200)
	jobs := []string{"--data-dir", dir, "--temporal-program", temporalProgram(t)}
	server, a := startProcess(t, services, append(append([]string{"serve", "--model-repository", t.TempDir(), "--jobs=true"}, jobs...), freePorts...)...)
	worker, at := startProcess(t, 1, append([]string{"worker", "--model-repository", repository, "--metrics-address=127.0.0.1", "--metrics-port=0"}, jobs...)...)
	submitJob(t, a.http, spec)
	if st := reached(t, a.http, spec.ID, 0); st.Rows.Done != 200 {
		t.Errorf("the job is %+v, expected 200 rows", st)
	}
	for path, want := range map[string]int{"/v2/health/live": 200, "/v2/health/ready": 200, "/metrics": 200} {
		if code, _, err := httpCall(t.Context(), http.MethodGet, "http://"+at.metrics+path, nil); err != nil || code != want {
			t.Errorf("%s of the worker: status %d, %v; expected %d", path, code, err, want)
		}
	}
	if text := worker.log.String(); strings.Contains(text, "HTTPService") || strings.Contains(text, "GRPC") {
		t.Errorf("the worker serves requests: %s", text)
	}
	worker.terminated(t)
	server.terminated(t)
}

// TestJobAtGPU checks that a job for a GPU waits while only a model on the CPU is served, and is taken by a worker on a GPU.
func TestJobAtGPU(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	repository, spec := identities(t, "placed", 200)
	spec.Device = "gpu"
	jobs := []string{"--data-dir", dir, "--temporal-program", temporalProgram(t), "--model-repository", repository}
	server, a := startProcess(t, services, append(append([]string{"serve", "--jobs=true"}, jobs...), freePorts...)...)
	submitJob(t, a.http, spec)
	repeated(t, "the reason", func(ctx context.Context) error {
		_, text, err := httpCall(ctx, http.MethodGet, "http://"+a.http+"/v2/jobs/"+spec.ID, nil)
		if err == nil && !strings.Contains(string(text), "no worker has taken task queue 'tutti-placed/gpu'") {
			err = fmt.Errorf("the job is %s", text)
		}
		return err
	})
	worker, _ := startProcess(t, 1, append([]string{
		"worker", "--metrics-address=127.0.0.1", "--metrics-port=0", "--cuda-driver", cudatest.Library(t), "--backend-config=sim,all=true",
	}, jobs...)...)
	if st := reached(t, a.http, spec.ID, 0); st.Rows.Done != 200 {
		t.Errorf("the job is %+v, expected 200 rows", st)
	}
	worker.terminated(t)
	server.terminated(t)
}

// TestTemporalAway checks that a server without its Temporal server is ready, says why it has no jobs, and has them when
// the Temporal server is there.
func TestTemporalAway(t *testing.T) {
	t.Parallel()
	program := temporalProgram(t)
	address := addresstest.Unused(t)
	_, port, _ := net.SplitHostPort(address)
	repository, spec := identities(t, "line", 20)
	_, a := startProcess(t, services, append([]string{"serve", "--model-repository", repository, "--jobs=true", "--temporal-address", address}, freePorts...)...)
	if code, _, err := httpCall(t.Context(), http.MethodGet, "http://"+a.http+"/v2/health/ready", nil); err != nil || code != 200 {
		t.Errorf("the server is not ready without Temporal: status %d, %v", code, err)
	}
	code, text, err := httpCall(t.Context(), http.MethodPost, "http://"+a.http+"/v2/jobs", spec)
	if err != nil || code != http.StatusServiceUnavailable || !strings.Contains(string(text), "Temporal cannot be reached") {
		t.Errorf("a job without Temporal: status %d, %s, %v; expected 503 with the reason", code, text, err)
	}
	temporal := exec.CommandContext(t.Context(), program, "--data-dir", t.TempDir(), "--port", port)
	if err := temporal.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = temporal.Wait() }) // killed with the context
	submitJob(t, a.http, spec)
	if st := reached(t, a.http, spec.ID, 0); st.Rows.Done != 20 {
		t.Errorf("the job is %+v, expected 20 rows", st)
	}
}
