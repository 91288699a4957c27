package httpapi_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"syscall"
	"testing"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/racetest"
	"github.com/tutti-server/tutti/internal/server/httpapi"
)

// mirror responses with the inputs and costs next to nothing.
type mirror struct{}

func (mirror) Submit(_ context.Context, req *infer.Request, sink infer.Sink) {
	resp := infer.NewResponse()
	resp.Model, resp.Version = req.Model, 1
	for i := range req.Inputs {
		resp.Outputs = append(resp.Outputs, infer.Named{Name: req.Inputs[i].Name, Tensor: req.Inputs[i].Tensor.Move()})
	}
	req.Release()
	sink.Send(resp)
	sink.Close(nil)
}

// mirrored describes every model in the same way.
type mirrored struct{ infer.Catalog }

var description = &infer.Description{Model: "identity", Version: 1}

func (mirrored) Describe(string, int64) (*infer.Description, error) { return description, nil }

func mirrorServer() *httpapi.Server {
	return httpapi.New(httpapi.Settings{Infer: mirror{}, Catalog: mirrored{}, Alloc: tensor.NewPool()})
}

// binaryRequest is an FP32[n] in and out in the binary extension.
func binaryRequest(n int) (body []byte, jsonLength int) {
	head := `{"parameters":{"binary_data_output":true},"inputs":[{"name":"INPUT0","shape":[1,` + strconv.Itoa(n) +
		`],"datatype":"FP32","parameters":{"binary_data_size":` + strconv.Itoa(4*n) + `}}]}`
	return append([]byte(head), make([]byte, 4*n)...), len(head)
}

func jsonRequest(n int) []byte {
	b := []byte(`{"inputs":[{"name":"INPUT0","shape":[1,` + strconv.Itoa(n) + `],"datatype":"FP32","data":[`)
	for i := range n {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendFloat(b, float64(i)*0.37, 'f', 4, 64)
	}
	return append(b, "]}]}"...)
}

// rewind is a request body that can be sent again.
type rewind struct{ bytes.Reader }

func (*rewind) Close() error { return nil }

// discard is a response writer that costs nothing.
type discard struct {
	header http.Header
	n      int
}

func (d *discard) Header() http.Header         { return d.header }
func (*discard) WriteHeader(int)               {}
func (d *discard) Write(b []byte) (int, error) { d.n += len(b); return len(b), nil }

// TestAllocations bounds the allocations of a request without those of net/http.
func TestAllocations(t *testing.T) {
	if racetest.Enabled {
		t.Skip("pools drop at random under the race detector")
	}
	s := mirrorServer()
	binary, length := binaryRequest(16)
	tests := []struct {
		name   string
		body   []byte
		header string
		budget float64
	}{
		{"binary", binary, strconv.Itoa(length), 2}, // the lengths in the header of the response
		{"json", jsonRequest(16), "", 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			body := new(rewind)
			r := httptest.NewRequestWithContext(t.Context(), "POST", "/v2/models/identity/infer", nil)
			r.Body, r.ContentLength = body, int64(len(tt.body))
			if tt.header != "" {
				r.Header.Set(lengthHeader, tt.header)
			}
			w := &discard{header: http.Header{}}
			got := testing.AllocsPerRun(200, func() {
				body.Reset(tt.body)
				s.ServeHTTP(w, r)
			})
			if got > tt.budget || w.n < 201*64 {
				t.Errorf("%v allocations, budget %v; %d bytes in responses", got, tt.budget, w.n)
			}
		})
	}
}

// BenchmarkEchoFloor measures net/http alone: its handler sends the bytes back.
func BenchmarkEchoFloor(b *testing.B) {
	body, length := binaryRequest(16)
	benchmark(b, http.HandlerFunc(echoBody), request(body, length))
}

// BenchmarkInferBinary sends the same bytes as an inference request.
func BenchmarkInferBinary(b *testing.B) {
	body, length := binaryRequest(16)
	benchmark(b, mirrorServer(), request(body, length))
}

// BenchmarkEchoFloorJSON and BenchmarkInferJSON are the pair for a JSON request.
func BenchmarkEchoFloorJSON(b *testing.B) {
	benchmark(b, http.HandlerFunc(echoBody), request(jsonRequest(16), -1))
}

func BenchmarkInferJSON(b *testing.B) { benchmark(b, mirrorServer(), request(jsonRequest(16), -1)) }

// BenchmarkEchoFloorLarge and BenchmarkInferBinaryLarge are the pair for a 4 MiB tensor.
func BenchmarkEchoFloorLarge(b *testing.B) {
	body, length := binaryRequest(1 << 20)
	benchmark(b, http.HandlerFunc(echoBody), request(body, length))
}

func BenchmarkInferBinaryLarge(b *testing.B) {
	body, length := binaryRequest(1 << 20)
	benchmark(b, mirrorServer(), request(body, length))
}

// BenchmarkHandler measures the handler alone for a binary request, without net/http and sockets.
func BenchmarkHandler(b *testing.B) {
	s := mirrorServer()
	binary, length := binaryRequest(16)
	for _, bm := range []struct {
		name   string
		body   []byte
		length int
	}{{"binary", binary, length}, {"json", jsonRequest(16), -1}} {
		b.Run(bm.name, func(b *testing.B) {
			body := new(rewind)
			r := httptest.NewRequestWithContext(b.Context(), "POST", "/v2/models/identity/infer", nil)
			r.Body, r.ContentLength = body, int64(len(bm.body))
			if bm.length >= 0 {
				r.Header.Set(lengthHeader, strconv.Itoa(bm.length))
			}
			w := &discard{header: http.Header{}}
			b.ReportAllocs()
			for b.Loop() {
				body.Reset(bm.body)
				s.ServeHTTP(w, r)
			}
		})
	}
}

func echoBody(w http.ResponseWriter, r *http.Request) {
	b := make([]byte, r.ContentLength)
	if _, err := io.ReadFull(r.Body, b); err != nil {
		panic(err)
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	_, _ = w.Write(b)
}

// request is the request as a client sends it.
func request(body []byte, length int) []byte {
	head := "POST /v2/models/identity/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n"
	if length >= 0 {
		head += lengthHeader + ": " + strconv.Itoa(length) + "\r\n"
	}
	return append([]byte(head+"\r\n"), body...)
}

// benchmark sends one request repeatedly on a few connections, with a client that costs almost nothing, and reports the CPU
// time of the process per request.
func benchmark(b *testing.B, h http.Handler, req []byte) {
	b.Helper()
	s := httptest.NewServer(h)
	defer s.Close()
	b.SetParallelism(4)
	b.ReportAllocs()
	before := cpu(b)
	b.RunParallel(func(pb *testing.PB) {
		conn, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			b.Error(err)
			return
		}
		defer conn.Close()
		response := exchange(b, conn, req)
		for pb.Next() {
			if _, err := conn.Write(req); err != nil {
				b.Error(err)
				return
			}
			if _, err := io.ReadFull(conn, response); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric(float64(cpu(b)-before)/float64(b.N), "cpu-ns/op")
}

// exchange sends one request and returns a buffer of the size of its response.
func exchange(b *testing.B, conn net.Conn, req []byte) []byte {
	b.Helper()
	if _, err := conn.Write(req); err != nil {
		b.Fatal(err)
	}
	seen := new(bytes.Buffer)
	resp, err := http.ReadResponse(bufio.NewReader(io.TeeReader(conn, seen)), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		b.Fatal(resp.Status, err)
	}
	return make([]byte, seen.Len())
}

func cpu(b *testing.B) int64 {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}
