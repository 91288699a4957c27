package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/core/job"
)

// TestJobRidesAlong checks that the rows of a job execute in free places of batches of online requests, and only there while an online
// request of another model is in flight.
func TestJobRidesAlong(t *testing.T) {
	t.Parallel()
	repository, first := identities(t, "line", 16)
	config := filepath.Join(repository, "line", "config.pbtxt")
	text, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	if err = os.WriteFile(config, append(text, "\ndynamic_batching {}\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	endless, second := identities(t, "endless", 200)
	second.ID, second.Model = "two", "line"
	config = filepath.Join(endless, "endless", "config.pbtxt")
	if text, err = os.ReadFile(config); err != nil {
		t.Fatal(err)
	}
	if err = os.WriteFile(config, []byte(strings.Replace(string(text), `"1"`, `"600000"`, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	_, a := startProcess(t, services, append([]string{
		"serve", "--model-repository", repository, "--model-repository", endless, "--jobs=true", "--data-dir", t.TempDir(),
		"--temporal-program", temporalProgram(t),
	}, freePorts...)...)
	submitJob(t, a.http, first)
	if st := reached(t, a.http, first.ID, 0); st.Rows.Done != 16 {
		t.Fatalf("without online requests the job is %+v, expected 16 rows", st)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { _, _, _ = rideCall(ctx, a.http, "endless") }()
	repeated(t, "the endless request", func(ctx context.Context) error {
		_, text, err := httpCall(ctx, http.MethodGet, "http://"+a.metrics+"/metrics", nil)
		if err == nil && !strings.Contains(string(text), "\nensemble_requests_running 1\n") {
			err = fmt.Errorf("it is not executed: %s", text)
		}
		return err
	})
	_, before := executions(t, a.http)
	submitJob(t, a.http, second)
	sent := int64(0)
	repeated(t, "job two", func(ctx context.Context) error {
		for range 100 {
			if code, text, err := rideCall(ctx, a.http, "line"); err != nil || code != http.StatusOK {
				return fmt.Errorf("status %d, %w: %s", code, err, text)
			}
			sent++
		}
		_, text, err := httpCall(ctx, http.MethodGet, "http://"+a.http+"/v2/jobs/"+second.ID, nil)
		var st job.Status
		if err == nil {
			err = json.Unmarshal(text, &st)
		}
		if err == nil && st.State != job.Completed {
			err = fmt.Errorf("after %d online requests it is %s", sent, text)
		}
		return err
	})
	rows, after := executions(t, a.http)
	if after-before != sent {
		t.Errorf("%d executions for %d online requests: the job had batches of its own", after-before, sent)
	}
	if want := sent + 16 + 200; rows < want {
		t.Errorf("%d rows were executed, expected at least %d", rows, want)
	}
}

// rideCall sends a request of one row.
func rideCall(ctx context.Context, address, model string) (int, []byte, error) {
	return httpCall(ctx, http.MethodPost, "http://"+address+"/v2/models/"+model+"/infer",
		map[string]any{"inputs": []any{map[string]any{"name": "INPUT0", "datatype": "INT32", "shape": []int{1, 1}, "data": []int{7}}}})
}

// executions returns how many rows the model 'line' has executed, and in how many batches.
func executions(t *testing.T, address string) (rows, batches int64) {
	t.Helper()
	_, text, err := httpCall(t.Context(), http.MethodGet, "http://"+address+"/v2/models/line/stats", nil)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Stats []struct {
			Inferences int64 `json:"inference_count"`
			Executions int64 `json:"execution_count"`
		} `json:"model_stats"`
	}
	if err = json.Unmarshal(text, &got); err != nil || len(got.Stats) != 1 {
		t.Fatalf("%v: %s", err, text)
	}
	return got.Stats[0].Inferences, got.Stats[0].Executions
}
