package remote_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/addresstest"
	"github.com/tutti-server/tutti/internal/server/certs/certstest"
)

// number returns a request with INPUT.
func number(model string, v int32) *client.Request {
	return &client.Request{Model: model, Inputs: []client.Tensor{client.Of("INPUT", []int64{1, 1}, v)}}
}

// eventually waits until f returns no error.
func eventually(t *testing.T, f func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		err := f()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatal(err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// refused returns the error of a request that a server refused.
func refused(t *testing.T, err error, want status.Code, texts ...string) {
	t.Helper()
	e, ok := errors.AsType[*client.Error](err)
	if !ok || e.Status != codeText(want) {
		t.Errorf("error %v, want %v", err, want)
		return
	}
	for _, text := range texts {
		if !strings.Contains(e.Text, text) {
			t.Errorf("error %q does not name %q", e.Text, text)
		}
	}
}

// TestFailover kills one of two endpoints while 8 clients send idempotent requests: none fails.
func TestFailover(t *testing.T) {
	t.Parallel()
	models := map[string]string{"m": probeConfig}
	var probes [2]*probe
	var fars [2]*server
	for i := range fars {
		probes[i] = &probe{}
		fars[i] = start(t, probes[i], models)
	}
	both := fars[0].GRPCAddress() + ", " + fars[1].GRPCAddress()
	for _, balancing := range []string{"round_robin", "least_request", "weighted_round_robin"} {
		near := start(t, nil, map[string]string{"m": to(both, "", "idempotent=true", "balancing="+balancing)})
		c := dial(t, near)["grpc"]
		before := [2]int{len(probes[0].requests()), len(probes[1].requests())}
		eventually(t, func() error {
			if _, err := c.Infer(t.Context(), number("m", 1)); err != nil {
				return err
			}
			if len(probes[0].requests()) == before[0] || len(probes[1].requests()) == before[1] {
				return errors.New(balancing + ": one endpoint got nothing")
			}
			return nil
		})
	}
	near := start(t, nil, map[string]string{"m": to(both, "", "idempotent=true")})
	var all sync.WaitGroup
	var sent atomic.Int32
	for range 8 {
		c := dial(t, near)["grpc"]
		all.Go(func() {
			for range 60 {
				if sent.Add(1) == 100 {
					fars[0].stop()
				}
				if resp, err := c.Infer(t.Context(), number("m", 7)); err != nil {
					t.Error(err)
				} else if v, _ := client.Values[int32](resp.Output("OUTPUT")); len(v) != 1 || v[0] != 7 {
					t.Errorf("got %v", v)
				}
			}
		})
	}
	all.Wait()
}

// TestCodes checks that errors of the far model keep their code and name the endpoint.
func TestCodes(t *testing.T) {
	t.Parallel()
	p := &probe{hook: func(_ context.Context, b *backends.Batch) error {
		return status.Errorf(status.Code(tensor.Slice[int32](&b.In[0])[0]), "the far reason")
	}}
	far := start(t, p, map[string]string{"m": probeConfig})
	near := start(t, nil, map[string]string{"m": to(far.GRPCAddress(), "")})
	c := dial(t, near)["grpc"]
	for _, code := range []status.Code{status.Internal, status.NotFound, status.InvalidArg, status.Unavailable, status.Unsupported, status.AlreadyExists} {
		_, err := c.Infer(t.Context(), number("m", int32(code)))
		refused(t, err, code, "the far reason", "model 'm' at '"+far.GRPCAddress()+"'")
	}
}

// TestDeadline checks that a slow endpoint gets the deadline of the request, that its execution is cancelled there, and that the
// parameter timeout ends a request, which may be sent again.
func TestDeadline(t *testing.T) {
	t.Parallel()
	cancelled := make(chan struct{}, 8)
	p := &probe{hook: func(ctx context.Context, _ *backends.Batch) error {
		<-ctx.Done()
		cancelled <- struct{}{}
		return ctx.Err()
	}}
	far := start(t, p, map[string]string{"m": probeConfig})
	near := start(t, nil, map[string]string{
		"m": to(far.GRPCAddress(), ""), "short": to(far.GRPCAddress(), "", "remote_model=m", "timeout=50ms"),
	})
	for name, c := range dial(t, near) {
		_, err := c.Infer(t.Context(), number("short", 1))
		if e, ok := errors.AsType[*client.Error](err); !ok || !strings.Contains(e.Text, "did not respond within 50ms") {
			t.Errorf("%s: error %v of a slow endpoint", name, err)
		}
		<-cancelled
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		if _, err := c.Infer(ctx, number("m", 1)); err == nil {
			t.Errorf("%s: a request without a response succeeded", name)
		}
		cancel()
		<-cancelled
	}
	due := 0
	for _, n := range p.requests() {
		if n.hasDue {
			due++
		}
	}
	if due < 3 {
		t.Errorf("%d requests had a deadline at the far server, want those with a timeout and that over gRPC", due)
	}
}

// TestCancelled checks that a client that leaves ends the execution at the far server, over both protocols.
func TestCancelled(t *testing.T) {
	t.Parallel()
	entered, cancelled := make(chan struct{}, 1), make(chan struct{}, 1)
	p := &probe{hook: func(ctx context.Context, _ *backends.Batch) error {
		entered <- struct{}{}
		<-ctx.Done()
		cancelled <- struct{}{}
		return ctx.Err()
	}}
	far := start(t, p, map[string]string{"m": probeConfig})
	near := start(t, nil, map[string]string{"m": to(far.GRPCAddress(), "")})
	for name, c := range dial(t, near) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			_, err := c.Infer(ctx, number("m", 1))
			done <- err
		}()
		<-entered
		cancel()
		<-cancelled
		if err := <-done; err == nil {
			t.Errorf("%s: a cancelled request succeeded", name)
		}
	}
}

// proxy forwards connections to a server until it is frozen: then it keeps them open and forwards nothing.
type proxy struct {
	net.Listener
	frozen chan struct{}
	closed atomic.Int32
}

func newProxy(t *testing.T, target string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{Listener: l, frozen: make(chan struct{})}
	var all sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	all.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", target)
			if err != nil {
				_ = near.Close()
				continue
			}
			mu.Lock()
			open = append(open, near, far)
			mu.Unlock()
			all.Go(func() { p.forward(far, near) })
			all.Go(func() { p.forward(near, far) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for _, c := range open {
			_ = c.Close()
		}
		mu.Unlock()
		all.Wait()
	})
	return p
}

// forward copies until the end of from, which it reads also when frozen.
func (p *proxy) forward(to io.Writer, from io.Reader) {
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		select {
		case <-p.frozen:
		default:
			_, _ = to.Write(b[:n])
		}
		if err != nil {
			p.closed.Add(1)
			return
		}
	}
}

// TestHalfOpen checks that keepalive finds a connection whose other side is silent: the request fails, although it has no
// deadline, and the model is not ready.
func TestHalfOpen(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a ping, which grpc sends after 10 seconds at the earliest")
	}
	t.Parallel()
	far := start(t, nil, map[string]string{"m": probeConfig}, "--grpc-http2-min-recv-ping-interval-without-data=1000")
	p := newProxy(t, far.GRPCAddress())
	near := start(t, nil, map[string]string{"m": to(p.Addr().String(), "", "keepalive_time=10s", "keepalive_timeout=1s")})
	c := dial(t, near)["grpc"]
	if _, err := c.Infer(t.Context(), number("m", 1)); err != nil {
		t.Fatal(err)
	}
	close(p.frozen)
	_, err := c.Infer(t.Context(), number("m", 1))
	refused(t, err, status.Unavailable, p.Addr().String())
}

// TestTLS checks encrypted connections: with the authority of the server, with a client certificate, with credentials from a
// file, and what refuses them.
func TestTLS(t *testing.T) {
	t.Parallel()
	id := certstest.Write(t, t.TempDir(), "far", time.Now())
	stranger := certstest.Write(t, t.TempDir(), "stranger", time.Now())
	far := start(t, nil, map[string]string{"m": probeConfig},
		"--grpc-use-ssl-mutual=true", "--grpc-server-cert="+id.Files.Cert, "--grpc-server-key="+id.Files.Key, "--grpc-root-cert="+id.Files.Cert)
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("Bearer abc\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	mutual := []string{"tls_ca=" + id.Files.Cert, "tls_cert=" + id.Files.Cert, "tls_key=" + id.Files.Key, "authorization_file=" + token}
	near := start(t, nil, map[string]string{"m": to(far.GRPCAddress(), "", mutual...), "list": to(far.GRPCAddress()+","+far.GRPCAddress(), "", append(mutual, "remote_model=m")...)})
	for _, model := range []string{"m", "list"} {
		if _, err := dial(t, near)["grpc"].Infer(t.Context(), number(model, 1)); err != nil {
			t.Error(err)
		}
	}
	for name, params := range map[string][]string{
		"clear text":          nil,
		"without certificate": {"tls_ca=" + id.Files.Cert},
		"other authority":     {"tls_ca=" + stranger.Files.Cert, "tls_cert=" + id.Files.Cert, "tls_key=" + id.Files.Key},
		"other name":          append([]string{"tls_server_name=elsewhere"}, mutual...),
	} {
		_, err := load(t, to(far.GRPCAddress(), "", append(params, "load_timeout=2s")...), false)
		if status.CodeOf(err) != status.Unavailable || !strings.Contains(err.Error(), far.GRPCAddress()) {
			t.Errorf("%s: %v, want UNAVAILABLE with the endpoint", name, err)
		}
	}
}

// load loads a model alone.
func load(t *testing.T, text string, strict bool) (backends.Model, error) {
	t.Helper()
	m, err := backend(t, nil).Load(t.Context(), backends.Settings{
		Model: "m", Version: 1, Config: parse(t, `name: "m" `+text), Strict: strict, Alloc: tensor.NewPool(),
	})
	if err == nil {
		t.Cleanup(func() { _ = m.Close() })
	}
	return m, err
}

// ready returns why the only model of a server is not ready.
func ready(m backends.Model) error { return m.(backends.ReadinessChecker).Ready() } //nolint:forcetypeassert // of this backend

// TestRedeploy checks a far server that comes back with another model, and then with the first one: the model is not ready
// with the reason, and ready again by itself.
func TestRedeploy(t *testing.T) {
	t.Parallel()
	address := addresstest.Unused(t)
	far := startAt(t, nil, address, map[string]string{"m": probeConfig})
	m, err := load(t, to(address, ""), false)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error { return ready(m) })
	far.stop()
	eventually(t, func() error {
		if err := ready(m); err == nil || !strings.Contains(err.Error(), "is not reachable") {
			return errors.New("without a server: ready, or with another reason")
		}
		return nil
	})
	other := startAt(t, nil, address, map[string]string{"m": strings.ReplaceAll(probeConfig, "TYPE_INT32", "TYPE_FP32")})
	eventually(t, func() error {
		if err := ready(m); err == nil || !strings.Contains(err.Error(), "input 'INPUT' was INT32 [1] and is FP32 [1]") {
			return errors.Join(errors.New("with another model: not refused"), err)
		}
		return nil
	})
	other.stop()
	startAt(t, nil, address, map[string]string{"m": probeConfig})
	eventually(t, func() error { return ready(m) })
}

// TestAway checks a model that is loaded while its endpoint is away.
func TestAway(t *testing.T) {
	t.Parallel()
	address := addresstest.Unused(t)
	_, err := load(t, to(address, ""), false)
	if status.CodeOf(err) != status.Unavailable || !strings.Contains(err.Error(), address) {
		t.Errorf("without a configuration: %v, want UNAVAILABLE with the endpoint", err)
	}
	rest := strings.ReplaceAll(probeConfig, `backend: "probe"`, "")
	near := start(t, nil, map[string]string{"m": to(address, rest)})
	c := dial(t, near)["grpc"]
	_, err = c.Infer(t.Context(), number("m", 1))
	refused(t, err, status.Unavailable, address)
	if near.Ready() {
		t.Error("ready without its endpoint")
	}
	startAt(t, nil, address, map[string]string{"m": probeConfig})
	eventually(t, func() error {
		_, err := c.Infer(t.Context(), number("m", 1))
		if err == nil && !near.Ready() {
			err = errors.New("not ready with its endpoint")
		}
		return err
	})
}

// TestContradictions checks configurations that do not fit the far model: the errors name both sides.
func TestContradictions(t *testing.T) {
	t.Parallel()
	far := start(t, nil, map[string]string{"m": probeConfig})
	for name, c := range map[string]struct {
		rest, text string
		strict     bool
	}{
		"type":      {`max_batch_size: 4 input { name: "INPUT" data_type: TYPE_FP32 dims: 1 }`, "input 'INPUT' is declared as FP32 [1], but that of model 'm' at '" + far.GRPCAddress() + "' is INT32 [1]", false},
		"shape":     {`max_batch_size: 4 output { name: "OUTPUT" data_type: TYPE_INT32 dims: 2 }`, "output 'OUTPUT' is declared as INT32 [2]", false},
		"name":      {`input { name: "OTHER" data_type: TYPE_INT32 dims: 1 }`, "input 'OTHER' is declared, but model 'm'", false},
		"batch":     {`max_batch_size: 9`, "'max_batch_size' is 9, but that of model 'm'", false},
		"decoupled": {`model_transaction_policy { decoupled: true }`, "'decoupled' is true, but model 'm'", false},
		"ragged":    {`max_batch_size: 4 input { name: "INPUT" data_type: TYPE_INT32 dims: 2 allow_ragged_batch: true }`, "input 'INPUT' is declared", false},
	} {
		if _, err := load(t, to(far.GRPCAddress(), c.rest), c.strict); status.CodeOf(err) != status.InvalidArg || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v, want %q", name, err, c.text)
		}
	}
	if _, err := load(t, to(far.GRPCAddress(), "", "remote_model=gone"), false); err == nil || !strings.Contains(err.Error(), "model 'gone' at '"+far.GRPCAddress()) {
		t.Errorf("an unknown far model: %v", err)
	}
}

// TestParameters checks values of parameters that are refused.
func TestParameters(t *testing.T) {
	t.Parallel()
	for params, want := range map[string]string{
		"endpoint=":                           "expects the parameter 'endpoint'",
		"endpoint=a:1,b":                      "'b' in a list of addresses, expected HOST:PORT",
		"endpoint=xds:///a":                   "this program has no xDS",
		"endpoint=a:1 outlier_detection=true": "this program has no outlier detection",
		"endpoint=a:1 balancing=best":         "expected round_robin, weighted_round_robin, least_request or sequence",
		"endpoint=a:1 timeout=5":              "expected a duration",
		"endpoint=a:1 tls_cert=x":             "'tls_key' belong together",
		"endpoint=a:1 authorization_file=x":   "needs an encrypted connection",
		"endpoint=a:1 attempts=9":             "expected a number from 2 to 5",
		"endpoint=a:1 remote_version=new":     "expected the number of a version",
		"endpoint=a:1 tls_ca=/nowhere":        "tls_ca",
		"endpoint=a:1 keepalive_time=1s":      "expected at least 10s",
		"endpoint=a:1 idempotent=yes":         "expected true or false",
		"endpoint=a:1 load_reports=sometimes": "expected call or stream",
		"endpoint=a:1 compression=zip":        "expected none or gzip",
	} {
		list := strings.Fields(params)
		endpoint := strings.TrimPrefix(list[0], "endpoint=")
		if _, err := load(t, to(endpoint, "", list[1:]...), false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", params, err, want)
		}
	}
}
