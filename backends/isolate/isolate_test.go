//go:build cgo

package isolate_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/backendtest"
	"github.com/tutti-server/tutti/backends/isolate"
	"github.com/tutti-server/tutti/backends/onnx"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/logtest"
	"github.com/tutti-server/tutti/internal/preparedtest"
	"github.com/tutti-server/tutti/internal/tracing/capture"
)

func factory() backends.Factory { return isolate.Around(onnx.NewFactory())[0] }

func options(tb testing.TB) backends.Options {
	tb.Helper()
	return backends.Options{Config: map[string]string{"library-path": preparedtest.Runtime(tb, "onnxruntime")}, Isolate: true, Log: slog.New(slog.DiscardHandler)}
}

// field encodes a message, a text or a number of the ONNX format.
func field(n protowire.Number, v any) []byte {
	switch v := v.(type) {
	case int:
		return protowire.AppendVarint(protowire.AppendTag(nil, n, protowire.VarintType), uint64(v)) //nolint:gosec // positive
	case string:
		return protowire.AppendString(protowire.AppendTag(nil, n, protowire.BytesType), v)
	default:
		return protowire.AppendBytes(protowire.AppendTag(nil, n, protowire.BytesType), v.([]byte))
	}
}

// divModel is an ONNX model c = a / b of INT32 [n]: -2^31 / -1 ends a process that runs it.
func divModel() []byte {
	port := func(name string) []byte {
		shape := field(2, field(1, field(2, "n")))
		return slices.Concat(field(1, name), field(2, field(1, slices.Concat(field(1, 6), shape))))
	}
	node := slices.Concat(field(1, "a"), field(1, "b"), field(2, "c"), field(4, "Div"))
	graph := slices.Concat(field(1, node), field(2, "div"), field(11, port("a")), field(11, port("b")), field(12, port("c")))
	return slices.Concat(field(1, 8), field(7, graph), field(8, field(2, 17)))
}

// settings returns the settings of a model that consists of a file.
func settings(tb testing.TB, name string, model []byte, text string) backends.Settings {
	tb.Helper()
	dir := tb.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "1"), 0o700); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "1", "model.onnx"), model, 0o600); err != nil {
		tb.Fatal(err)
	}
	cfg, err := config.Parse("config.pbtxt", []byte(`name: "`+name+`" backend: "onnxruntime" `+text))
	if err != nil {
		tb.Fatal(err)
	}
	return backends.Settings{Model: name, Version: 1, ModelDir: dir, Dir: filepath.Join(dir, "1"), Config: cfg, Instances: 1, Alloc: tensor.NewPool(), Log: slog.New(slog.DiscardHandler)}
}

func file(tb testing.TB, name string) []byte {
	tb.Helper()
	b, err := os.ReadFile(filepath.Join("..", "onnx", "testdata", name))
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// TestContract runs the contract suite with isolated instances.
func TestContract(t *testing.T) {
	t.Parallel()
	x, y := make([]float32, 32), make([]float32, 32)
	for i := range x {
		x[i] = float32(i * i % 7)
		if y[i] = x[i]; i%16 > 0 {
			y[i] = max(0, x[i]-x[i-1])
		}
	}
	in := backendtest.Of(tensor.FP32, []int64{2, 16}, x...)
	backendtest.Run(
		t, factory(), options(t),
		backendtest.Fixture{
			Name: "mlp", Settings: settings(t, "mlp", file(t, "mlp.onnx"), "max_batch_size: 4"), Rows: 2,
			In: []backendtest.Value{in}, Want: []backendtest.Value{backendtest.Of(tensor.FP32, []int64{2, 16}, y...)},
			Bad: []backendtest.Bad{{Name: "wrong type", In: []backendtest.Value{backendtest.Of(tensor.Int32, []int64{1, 16}, make([]int32, 16)...)}, Code: status.InvalidArg}},
		},
		backendtest.Fixture{
			Name: "unknown shape", Settings: settings(t, "nonzero", file(t, "nonzero.onnx"), ""),
			In:   []backendtest.Value{backendtest.Of[float32](tensor.FP32, []int64{4}, 0, 5, 0, 1)},
			Want: []backendtest.Value{backendtest.Of[int64](tensor.Int64, []int64{1, 2}, 1, 3)},
		},
		backendtest.Fixture{
			Name: "strings", Rows: 2, Settings: settings(t, "strings", file(t, "strings.onnx"), "max_batch_size: 4"),
			In:   []backendtest.Value{backendtest.Strings([]int64{2, 2}, "", "a", "b", "three")},
			Want: []backendtest.Value{backendtest.Strings([]int64{2, 2}, "", "a", "b", "three"), backendtest.Strings([]int64{2, 2}, "", "aa", "bb", "threethree")},
		},
		backendtest.Fixture{
			Name: "passed through", Settings: settings(t, "through", file(t, "through.onnx"), ""),
			In: []backendtest.Value{backendtest.Of[float32](tensor.FP32, []int64{2}, 1, 2)},
			Want: []backendtest.Value{
				backendtest.Of[float32](tensor.FP32, []int64{2}, -1, -2), backendtest.Of[float32](tensor.FP32, []int64{2}, 1, 2), backendtest.Of[float32](tensor.FP32, []int64{3}, 1, 2, 3),
			},
		},
	)
}

// bench is an isolated model with one instance.
type bench struct {
	*testing.T
	backend backends.Backend
	model   backends.Model
	x       backends.Instance
	pool    *tensor.Pool
	log     *logtest.Buffer
	dir     string // of the model
}

func open(t *testing.T, name string) *bench {
	t.Helper()
	return openModel(t, name, divModel())
}

func openModel(t *testing.T, name string, model []byte) *bench {
	t.Helper()
	b := &bench{T: t, log: &logtest.Buffer{}}
	o := options(t)
	o.Crashes = capture.New(capture.Settings{Bytes: 1 << 20, RequestBytes: 1 << 20})
	var err error
	if b.backend, err = factory().New(o); err != nil {
		t.Fatal(err)
	}
	s := settings(t, name, model, "")
	b.pool, b.dir = s.Alloc.(*tensor.Pool), s.ModelDir
	s.Log = slog.New(slog.NewTextHandler(b.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	if b.model, err = b.backend.Load(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if b.x, err = b.model.NewInstance(t.Context(), tensor.Place{}); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bench) close() {
	b.Helper()
	for _, f := range []func() error{b.x.Close, b.model.Close, b.backend.Close} {
		if err := f(); err != nil {
			b.Error(err)
		}
	}
	if n := b.pool.InUse(); n != 0 {
		b.Errorf("%d bytes of inputs are in use", n)
	}
}

// div executes a / b.
func (b *bench) div(ctx context.Context, x, y int32) (int32, error) {
	batch := &backends.Batch{Rows: 1, Requests: []backends.Request{{Ctx: ctx, Rows: 1}}, Out: make([]tensor.Tensor, 1), Allocator: b.pool}
	for _, v := range []int32{x, y} {
		in, err := tensor.New(b.pool, tensor.Int32, tensor.Of(1))
		if err != nil {
			return 0, err
		}
		tensor.Slice[int32](&in)[0] = v
		batch.In = append(batch.In, in)
	}
	defer tensor.ReleaseAll(batch.In)
	defer tensor.ReleaseAll(batch.Out)
	if err := b.x.Execute(ctx, batch); err != nil {
		return 0, err
	}
	return tensor.Slice[int32](&batch.Out[0])[0], nil
}

// right checks that the model serves.
func (b *bench) right() {
	b.Helper()
	if got, err := b.div(b.Context(), 12, 4); got != 3 || err != nil {
		b.Fatalf("12 / 4 = %d, %v", got, err)
	}
}

// children returns the processes of a model.
func children(tb testing.TB, model string) (pids []int) {
	tb.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		tb.Fatal(err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		stat, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "stat"))
		if err != nil || !bytes.Equal(text, []byte("tutti\x00__isolated\x00"+model+"\x00")) || !bytes.Contains(stat, fmt.Appendf(nil, " %d ", os.Getpid())) {
			continue // it has ended
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			tb.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}

// TestDivision checks that a request that ends the process gets an error, that the model is back, and that the second one is reported.
func TestDivision(t *testing.T) {
	t.Parallel()
	b := open(t, "div")
	defer b.close()
	b.right()
	if r := b.model.(backends.Reporter).Report(); r != "" {
		t.Errorf("report %q before any crash", r)
	}
	for range 2 {
		_, err := b.div(t.Context(), math.MinInt32, -1)
		if status.CodeOf(err) != status.Unavailable || status.RetryAfter(err) == 0 || !strings.Contains(fmt.Sprint(err), "SIGFPE") || !strings.HasSuffix(fmt.Sprint(err), "; send the request again") {
			t.Fatalf("%v, want an unavailable error that names SIGFPE and says when to retry", err)
		}
		b.right()
	}
	if r := b.model.(backends.Reporter).Report(); !strings.Contains(r, "2 times") || !strings.Contains(r, "SIGFPE") || !strings.Contains(r, "are captured as ") {
		t.Errorf("report %q, want the crash and its number", r)
	}
	if text := b.log.String(); !strings.Contains(text, "again and again") {
		t.Errorf("the log does not report the request:\n%s", text)
	}
}

// TestSignals ends, aborts and stops the process from outside.
func TestSignals(t *testing.T) {
	t.Parallel()
	for _, s := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSEGV, syscall.SIGABRT, syscall.SIGSTOP} {
		name := "signal-" + strconv.Itoa(int(s))
		b := open(t, name)
		b.right()
		live := make(chan struct{})
		go func() { // requests while it ends: each is right or says when to retry
			defer close(live)
			for !strings.Contains(b.log.String(), "the process of an isolated instance ended") {
				if got, err := b.div(t.Context(), 8, 2); err == nil && got != 4 || err != nil && (status.CodeOf(err) != status.Unavailable || status.RetryAfter(err) == 0) {
					t.Errorf("%s: 8 / 2 = %d, %v", s, got, err)
				}
			}
		}()
		pids := children(t, name)
		if len(pids) != 1 {
			t.Fatalf("processes %v, want one", pids)
		}
		if err := syscall.Kill(pids[0], s); err != nil {
			t.Fatal(err)
		}
		<-live
		b.right()
		b.close()
	}
}

// TestRefused checks errors of the configuration.
func TestRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`instance_group { kind: KIND_GPU gpus: 0 } parameters { key: "isolation" value { string_value: "process" } }`: "instances of KIND_GPU do not support",
		`parameters { key: "isolation" value { string_value: "thread" } }`:                                            "unexpected value 'thread' of parameter 'isolation': expected 'process' or 'none'",
	} {
		b, err := factory().New(options(t))
		if err != nil {
			t.Fatal(err)
		}
		m, err := b.Load(t.Context(), settings(t, "refused", file(t, "mlp.onnx"), text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: Load = %v, %v, want %q", text, m, err, want)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestNothingLeft loads and unloads a model again and again: no process and no descriptor is left, and none for models that are not isolated.
func TestNothingLeft(t *testing.T) { //nolint:paralleltest // it counts descriptors
	b, err := factory().New(options(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Close() }()
	files := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	before := 0
	for i := range 4 {
		s := settings(t, "left", file(t, "mlp.onnx"), "max_batch_size: 4")
		m, err := b.Load(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		x, err := m.NewInstance(t.Context(), tensor.Place{})
		if err != nil {
			t.Fatal(err)
		}
		if n := len(children(t, "left")); n != 1 {
			t.Errorf("%d processes, want 1", n)
		}
		if err := x.Close(); err != nil {
			t.Error(err)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		if n := len(children(t, "left")); n != 0 {
			t.Errorf("%d processes after closing", n)
		}
		if n := files(); i == 0 {
			before = n
		} else if n != before {
			t.Errorf("%d descriptors after load %d, %d after the first", n, i+1, before)
		}
	}
}

// BenchmarkCall compares an isolated call with one in this process: cost-us/call is the difference.
func BenchmarkCall(b *testing.B) {
	once := func(isolated bool) func() {
		o := options(b)
		o.Isolate = isolated
		backend, err := factory().New(o)
		if err != nil {
			b.Fatal(err)
		}
		s := settings(b, "mlp", file(b, "mlp.onnx"), "max_batch_size: 4")
		m, err := backend.Load(b.Context(), s)
		if err != nil {
			b.Fatal(err)
		}
		x, err := m.NewInstance(b.Context(), tensor.Place{})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _, _, _ = x.Close(), m.Close(), backend.Close() })
		in, err := tensor.New(s.Alloc, tensor.FP32, tensor.Of(1, 16))
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(in.Release)
		batch := &backends.Batch{Rows: 1, Requests: make([]backends.Request, 1), In: []tensor.Tensor{in}, Out: make([]tensor.Tensor, 1), Allocator: s.Alloc}
		return func() {
			if err := x.Execute(b.Context(), batch); err != nil {
				b.Fatal(err)
			}
			tensor.ReleaseAll(batch.Out)
		}
	}
	here, there := once(false), once(true)
	here()
	there()
	var in, out []time.Duration
	b.ReportAllocs()
	for b.Loop() { // in turns, so that both see the same machine
		from := time.Now()
		here()
		middle := time.Now()
		there()
		in, out = append(in, middle.Sub(from)), append(out, time.Since(middle))
	}
	median := func(list []time.Duration) float64 {
		slices.Sort(list)
		return list[len(list)/2].Seconds() * 1e6
	}
	here50, there50 := median(in), median(out)
	b.ReportMetric(here50, "in-process-us/call")
	b.ReportMetric(there50, "isolated-us/call")
	b.ReportMetric(there50-here50, "cost-us/call")
}

// TestLoadReason checks that the error of a process which cannot load its model keeps its reason.
func TestLoadReason(t *testing.T) {
	t.Parallel()
	b, err := factory().New(backends.Options{Config: map[string]string{"library-path": filepath.Join(t.TempDir(), "libonnxruntime.so")}, Isolate: true, Log: slog.New(slog.DiscardHandler)})
	if err == nil {
		defer func() { _ = b.Close() }()
		_, err = b.Load(t.Context(), settings(t, "div", divModel(), `parameters { key: "isolation" value { string_value: "process" } }`))
	}
	if status.ReasonOf(err) != status.RuntimeMissing {
		t.Errorf("without the library: %v, for the reason %s, want %s", err, status.ReasonOf(err), status.RuntimeMissing)
	}
}
