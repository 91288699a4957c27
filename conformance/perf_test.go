package conformance_test

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"
)

const (
	// perfLimit bounds one run of perf_analyzer, which takes seconds.
	perfLimit = 5 * time.Minute
	// perfRuns is the number of attempts. With --request-count, perf_analyzer sometimes hangs after all its
	// requests are complete.
	perfRuns = 3
	// perfRequests is the number of requests of a run.
	perfRequests = 100
)

// TestPerfAnalyzer checks that perf_analyzer, with its users' usual options, measures the server.
// shows: perf_analyzer
func TestPerfAnalyzer(t *testing.T) { //nolint:tparallel // each run has the server for itself
	t.Parallel()
	folder := perfPackages.require(t)
	m := newModels(t)
	at := serve(t, m, append([]string{"--allow-client-shm=true", "--model-control-mode=explicit", "--strict-readiness=false"}, m.loads...)...)
	const windows = "--measurement-mode=count_windows"
	tests := []struct {
		name string
		grpc bool
		args []string
	}{
		{"HTTP closed loop", false, []string{"-m", "two", "--concurrency-range=1:2", windows, "--measurement-request-count=50", "-s", "100000", "-r", "10"}},
		{"gRPC closed loop", true, []string{"-m", "two", "--concurrency-range=1:2", windows, "--measurement-request-count=50", "-s", "100000", "-r", "10"}},
		{"HTTP request rate", false, []string{"-m", "two", "--request-rate-range=100"}},
		{"gRPC request rate", true, []string{"-m", "two", "--request-rate-range=100"}},
		{"HTTP poisson rate", false, []string{"-m", "two", "--request-rate-range=100", "--request-distribution=poisson"}},
		{"HTTP shared memory", false, []string{"-m", "two", "--shared-memory=system", "--concurrency-range=2"}},
		{"gRPC shared memory", true, []string{"-m", "two", "--shared-memory=system", "--concurrency-range=2"}},
		{"HTTP shared memory at a rate", false, []string{"-m", "two", "--shared-memory=system", "--request-rate-range=100"}},
		{"gRPC shared memory at a rate", true, []string{"-m", "two", "--shared-memory=system", "--request-rate-range=100"}},
		{"HTTP batches", false, []string{"-m", "two", "-b", "4", "--async", "--concurrency-range=2"}},
		{"gRPC streaming", true, []string{"-m", "two", "--streaming", "--concurrency-range=2"}},
		{"gRPC decoupled", true, []string{"-m", "square_int32", "--streaming", "--input-data=testdata/square.json", "--concurrency-range=2"}},
		{"HTTP JSON tensors", false, []string{"-m", "two", "--input-tensor-format=json", "--output-tensor-format=json", "--concurrency-range=1"}},
		{"HTTP strings", false, []string{"-m", "words", "--shape=INPUT0:3", "--concurrency-range=1"}},
		{"gRPC ensemble", true, []string{"-m", "chain", "--concurrency-range=1"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			args := append([]string{"-i", "http", "-u", at.http}, tt.args...)
			if tt.grpc {
				args[1], args[3] = "grpc", at.grpc
			}
			if !slices.Contains(args, windows) {
				args = append(args, "--request-count="+strconv.Itoa(perfRequests))
			}
			analyze(t, folder, at, args)
		})
	}
}

var (
	throughput = regexp.MustCompile(`Throughput: ([0-9.]+) infer/sec`)
	failures   = regexp.MustCompile(`(?i)failed|error`)
)

func analyze(t *testing.T, folder string, at addresses, args []string) {
	t.Helper()
	model := args[slices.Index(args, "-m")+1]
	var out []byte
	var err error
	var answered int
	for run := range perfRuns {
		before := successes(t, at, model)
		out, err = analyzeOnce(t, folder, args)
		if answered = successes(t, at, model) - before; err == nil || run == perfRuns-1 || answered < perfRequests {
			break
		}
		t.Logf("perf_analyzer %q hangs though its requests are answered", args)
	}
	found := throughput.FindAllSubmatch(out, -1)
	if err != nil || len(found) == 0 || failures.Match(out) {
		t.Fatalf("perf_analyzer %q ended with %v after %d responses:\n%s", args, err, answered, out)
	}
	for _, m := range found {
		if rate, err := strconv.ParseFloat(string(m[1]), 64); err != nil || rate <= 0 {
			t.Errorf("throughput %s, want more than 0", m[1])
		}
	}
}

// analyzeOnce runs perf_analyzer and kills it if it hangs.
func analyzeOnce(t *testing.T, folder string, args []string) ([]byte, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), perfLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(folder, "bin", "perf_analyzer"), args...)
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+filepath.Join(folder, "lib"))
	return cmd.CombinedOutput()
}

// successes returns the number of successful requests for a model.
func successes(t *testing.T, at addresses, model string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+at.http+"/v2/models/"+model+"/stats", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var all struct {
		Stats []struct {
			Inference struct {
				Success struct{ Count int }
			} `json:"inference_stats"`
		} `json:"model_stats"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&all); err != nil || len(all.Stats) != 1 {
		t.Fatalf("statistics of %s: %+v, %v", model, all, err)
	}
	return all.Stats[0].Inference.Success.Count
}
