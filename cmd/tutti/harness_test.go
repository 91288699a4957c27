package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tutti-server/tutti"
	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/python"
	"github.com/tutti-server/tutti/cmd"
	"github.com/tutti-server/tutti/core/tensor/cuda/cudatest"
	"github.com/tutti-server/tutti/internal/cli"
	"github.com/tutti-server/tutti/internal/preparedtest"
)

// components returns the components of the command tutti.
func components() tutti.Components { return cmd.Builtin() }

// examplesDir holds the example ensembles.
const examplesDir = "../../examples/ensembles"

// requireRuntime skips a test of ONNX models if ONNX Runtime is not installed, and returns the library's path.
func requireRuntime(tb testing.TB) string {
	tb.Helper()
	return preparedtest.Runtime(tb, "onnxruntime")
}

// weightsFile is the model of the text example, which is not committed.
const weightsFile = examplesDir + "/text/minilm/1/model.onnx"

// vadFile is the model of the vad example, which is not committed either.
const vadFile = examplesDir + "/vad/vad_model/1/model.onnx"

// requireText skips a test of the text example if its model is missing.
func requireText(t *testing.T) {
	t.Helper()
	if _, err := os.Stat(weightsFile); err != nil {
		preparedtest.Skip(t, "text", err)
	}
}

// requirePython skips a test of Python models if no Python with numpy is found.
func requirePython(tb testing.TB) {
	tb.Helper()
	if err := pythonCheck(); err != nil {
		preparedtest.Skip(tb, "python", err)
	}
}

// exampleRoots returns the example repositories by name. A repository without its model is left out and becomes a
// skipped test.
func exampleRoots(t *testing.T) map[string]string {
	t.Helper()
	roots := map[string]string{}
	found, err := filepath.Glob(filepath.Join(examplesDir, "*", cli.ExpectedFile))
	if err != nil || len(found) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	for _, path := range found {
		roots[filepath.Base(filepath.Dir(path))] = filepath.Dir(path)
	}
	if _, err := os.Stat(weightsFile); err != nil {
		t.Run("text", requireText)
		delete(roots, "text")
	}
	if _, err := os.Stat(vadFile); err != nil { // fetched together
		t.Run("vad", func(t *testing.T) { preparedtest.Skip(t, "text", err) })
		delete(roots, "vad")
	}
	if err := pythonCheck(); err != nil {
		t.Run("python_chain", func(t *testing.T) { preparedtest.Skip(t, "python", err) })
		delete(roots, "python_chain")
	}
	return roots
}

// pythonCheck returns an error if the python backend is not usable on this machine.
func pythonCheck() error {
	b, err := python.NewFactory().New(backends.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	return errors.Join(b.(backends.Checker).Check(), b.Close())
}

// addresses are a server's addresses, from its log.
type addresses struct{ http, grpc, metrics string }

var (
	startedLine = regexp.MustCompile(`Started (HTTPService|GRPCInferenceService|Metrics Service) at ([^"\s]+)`)
	services    = 3
)

// watch collects a server's log and reports when every service has started.
type watch struct {
	mu    sync.Mutex
	text  bytes.Buffer // guarded by mu
	grown *sync.Cond
	ended bool // guarded by mu
}

func newWatch() *watch {
	w := &watch{}
	w.grown = sync.NewCond(&w.mu)
	return w
}

func (w *watch) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text.Write(p)
	w.grown.Broadcast()
	return len(p), nil
}

// end marks the log as complete.
func (w *watch) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	w.grown.Broadcast()
}

// String returns the log so far.
func (w *watch) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// await waits until the log satisfies ready. It returns false if the log ends before.
func (w *watch) await(ready func(text string) bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for !ready(w.text.String()) {
		if w.ended {
			return false
		}
		w.grown.Wait()
	}
	return true
}

// started waits until every service has started. ok is false if the server ended before.
func (w *watch) started() (a addresses, ok bool) {
	ok = w.await(func(text string) bool { return len(startedLine.FindAllString(text, -1)) == services })
	for _, m := range startedLine.FindAllStringSubmatch(w.String(), -1) {
		switch m[1] {
		case "HTTPService":
			a.http = m[2]
		case "GRPCInferenceService":
			a.grpc = m[2]
		default:
			a.metrics = m[2]
		}
	}
	return a, ok
}

// freePorts are the flags of a server on free ports.
var freePorts = []string{
	"--http-address", "127.0.0.1", "--http-port=0", "--grpc-address=127.0.0.1", "--grpc-port", "0", "--metrics-port=0",
}

// serve runs tutti serve in this process until the test ends. It fails the test if the server ends with an error.
func serve(tb testing.TB, args ...string) addresses {
	tb.Helper()
	return serveWith(tb, components(), args...)
}

// serveWith runs serve with the components c.
func serveWith(tb testing.TB, c tutti.Components, args ...string) addresses {
	tb.Helper()
	a, _ := serveUntil(context.Background(), tb, c, args...)
	return a
}

// serveLogged runs serveWith and also returns the server's log.
func serveLogged(tb testing.TB, c tutti.Components, args ...string) (addresses, *watch) {
	tb.Helper()
	return serveUntil(context.Background(), tb, c, args...)
}

// noDriver is a driver that no machine has, for servers on the host.
const noDriver = "libtutti_no_gpu.so"

// place returns the components and the flags of a server: with cudatest.AtDevices all models run at the one device of a driver of
// the server's own, unless the flags name a driver. After the server, the driver must have found no fault, and nothing of it may be
// in use. Otherwise the server uses no GPU: the loader would find the checking driver under the name of the real one once
// another test has opened it.
func place(tb testing.TB, c tutti.Components, args []string) (*drive, tutti.Components, []string) {
	tb.Helper()
	switch {
	case slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "--cuda-driver") }):
		return nil, c, args
	case !cudatest.AtDevices():
		return nil, c, append(args, "--cuda-driver="+noDriver)
	}
	d := &drive{Driver: cudatest.New(tb, 1)}
	d.Set("late_us", 30)
	return d, d.components(c), append(args, "--cuda-driver="+d.Path(), "--backend-config=sim,all=true")
}

// serveUntil runs serveLogged until the test ends or ctx is done.
func serveUntil(ctx context.Context, tb testing.TB, c tutti.Components, args ...string) (addresses, *watch) {
	tb.Helper()
	log := newWatch()
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan int, 1)
	d, c, args := place(tb, c, slices.Clone(args))
	go func() {
		code := cli.Main(ctx, append(append([]string{"tutti", "serve"}, freePorts...), args...), log, log, c)
		log.end()
		done <- code
	}()
	a, ok := log.started()
	if !ok {
		cancel()
		tb.Fatalf("the server did not start:\n%s", log)
	}
	tb.Cleanup(func() {
		if d != nil {
			d.within(tb, a)
		}
		http.DefaultClient.CloseIdleConnections() // a server that stops waits for its clients to leave
		cancel()
		if code := <-done; code != 0 {
			tb.Errorf("the server ended with %d:\n%s", code, log)
		}
		if text := log.String(); strings.Contains(text, "tensors were not released") {
			tb.Errorf("something was kept:\n%s", text)
		}
	})
	return a, log
}

// metricsOf returns the metrics of a server.
func metricsOf(tb testing.TB, a addresses) string {
	tb.Helper()
	resp, err := http.Get("http://" + a.metrics + "/metrics") //nolint:noctx // ends with the server
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		tb.Fatal(err)
	}
	return string(text)
}
