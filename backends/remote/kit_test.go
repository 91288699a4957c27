package remote_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tutti-server/tutti"
	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/identity"
	"github.com/tutti-server/tutti/backends/remote"
	"github.com/tutti-server/tutti/backends/repeat"
	"github.com/tutti-server/tutti/backends/sequence"
	"github.com/tutti-server/tutti/backends/square"
	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/tracing"
	"github.com/tutti-server/tutti/steps"
)

// TestMain checks that the goroutines of all servers and connections have ended.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// probe is a backend whose models note each request and pass INPUT on, unless a hook says otherwise.
type probe struct {
	mu   sync.Mutex
	seen []noted // guarded by mu
	// hook is called for each request; its error is that of the request. Optional.
	hook func(ctx context.Context, b *backends.Batch) error
}

// noted is what a request brought.
type noted struct {
	meta   infer.Meta
	params []string
	trace  tracing.Context
	rows   int
	due    time.Time
	hasDue bool
}

// requests returns what was noted so far.
func (p *probe) requests() []noted {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]noted(nil), p.seen...)
}

func (p *probe) factory() backends.Factory {
	return backends.Factory{
		Name: "probe", Guide: backends.Guide{Doc: "For tests."},
		New: func(backends.Options) (backends.Backend, error) {
			return backends.Loader(func(_ context.Context, s backends.Settings) (backends.Model, error) {
				sig := config.SignatureOf(s.Config)
				return probed{Ports: backends.Ports{Sig: sig}, p: p}, nil
			}), nil
		},
	}
}

type probed struct {
	backends.Ports
	p *probe
}

func (probed) Threads() int { return 0 }

func (x probed) NewInstance(context.Context, tensor.Place) (backends.Instance, error) { return x, nil }

func (x probed) Execute(ctx context.Context, b *backends.Batch) error {
	x.p.mu.Lock()
	for i := range b.Requests {
		q := &b.Requests[i]
		n := noted{meta: *q.Meta, rows: q.Rows, trace: q.Trace.Context(q.Step, q.SubRun)}
		n.meta.ID = strings.Clone(q.Meta.ID)
		for _, v := range q.Meta.Params {
			n.params = append(n.params, fmt.Sprintf("%s=%v%v%v%v%s", v.Key, v.Bool, v.Int, v.Uint, v.Double, v.String))
		}
		n.due, n.hasDue = q.Ctx.Deadline()
		x.p.seen = append(x.p.seen, n)
	}
	x.p.mu.Unlock()
	if x.p.hook != nil {
		if err := x.p.hook(ctx, b); err != nil {
			return err
		}
	}
	if b.Responses == nil {
		b.SetOutput(0, b.In[0].Retain())
	}
	return nil
}

// server is a running server.
type server struct {
	*tutti.Server
	root string
}

// start runs a server with these models until the test ends. The values are configurations without the name.
func start(t *testing.T, p *probe, models map[string]string, args ...string) *server {
	t.Helper()
	return startAt(t, p, "127.0.0.1:0", models, args...)
}

// startAt is start with the address of gRPC.
func startAt(t *testing.T, p *probe, grpcAddress string, models map[string]string, args ...string) *server {
	t.Helper()
	s, err := open(t, p, grpcAddress, models, args...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func open(t *testing.T, p *probe, grpcAddress string, models map[string]string, args ...string) (*server, error) {
	t.Helper()
	root := t.TempDir()
	for name, text := range models {
		if err := os.MkdirAll(filepath.Join(root, name, "1"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name, "config.pbtxt"), []byte("name: \""+name+"\"\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	host, port, err := net.SplitHostPort(grpcAddress)
	if err != nil {
		t.Fatal(err)
	}
	if p == nil {
		p = &probe{}
	}
	s, err := tutti.Open(t.Context(), tutti.Settings{
		Args: append([]string{
			"--model-repository", root, "--http-address=127.0.0.1", "--http-port=0", "--grpc-address=" + host, "--grpc-port=" + port, "--allow-metrics=false",
			"--cuda-driver=libtutti_no_gpu.so",
		}, args...),
		Components: tutti.Components{Backends: func(*steps.Registry) []backends.Factory {
			return []backends.Factory{
				identity.NewFactory(), repeat.NewFactory(), sequence.NewFactory(), square.NewFactory(), remote.NewFactory(), p.factory(),
			}
		}},
		Stderr: t.Output(),
	})
	if err != nil {
		return nil, err
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	running := &server{Server: s, root: root}
	t.Cleanup(running.stop)
	return running, nil
}

// stop closes the server at once. It may be called twice.
func (s *server) stop() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // does not wait for requests
	_ = s.Close(ctx)
}

// identityConfig is a model that batches.
const identityConfig = `
backend: "identity"
max_batch_size: 8
input [ { name: "INPUT0", data_type: TYPE_FP32, dims: [ -1 ] }, { name: "INPUT1", data_type: TYPE_STRING, dims: [ 1 ] } ]
output [ { name: "OUTPUT0", data_type: TYPE_FP32, dims: [ -1 ] }, { name: "OUTPUT1", data_type: TYPE_STRING, dims: [ 1 ] } ]
`

// probeConfig is a model of the backend probe.
const probeConfig = `
backend: "probe"
max_batch_size: 8
input { name: "INPUT", data_type: TYPE_INT32, dims: [ 1 ] }
output { name: "OUTPUT", data_type: TYPE_INT32, dims: [ 1 ] }
`

// to returns the configuration of a remote model with the parameters KEY=VALUE.
func to(endpoint, rest string, params ...string) string {
	var text strings.Builder
	text.WriteString("backend: \"remote\"\n" + rest)
	for _, p := range append([]string{"endpoint=" + endpoint}, params...) {
		key, value, _ := strings.Cut(p, "=")
		fmt.Fprintf(&text, "\nparameters { key: %q value { string_value: %q } }", key, value)
	}
	return text.String()
}

// dial returns clients of both protocols.
func dial(t *testing.T, s *server) map[string]client.Manager {
	t.Helper()
	all := map[string]client.Manager{}
	for name, url := range map[string]string{"http": "http://" + s.HTTPAddress(), "grpc": "grpc://" + s.GRPCAddress()} {
		c, err := client.Dial(url)
		if err != nil {
			t.Fatal(err)
		}
		if g, ok := c.(*client.GRPC); ok {
			t.Cleanup(func() { _ = g.Close() })
		}
		if h, ok := c.(interface{ Close() error }); ok {
			t.Cleanup(func() { _ = h.Close() })
		}
		all[name] = c
	}
	return all
}

// backend opens the backend remote alone.
func backend(t *testing.T, config map[string]string) backends.Backend {
	t.Helper()
	b, err := remote.NewFactory().New(backends.Options{Config: config})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// codeText is the code of an error as a client of gRPC sees it.
func codeText(c status.Code) string { return c.GRPC().String() }
