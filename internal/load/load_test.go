package load_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/load"
	"github.com/tutti-server/tutti/internal/server/grpcapi"
	"github.com/tutti-server/tutti/internal/server/httpapi"
	"github.com/tutti-server/tutti/internal/server/servertest"
	"github.com/tutti-server/tutti/internal/shm"
)

// serve starts both front ends over identity models.
func serve(t *testing.T) load.Target {
	t.Helper()
	return serveEcho(t, servertest.NewEcho(), shm.NewRegistry(true))
}

func serveEcho(t *testing.T, e *servertest.Echo, regions *shm.Registry) load.Target {
	t.Helper()
	h := httptest.NewServer(httpapi.New(httpapi.Settings{Infer: e, Catalog: e, Alloc: tensor.NewPool(), Regions: regions}))
	t.Cleanup(h.Close)
	g := grpcapi.New(grpcapi.Settings{Infer: e, Catalog: e, Alloc: tensor.NewPool(), Regions: regions})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- g.Serve(l) }()
	t.Cleanup(func() {
		if err := g.Shutdown(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		<-served
	})
	return load.Target{HTTP: strings.TrimPrefix(h.URL, "http://"), GRPC: l.Addr().String()}
}

// TestInfer checks that an identity model returns each kind of input over each protocol.
func TestInfer(t *testing.T) {
	t.Parallel()
	at := serve(t)
	texts := load.Bytes("X", []int64{3}, []byte("one"), nil, []byte("\"three\" ä"))
	for _, tt := range []struct {
		name    string
		request load.Request
		want    []load.Output
	}{
		{"two inputs", load.Request{
			Model: "two", Outputs: []string{"X", "Y"},
			Inputs: []load.Tensor{load.Floats("X", []int64{3}, []float32{1, -2.5, 1e-9}), load.Floats("Y", []int64{1}, []float32{3})},
		}, []load.Output{
			{Name: "X", Datatype: "FP32", Shape: []int64{3}, Floats: []float64{1, -2.5, float64(float32(1e-9))}},
			{Name: "Y", Datatype: "FP32", Shape: []int64{1}, Floats: []float64{3}},
		}},
		{"texts", load.Request{Model: "echo", Outputs: []string{"X"}, Inputs: []load.Tensor{texts}}, []load.Output{
			{Name: "X", Datatype: "BYTES", Shape: []int64{3}, Strings: []string{"one", "", "\"three\" ä"}},
		}},
	} {
		for _, protocol := range append(load.Protocols(), load.Stream, load.Events) {
			if protocol == load.Events && tt.name == "texts" {
				continue // the model's input is FP32, which events cannot override
			}
			t.Run(tt.name+" over "+protocol, func(t *testing.T) {
				t.Parallel()
				needsMemory(t, protocol)
				want := slices.Clone(tt.want)
				if protocol == load.Events { // whose JSON has no types, and whose inputs have those of the model
					for i := range want {
						want[i].Datatype, want[i].Shape = "", nil
					}
				}
				got, err := load.Infer(at, protocol, &tt.request)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("outputs (-want +got):\n%s", diff)
				}
			})
		}
	}
}

func needsMemory(t *testing.T, protocol string) {
	t.Helper()
	if _, err := os.Stat("/dev/shm"); protocol == load.Shared && err != nil {
		t.Skipf("no shared memory here: %v", err)
	}
}

// TestRunOverProtocols checks that all clients take requests in turn and that each client reads its own responses.
func TestRunOverProtocols(t *testing.T) {
	t.Parallel()
	at := serve(t)
	var requests []load.Request
	for i := range 3 {
		requests = append(requests, load.Request{
			Model: "echo", Outputs: []string{"X"}, Inputs: []load.Tensor{load.Floats("X", []int64{2}, []float32{float32(i), 1})},
		})
	}
	for _, protocol := range append(load.Protocols(), load.Stream, load.Events) {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			needsMemory(t, protocol)
			g, err := load.Dial(at, protocol, requests, 5)
			if err != nil {
				t.Fatal(err)
			}
			r, err := load.Run(g.Clients, load.Plan{Requests: 60})
			if err != nil || r.Requests != 60 || r.Errors != 0 {
				t.Errorf("%+v, %v", r, err)
			}
			for i, c := range g.Clients {
				if err := c.Do(i); err != nil {
					t.Fatal(err)
				}
			}
			for i, c := range g.Clients {
				got, err := c.Outputs()
				if err != nil || len(got) != 1 || got[0].Floats[0] != float64(i%3) {
					t.Errorf("client %d got %v, %v", i, got, err)
				}
			}
			if err := g.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	if left, err := os.ReadDir("/dev/shm"); err == nil {
		for _, f := range left {
			if strings.HasPrefix(f.Name(), "bench-") {
				t.Logf("there is a region %s; it may be another test's", f.Name())
			}
		}
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	at := serve(t)
	input := load.Floats("X", []int64{1}, []float32{1})
	for _, protocol := range append(load.Protocols(), load.Stream, load.Events) {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			needsMemory(t, protocol)
			_, err := load.Infer(at, protocol, &load.Request{Model: "fail", Outputs: []string{"X"}, Inputs: []load.Tensor{input}})
			if err == nil || !strings.Contains(err.Error(), "it went") {
				t.Errorf("a model that fails gives %v", err)
			}
		})
	}
	for _, tt := range []struct {
		name, protocol string
		request        load.Request
	}{
		{"protocol", "soap", load.Request{}},
		{"datatype", load.JSON, load.Request{Inputs: []load.Tensor{{Name: "X", Datatype: "FP8", Data: []byte{1}}}}},
		{"size", load.JSON, load.Request{Inputs: []load.Tensor{{Name: "X", Datatype: "FP32", Data: []byte{1}}}}},
		{"element", load.JSON, load.Request{Inputs: []load.Tensor{{Name: "X", Datatype: "BYTES", Data: []byte{9, 0, 0, 0, 1}}}}},
		{"outputs in shared memory", load.Shared, load.Request{Model: "echo", Inputs: []load.Tensor{input}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if _, err := load.Infer(at, tt.protocol, &tt.request); err == nil {
				t.Error("no error")
			}
		})
	}
	if _, err := load.Dial(at, load.JSON, nil, 1); err == nil {
		t.Error("no requests are no error")
	}
	if _, err := load.Infer(load.Target{HTTP: at.HTTP}, load.GRPC, &load.Request{Model: "echo"}); err == nil {
		t.Error("no address of gRPC is no error")
	}
}

// TestJSONOfBytes checks that BYTES elements that are not UTF-8 are sent in base64, with the parameter that says
// so.
func TestJSONOfBytes(t *testing.T) {
	t.Parallel()
	r := load.Request{Model: "m", Inputs: []load.Tensor{load.Bytes("X", []int64{1}, []byte{0xff, 0xd8})}}
	message, err := r.JSON()
	if err != nil {
		t.Fatal(err)
	}
	_, body, _ := strings.Cut(string(message), "\r\n\r\n")
	want := `{"inputs":[{"name":"X","datatype":"BYTES","shape":[1],"parameters":{"content_type":"base64"},"data":["/9g="]}]}`
	if diff := cmp.Diff(want, body); diff != "" {
		t.Errorf("body (-want +got):\n%s", diff)
	}
}

// TestTensor checks that an output can be sent unchanged as the next model's input.
func TestTensor(t *testing.T) {
	t.Parallel()
	for _, o := range []load.Output{
		{Datatype: "FP32", Floats: []float64{1.5, -2}},
		{Datatype: "FP64", Floats: []float64{1e300}},
		{Datatype: "INT64", Floats: []float64{-7}},
		{Datatype: "INT32", Floats: []float64{-7, 1 << 20}},
		{Datatype: "BYTES", Strings: []string{"a", ""}},
	} {
		o.Shape = []int64{int64(len(o.Floats) + len(o.Strings))}
		in, err := o.Tensor("IN")
		if err != nil {
			t.Fatal(err)
		}
		r := load.Request{Model: "echo", Inputs: []load.Tensor{in}, Outputs: []string{"IN"}}
		got, err := load.Infer(serve(t), load.Binary, &r)
		if err != nil {
			t.Fatalf("%s: %v", o.Datatype, err)
		}
		o.Name = "IN"
		if diff := cmp.Diff([]load.Output{o}, got); diff != "" {
			t.Errorf("outputs (-want +got):\n%s", diff)
		}
	}
	if _, err := (&load.Output{Datatype: "FP16", Floats: []float64{1}}).Tensor("IN"); err == nil {
		t.Error("FP16 is no error")
	}
}

// listen responds with one text on each connection that sends something.
func listen(t *testing.T, response string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			if _, err := conn.Read(make([]byte, 4096)); err == nil {
				conn.Write([]byte(response))
			}
			conn.Close()
		}
	}()
	return l.Addr().String()
}

func TestHTTPResponses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, response, body, err string }{
		{"length", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", "hi", ""},
		{"names in another case, old version", "HTTP/1.0 200 OK\r\nCONTENT-length:2\r\n\r\nhi", "hi", ""},
		{"chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nhi\r\n1\r\n!\r\n0\r\n\r\n", "hi!", ""},
		{"nothing", "HTTP/1.1 200 OK\r\n\r\n", "", ""},
		{"another status", "HTTP/1.1 400 Bad Request\r\nContent-Length: 3\r\n\r\nwhy", "", "status 400: why"},
		{"no HTTP", "hello, this is no HTTP\r\n", "", "no status line"},
		{"no status", "HTTP/1.1 OK ever so\r\n\r\n", "", "has no status"},
		{"no number", "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", "", "has no good number"},
		{"below nothing", "HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\n", "", "has no good number"},
		{"too large", "HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n", "", "too large"},
		{"cut off", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhi", "", "EOF"},
		{"no size of a chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "", "no size of a chunk"},
		{"a chunk that is longer", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nhi\r\n0\r\n\r\n", "", "follows a chunk"},
		{"closed", "", "", "EOF"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := load.NewHTTP(listen(t, tt.response), [][]byte{[]byte("GET / HTTP/1.1\r\n\r\n")})
			defer c.Close()
			err := c.Do(0)
			if tt.err == "" && (err != nil || string(c.Body()) != tt.body) {
				t.Errorf("%q, %v, want %q", c.Body(), err, tt.body)
			}
			if tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("%v, want an error with '%s'", err, tt.err)
			}
		})
	}
}

// TestHTTPAgain checks that a client opens a new connection after the server closed the old one.
func TestHTTPAgain(t *testing.T) {
	t.Parallel()
	connections := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		connections++
		w.Header().Set("Connection", "close")
		if connections == 2 {
			http.Error(w, "not now", http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(s.Close)
	c := load.NewHTTP(strings.TrimPrefix(s.URL, "http://"), [][]byte{[]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n")})
	for i, fails := range []bool{false, true, false} {
		if err := c.Do(i); (err != nil) != fails {
			t.Errorf("request %d: %v", i, err)
		}
	}
}

// TestRefusals checks that a response with an error is a ResponseError, after which the client goes on.
func TestRefusals(t *testing.T) {
	t.Parallel()
	at := serve(t)
	good := load.Request{Model: "echo", Outputs: []string{"X"}, Inputs: []load.Tensor{load.Floats("X", []int64{1}, []float32{1})}}
	bad := good
	bad.Model = "missing"
	for _, protocol := range append(load.Protocols(), load.Stream, load.Events) {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			needsMemory(t, protocol)
			g, err := load.Dial(at, protocol, []load.Request{bad, good}, 1)
			if err != nil {
				t.Fatal(err)
			}
			defer g.Close()
			for i := range 4 {
				err := g.Clients[0].Do(i)
				refused, ok := errors.AsType[*load.ResponseError](err)
				if i%2 == 1 && err != nil || i%2 == 0 && (!ok || !strings.Contains(refused.Text, "missing")) {
					t.Errorf("request %d: %v", i, err)
				}
			}
		})
	}
}

// TestLarge checks requests and responses that are larger than the windows of HTTP/2, from several clients at once.
func TestLarge(t *testing.T) {
	t.Parallel()
	at := serve(t)
	at.OutputBytes = 4 << 20
	values := make([]float32, 1<<20)
	for i := range values {
		values[i] = float32(i % 1000)
	}
	r := load.Request{Model: "echo", Outputs: []string{"X"}, Inputs: []load.Tensor{load.Floats("X", []int64{1 << 20}, values)}}
	for _, protocol := range []string{load.Binary, load.GRPC, load.Shared} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			needsMemory(t, protocol)
			g, err := load.Dial(at, protocol, []load.Request{r}, 2*load.Streams)
			if err != nil {
				t.Fatal(err)
			}
			defer g.Close()
			got, err := load.Run(g.Clients, load.Plan{Requests: 4 * load.Streams})
			if err != nil || got.Requests != 4*load.Streams {
				t.Fatalf("%+v, %v", got, err)
			}
			out, err := g.Clients[0].Outputs()
			if err != nil || len(out) != 1 || len(out[0].Floats) != 1<<20 || out[0].Floats[999] != 999 {
				t.Errorf("the response is not the request: %v", err)
			}
		})
	}
}

// TestInterrupt checks that a request under way ends, and that further ones fail.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	e, regions := servertest.NewEcho(), shm.NewRegistry(true)
	at := serveEcho(t, e, regions)
	wait := load.Request{Model: "wait", Outputs: []string{"X"}, Inputs: []load.Tensor{load.Floats("X", []int64{1}, []float32{1})}}
	for _, protocol := range []string{load.Binary, load.GRPC} {
		g, err := load.Dial(at, protocol, []load.Request{wait}, 1)
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- g.Clients[0].Do(0) }()
		<-e.Waiting
		g.Interrupt()
		if err := <-ended; err == nil {
			t.Errorf("%s: no error", protocol)
		}
		if err := g.Clients[0].Do(0); err == nil {
			t.Errorf("%s: a request after the interrupt has no error", protocol)
		}
		<-e.Cancelled
		g.Close()
	}
}

// TestTarget checks that messages over HTTP have the path, the host and the headers of the target.
func TestTarget(t *testing.T) {
	t.Parallel()
	seen := make(chan *http.Request, 1)
	h := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen <- r
		w.WriteHeader(http.StatusOK)
	}))
	defer h.Close()
	at := load.Target{
		HTTP: strings.TrimPrefix(h.URL, "https://"), Path: "/gateway/", TLS: h.Client().Transport.(*http.Transport).TLSClientConfig,
		Header: http.Header{"Host": {"models.example"}, "Authorization": {"Bearer x"}},
	}
	g, err := load.Dial(at, load.JSON, []load.Request{{Model: "a b", Version: "2"}}, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if err := g.Clients[0].Do(0); err != nil {
		t.Fatal(err)
	}
	r := <-seen
	if r.RequestURI != "/gateway/v2/models/a%20b/versions/2/infer" || r.Host != "models.example" || r.Header.Get("Authorization") != "Bearer x" {
		t.Errorf("%s to %s with %v", r.RequestURI, r.Host, r.Header)
	}
}
