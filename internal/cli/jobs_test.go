package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tutti-server/tutti"
	"github.com/tutti-server/tutti/core/job"
	"github.com/tutti-server/tutti/internal/server/httpapi"
	"github.com/tutti-server/tutti/internal/server/servertest"
)

// jobsServer is the front end of a server with jobs that never progress by themselves.
func jobsServer(t *testing.T) (url string, jobs *servertest.Jobs) {
	t.Helper()
	jobs = &servertest.Jobs{}
	e := servertest.NewEcho()
	s := httptest.NewServer(httpapi.New(httpapi.Settings{Infer: e, Catalog: e, Jobs: jobs}))
	t.Cleanup(s.Close)
	return s.URL, jobs
}

// invoke runs a command and returns its status and what it printed.
func invoke(ctx context.Context, args ...string) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	code = Main(ctx, append([]string{"tutti"}, args...), &out, &err, tutti.Components{})
	return code, out.String(), err.String()
}

// TestJobsCommand submits a job with flags, looks at it and changes it.
func TestJobsCommand(t *testing.T) {
	url, jobs := jobsServer(t)
	run := func(want int, args ...string) string {
		t.Helper()
		code, out, errs := invoke(t.Context(), append([]string{"jobs", "--url", url}, args...)...)
		if code != want {
			t.Fatalf("tutti jobs %v: status %d, want %d: %s", args, code, want, errs)
		}
		return out + errs
	}
	out := run(0, "submit", "--model", "text", "--input", "in.jsonl", "--output", "s3://b/out", "--column", "TEXT=body", "--result", "Y=y", "--keep", "id", "--max-failed", "0", "--json")
	var st job.Status
	if err := json.Unmarshal([]byte(out), &st); err != nil {
		t.Fatal(err)
	}
	here, err := filepath.Abs("in.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	if s := &st.Spec; s.Input.URI != here || s.Output.URI != "s3://b/out" || s.Columns["TEXT"] != "body" || s.Results["Y"] != "y" || s.Keep[0] != "id" || *s.MaxFailed != 0 {
		t.Errorf("submitted %+v", st.Spec)
	}
	if out := run(0, "submit", "--model", "text", "--input", "a", "--output", "b"); out != "job-1\n" {
		t.Errorf("submit printed %q", out)
	}
	for verb, want := range map[string]string{"pause": "paused", "resume": "running", "cancel": "cancelled"} {
		if out := run(0, verb, "job-0", "-o", "json"); !strings.Contains(out, `"state": "`+want+`"`) {
			t.Errorf("%s -o json printed %q", verb, out)
		}
		if out := run(0, "show", "job-0"); !strings.Contains(out, "state     "+want+"\n") {
			t.Errorf("after %s: %s", verb, out)
		}
	}
	run(0, "cancel", "job-0")
	if out := run(1, "wait", "job-0"); !strings.Contains(out, "job-0 is cancelled\n") {
		t.Errorf("wait printed %q", out)
	}
	if err := jobs.End("job-1"); err != nil {
		t.Fatal(err)
	}
	if out := run(0, "wait", "job-1"); !strings.Contains(out, "job-1 completed: 4 rows, of which 2 failed") || !strings.Contains(out, "completed 100%, 4 of 4 rows, 2 failed\n") {
		t.Errorf("wait printed %q", out)
	}
	if out := run(0, "failures", "job-1"); !strings.Contains(out, "3\tin.jsonl:4\tInvalid argument: bad JSON\n") {
		t.Errorf("failures printed %q", out)
	}
	if out := run(0, "result", "job-1"); !strings.Contains(out, "part-0.jsonl  0          2     2       20     failed-0.jsonl\n") {
		t.Errorf("result printed %q", out)
	}
	if out := run(0, "retry", "job-1"); out != "job-2\n" {
		t.Errorf("retry printed %q", out)
	}
	if out := run(0, "list"); !strings.Contains(out, "job-1  text   completed  2/4") {
		t.Errorf("list printed %q", out)
	}
}

// TestSubmitAndWait checks that submit --wait goes on when the first request for the state of the new job fails.
func TestSubmitAndWait(t *testing.T) {
	jobs, e, asked := &servertest.Jobs{}, servertest.NewEcho(), 0
	api := httpapi.New(httpapi.Settings{Infer: e, Catalog: e, Jobs: jobs})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v2/jobs/job-0" {
			if asked++; asked == 1 {
				if err := jobs.End("job-0"); err != nil {
					t.Error(err)
				}
				http.Error(w, `{"error": "Temporal cannot be reached"}`, http.StatusServiceUnavailable)
				return
			}
		}
		api.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	code, out, errs := invoke(t.Context(), "jobs", "--url", s.URL, "submit", "--model", "text", "--input", "a", "--output", "b", "--wait")
	if code != 0 || asked < 2 || !strings.Contains(out+errs, "job-0 completed") {
		t.Errorf("status %d after %d questions: %s%s", code, asked, out, errs)
	}
}

// TestWrongJobsCommand makes mistakes. Each error says what was expected.
func TestWrongJobsCommand(t *testing.T) {
	url, _ := jobsServer(t)
	for _, bad := range []struct{ args, text string }{
		{"submit --model m --input a", "--output is missing"},
		{"submit --model m --input a --output b --column TEXT", "--column is 'TEXT', expected INPUT=COLUMN"},
		{"show", "expected the name of one job: tutti jobs show JOB"},
		{"explode job-0", "there is no command 'jobs explode'"},
		{"show none", "there is no job 'none'"},
		{"wait none", "there is no job 'none'"},
		{"list --url grpc://127.0.0.1:8001", "is a gRPC port"},
	} {
		code, _, errs := invoke(t.Context(), append([]string{"jobs", "--url", url}, strings.Fields(bad.args)...)...)
		if code == 0 || !strings.Contains(errs, bad.text) {
			t.Errorf("tutti jobs %s: status %d, %q, want %q", bad.args, code, errs, bad.text)
		}
	}
}
