package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/internal/cli"
	"github.com/tutti-server/tutti/internal/inspect"
)

// dashboardAPI reads one response of the dashboard's API.
func dashboardAPI(t *testing.T, a addresses, path string, into any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+a.http+"/ui/api/"+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", path, resp.Status, err)
	}
}

// TestWhy checks the breakdown of each request's time for an ensemble of real models, with clients of both
// protocols: the parts add up to the request's duration, which is at most the time that its client waited.
func TestWhy(t *testing.T) {
	t.Parallel()
	requireRuntime(t)
	requireText(t)
	a := serve(t, "--model-repository="+filepath.Join(examplesDir, "text"), "--trace-store-every=1", "--trace-store-rate=0")
	h := client.NewHTTP("http://"+a.http, nil)
	t.Cleanup(func() { _ = h.Close() })
	g := dialGRPC(t, a.grpc)
	t.Cleanup(func() { _ = g.Close() })
	const requests = 40
	var waited [requests]time.Duration
	var wg sync.WaitGroup
	for i := range requests {
		wg.Go(func() {
			c := client.Client(h)
			if i%2 == 0 {
				c = g
			}
			began := time.Now()
			_, err := c.Infer(context.Background(), &client.Request{
				Model: "ensemble", ID: strconv.Itoa(i), Inputs: []client.Tensor{client.Text("TEXT", []int64{1, 1}, "why is the sky blue")},
			})
			if waited[i] = time.Since(began); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	var list inspect.TraceList
	for len(list.Traces) < requests { // the trace of the last request may not have ended yet
		dashboardAPI(t, a, "traces?model=ensemble&limit=100", &list)
	}
	for i := range list.Traces {
		var v inspect.TraceView
		dashboardAPI(t, a, "traces/"+list.Traces[i].ID, &v)
		checkSplit(t, a, &v)
		n, err := strconv.Atoi(v.Request)
		if err != nil || time.Duration(v.DurationNs) > waited[n] {
			t.Errorf("request '%s' took %d ns of the %d ns its client waited", v.Request, v.DurationNs, waited[n])
		}
	}
}

// checkSplit checks the parts of a trace, and that the trace is listed by its batches.
func checkSplit(t *testing.T, a addresses, v *inspect.TraceView) {
	t.Helper()
	at, kinds := int64(0), map[string]bool{}
	for _, p := range v.Split {
		if p.StartNs != at || p.Ns <= 0 {
			t.Errorf("a part begins at %d, expected %d: %+v", p.StartNs, at, v.Split)
		}
		at += p.Ns
		kinds[p.Kind] = true
	}
	if at != v.DurationNs || !kinds["receive"] || !kinds["compute"] || !kinds["native"] || !kinds["encode"] {
		t.Errorf("the parts are %d ns of %d: %v", at, v.DurationNs, kinds)
	}
	for _, s := range v.Spans {
		var b inspect.BatchView
		dashboardAPI(t, a, "batches/"+strconv.FormatUint(s.Batch, 10), &b)
		if b.Model != s.Model || b.Rows != s.BatchRows || b.Members != s.Members {
			t.Errorf("step %+v is of batch %+v", s, b)
		}
	}
}

// TestExemplars checks that a latency bucket's exemplar names the trace of a request in that bucket.
func TestExemplars(t *testing.T) {
	t.Parallel()
	requireRuntime(t)
	a := serve(t, "--model-repository="+filepath.Join(examplesDir, "digits"), "--trace-store-every=1", "--trace-store-rate=0")
	c := client.NewHTTP("http://"+a.http, nil)
	t.Cleanup(func() { _ = c.Close() })
	list, err := cli.ReadExamples(filepath.Join(examplesDir, "digits"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Infer(t.Context(), &list[0].Request); err != nil {
		t.Fatal(err)
	}
	// The trace ends after the response is sent, so the first reading may be too early.
	bucket := regexp.MustCompile(`(?m)^ensemble_latency_seconds_bucket\{.*model="digits".* # \{trace_id="([0-9a-f]{32})"\}`)
	var found [][]byte
	for found == nil {
		found = bucket.FindSubmatch(openMetrics(t, a))
	}
	var v inspect.TraceView
	dashboardAPI(t, a, "traces/"+string(found[1]), &v)
	if v.Model != "digits" || v.Steps == 0 {
		t.Errorf("the exemplar's trace is %+v", v)
	}
}

// openMetrics reads the metrics in OpenMetrics format, which has exemplars.
func openMetrics(t *testing.T, a addresses) []byte {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+a.metrics+"/metrics", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return body
}
