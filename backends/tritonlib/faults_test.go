//go:build cgo

package tritonlib_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/backendtest"
	"github.com/tutti-server/tutti/backends/tritonlib"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/logtest"
	"github.com/tutti-server/tutti/internal/telemetry"
)

// failure returns the error of the only request of a batch.
func failure(batch *backends.Batch, err error) error {
	if err != nil {
		return err
	}
	return batch.Requests[0].Err
}

// TestFaults checks that what a library does wrong is an error of the request, that names the fault, and that the next request works.
func TestFaults(t *testing.T) {
	t.Parallel()
	b := open(t, backends.Options{}, settings(t, "probe", integers))
	in := []backendtest.Value{int32s([]int64{1, 2}, 1, 2)}
	for _, tt := range []struct {
		what string
		code status.Code
		text string
	}{
		{"error", status.Unavailable, "the batch is refused"},
		{"nothing", status.Internal, "backend library 'probe' released the request without a final response"},
		{"twice", status.Internal, "expected a single response, got 2"},
		{"unknown output", status.Internal, "gives output 'ELSE', which the configuration does not have: expected 'OUT'"},
		{"short output", status.Internal, "a INT32 tensor of shape [1,2] has 8 bytes, its buffer has 7"},
		{"no buffer", status.Internal, "TRITONBACKEND_OutputBuffer was not called"},
		{"huge output", status.Internal, "TRITONBACKEND_OutputBuffer was not called"},
		{"crash", status.Unavailable, "the process of backend library 'probe' ended while it executed the request, and is started again: "},
		{"exit", status.Unavailable, "exit status 7"},
	} {
		_, batch, err := b.run(do{what: tt.what, in: in})
		if err := failure(batch, err); status.CodeOf(err) != tt.code || err == nil || !strings.Contains(err.Error(), tt.text) {
			t.Errorf("%s: %v error %v, want %v %q", tt.what, status.CodeOf(err), err, tt.code, tt.text)
		}
		out, batch, err := b.run(do{in: in})
		if err := failure(batch, err); err != nil || len(out[0][0].Data) != 8 {
			t.Fatalf("after %s: %v, %v", tt.what, out, err)
		}
	}
	for _, what := range []string{"after the end", "late"} { // the first response counts
		out, batch, err := b.run(do{what: what, in: in})
		if err := failure(batch, err); err != nil || len(out[0][0].Data) != 8 {
			t.Errorf("%s: %v, %v", what, out, err)
		}
	}
}

// TestCancel checks that a library learns that a request is cancelled.
func TestCancel(t *testing.T) {
	t.Parallel()
	b := open(t, backends.Options{}, settings(t, "probe", integers))
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(time.Millisecond, cancel)
	_, batch, err := b.run(do{what: "cancel", in: []backendtest.Value{int32s([]int64{1, 1}, 1)}, ctx: ctx})
	if err := failure(batch, err); status.CodeOf(err) != status.Cancelled {
		t.Errorf("%v, want it cancelled", err)
	}
}

// TestRecycle checks that a library that hangs is ended on request, with its requests failing by the given reason, and started again.
func TestRecycle(t *testing.T) {
	t.Parallel()
	printed := &logtest.Buffer{}
	s := settings(t, "probe", integers)
	s.Log = slog.New(slog.NewTextHandler(printed, nil))
	b := open(t, backends.Options{}, s)
	in := []backendtest.Value{int32s([]int64{1, 1}, 1)}
	r := backends.RecyclerOf(b.x)
	done := make(chan error, 1)
	batch := b.batch(do{what: "hang", in: in})
	go func() { done <- b.x.Execute(t.Context(), batch) }()
	for !strings.Contains(printed.String(), "hanging") {
		runtime.Gosched()
	}
	if !r.Recycle(errors.New("it hangs")) {
		t.Error("the process was not alive")
	}
	err := <-done
	tensor.ReleaseAll(batch.In)
	if err == nil || (status.CodeOf(err) != status.Unavailable || !strings.Contains(err.Error(), "it hangs")) {
		t.Errorf("%v", err)
	}
	if _, batch, err := b.run(do{in: in}); failure(batch, err) != nil {
		t.Errorf("afterwards: %v", failure(batch, err))
	}
	before := r.Resident()
	if _, batch, err := b.run(do{what: "grow", in: in}); failure(batch, err) != nil {
		t.Errorf("%v", failure(batch, err))
	}
	if after := r.Resident(); after-before < 200<<20 {
		t.Errorf("the process grew from %d to %d bytes, want 256 MiB more", before, after)
	}
}

// TestRefused checks the errors of libraries and models that cannot be loaded.
func TestRefused(t *testing.T) {
	t.Parallel()
	with := func(file string, data []byte) backends.Settings {
		s := settings(t, "probe", integers)
		path := filepath.Join(s.ModelDir, "libtriton_probe.so")
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if file != "" {
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return s
	}
	whole, err := os.ReadFile(library(t, "probe"))
	if err != nil {
		t.Fatal(err)
	}
	other := append([]byte(nil), whole...)
	other[18] = 8 // EM_MIPS
	for name, tt := range map[string]struct {
		s       backends.Settings
		options backends.Options
		code    status.Code
		text    string
	}{
		"no file":    {with("", nil), backends.Options{}, status.NotFound, "unable to find backend library for backend 'probe' of model 'm': expected 'libtriton_probe.so' in "},
		"text":       {with("x", []byte("not a library")), backends.Options{}, status.InvalidArg, "expected a shared library for linux/"},
		"empty":      {with("x", nil), backends.Options{}, status.InvalidArg, "expected a shared library for linux/"},
		"truncated":  {with("x", whole[:len(whole)/3]), backends.Options{}, status.InvalidArg, "expected a shared library for linux/"},
		"machine":    {with("x", other), backends.Options{}, status.InvalidArg, "EM_MIPS"},
		"calls":      {settings(t, "caller", integers), backends.Options{}, status.Unsupported, "needs calls that this server does not provide: TRITONBACKEND_FromTheFuture, TRITONSERVER_ServerInferAsync"},
		"setting":    {settings(t, "probe", integers), backends.Options{Others: map[string]map[string]string{"probe": {"refuse": "1"}}}, status.InvalidArg, "the setting 'refuse' is set"},
		"crash":      {settings(t, "probe", integers+` parameters { key: "crash_at_load" value { string_value: "1" } }`), backends.Options{}, status.Unavailable, "ended while it loaded"},
		"completion": {settings(t, "probe", `parameters { key: "bad_completion" value { string_value: "1" } }`), backends.Options{}, status.InvalidArg, "unexpected configuration from TRITONBACKEND_ModelSetConfig"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, err := tritonlib.NewFactory().New(tt.options)
			if err != nil {
				t.Fatal(err)
			}
			m, err := b.Load(t.Context(), tt.s)
			if err == nil {
				_ = m.Close()
			}
			if status.CodeOf(err) != tt.code || err == nil || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("%v error %v, want %v %q", status.CodeOf(err), err, tt.code, tt.text)
			}
		})
	}
}

// TestMetrics checks that the server exports the metrics of a library, and logs its lines.
func TestMetrics(t *testing.T) {
	t.Parallel()
	metrics := telemetry.NewMetrics()
	printed := &logtest.Buffer{}
	s := settings(t, "probe", integers)
	s.Log = slog.New(slog.NewTextHandler(printed, nil))
	b := open(t, backends.Options{Metrics: metrics, Others: map[string]map[string]string{"probe": {"flavour": "salt"}}}, s)
	for range 3 {
		if _, batch, err := b.run(do{in: []backendtest.Value{int32s([]int64{1, 1}, 1)}}); failure(batch, err) != nil {
			t.Fatal(failure(batch, err))
		}
	}
	want := func() bool {
		list, err := metrics.Gather()
		for _, f := range list {
			if err == nil && f.GetName() == "probe_requests_total" && f.GetMetric()[0].GetCounter().GetValue() == 3 {
				return true
			}
		}
		return false
	}
	for begin := time.Now(); !want(); { // notices come through a socket
		if time.Since(begin) > time.Minute {
			t.Fatal("the counter of the library is not 3")
		}
	}
	if text := printed.String(); !strings.Contains(text, `flavour`) || !strings.Contains(text, "probe.c:") {
		t.Errorf("the log lacks the line of the library: %s", text)
	}
}
