package httpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"

	"github.com/tutti-server/tutti/core/job"
	"github.com/tutti-server/tutti/internal/identity"
	"github.com/tutti-server/tutti/internal/server/httpapi"
	"github.com/tutti-server/tutti/internal/server/servertest"
)

// jobsClient sends requests to a server with jobs, and checks every request that the server accepts and every response
// against the OpenAPI document that the server itself serves.
type jobsClient struct {
	t      *testing.T
	url    string
	router routers.Router
	header http.Header // of each request, besides its type
}

func newJobsClient(t *testing.T, jobs job.Service, change ...func(*httpapi.Settings)) *jobsClient {
	t.Helper()
	address, _ := listen(t, append(change, func(set *httpapi.Settings) { set.Jobs = jobs })...)
	c := &jobsClient{t: t, url: "http://" + address}
	loaded, err := openapi3.NewLoader().LoadFromData(c.raw(http.MethodGet, "/v2/jobs/openapi.json", "").body)
	if err != nil {
		t.Fatal(err)
	}
	if err := loaded.Validate(context.Background()); err != nil {
		t.Fatal(err)
	}
	loaded.Servers = openapi3.Servers{{URL: c.url}}
	if c.router, err = gorillamux.NewRouter(loaded); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *jobsClient) request(method, path, body string) *http.Request {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), method, c.url+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	maps.Copy(r.Header, c.header)
	r.Header.Set("Content-Type", "application/json")
	return r
}

// answer is a response whose body was read.
type answer struct {
	status int
	header http.Header
	body   []byte
}

func (c *jobsClient) raw(method, path, body string) answer {
	c.t.Helper()
	resp, err := client.Do(c.request(method, path, body))
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, all}
}

// do sends a request, wants a status, checks request and response, and stores the response in to if it is not nil.
func (c *jobsClient) do(method, path, body string, want int, to any) {
	c.t.Helper()
	got := c.raw(method, path, body)
	if got.status != want {
		c.t.Fatalf("%s %s: status %d, want %d: %s", method, path, got.status, want, got.body)
	}
	again := c.request(method, path, body)
	route, params, err := c.router.FindRoute(again)
	if err != nil {
		c.t.Fatalf("%s %s: %v", method, path, err)
	}
	in := &openapi3filter.RequestValidationInput{Request: again, Route: route, PathParams: params}
	if err := openapi3filter.ValidateRequest(c.t.Context(), in); err != nil && want < 300 {
		c.t.Errorf("%s %s: the document refuses a request that the server accepts: %v", method, path, err)
	}
	out := &openapi3filter.ResponseValidationInput{RequestValidationInput: in, Status: got.status, Header: got.header}
	if err := openapi3filter.ValidateResponse(c.t.Context(), out.SetBodyBytes(got.body)); err != nil {
		c.t.Errorf("%s %s: the response is not what the document says: %v", method, path, err)
	}
	if to == nil {
		return
	}
	d := json.NewDecoder(bytes.NewReader(got.body))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		c.t.Fatal(err)
	}
}

const order = `{"model":"text","input":{"uri":"in.jsonl"},"output":{"uri":"out","format":"parquet"},"columns":{"TEXT":"body"},"max_failed":3}`

// TestJobs sends each request of jobs, and compares it with the OpenAPI document.
// shows: jobs
func TestJobs(t *testing.T) {
	jobs := &servertest.Jobs{}
	c := newJobsClient(t, jobs)
	var first, second, got job.Status
	c.do(http.MethodPost, "/v2/jobs", order, 201, &first)
	if first.ID != "job-0" || first.State != job.Running || *first.Spec.MaxFailed != 3 || first.Spec.Columns["TEXT"] != "body" {
		t.Errorf("submitted %+v", first)
	}
	if got := c.raw(http.MethodPost, "/v2/jobs", order).header.Get("Location"); got != "/v2/jobs/job-1" {
		t.Errorf("Location is %q", got)
	}
	for _, step := range []struct {
		verb string
		want job.State
	}{{"pause", job.Paused}, {"resume", job.Running}, {"cancel", job.Cancelled}} {
		if c.do(http.MethodPost, "/v2/jobs/job-0/"+step.verb, "", 200, &got); got.State != step.want {
			t.Errorf("%s: state %s, want %s", step.verb, got.State, step.want)
		}
	}
	if c.do(http.MethodPost, "/v2/jobs/job-0/retry", "", 201, &second); second.ID != "job-2" || second.Spec.Model != "text" {
		t.Errorf("retried %+v", second)
	}
	if err := jobs.End("job-2"); err != nil {
		t.Fatal(err)
	}
	if c.do(http.MethodGet, "/v2/jobs/job-2", "", 200, &got); got.Rows.Failed != 2 || got.Ended.IsZero() {
		t.Errorf("status %+v", got)
	}
	var m job.Manifest
	if c.do(http.MethodGet, "/v2/jobs/job-2/result", "", 200, &m); len(m.Parts) != 1 || m.Parts[0].Errors != "failed-0.jsonl" {
		t.Errorf("manifest %+v", m)
	}
}

// TestJobPages walks through jobs and failed rows page by page.
func TestJobPages(t *testing.T) {
	jobs := &servertest.Jobs{}
	c := newJobsClient(t, jobs)
	for range 3 {
		c.do(http.MethodPost, "/v2/jobs", order, 201, nil)
	}
	if err := jobs.End("job-2"); err != nil {
		t.Fatal(err)
	}
	var page struct {
		Jobs []job.Status
		Next string
	}
	if c.do(http.MethodGet, "/v2/jobs?limit=2", "", 200, &page); len(page.Jobs) != 2 || page.Jobs[0].ID != "job-2" || page.Next != "job-1" {
		t.Errorf("first page %+v", page)
	}
	page.Next = ""
	if c.do(http.MethodGet, "/v2/jobs?limit=2&after=job-1", "", 200, &page); len(page.Jobs) != 1 || page.Jobs[0].ID != "job-0" || page.Next != "" {
		t.Errorf("second page %+v", page)
	}
	var rows struct {
		Rows []job.FailedRow
		Next *int64
	}
	if c.do(http.MethodGet, "/v2/jobs/job-2/failures?limit=1", "", 200, &rows); len(rows.Rows) != 1 || rows.Rows[0].Row != 1 || rows.Next == nil || *rows.Next != 2 {
		t.Errorf("first failures %+v", rows)
	}
	if c.do(http.MethodGet, "/v2/jobs/job-2/failures?row=2", "", 200, &rows); len(rows.Rows) != 1 || rows.Rows[0].Place != "in.jsonl:4" {
		t.Errorf("second failures %+v", rows)
	}
}

// TestWrongJobs sends requests that cannot be served. Each error names what is wrong.
func TestWrongJobs(t *testing.T) {
	c := newJobsClient(t, &servertest.Jobs{})
	c.do(http.MethodPost, "/v2/jobs", order, 201, nil)
	for _, bad := range []struct {
		method, path, body string
		status             int
		text               string
	}{
		{http.MethodPost, "/v2/jobs", `{"model":`, 400, "the job cannot be read: unexpected EOF"},
		{http.MethodPost, "/v2/jobs", `{"model":"text"} {}`, 400, "there is more behind the JSON object"},
		{http.MethodPost, "/v2/jobs", `{"modell":"text"}`, 400, `unknown field "modell"`},
		{http.MethodPost, "/v2/jobs", `{"model":7}`, 400, "cannot unmarshal number"},
		{http.MethodPost, "/v2/jobs", `{"input":{"uri":"a"},"output":{"uri":"b"}}`, 400, "names no model"},
		{http.MethodGet, "/v2/jobs/none", "", 404, "there is no job 'none'"},
		{http.MethodPost, "/v2/jobs/none/pause", "", 404, "there is no job 'none'"},
		{http.MethodPost, "/v2/jobs/job-0/retry", "", 400, "job 'job-0' is running, expected one that has ended"},
		{http.MethodGet, "/v2/jobs/job-0/result", "", 400, "expected a completed one"},
		{http.MethodGet, "/v2/jobs?limit=1001", "", 400, "the query parameter 'limit' is '1001', expected a number from 1 to 1000"},
		{http.MethodGet, "/v2/jobs/job-0/failures?row=x", "", 400, "the query parameter 'row' is 'x'"},
	} {
		var e struct{ Error string }
		if c.do(bad.method, bad.path, bad.body, bad.status, &e); !strings.Contains(e.Error, bad.text) {
			t.Errorf("%s %s %s: error %q, want %q", bad.method, bad.path, bad.body, e.Error, bad.text)
		}
	}
}

// TestNoJobs sends requests to a server without jobs, and to one whose Temporal is away.
func TestNoJobs(t *testing.T) {
	var e struct{ Error string }
	c := newJobsClient(t, nil)
	if c.do(http.MethodPost, "/v2/jobs", order, 501, &e); !strings.Contains(e.Error, "--jobs") {
		t.Errorf("error %q", e.Error)
	}
	c.do(http.MethodGet, "/v2/jobs/x", "", 501, nil)
	c = newJobsClient(t, &servertest.Jobs{Down: true})
	c.do(http.MethodPost, "/v2/jobs", order, 503, nil)
}

// TestJobPaths submits jobs whose datasets are in places that the server allows, and others.
func TestJobPaths(t *testing.T) {
	dir := t.TempDir()
	address, _ := listen(t, func(set *httpapi.Settings) { set.Jobs, set.JobPaths = &servertest.Jobs{}, job.Paths{dir} })
	open, _ := listen(t, func(set *httpapi.Settings) { set.Jobs = &servertest.Jobs{} })
	for _, tt := range []struct {
		address, input string
		header         [2]string
		want           int
	}{
		{address, dir + "/in.jsonl", [2]string{}, 201},
		{address, "/etc/passwd", [2]string{}, 400},
		{open, "/etc/passwd", [2]string{}, 201}, // a program of this machine can read it, too
		{open, "/etc/passwd", [2]string{"X-Forwarded-For", "192.0.2.1"}, 400},
		{open, "/etc/passwd", [2]string{"Sec-Fetch-Site", "same-origin"}, 201}, // the dashboard
		{open, "/etc/passwd", [2]string{"Sec-Fetch-Site", "cross-site"}, 403},  // a page of another site in a browser of this machine
		{open, "/etc/passwd", [2]string{"Origin", "https://example.com"}, 403},
		{open, "/etc/passwd", [2]string{"Host", "example.com"}, 400}, // a name of another site that leads to this machine
		{open, "/etc/passwd", [2]string{"Host", "localhost:8000"}, 201},
	} {
		body := `{"model":"text","input":{"uri":"` + tt.input + `"},"output":{"uri":"` + dir + `/out"}}`
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+tt.address+"/v2/jobs", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		switch name, value := tt.header[0], tt.header[1]; name {
		case "":
		case "Host":
			r.Host = value
		default:
			r.Header.Set(name, value)
		}
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != tt.want {
			t.Errorf("input %s, %q: status %d, want %d: %v, %s", tt.input, tt.header, resp.StatusCode, tt.want, err, text)
		}
	}
}

// lineWriter passes each line on to the test. One that the test does not receive holds the writer of the next.
type lineWriter chan string

func (w lineWriter) Write(p []byte) (int, error) {
	w <- string(p)
	return len(p), nil
}

// TestJobsAudit makes every change of jobs, and some that are refused, and looks for them in the audit log.
func TestJobsAudit(t *testing.T) {
	t.Parallel()
	const token, reader = "operator-0123456789abcdef", "reader-0123456789abcdef"
	file := filepath.Join(t.TempDir(), "auth.yaml")
	text := "roles:\n  operate: {apis: ['*']}\n  read: {apis: [metadata]}\ntokens:\n- {name: ops, env: OPS, roles: operate}\n- {name: ada, env: ADA, roles: read}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	lines := make(lineWriter, 1)
	guard, err := identity.Open(t.Context(), identity.Settings{
		File: file, Audit: identity.StandardError, Stderr: lines, Getenv: func(name string) string { return map[string]string{"OPS": token, "ADA": reader}[name] },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer guard.Close()
	address, _ := listen(t, func(set *httpapi.Settings) { set.Jobs, set.Guard = &servertest.Jobs{}, guard })
	send := func(token, method, path, body string) int {
		t.Helper()
		c := &jobsClient{t: t, url: "http://" + address, header: http.Header{"Authorization": {"Bearer " + token}}}
		return c.raw(method, path, body).status
	}
	for _, tt := range []struct {
		token, method, path, body string
		want                      string // who, action, object and outcome; empty for nothing
	}{
		{token, http.MethodPost, "/v2/jobs", order, "ops job.submit job-0 ok"},
		{token, http.MethodGet, "/v2/jobs", "", ""},
		{token, http.MethodGet, "/v2/jobs/job-0", "", ""},
		{token, http.MethodPost, "/v2/jobs/job-0/pause", "", "ops job.pause job-0 ok"},
		{token, http.MethodPost, "/v2/jobs/job-0/resume", "", "ops job.resume job-0 ok"},
		{token, http.MethodPost, "/v2/jobs/job-0/cancel", "", "ops job.cancel job-0 ok"},
		{token, http.MethodPost, "/v2/jobs/job-0/retry", "", "ops job.submit job-1 ok"},
		{token, http.MethodPost, "/v2/jobs", "{", "ops job.submit  failed"},
		{token, http.MethodPost, "/v2/jobs/none/cancel", "", "ops job.cancel none failed"},
		{token, http.MethodDelete, "/v2/jobs/requests/r1", "", "ops request.cancel r1 failed"}, // none are stored
		{reader, http.MethodPost, "/v2/jobs/job-1/cancel", "", "ada job.cancel job-1 refused"},
		{reader, http.MethodPost, "/v2/jobs", order, "ada job.submit  refused"},
		{"wrong", http.MethodPost, "/v2/jobs/job-1/pause", "", "anonymous job.pause job-1 refused"},
	} {
		code := send(tt.token, tt.method, tt.path, tt.body)
		got := ""
		if tt.want != "" {
			line := <-lines // which may be written after the response
			var e identity.Event
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			got = strings.Join([]string{e.Who, e.Action, e.Object, e.Outcome}, " ")
			if (e.Outcome == identity.OutcomeOK) != (code < 300) || e.Via != "http" || !strings.HasPrefix(e.From, "127.0.0.1:") || strings.Contains(line, "0123456789") {
				t.Errorf("%s %s: status %d, %s", tt.method, tt.path, code, line)
			}
		}
		if got != tt.want {
			t.Errorf("%s %s: status %d, '%s' in the audit log, want '%s'", tt.method, tt.path, code, got, tt.want)
		}
	}
}
