package servertest

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/tracing"
)

// Traced traces the requests of an Inferer and attaches the trace to their responses, as the repository and the executor do.
type Traced struct {
	infer.Inferer
	Tracer *tracing.Tracer
	file   string
}

// NewTraced returns a Traced that traces every request.
func NewTraced(t *testing.T, i infer.Inferer) *Traced {
	t.Helper()
	file := filepath.Join(t.TempDir(), "trace.json")
	tracer, err := tracing.New(tracing.Options{Settings: tracing.Settings{Level: []string{"TIMESTAMPS"}, Rate: "1", File: file}})
	if err != nil {
		t.Fatal(err)
	}
	return &Traced{i, tracer, file}
}

// Submit implements infer.Inferer.
func (s *Traced) Submit(ctx context.Context, req *infer.Request, sink infer.Sink) {
	// The request itself holds no trace: these models release it after its end.
	traced := tracedSink{sink, s.Tracer.Sample(req.Model, 1, req.ID)}
	traced.trace.SetOrigin(&req.Origin)
	if p, ok := sink.(infer.Pacer); ok {
		s.Inferer.Submit(ctx, req, tracedPacer{traced, p})
		return
	}
	s.Inferer.Submit(ctx, req, traced)
}

type tracedSink struct {
	infer.Sink
	trace *tracing.Trace
}

func (s tracedSink) Send(r *infer.Response) {
	r.Trace = s.trace.Hold()
	s.Sink.Send(r)
}

func (s tracedSink) Close(err error) {
	s.trace.End()
	s.Sink.Close(err)
}

type tracedPacer struct {
	tracedSink
	pacer infer.Pacer
}

func (s tracedPacer) Pace(ctx context.Context) error { return s.pacer.Pace(ctx) }

// Full implements infer.Pacer.
func (s tracedPacer) Full() bool { return s.pacer.Full() }

// Stamps ends tracing and returns the names of each request's timestamps, in order.
func (s *Traced) Stamps(t *testing.T) map[string][]string {
	t.Helper()
	if err := s.Tracer.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(s.file)
	if err != nil {
		t.Fatal(err)
	}
	var list []struct {
		ID         int
		Request    string `json:"request_id"`
		Timestamps []struct{ Name string }
	}
	if err := json.Unmarshal(b, &list); err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	ids, stamps := map[int]string{}, map[string][]string{}
	for _, e := range list {
		if e.Timestamps == nil {
			ids[e.ID] = e.Request
			stamps[e.Request] = []string{}
		}
		for _, s := range e.Timestamps {
			stamps[ids[e.ID]] = append(stamps[ids[e.ID]], s.Name)
		}
	}
	return stamps
}
