package main

import (
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/client"
)

// pastView is the part of the history that tests read; a value that is not known is nil.
type pastView struct {
	StepUs int64      `json:"step_us"`
	Steps  int        `json:"steps"`
	Stored bool       `json:"stored"`
	Cores  []*float64 `json:"cores"`
	Models []struct {
		Name   string     `json:"name"`
		Rate   []*float64 `json:"rate"`
		Errors []*float64 `json:"error_rate"`
	} `json:"models"`
}

// TestHistory checks that the figures of a server outlive it in its data folder: the next server at the same port has the requests of the
// one before, and a damaged file does not keep it from serving.
func TestHistory(t *testing.T) {
	t.Parallel()
	repository, data := t.TempDir(), filepath.Join(t.TempDir(), "data")
	const odd = "<b>odd & long</b>"
	dir := filepath.Join(repository, "twice")
	if err := os.MkdirAll(filepath.Join(dir, "1"), 0o700); err != nil {
		t.Fatal(err)
	}
	config := `backend: "identity" max_batch_size: 8 input { name: "INPUT0" data_type: TYPE_FP32 dims: [ 1 ] } output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 1 ] }`
	if err := os.WriteFile(filepath.Join(dir, "config.pbtxt"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	args := append([]string{"serve", "--model-repository", repository, "--data-dir", data}, freePorts...)
	p, a := startProcess(t, 3, args...)
	h := client.NewHTTP("http://"+a.http, nil)
	defer func() { _ = h.Close() }()
	for range 10 {
		if _, err := h.Infer(t.Context(), &client.Request{Model: "twice", Inputs: []client.Tensor{client.Of("INPUT0", []int64{1, 1}, float32(1))}}); err != nil {
			t.Fatal(err)
		}
	}
	p.terminated(t)

	p, a = startProcess(t, 3, args...)
	var v pastView
	dashboardAPI(t, a, "history?model=twice", &v)
	if n := sumOver(&v, v.Models[0].Rate); !v.Stored || len(v.Models) != 1 || n == 0 || len(v.Cores) != v.Steps {
		t.Errorf("the next server knows of %v requests: %+v", n, v)
	}
	dashboardAPI(t, a, "history?model="+url.QueryEscape(odd), &v)
	if v.Models[0].Name != odd || sumOver(&v, v.Models[0].Rate) != 0 {
		t.Errorf("a name that no model has: %+v", v.Models)
	}
	for query, want := range map[string]string{"steps=x": "expected a whole number", "steps=1001": "expected 1 to 1000", "top=21": "expected 1 to 20", "range=1": "unknown query parameter 'range'"} {
		code, body := fetchPage(t, "http://"+a.http+"/ui/api/history?"+query)
		if code != http.StatusBadRequest || !strings.Contains(body, want) {
			t.Errorf("%s: %d, %s", query, code, body)
		}
	}
	p.terminated(t)

	files, err := filepath.Glob(filepath.Join(data, "history-*.db"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	if err := os.WriteFile(files[0], []byte(strings.Repeat("no database ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	p, a = startProcess(t, 3, args...)
	dashboardAPI(t, a, "history", &v)
	if text := p.log.String(); !strings.Contains(text, "is damaged") || !strings.Contains(text, files[0]+".damaged") {
		t.Errorf("the log says nothing of the damaged file %s", files[0])
	}
	p.terminated(t)
}

// sumOver returns how many requests a rate means.
func sumOver(v *pastView, rate []*float64) (n float64) {
	for _, r := range rate {
		if r != nil {
			n += *r * float64(v.StepUs) / 1e6
		}
	}
	return n
}

// fetchPage returns the status and the body of a page.
func fetchPage(t *testing.T, address string) (code int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}
