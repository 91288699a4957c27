package exec_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/tracing"
	"github.com/tutti-server/tutti/pipeline/plan"
	"github.com/tutti-server/tutti/scheduler/dynamic"
)

// tracer returns a tracer of every request, and a function that closes it and returns the trace file: per trace a
// line with the names of its timestamps, which must not decrease.
func tracer(t *testing.T) (*tracing.Tracer, func() []string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "trace")
	tr, err := tracing.New(tracing.Options{Settings: tracing.Settings{Level: []string{"TIMESTAMPS"}, Rate: "1", File: file}})
	if err != nil {
		t.Fatal(err)
	}
	return tr, func() []string {
		if err := tr.Close(); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return summary(t, b)
	}
}

func summary(t *testing.T, b []byte) []string {
	t.Helper()
	var members []struct {
		Model      string `json:"model_name"`
		Version    int    `json:"model_version"`
		Parent     int    `json:"parent_id"`
		Request    string `json:"request_id"`
		Timestamps []struct {
			Name string
			NS   int64
		}
	}
	if err := json.Unmarshal(b, &members); err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	var lines []string
	last := int64(0)
	for _, m := range members {
		if m.Model != "" {
			lines = append(lines, fmt.Sprintf("%s/%d id=%s parent=%d", m.Model, m.Version, m.Request, m.Parent))
			last = 0
			continue
		}
		s := m.Timestamps[0]
		if s.NS < last {
			t.Errorf("%s is %d ns before what goes before it", s.Name, last-s.NS)
		}
		last = s.NS
		lines[len(lines)-1] += " " + s.Name
	}
	return lines
}

func TestTrace(t *testing.T) {
	t.Parallel()
	const compute = " COMPUTE_START COMPUTE_INPUT_END COMPUTE_OUTPUT_START COMPUTE_END"
	broken := model(func(*backends.Batch) error { return errors.New("out of luck") })
	b := newBench(t)
	sig, ensemble := signature("m", 1, 8), signature("e", 1, 8)
	queued := b.batching(sig, dynamic.Rules{MaxBatch: 8}, model(share))
	tests := []struct {
		name, model string
		x           infer.Inferer
		want        []string
	}{
		{
			"model", "m", b.executor(plan.Single(sig), queued),
			[]string{"m/1 id=r parent=0 REQUEST_START QUEUE_START" + compute + " INFER_RESPONSE_COMPLETE REQUEST_END"},
		},
		{
			"ensemble", "e", b.executor(chain(2, ensemble), queued, b.inline(sig, share)),
			[]string{
				"e/1 id=r parent=0 REQUEST_START QUEUE_START INFER_RESPONSE_COMPLETE REQUEST_END",
				"e/1 id=r parent=1 REQUEST_START QUEUE_START" + compute + " REQUEST_END",
				"e/1 id=r parent=1 REQUEST_START QUEUE_START" + compute + " REQUEST_END",
			},
		},
		{
			"failing step", "e", b.executor(chain(2, ensemble), b.inline(sig, broken), queued),
			[]string{
				"e/1 id=r parent=0 REQUEST_START QUEUE_START INFER_RESPONSE_COMPLETE REQUEST_END",
				"e/1 id=r parent=1 REQUEST_START QUEUE_START REQUEST_END",
			},
		},
		{
			"failing model", "m", b.executor(plan.Single(sig), b.inline(sig, broken)),
			[]string{"m/1 id=r parent=0 REQUEST_START QUEUE_START INFER_RESPONSE_COMPLETE REQUEST_END"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tr, read := tracer(t)
			req := b.request(1)
			req.ID = "r"
			req.Trace = tr.Sample(tt.model, 0, req.ID)
			_, err := inferOne(t, tt.x, req)
			if failing := strings.HasPrefix(tt.name, "failing"); failing != (err != nil) {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, read()); diff != "" {
				t.Errorf("traces (-want +got):\n%s", diff)
			}
		})
	}
}

// TestTraceOfRefused checks the trace of a request that never starts.
func TestTraceOfRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	sig := signature("m", 1, 8)
	tr, read := tracer(t)
	req := b.request(1)
	req.Inputs[0].Name = "OTHER"
	req.Trace = tr.Sample("m", 1, "")
	if _, err := inferOne(t, b.executor(plan.Single(sig), b.inline(sig, share)), req); err == nil {
		t.Fatal("a wrong input is not refused")
	}
	if diff := cmp.Diff([]string{"m/1 id= parent=0 REQUEST_START INFER_RESPONSE_COMPLETE REQUEST_END"}, read()); diff != "" {
		t.Errorf("traces (-want +got):\n%s", diff)
	}
}

// TestTraceOfDecoupled checks the trace when a response is still being sent after its request has ended.
func TestTraceOfDecoupled(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tr, read := tracer(t)
	x := decoupled(b, false, count)
	req := b.request(2)
	req.Trace = tr.Sample("m", 1, "")
	s := &responseList{done: make(chan error, 1)}
	x.Submit(t.Context(), req, s)
	if err := <-s.done; err != nil {
		t.Fatal(err)
	}
	for i, r := range s.responses {
		r.Trace.Stamp(tracing.GRPCSendEnd, int64(1)<<62+int64(i))
		r.Release()
	}
	want := []string{
		"m/1 id= parent=0 REQUEST_START QUEUE_START COMPUTE_START COMPUTE_INPUT_END INFER_RESPONSE_COMPLETE INFER_RESPONSE_COMPLETE" +
			" COMPUTE_OUTPUT_START COMPUTE_END REQUEST_END GRPC_SEND_END GRPC_SEND_END",
	}
	got := read()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("traces (-want +got):\n%s", diff)
	}
}

// responseList is a sink that keeps the responses.
type responseList struct {
	responses []*infer.Response
	done      chan error
}

func (k *responseList) Send(r *infer.Response) { k.responses = append(k.responses, r) }
func (k *responseList) Close(err error)        { k.done <- err }
