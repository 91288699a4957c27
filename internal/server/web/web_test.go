package web_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/inspect"
	"github.com/tutti-server/tutti/internal/server/web"
	"github.com/tutti-server/tutti/internal/tracing"
)

// fakeStore is an Inspector and Overview that records the query.
type fakeStore struct {
	query    inspect.TraceQuery
	sampling inspect.Sampling
}

func (s *fakeStore) Traces(q *inspect.TraceQuery) (*inspect.TraceList, error) {
	s.query = *q
	return &inspect.TraceList{Traces: []inspect.TraceSummary{{ID: "1"}, {ID: "2"}}, Newest: 7}, nil
}

func (*fakeStore) FindTrace(id string) (*inspect.TraceView, error) {
	if id == "none" {
		return nil, status.Errorf(status.NotFound, "there is none")
	}
	return &inspect.TraceView{
		TraceSummary: inspect.TraceSummary{ID: id, Model: "m", DurationNs: 1000, Status: "ok"},
		Split:        []inspect.PartView{{Kind: "compute", Ns: 1000, Text: "computing"}},
	}, nil
}

func (s *fakeStore) FindRecord(id string) (*tracing.Record, error) {
	if v, err := s.FindTrace(id); err != nil {
		return nil, fmt.Errorf("%v: %w", v, err)
	}
	return &tracing.Record{Model: "m"}, nil
}

func (*fakeStore) FindBatch(id uint64) (*inspect.BatchView, error) {
	return &inspect.BatchView{BatchSummary: inspect.BatchSummary{ID: id}}, nil
}

func (*fakeStore) Timeline(q *inspect.TimelineQuery) *inspect.TimelineView {
	t := inspect.NewTimeline(q, 0)
	t.Add(&tracing.Batch{Model: "m", Execution: tracing.Execution{Batch: 7, Start: q.FromUs * 1000, End: q.ToUs * 1000}})
	return t.View()
}

func (s *fakeStore) Sampling() inspect.Sampling { return s.sampling }

func (s *fakeStore) SetSampling(set inspect.Sampling) error { s.sampling = set; return nil }

func (*fakeStore) Server() *inspect.ServerView { return &inspect.ServerView{Name: "server"} }

func (*fakeStore) Models() []inspect.ModelView { return []inspect.ModelView{{Name: "m"}} }

func (*fakeStore) Graph(model string, version int64) (*inspect.GraphView, error) {
	return &inspect.GraphView{Model: model, Version: version}, nil
}

// send returns the status and body of the response.
func send(h http.Handler, method, path, body string, header ...string) (int, string) {
	r := httptest.NewRequest(method, "http://localhost"+path, strings.NewReader(body))
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// TestAPI checks status and body of every endpoint, with and without rights.
func TestAPI(t *testing.T) {
	t.Parallel()
	limited := []infer.Restriction{{APIs: []infer.API{infer.APIStatistics}, Key: "key", Value: "value"}}
	const bearer = "Authorization"
	tests := []struct {
		method, path, body string
		header             []string
		code               int
		want               string
	}{
		{"GET", "/ui/api/server", "", nil, 200, `"name":"server"`},
		{"GET", "/ui/api/session", "", nil, 200, `{"token":true,"admitted":false}`},
		{"GET", "/ui/api/session", "", []string{bearer, "Bearer t"}, 200, `{"token":true,"admitted":true}`},
		{"GET", "/ui/api/models", "", nil, 403, "expecting header 'key'"},
		{"GET", "/ui/api/models", "", []string{"key", "value"}, 200, `{"models":[{"name":"m"`},
		{"GET", "/ui/api/graph/m?version=3", "", nil, 200, `{"model":"m","version":3`},
		{"GET", "/ui/api/graph/m?version=x", "", nil, 400, "error"},
		{"GET", "/ui/api/traces/1", "", nil, 200, `"id":"1"`},
		{"GET", "/ui/api/traces/none", "", nil, 404, `{"error":"there is none"}`},
		{"GET", "/ui/api/traces/1?as=text", "", nil, 200, "trace 1: m version 0, ok, 1µs\n         1µs 100.0% ########## compute   computing\n"},
		{"GET", "/ui/api/traces/1?as=xml", "", nil, 400, "expected json, text, otlp or perfetto"},
		{"GET", "/ui/api/traces/1?as=otlp", "", nil, 503, "not written as OTLP"},
		{"GET", "/ui/api/traces/1?as=perfetto", "", nil, 200, `"traceEvents":[`},
		{"GET", "/ui/api/batches/9", "", nil, 200, `"id":9`},
		{"GET", "/ui/api/batches/-9", "", nil, 400, "expected a number"},
		{"GET", "/ui/api/models/m/examples", "", nil, 200, `{"examples":[]}`},
		{"GET", "/ui/api/timeline?from_us=1&to_us=2", "", nil, 200, `"runs":[{"id":7,"lane":0,"start_ns":0,`},
		{"GET", "/ui/api/timeline?from_us=2&to_us=2", "", nil, 400, "the timeline from 2 to 2 is empty, expected from_us before to_us"},
		{"GET", "/ui/api/timeline?from_us=x", "", nil, 400, "query parameter 'from_us' is 'x'"},
		{"GET", "/ui/api/timeline?to_us=9223372036854775807", "", nil, 400, "expected a whole number from 0 to"},
		{"GET", "/ui/api/timeline?limit=4097", "", nil, 400, "expected 1 to 4096"},
		{"PUT", "/ui/api/sampling", `{"every":5}`, nil, 403, "Authorization: Bearer TOKEN"},
		{"PUT", "/ui/api/sampling", `{"every":5}`, []string{bearer, "Bearer no"}, 403, "Authorization: Bearer TOKEN"},
		{"PUT", "/ui/api/sampling", `{"every":5}`, []string{bearer, "Bearer t"}, 200, `{"failed":true,"slow":false,"every":5}`},
		{"PUT", "/ui/api/sampling", `{"every":-5}`, []string{bearer, "Bearer t"}, 400, "invalid sampling"},
		{"PUT", "/ui/api/sampling", `{"more":1}`, []string{bearer, "Bearer t"}, 400, "invalid sampling"},
		{"PUT", "/ui/api/sampling", strings.Repeat(" ", 100_000), []string{bearer, "Bearer t"}, 400, "invalid sampling"},
		{"POST", "/ui/api/models/m/load", "", []string{bearer, "Bearer t"}, 501, "not loaded here"},
		{"GET", "/ui/api/", "", nil, 404, "no such address"},
		{"DELETE", "/ui/api/server", "", nil, 404, "no such address"},
		{"GET", "/ui/", "", nil, 404, ""},
	}
	for _, tt := range tests {
		t.Run(tt.method+" "+tt.path+" "+strings.Join(tt.header, ":"), func(t *testing.T) {
			t.Parallel()
			x := &fakeStore{sampling: inspect.Sampling{Failed: true}}
			s := web.New(web.Settings{Inspector: x, Overview: x, Token: "t", Restricted: limited})
			defer s.Close()
			code, body := send(s, tt.method, tt.path, tt.body, tt.header...)
			if code != tt.code || !strings.Contains(body, tt.want) {
				t.Errorf("%d %s, expected %d %s", code, body, tt.code, tt.want)
			}
		})
	}
}

// TestQuery checks that every query parameter is read and that invalid ones are refused.
func TestQuery(t *testing.T) {
	t.Parallel()
	x := &fakeStore{}
	s := web.New(web.Settings{Inspector: x, Overview: x})
	code, body := send(s, "GET", "/ui/api/traces?request=r&trace=t&model=m&status=ok&retained=slow&min_ns=1&max_ns=2&from_us=3&to_us=4&param=p&value=v&limit=5&cursor=6&after=7", "")
	want := inspect.TraceQuery{
		Request: "r", TraceID: "t", Model: "m", Status: "ok", Retained: "slow", MinNs: 1, MaxNs: 2, FromUs: 3, ToUs: 4, Param: "p", Value: "v", Limit: 5, Cursor: 6, After: 7,
	}
	if diff := cmp.Diff(want, x.query); diff != "" || code != 200 {
		t.Errorf("%d %s (-want +got):\n%s", code, body, diff)
	}
	for _, q := range []string{"limit=x", "cursor=-1", "min_ns=1.5", "unknown=1"} {
		if code, body := send(s, "GET", "/ui/api/traces?"+q, ""); code != 400 {
			t.Errorf("%s: %d %s", q, code, body)
		}
	}
	if code, body := send(web.New(web.Settings{Overview: x}), "GET", "/ui/api/traces", ""); code != 503 {
		t.Errorf("without a store: %d %s", code, body)
	}
}

// TestEvents checks the first events of a stream, and that closing the server ends the stream.
func TestEvents(t *testing.T) {
	t.Parallel()
	x := &fakeStore{}
	s := web.New(web.Settings{Inspector: x, Overview: x})
	h := httptest.NewServer(s)
	defer h.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, h.URL+"/ui/api/events", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	var names []string
	for len(names) < 4 {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if name, ok := strings.CutPrefix(line, "event: "); ok {
			names = append(names, strings.TrimSpace(name))
		} else if data, ok := strings.CutPrefix(line, "data: "); ok && !json.Valid([]byte(data)) {
			t.Errorf("no JSON: %s", data)
		}
	}
	if diff := cmp.Diff([]string{"server", "models", "trace", "trace"}, names); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	s.Close()
	if _, err := io.Copy(io.Discard, lines); err != nil {
		t.Error(err)
	}
}
