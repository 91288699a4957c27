package otlp_test

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/internal/tracing"
	"github.com/tutti-server/tutti/internal/tracing/otlp"
	"github.com/tutti-server/tutti/internal/tracing/otlp/otlptest"
)

// keeper is a sink that keeps the first record.
type keeper struct {
	once sync.Once
	rec  tracing.Record
}

func (k *keeper) Trace(t *tracing.Trace) { k.once.Do(func() { t.Record().CopyTo(&k.rec) }) }
func (*keeper) Batch(*tracing.Batch)     {}

// jsonSpan is a span in the protocol's JSON form.
type jsonSpan struct {
	TraceID  string `json:"traceId"`
	SpanID   string `json:"spanId"`
	ParentID string `json:"parentSpanId"`
	Name     string `json:"name"`
	Kind     int    `json:"kind"`
	Start    string `json:"startTimeUnixNano"`
	End      string `json:"endTimeUnixNano"`
	Events   []struct {
		Name string `json:"name"`
	} `json:"events"`
	Links []struct {
		TraceID string `json:"traceId"`
		SpanID  string `json:"spanId"`
	} `json:"links"`
	Status struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"status"`
}

// TestJSON checks that a trace as JSON has the spans that the exporter sends of it: the same ids, parents, times, events and links.
func TestJSON(t *testing.T) {
	t.Parallel()
	r := otlptest.New(t)
	set, err := otlp.ParseSettings([][2]string{{"url", r.HTTP}, {"resource", "host.name=h"}, {"detail", "true"}}, func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	x, err := otlp.New(t.Context(), set, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	kept := &keeper{}
	tr, err := tracing.New(tracing.Options{
		Settings: tracing.Settings{Mode: tracing.ModeOpenTelemetry, Level: []string{"TIMESTAMPS"}, Rate: "0", Exporter: set.Shown()},
		Sinks:    []tracing.Sink{x, kept},
	})
	if err != nil {
		t.Fatal(err)
	}
	ensemble(tr)
	if err := errors.Join(tr.Close(), x.Close(context.Background())); err != nil {
		t.Fatal(err)
	}
	text, err := otlp.NewWriter(t.Context(), set, x).JSON(t.Context(), &kept.rec)
	if err != nil {
		t.Fatal(err)
	}
	var data struct {
		ResourceSpans []struct {
			Resource   json.RawMessage `json:"resource"`
			ScopeSpans []struct {
				Scope struct {
					Name string `json:"name"`
				} `json:"scope"`
				Spans []jsonSpan `json:"spans"`
			} `json:"scopeSpans"`
		} `json:"resourceSpans"`
	}
	if err := json.Unmarshal(text, &data); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	if len(data.ResourceSpans) != 1 || len(data.ResourceSpans[0].ScopeSpans) != 1 || data.ResourceSpans[0].ScopeSpans[0].Scope.Name != "triton-server" ||
		!strings.Contains(string(data.ResourceSpans[0].Resource), `"host.name"`) {
		t.Fatalf("%s", text)
	}
	got := map[string]jsonSpan{}
	for _, s := range data.ResourceSpans[0].ScopeSpans[0].Spans {
		got[s.SpanID] = s
	}
	id := kept.rec.ID.String()
	sent := 0
	for _, s := range r.Spans {
		root := r.Span(t, "InferRequest", "b7ad6b7169203331")
		if hex.EncodeToString(s.GetTraceId()) != id || s.GetName() == "InferRequest" && string(s.GetSpanId()) != string(root.GetSpanId()) {
			continue // a batch
		}
		j, ok := got[hex.EncodeToString(s.GetSpanId())]
		if !ok {
			continue // the other request of the trace
		}
		sent++
		want := jsonSpan{
			TraceID: id, SpanID: hex.EncodeToString(s.GetSpanId()), ParentID: hex.EncodeToString(s.GetParentSpanId()), Name: s.GetName(), Kind: int(s.GetKind()),
			Start: decimal(s.GetStartTimeUnixNano()), End: decimal(s.GetEndTimeUnixNano()), Events: j.Events, Links: j.Links,
		}
		want.Status.Code, want.Status.Message = int(s.GetStatus().GetCode()), s.GetStatus().GetMessage()
		if diff := cmp.Diff(want, j); diff != "" {
			t.Errorf("%s (-sent +JSON):\n%s", s.GetName(), diff)
		}
		if len(j.Events) != len(s.GetEvents()) || len(j.Links) != len(s.GetLinks()) {
			t.Errorf("%s has %d events and %d links, sent were %d and %d", s.GetName(), len(j.Events), len(j.Links), len(s.GetEvents()), len(s.GetLinks()))
		}
		for i, l := range s.GetLinks() {
			if j.Links[i].TraceID != hex.EncodeToString(l.GetTraceId()) || j.Links[i].SpanID != hex.EncodeToString(l.GetSpanId()) {
				t.Errorf("%s links to %+v, sent was %v", s.GetName(), j.Links[i], l)
			}
		}
	}
	if sent != len(got) || sent != 11 {
		t.Errorf("%d spans of the JSON were sent, it has %d: %s", sent, len(got), text)
	}
}

func decimal(n uint64) string { return strconv.FormatUint(n, 10) }
