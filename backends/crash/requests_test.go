package crash_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/crash"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/tracing/capture"
)

// TestRequests checks that the second end of a process by the same inputs is reported and captured once, and that others are not.
func TestRequests(t *testing.T) {
	t.Parallel()
	store := capture.New(capture.Settings{Bytes: 1 << 20, RequestBytes: 1 << 20})
	var text bytes.Buffer
	repeated := 0
	r := crash.New(crash.Settings{
		Signature: &config.Signature{Model: "m", Version: 3, Inputs: []config.Port{{Name: "IN"}}},
		Log:       slog.New(slog.NewTextHandler(&text, nil)), Captures: store, Repeated: func() { repeated++ },
	})
	pool := tensor.NewPool()
	ends := func(requests int, v float32) {
		in, err := tensor.New(pool, tensor.FP32, tensor.Of(1))
		if err != nil {
			t.Fatal(err)
		}
		defer in.Release()
		tensor.Slice[float32](&in)[0] = v
		b := &backends.Batch{In: []tensor.Tensor{in}, Requests: make([]backends.Request, requests)}
		b.Requests[0].Meta = &infer.Meta{ID: "r"}
		r.Ended(t.Context(), b, "signal: killed\nby a test")
	}
	ends(1, 1)
	ends(1, 2)
	ends(2, 1)
	ends(2, 1)
	if r.Report() != "" || repeated != 0 || text.Len() != 0 {
		t.Fatalf("report %q, %d repeated, log %q before the same request ended a process again", r.Report(), repeated, text.String())
	}
	ends(1, 1)
	ends(1, 1)
	_, id, found := strings.Cut(r.Report(), " are captured as ")
	if !found || !strings.Contains(r.Report(), "has ended the process of an instance 2 times: signal: killed") || repeated != 2 {
		t.Fatalf("report %q, %d repeated; want the request and its capture, and 2", r.Report(), repeated)
	}
	list, err := store.Tensors(id, false)
	if err != nil {
		t.Fatal(err)
	}
	if list.Model != "m" || list.Version != 3 || list.Request != "r" || list.Status != "crashed" || len(list.List) != 1 || list.List[0].Tensor != "IN" || !list.List[0].HasContent {
		t.Errorf("the capture is %+v", list)
	}
	if all := store.Captures(); len(all.Captures) != 1 || len(all.Captures[0].Snapshots) != 1 {
		t.Errorf("captures %+v, want one with one request", all)
	}
	if got := text.String(); strings.Count(got, "again and again") != 2 || !strings.Contains(got, "captured="+id) {
		t.Errorf("the log is %s", got)
	}
}
