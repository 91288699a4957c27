package async

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.temporal.io/sdk/client"
	sdklog "go.temporal.io/sdk/log"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/job"
	"github.com/tutti-server/tutti/internal/cloud"
	"github.com/tutti-server/tutti/internal/dataset"
	"github.com/tutti-server/tutti/internal/preparedtest"
)

// rig is a Temporal server of its own process, a service, and a worker with one model, "echo", whose response is the body of the
// request.
type rig struct {
	t       *testing.T
	set     Settings
	service *Service
	stop    func() // ends the worker

	program, dir, address string
	cmd                   *exec.Cmd
	stdin                 io.Closer
}

// models is a catalog of one model.
type models struct{ infer.Catalog }

func (models) Statistics(string, int64) ([]infer.Statistics, error) {
	return []infer.Statistics{{Name: "echo", Version: "1"}}, nil
}

func echo(_ context.Context, req *job.Request) *job.Reply {
	return reply(http.StatusOK, string(req.Body))
}

func reply(code int, text string) *job.Reply {
	return &job.Reply{Code: code, Header: http.Header{"Content-Type": {"application/json"}}, Size: int64(len(text)), Body: io.NopCloser(strings.NewReader(text))}
}

func newRig(t *testing.T, change func(*Settings)) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir()}
	r.program = preparedtest.Path(t, "temporal", func() (string, error) {
		root, err := preparedtest.Root()
		if err != nil {
			return "", err
		}
		path := filepath.Join(root, "bin", "tutti-temporal")
		_, err = os.Stat(path)
		return path, err
	})
	r.startTemporal()
	t.Cleanup(r.killTemporal)
	r.set = Settings{Client: connect(t, r.address), Store: filepath.Join(t.TempDir(), "requests"), Execute: echo, Catalog: models{}}
	if change != nil {
		change(&r.set)
	}
	var err error
	if r.service, err = New(r.set); err != nil {
		t.Fatal(err)
	}
	return r
}

func connect(t *testing.T, address string) client.Client {
	t.Helper()
	c, err := client.NewLazyClient(client.Options{HostPort: address, Logger: sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// startTemporal starts the Temporal server on its database and its port.
func (r *rig) startTemporal() {
	r.t.Helper()
	r.cmd = exec.Command(r.program, "--child", "--data-dir", r.dir)
	in, err := r.cmd.StdinPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	r.stdin = in
	if err = r.cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if address, ok := strings.CutPrefix(lines.Text(), "ready "); ok {
			r.address = address
			go func() { _, _ = io.Copy(io.Discard, out) }()
			return
		}
	}
	r.t.Fatal("the Temporal server ended")
}

// killTemporal ends the Temporal server with SIGKILL.
func (r *rig) killTemporal() {
	if r.cmd == nil {
		return
	}
	_ = r.cmd.Process.Signal(syscall.SIGKILL)
	_ = r.cmd.Wait()
	_ = r.stdin.Close()
	r.cmd = nil
}

// work runs a worker until stop is called or the test ends.
func (r *rig) work() {
	r.t.Helper()
	w, err := NewWorker(r.set)
	if err != nil {
		r.t.Fatal(err)
	}
	w.retry = 50 * time.Millisecond
	ctx, cancel := context.WithCancel(context.Background())
	var wait sync.WaitGroup
	wait.Go(func() {
		if err := w.Run(ctx); err != nil {
			r.t.Error(err)
		}
	})
	r.stop = sync.OnceFunc(func() { cancel(); wait.Wait() })
	r.t.Cleanup(r.stop)
}

func (r *rig) submit(body, callback string) *job.RequestStatus {
	r.t.Helper()
	st, err := r.service.Submit(r.t.Context(), &job.Request{Model: "echo", Header: http.Header{}, Body: []byte(body), Callback: callback})
	if err != nil {
		r.t.Fatal(err)
	}
	return st
}

// await polls a request until it is as wanted.
func (r *rig) await(id, what string, is func(*job.RequestStatus) bool) *job.RequestStatus {
	r.t.Helper()
	var st *job.RequestStatus
	var err error
	for begin := time.Now(); time.Since(begin) < 2*time.Minute; {
		if st, err = r.service.Show(r.t.Context(), id); err == nil && is(st) {
			return st
		}
		<-time.After(20 * time.Millisecond) // Temporal has no other way
	}
	r.t.Fatalf("request '%s' is not %s: %+v, %v", id, what, st, err)
	return nil
}

func ended(st *job.RequestStatus) bool { return st.State.Final() }

// result returns the body of a result.
func (r *rig) result(id string) string {
	r.t.Helper()
	got, st, err := r.service.Result(r.t.Context(), id)
	if err != nil || got == nil {
		r.t.Fatalf("no result: %+v, %v", st, err)
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	if err != nil || int64(len(text)) != got.Size {
		r.t.Fatalf("%d bytes of %d: %v", len(text), got.Size, err)
	}
	return string(text)
}

// memory is a bucket in memory, which refuses to write while full says so.
type memory struct {
	mu      sync.Mutex
	objects map[string][]byte
	full    func(key string) error
}

func (m *memory) options() *dataset.Options {
	return &dataset.Options{OpenBucket: func(context.Context, string) (cloud.Bucket, error) { return m, nil }}
}

func (m *memory) List(_ context.Context, prefix string) (list []cloud.Object, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, data := range m.objects {
		if strings.HasPrefix(key, prefix) {
			list = append(list, cloud.Object{Key: key, Size: int64(len(data))})
		}
	}
	return list, nil
}

func (m *memory) Read(_ context.Context, o cloud.Object, offset int64) (io.ReadCloser, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return io.NopCloser(bytes.NewReader(m.objects[o.Key][offset:])), nil
}

func (m *memory) Write(_ context.Context, key string, body io.ReadSeeker, _ int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.full(key); err != nil {
		return err
	}
	data, err := io.ReadAll(body)
	m.objects[key] = data
	return err
}

func (m *memory) Delete(_ context.Context, key string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.objects, key)
	return nil
}

func (m *memory) keys() (keys []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key := range m.objects {
		keys = append(keys, key)
	}
	return keys
}
