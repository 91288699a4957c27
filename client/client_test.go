package client_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/server/grpcapi"
	"github.com/tutti-server/tutti/internal/server/httpapi"
	"github.com/tutti-server/tutti/internal/server/servertest"
)

// clients starts a server over both protocols and returns a client of each.
func clients(t *testing.T) map[string]client.Client {
	t.Helper()
	echo, alloc := servertest.NewEcho(), tensor.NewPool()
	h := httpapi.New(httpapi.Settings{Infer: echo, Catalog: echo, Alloc: alloc, Name: "echo"})
	g := grpcapi.New(grpcapi.Settings{Infer: echo, Catalog: echo, Alloc: alloc, Name: "echo"})
	url := serve(t, h)
	byGRPC, err := client.Dial("grpc://" + serve(t, g))
	if err != nil {
		t.Fatal(err)
	}
	byHTTP, err := client.Dial("http://" + url)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]client.Client{
		"binary": byHTTP, "grpc": byGRPC, "json": client.NewHTTP("http://"+url+"/", &client.HTTPOptions{JSON: true}),
	}
	t.Cleanup(func() {
		for _, c := range all {
			_ = c.Close()
		}
	})
	return all
}

func serve(t *testing.T, s interface {
	Serve(l net.Listener) error
	Shutdown(ctx context.Context) error
},
) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // a test's own socket
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		if err := errors.Join(s.Shutdown(context.Background()), <-done); err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

func TestInfer(t *testing.T) {
	t.Parallel()
	all := clients(t)
	half := client.Tensor{Name: "X", DType: tensor.FP16, Shape: []int64{2}, Data: []byte{0, 0x3c, 0, 0x40}}
	tests := map[string]client.Tensor{
		"bool":   client.Of("X", []int64{2, 1}, true, false),
		"uint8":  client.Of("X", []int64{3}, uint8(0), 7, 255),
		"uint16": client.Of("X", []int64{1}, uint16(65535)),
		"uint32": client.Of("X", []int64{1}, uint32(4294967295)),
		"uint64": client.Of("X", []int64{1}, uint64(18446744073709551615)),
		"int8":   client.Of("X", []int64{2}, int8(-128), 127),
		"int16":  client.Of("X", []int64{1}, int16(-32768)),
		"int32":  client.Of("X", []int64{2, 2}, int32(1), -2, 3, -4),
		"int64":  client.Of("X", []int64{1}, int64(-9223372036854775808)),
		"fp32":   client.Of("X", []int64{2}, float32(0.1), -1e30),
		"fp64":   client.Of("X", []int64{1}, 0.1),
		"text":   client.Text("X", []int64{3}, "", "zażółć", "a\nb"),
		"bytes":  client.Text("X", []int64{1}, []byte{0xff, 0xd8}),
		"fp16":   half,
		"none":   client.Of[float32]("X", []int64{0}),
	}
	for way, c := range all {
		for name, in := range tests {
			t.Run(way+" "+name, func(t *testing.T) {
				t.Parallel()
				resp, err := c.Infer(t.Context(), &client.Request{Model: "echo", ID: "i", Inputs: []client.Tensor{in}, Outputs: []string{"X"}})
				if way == "json" && (name == "bytes" || name == "fp16") {
					if err == nil || !strings.Contains(err.Error(), "cannot be written as JSON") {
						t.Fatalf("error = %v, want that JSON cannot hold the tensor", err)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				got := resp.Output("X")
				if got == nil || resp.ID != "i" || resp.Model != "echo" || resp.Output("Y") != nil {
					t.Fatalf("answer = %+v", resp)
				}
				if string(got.Data) != string(in.Data) || got.DType != in.DType || !cmp.Equal(got.Shape, in.Shape) {
					t.Errorf("answer = %+v, want %+v", got, in)
				}
			})
		}
	}
}

func TestStream(t *testing.T) {
	t.Parallel()
	all := clients(t)
	for way, c := range all {
		for model, want := range map[string]bool{"echo": false, "repeat": true} {
			if got, err := c.Decoupled(t.Context(), model, "1"); got != want || err != nil {
				t.Errorf("%s: Decoupled(%s) = %v, %v, want %v", way, model, got, err, want)
			}
		}
	}
	s, ok := all["grpc"].(client.Streamer)
	if !ok {
		t.Fatal("gRPC does not stream")
	}
	enough := errors.New("enough")
	tests := []struct {
		name, model string
		in          []int32
		want        int // responses received
		err         string
	}{
		{"several", "repeat", []int32{4, 5, 6}, 3, ""},
		{"none", "repeat", []int32{}, 0, ""},
		{"one of a model that has one", "echo", []int32{4}, 1, ""},
		{"failure after two", "repeat", []int32{4, 5, -1}, 2, "element 2 is negative"},
		{"taken no further", "endless", []int32{1}, 4, enough.Error()},
		{"refused", "nobody", nil, 0, "unknown model: 'nobody'"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			n := 0
			in := client.Of("IN", []int64{int64(len(tt.in))}, tt.in...)
			err := s.Stream(t.Context(), &client.Request{Model: tt.model, ID: "i", Inputs: []client.Tensor{in}}, func(r *client.Response) error {
				if n++; r.ID != "i" || len(r.Outputs) != 1 {
					t.Errorf("answer = %+v", r)
				}
				if n == 4 {
					return enough
				}
				return nil
			})
			if n != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%d answers, %v, want %d, %q", n, err, tt.want, tt.err)
			}
		})
	}
}

func TestAbout(t *testing.T) {
	t.Parallel()
	for way, c := range clients(t) {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			if ok, err := c.Ready(t.Context()); !ok || err != nil {
				t.Errorf("Ready = %v, %v", ok, err)
			}
			md, err := c.Metadata(t.Context(), "two")
			if err != nil || len(md.Inputs) != 2 || md.Inputs[1].Name != "Y" {
				t.Errorf("Metadata = %+v, %v", md, err)
			}
			stats, err := c.Statistics(t.Context(), "echo")
			if err != nil || len(stats) == 0 || stats[0].Name != "echo" {
				t.Errorf("Statistics = %+v, %v", stats, err)
			}
			_, err = c.Infer(t.Context(), &client.Request{Model: "fail", Inputs: []client.Tensor{client.Of("X", []int64{1}, float32(1))}})
			if refusal, ok := errors.AsType[*client.Error](err); !ok || refusal.Text == "" || refusal.Status == "" {
				t.Errorf("error = %#v, want a refusal", err)
			}
			if _, err = c.Metadata(t.Context(), "nobody"); err == nil {
				t.Error("there is metadata of a model that is not there")
			}
		})
	}
}

// TestStranger checks the errors for a program that does not speak the v2 protocol.
func TestStranger(t *testing.T) {
	t.Parallel()
	page := "<html>" + strings.Repeat("x", 1000) + "</html>"
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v2/models/stats":
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, page)
		case "/v2/repository/index":
			_, _ = io.WriteString(w, page)
		case "/v2/models/refused":
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"error":"no such model"}`)
		}
	}))
	defer s.Close()
	c := client.NewHTTP(s.URL, nil)
	defer func() { _ = c.Close() }()
	want := "the response of " + s.URL + `/v2/repository/index is not that of an inference server: expected JSON, found "` + page[:120] + `..."`
	_, err := c.Index(t.Context())
	if _, foreign := errors.AsType[*client.ForeignError](err); !foreign || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	_, err = c.Metadata(t.Context(), "m")
	want = "the response of " + s.URL + "/v2/models/m is not that of an inference server: expected JSON, found an empty body"
	if _, foreign := errors.AsType[*client.ForeignError](err); !foreign || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	_, err = c.Metadata(t.Context(), "stats")
	if refusal, ok := errors.AsType[*client.Error](err); !ok || !refusal.Foreign || refusal.Text != page[:120]+"..." {
		t.Errorf("got %#v, want the beginning of the page", err)
	}
	_, err = c.Metadata(t.Context(), "refused")
	if refusal, ok := errors.AsType[*client.Error](err); !ok || refusal.Foreign || refusal.Text != "no such model" {
		t.Errorf("got %#v, want the server's error", err)
	}
}

func TestBadAnswers(t *testing.T) {
	t.Parallel()
	const out = `{"model_name":"m","outputs":[{"name":"Y","datatype":"FP32","shape":[1],"parameters":{"binary_data_size":4}}]}`
	tests := []struct {
		name, header, body string
		status             int
		want               string
	}{
		{"no JSON", "", "hello", 200, "the response is not JSON"},
		{"header beyond the body", "999", out, 200, "the response of 109 bytes says that its JSON has '999'"},
		{"negative header", "-1", out, 200, "says that its JSON has '-1'"},
		{"short tensor", "109", out + "abc", 200, "output 'Y' says that it has 4 bytes, but 3 are left"},
		{"negative size", "", strings.Replace(out, "4", "-4", 1), 200, "output 'Y' says that it has -4 bytes"},
		{"neither data nor size", "", `{"outputs":[{"name":"Y","datatype":"FP32","shape":[1]}]}`, 200, "tensor 'Y'"},
		{"element too large", "", `{"outputs":[{"name":"Y","datatype":"UINT8","shape":[1],"data":[256]}]}`, 200, "has element 256"},
		{"unknown type", "", `{"outputs":[{"name":"Y","datatype":"WORD","shape":[1],"data":[1]}]}`, 200, "cannot be read from JSON"},
		{"refusal without JSON", "", "gone\n", 502, "502 Bad Gateway: gone"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if tt.header != "" {
					w.Header().Set("Inference-Header-Content-Length", tt.header)
				}
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.body)
			}))
			defer s.Close()
			c := client.NewHTTP(s.URL, nil)
			defer func() { _ = c.Close() }()
			_, err := c.Infer(t.Context(), &client.Request{Model: "m"})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v, want %q", err, tt.want)
			}
		})
	}
}

func TestValues(t *testing.T) {
	t.Parallel()
	x := client.Of("X", []int64{2}, int32(5), -6)
	got, err := client.Values[int32](&x)
	if diff := cmp.Diff([]int32{5, -6}, got); err != nil || diff != "" {
		t.Errorf("Values: %v %s", err, diff)
	}
	cut := client.Tensor{Name: "X", DType: tensor.Bytes, Data: []byte{9, 0, 0, 0, 'a'}}
	_, wrongType := client.Values[float32](&x)
	_, wrongSize := client.Values[int32](&client.Tensor{Name: "X", DType: tensor.Int32, Data: make([]byte, 5)})
	_, missing := client.Values[int32](nil)
	_, noText := x.Strings()
	_, cutText := cut.Strings()
	_, noURL := client.Dial("ftp://localhost:8000")
	for what, tt := range map[string]struct {
		err  error
		want string
	}{
		"wrong type": {wrongType, "tensor 'X' is INT32, expected FP32"},
		"wrong size": {wrongSize, "tensor 'X' has 5 bytes, expected a multiple of 4"},
		"missing":    {missing, "there is no such tensor"},
		"no text":    {noText, "tensor 'X' is INT32, expected BYTES"},
		"cut text":   {cutText, "tensor 'X' ends inside an element"},
		"no URL":     {noURL, "expected http://HOST:PORT or grpc://HOST:PORT"},
	} {
		if tt.err == nil || !strings.Contains(tt.err.Error(), tt.want) {
			t.Errorf("%s: error = %v, want %q", what, tt.err, tt.want)
		}
	}
}
