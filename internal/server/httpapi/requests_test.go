package httpapi_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/job"
	"github.com/tutti-server/tutti/internal/server/httpapi"
	"github.com/tutti-server/tutti/internal/server/servertest"
)

const laterBody = `{"inputs":[{"name":"X","shape":[2],"datatype":"FP32","data":[1,2]}]}`

// laterClient is a client of a server that executes requests later, when replay is called.
func laterClient(t *testing.T, requests *servertest.Requests, change ...func(*httpapi.Settings)) (*jobsClient, *httpapi.Server) {
	t.Helper()
	var replay *httpapi.Server
	c := newJobsClient(t, &servertest.Jobs{}, func(set *httpapi.Settings) {
		if requests != nil {
			set.Requests = requests
		}
		for _, one := range change {
			one(set)
		}
		replay = httpapi.New(*set)
	})
	return c, replay
}

// TestRequests sends each request of asynchronous inference, and compares it with the OpenAPI document.
// shows: respond-async
func TestRequests(t *testing.T) {
	requests := &servertest.Requests{}
	c, replay := laterClient(t, requests, func(set *httpapi.Settings) { set.Forward = regexp.MustCompile("(?i)^my_") })
	const infers = "/v2/models/echo/infer"
	want := c.raw(http.MethodPost, infers, laterBody)
	c.header = http.Header{"Prefer": {"respond-async"}, "Authorization": {"Bearer secret"}, "My_tenant": {"a"}, "Callback-Url": {"https://hooks.example.com"}}
	var st job.RequestStatus
	c.do(http.MethodPost, infers, laterBody, http.StatusAccepted, &st)
	if st.ID != "request-0" || st.State != job.Queued || st.Callback.URL != "https://hooks.example.com" {
		t.Errorf("submitted %+v", st)
	}
	stored, err := requests.Stored(st.ID)
	if err != nil {
		t.Fatal(err)
	}
	if stored.Header.Get("Authorization") != "" || stored.Header.Get("My_tenant") != "a" || stored.Header.Get("Content-Type") == "" || string(stored.Body) != laterBody {
		t.Errorf("stored %+v", stored)
	}
	c.do(http.MethodGet, st.StatusURL, "", http.StatusOK, &st)
	c.do(http.MethodGet, st.ResultURL, "", http.StatusConflict, nil)
	if got := c.raw(http.MethodGet, st.ResultURL, "").header.Get("Retry-After"); got != "1" {
		t.Errorf("Retry-After is %q", got)
	}
	if err := requests.Run(st.ID, replay.Replay); err != nil {
		t.Fatal(err)
	}
	c.do(http.MethodGet, st.ResultURL, "", http.StatusOK, nil)
	if got := c.raw(http.MethodGet, st.ResultURL, ""); string(got.body) != string(want.body) || got.header.Get("Content-Length") != want.header.Get("Content-Length") {
		t.Errorf("result %s, want %s", got.body, want.body)
	}
	c.do(http.MethodDelete, st.StatusURL, "", http.StatusOK, &st)

	c.do(http.MethodPost, "/v2/models/fail/infer", laterBody, http.StatusAccepted, &st)
	if err := requests.Run(st.ID, replay.Replay); err != nil {
		t.Fatal(err)
	}
	got := c.raw(http.MethodGet, st.ResultURL, "")
	c.header = nil
	if want := c.raw(http.MethodPost, "/v2/models/fail/infer", laterBody); got.status != want.status || string(got.body) != string(want.body) || got.header.Get("Content-Type") != want.header.Get("Content-Type") {
		t.Errorf("a failed request has the result %d, %s; want %d, %s", got.status, got.body, want.status, want.body)
	}
	c.header = http.Header{"Prefer": {"respond-async"}}
	c.do(http.MethodPost, infers, laterBody, http.StatusAccepted, &st)
	c.do(http.MethodDelete, st.StatusURL, "", http.StatusOK, &st)
	if st.State != job.RequestCancelled {
		t.Errorf("cancelled %+v", st)
	}
	if again := c.raw(http.MethodDelete, "/v2/jobs/openapi.json", ""); again.status != http.StatusMethodNotAllowed {
		t.Errorf("DELETE of the document: status %d", again.status)
	}
}

// TestWrongRequests sends asynchronous requests that are refused: each has the response that it has without the preference.
func TestWrongRequests(t *testing.T) {
	requests := &servertest.Requests{}
	c, _ := laterClient(t, requests, func(set *httpapi.Settings) { set.MaxInput = 1000 })
	for path, body := range map[string]string{
		"/v2/models/none/infer":            laterBody,
		"/v2/models/unready/infer":         laterBody,
		"/v2/models/repeat/infer":          laterBody, // decoupled
		"/v2/models/echo/versions/9/infer": laterBody,
		"/v2/models/echo/infer":            `{"inputs":[{"name":"X","shape":[3],"datatype":"FP32","data":[1,2]}]}`,
		"/v2/models/two/infer":             laterBody[:20],
		"/v2/models/ensemble/infer":        laterBody + strings.Repeat(" ", 1000),
	} {
		c.header = nil
		want := c.raw(http.MethodPost, path, body)
		c.header = http.Header{"Prefer": {"respond-async, wait=1"}}
		got := c.raw(http.MethodPost, path, body)
		if want.status < 400 || got.status != want.status || string(got.body) != string(want.body) || got.header.Get("Content-Type") != want.header.Get("Content-Type") || got.header.Get("Preference-Applied") != "" {
			t.Errorf("%s: %d, %s, %v; want %d, %s, %v", path, got.status, got.body, got.header, want.status, want.body, want.header)
		}
	}
	c.header = nil
	c.do(http.MethodGet, "/v2/jobs/requests/none", "", http.StatusNotFound, nil)
	c.do(http.MethodGet, "/v2/jobs/requests/none/result", "", http.StatusNotFound, nil)
	c.do(http.MethodDelete, "/v2/jobs/requests/none", "", http.StatusNotFound, nil)
	c, _ = laterClient(t, &servertest.Requests{Down: true})
	c.header = http.Header{"Prefer": {"respond-async"}}
	c.do(http.MethodPost, "/v2/models/echo/infer", laterBody, http.StatusServiceUnavailable, nil)
	if got := c.raw(http.MethodPost, "/v2/models/echo/infer", laterBody); got.header.Get("Retry-After") != "1" {
		t.Errorf("without Temporal: %d, %v, %s", got.status, got.header, got.body)
	}
	c.do(http.MethodGet, "/v2/jobs/requests/x", "", http.StatusServiceUnavailable, nil)
}

// TestNoRequests sends the preference to a server without jobs, which ignores it, and to one whose jobs are restricted.
func TestNoRequests(t *testing.T) {
	c, _ := laterClient(t, nil)
	want := c.raw(http.MethodPost, "/v2/models/echo/infer", laterBody)
	c.header = http.Header{"Prefer": {"respond-async"}, "Callback-Url": {"https://a.example"}}
	if got := c.raw(http.MethodPost, "/v2/models/echo/infer", laterBody); got.status != http.StatusOK || string(got.body) != string(want.body) || got.header.Get("Preference-Applied") != "" {
		t.Errorf("without jobs: %d, %s, %v", got.status, got.body, got.header)
	}
	c.do(http.MethodGet, "/v2/jobs/requests/x", "", http.StatusNotImplemented, nil)
	c.do(http.MethodGet, "/v2/jobs/requests/x/result", "", http.StatusNotImplemented, nil)

	address, _ := listen(t, func(set *httpapi.Settings) {
		set.Requests = &servertest.Requests{}
		set.Restricted = []infer.Restriction{{APIs: []infer.API{infer.APIJobs}, Key: "k", Value: "v"}}
	})
	c = &jobsClient{t: t, url: "http://" + address, header: http.Header{"Prefer": {"respond-async"}}}
	if got := c.raw(http.MethodPost, "/v2/models/echo/infer", laterBody); got.status != http.StatusAccepted {
		t.Errorf("a client that may infer: %d, %s", got.status, got.body)
	}
	for _, path := range []string{"/v2/jobs/requests/request-0", "/v2/jobs/requests/request-0/result"} {
		if got := c.raw(http.MethodGet, path, ""); got.status != http.StatusForbidden {
			t.Errorf("%s without the header: %d, %s", path, got.status, got.body)
		}
	}
	c.header.Set("k", "v")
	if got := c.raw(http.MethodGet, "/v2/jobs/requests/request-0", ""); got.status != http.StatusOK {
		t.Errorf("with the header: %d, %s", got.status, got.body)
	}
}
