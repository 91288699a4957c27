package durable

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	sdklog "go.temporal.io/sdk/log"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/job"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/dataset"
	"github.com/tutti-server/tutti/internal/preparedtest"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// doubler is a server with one model in memory: output y is twice the input x, FP32 [-1, 1] with at most 8 rows. A row below zero
// fails, and with it its request.
type doubler struct {
	infer.Catalog // the methods that are not used

	memory  *tensor.Pool
	content atomic.Value // string: the fingerprint
	rows    atomic.Int64 // executed, as often as they were
	low     atomic.Int64 // requests with the lowest priority
	away    atomic.Bool  // refuses requests as a model that is being loaded
	negated atomic.Bool  // rows below zero do not fail
	busy    atomic.Int64 // so many requests to come find a queue full, which a step of the model passes on
	hold    atomic.Pointer[chan struct{}]
	from    float32         // hold is for requests whose first row is not below; set before the first
	seen    func(x float32) // gets the first row of each request; set before the first
}

// crashing is a row that ends the process of the model again and again.
const crashing = -1000

func newDoubler() *doubler {
	m := &doubler{memory: tensor.NewPool()}
	m.content.Store("content-1")
	return m
}

func (*doubler) Describe(model string, version int64) (*infer.Description, error) {
	if model != "double" || version > 1 {
		return nil, status.Errorf(status.NotFound, "Request for unknown model: '%s' is not found", model)
	}
	port := func(name string) infer.Port {
		return infer.Port{Name: name, DType: tensor.FP32, Shape: tensor.Of(-1, 1)}
	}
	return &infer.Description{Model: "double", Version: 1, MaxBatch: 8, Inputs: []infer.Port{port("x")}, Outputs: []infer.Port{port("y")}}, nil
}

func (*doubler) Config(string, int64) (*modelconfig.ModelConfig, error) {
	return &modelconfig.ModelConfig{SchedulingChoice: &modelconfig.ModelConfig_DynamicBatching{DynamicBatching: &modelconfig.ModelDynamicBatching{PriorityLevels: 9}}}, nil
}

func (*doubler) Statistics(string, int64) ([]infer.Statistics, error) {
	return []infer.Statistics{{Name: "double", Version: "1"}}, nil
}

func (m *doubler) fingerprint(string, int64) (string, error) { return m.content.Load().(string), nil }

// Submit executes a request.
func (m *doubler) Submit(ctx context.Context, req *infer.Request, sink infer.Sink) {
	defer req.Release()
	if hold := m.hold.Load(); hold != nil && tensor.Slice[float32](req.Input("x"))[0] >= m.from {
		select {
		case <-*hold:
		case <-ctx.Done():
		}
	}
	if ctx.Err() != nil {
		sink.Close(status.ErrCancelled)
		return
	}
	if m.away.Load() {
		sink.Close(status.Errorf(status.Unavailable, "model 'double' is not ready"))
		return
	}
	if m.busy.Add(-1) >= 0 {
		sink.Close(&status.Error{Code: status.Internal, Msg: "full", Reason: status.QueueFull, RetryAfter: time.Millisecond})
		return
	}
	if m.seen != nil {
		m.seen(tensor.Slice[float32](req.Input("x"))[0])
	}
	if req.Priority == 9 {
		m.low.Add(1)
	}
	x := req.Input("x")
	in := x.Bytes()
	y, err := tensor.New(m.memory, tensor.FP32, x.Shape)
	if err != nil {
		sink.Close(err)
		return
	}
	out := y.Bytes()
	for i := 0; i < len(in); i += 4 {
		v := math.Float32frombits(binary.LittleEndian.Uint32(in[i:]))
		if v < 0 && !m.negated.Load() {
			y.Release()
			if v == crashing {
				sink.Close(status.Reasonf(status.RequestCrashes, "requests with the same inputs have ended processes 3 times"))
				return
			}
			sink.Close(status.Errorf(status.Internal, "%g has no double", v))
			return
		}
		binary.LittleEndian.PutUint32(out[i:], math.Float32bits(2*v))
	}
	m.rows.Add(int64(len(in) / 4))
	resp := infer.NewResponse()
	resp.Model, resp.Version, resp.Final = "double", 1, true
	resp.Outputs = append(resp.Outputs, infer.Named{Name: "y", Tensor: y})
	sink.Send(resp)
	sink.Close(nil)
}

// temporalServer is a Temporal server of its own process.
type temporalServer struct {
	t       *testing.T
	program string
	dir     string
	address string
	cmd     *exec.Cmd
	stdin   io.Closer
}

func startTemporal(t *testing.T) *temporalServer {
	t.Helper()
	s := &temporalServer{t: t, dir: t.TempDir()}
	s.program = preparedtest.Program(t, "temporal", "tutti-temporal")
	s.start()
	t.Cleanup(func() { s.kill() })
	return s
}

// start starts the server on its database and its port, and returns when it is ready.
func (s *temporalServer) start() {
	s.t.Helper()
	s.cmd = exec.Command(s.program, "--child", "--data-dir", s.dir)
	in, err := s.cmd.StdinPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	stderr, err := os.Create(filepath.Join(s.dir, "log"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.stdin, s.cmd.Stderr = in, stderr
	if err = s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if address, ok := strings.CutPrefix(lines.Text(), "ready "); ok {
			s.address = address
			go func() { _, _ = io.Copy(io.Discard, out) }()
			return
		}
	}
	text, _ := os.ReadFile(stderr.Name())
	s.t.Fatalf("the Temporal server ended: %s", text)
}

// kill ends the server with SIGKILL.
func (s *temporalServer) kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Signal(syscall.SIGKILL)
	_ = s.cmd.Wait()
	_ = s.stdin.Close()
	s.cmd = nil
}

// rig is a Temporal server, a model and a service, with workers.
type rig struct {
	*temporalServer
	model      *doubler
	client     client.Client
	service    *Service
	data       *dataset.Options
	codec      converter.PayloadCodec
	background Background
	gate       *gate         // of the model; nil for one of the worker
	segment    time.Duration // 0: the usual one
	gpu        bool          // the model is on a GPU
	chunks     int           // at a time; 0: the usual number
	stop       func()        // stops the worker
}

func quiet() sdklog.Logger { return sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler)) }

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{temporalServer: startTemporal(t), model: newDoubler()}
	var err error
	if r.client, err = client.NewLazyClient(client.Options{HostPort: r.address, Logger: quiet()}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.client.Close)
	r.service = New(r.settings())
	return r
}

func (r *rig) settings() Settings {
	gpu := r.gpu
	return Settings{OnGPU: func(string) bool { return gpu }, Client: r.client, Inferer: r.model, Catalog: r.model, Fingerprint: r.model.fingerprint, Codec: r.codec, Data: r.data, Chunks: r.chunks, Background: r.background}
}

// work runs a worker until stop is called or the test ends.
func (r *rig) work() {
	r.t.Helper()
	w, err := NewWorker(r.settings())
	if err != nil {
		r.t.Fatal(err)
	}
	if r.segment > 0 {
		w.acts.segment = r.segment
	}
	if r.gate != nil {
		w.acts.gates[modelKey{"double", 1}] = r.gate
	}
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

// dataset writes rows to a file, as JSON Lines.
func (r *rig) dataset(rows ...float32) string {
	r.t.Helper()
	var b strings.Builder
	for i, v := range rows {
		fmt.Fprintf(&b, "{\"x\": %g, \"id\": \"row %d\"}\n", v, i)
	}
	path := filepath.Join(r.t.TempDir(), "rows.jsonl")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		r.t.Fatal(err)
	}
	return path
}

// numbers returns n different rows from a first on.
func numbers(from, n int) []float32 {
	list := make([]float32, n)
	for i := range list {
		list[i] = float32(from + i)
	}
	return list
}

func (r *rig) submit(spec job.Spec) *job.Status {
	r.t.Helper()
	spec.Model = "double"
	st, err := r.service.Submit(r.t.Context(), &spec)
	if err != nil {
		r.t.Fatal(err)
	}
	return st
}

// await polls a job until it is as wanted.
func (r *rig) await(id, what string, is func(*job.Status) bool) *job.Status {
	r.t.Helper()
	var st *job.Status
	var err error
	for begin := time.Now(); time.Since(begin) < 3*time.Minute; {
		if st, err = r.service.Show(r.t.Context(), id); err == nil && is(st) {
			return st
		}
		if err == nil && st.State.Final() {
			break
		}
		<-time.After(50 * time.Millisecond) // Temporal has no other way
	}
	r.t.Fatalf("job '%s' is not %s: %+v, %v", id, what, st, err)
	return nil
}

func (r *rig) finished(id string) *job.Status {
	r.t.Helper()
	return r.await(id, "at an end", func(st *job.Status) bool { return st.State.Final() })
}

// run submits a job and waits for its end.
func (r *rig) run(spec job.Spec) (*job.Status, *job.Manifest) {
	r.t.Helper()
	st := r.finished(r.submit(spec).ID)
	if st.State != job.Completed {
		r.t.Fatalf("%s: %s", st.State, st.Reason)
	}
	m, err := r.service.Result(r.t.Context(), st.ID)
	if err != nil {
		r.t.Fatal(err)
	}
	return st, m
}
