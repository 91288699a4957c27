package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/internal/cli"
	"github.com/tutti-server/tutti/internal/inspect"
)

// perfettoFile is what the test reads of a trace in Chrome's format.
type perfettoFile struct {
	TraceEvents []struct {
		Name string         `json:"name"`
		Ph   string         `json:"ph"`
		Ts   float64        `json:"ts"`
		Dur  float64        `json:"dur"`
		Pid  int            `json:"pid"`
		Tid  int            `json:"tid"`
		Args map[string]any `json:"args"`
	} `json:"traceEvents"`
}

// TestTraceExport checks a trace of a real request in the forms for other programs, by the API and by tutti why, and its link to another program.
func TestTraceExport(t *testing.T) {
	t.Parallel()
	requireRuntime(t)
	a := serve(t, "--model-repository="+filepath.Join(examplesDir, "digits"), "--trace-store-every=1", "--trace-store-rate=0",
		"--dashboard-trace-link=Jaeger=https://jaeger.example/trace/{trace}?from={start_ms}")
	c := client.NewHTTP("http://"+a.http, nil)
	t.Cleanup(func() { _ = c.Close() })
	list, err := cli.ReadExamples(filepath.Join(examplesDir, "digits"))
	if err != nil {
		t.Fatal(err)
	}
	list[0].Request.ID = "exported"
	if _, err := c.Infer(t.Context(), &list[0].Request); err != nil {
		t.Fatal(err)
	}
	var found inspect.TraceList
	for len(found.Traces) == 0 { // the trace ends after the response is sent
		dashboardAPI(t, a, "traces?request=exported", &found)
	}
	var v inspect.TraceView
	dashboardAPI(t, a, "traces/"+found.Traces[0].ID, &v)
	if want := fmt.Sprintf("https://jaeger.example/trace/%s?from=%d", v.ID, v.StartUs/1000); len(v.Links) != 1 || v.Links[0] != (inspect.LinkView{Name: "Jaeger", URL: want}) {
		t.Errorf("links %+v, want %s", v.Links, want)
	}
	checkPerfetto(t, a, &v)
	checkOTLP(t, a, &v)
	var help struct{ Error string }
	if code := failingAPI(t, a, "traces/"+v.ID+"?as=svg", &help); code != http.StatusBadRequest || help.Error != "query parameter 'as' is 'svg', expected json, text, otlp or perfetto" {
		t.Errorf("%d %s", code, help.Error)
	}
	for _, as := range []string{"otlp", "perfetto"} {
		if code := failingAPI(t, a, "traces/00000000000000000000000000000001?as="+as, &help); code != http.StatusNotFound || help.Error == "" {
			t.Errorf("%s of no trace: %d %s", as, code, help.Error)
		}
	}
}

// failingAPI reads an error of the dashboard's API.
func failingAPI(t *testing.T, a addresses, path string, into any) int {
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
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode
}

// printed returns what tutti why prints of a trace in a format.
func printed(t *testing.T, a addresses, format, id string) []byte {
	t.Helper()
	var out bytes.Buffer
	if code := cli.Main(t.Context(), []string{"tutti", "why", "--url", "http://" + a.http, "-o", format, id}, &out, &out, components()); code != 0 {
		t.Fatalf("exit %d: %s", code, out.Bytes())
	}
	return out.Bytes()
}

// checkPerfetto checks that the slices of each track are inside of each other, as viewers need it, and that the parts of the request are all of it.
func checkPerfetto(t *testing.T, a addresses, v *inspect.TraceView) {
	t.Helper()
	var f, same perfettoFile
	dashboardAPI(t, a, "traces/"+v.ID+"?as=perfetto", &f)
	if err := json.Unmarshal(printed(t, a, "perfetto", "exported"), &same); err != nil || len(same.TraceEvents) != len(f.TraceEvents) {
		t.Errorf("tutti why prints %d events, %v", len(same.TraceEvents), err)
	}
	type slice struct{ from, to float64 }
	tracks, names, parts := map[[2]int][]slice{}, []string{}, 0.0
	for _, e := range f.TraceEvents {
		switch e.Ph {
		case "M":
			if e.Name == "thread_name" {
				names = append(names, e.Args["name"].(string))
			}
		case "X":
			if e.Pid == 1 && e.Tid == 1 && e.Args["text"] != nil {
				parts += e.Dur
			}
			at := [2]int{e.Pid, e.Tid}
			tracks[at] = append(tracks[at], slice{e.Ts, e.Ts + e.Dur})
		case "I":
			if e.Ts < float64(v.StartUs)-1 {
				t.Errorf("%+v is before the request", e)
			}
		default:
			t.Errorf("unknown phase %+v", e)
		}
	}
	if len(names) != 1+2*len(v.Spans) || !slices.Contains(names, "request") {
		t.Errorf("the tracks are %q, of %d steps", names, len(v.Spans))
	}
	if took := float64(v.DurationNs) / 1e3; parts < took-0.01 || parts > took+0.01 {
		t.Errorf("the parts are %f us of %f us", parts, took)
	}
	const rounding = 0.5 // microseconds since 1970 have 53 bits
	for at, list := range tracks {
		for i, x := range list {
			for _, y := range list[:i] {
				if x.from < y.to-rounding && y.from < x.to-rounding && (x.from < y.from-rounding || x.to > y.to+rounding) {
					t.Errorf("track %v: %+v overlaps %+v", at, x, y)
				}
			}
		}
	}
}

// checkOTLP checks the ids of the spans, and that each span but those of devices is inside of its parent.
func checkOTLP(t *testing.T, a addresses, v *inspect.TraceView) {
	t.Helper()
	type span struct {
		TraceID  string `json:"traceId"`
		SpanID   string `json:"spanId"`
		ParentID string `json:"parentSpanId"`
		Name     string
		Start    uint64 `json:"startTimeUnixNano,string"`
		End      uint64 `json:"endTimeUnixNano,string"`
	}
	var data, same struct {
		ResourceSpans []struct {
			ScopeSpans []struct{ Spans []span }
		}
	}
	dashboardAPI(t, a, "traces/"+v.ID+"-"+v.Span+"?as=otlp", &data)
	if err := json.Unmarshal(printed(t, a, "otlp", v.ID), &same); err != nil || len(same.ResourceSpans) != 1 {
		t.Errorf("tutti why prints %+v, %v", same, err)
	}
	spans := map[string]span{}
	for _, s := range data.ResourceSpans[0].ScopeSpans[0].Spans {
		spans[s.SpanID] = s
	}
	steps := 0
	for _, s := range spans {
		p, ok := spans[s.ParentID]
		switch {
		case s.TraceID != v.ID:
			t.Errorf("%+v is of another trace than %s", s, v.ID)
		case s.Name == "InferRequest":
			if s.SpanID != v.Span || s.End-s.Start != uint64(v.DurationNs) || ok {
				t.Errorf("the request is %+v, want %s of %d ns", s, v.Span, v.DurationNs)
			}
		case ok && s.Name == "device": // which executes after its step has given it the work
		case !ok || s.Start < p.Start || s.End > p.End:
			t.Errorf("%+v is not inside of %+v", s, p)
		}
		if slices.ContainsFunc(v.Spans, func(x inspect.StepView) bool { return x.Span == s.SpanID && x.Model == s.Name }) {
			steps++
		}
	}
	if steps != len(v.Spans) {
		t.Errorf("%d of %d steps are spans: %+v", steps, len(v.Spans), spans)
	}
}
