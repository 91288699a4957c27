package remote_test

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/remote"
	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/tensortest"
	"github.com/tutti-server/tutti/proto/inference"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// hostile is a server that responds with what a test sets.
type hostile struct {
	inference.UnimplementedGRPCInferenceServiceServer
	config   *modelconfig.ModelConfig // nil: the method is not there
	metadata *inference.ModelMetadataResponse
	response atomic.Pointer[inference.ModelInferResponse]
	streamed atomic.Pointer[inference.ModelStreamInferResponse]
}

func (h *hostile) ModelMetadata(context.Context, *inference.ModelMetadataRequest) (*inference.ModelMetadataResponse, error) {
	return h.metadata, nil
}

func (h *hostile) ModelConfig(ctx context.Context, r *inference.ModelConfigRequest) (*inference.ModelConfigResponse, error) {
	if h.config == nil {
		return h.UnimplementedGRPCInferenceServiceServer.ModelConfig(ctx, r)
	}
	return &inference.ModelConfigResponse{Config: h.config}, nil
}

func (h *hostile) ModelInfer(context.Context, *inference.ModelInferRequest) (*inference.ModelInferResponse, error) {
	return h.response.Load(), nil
}

func (h *hostile) ModelStreamInfer(s grpc.BidiStreamingServer[inference.ModelInferRequest, inference.ModelStreamInferResponse]) error {
	if _, err := s.Recv(); err != nil {
		return err
	}
	return s.Send(h.streamed.Load())
}

func (h *hostile) serve(t *testing.T) string {
	t.Helper()
	return serveGRPC(t, h)
}

func ports(name, datatype string, shape ...int64) []*inference.ModelMetadataResponse_TensorMetadata {
	return []*inference.ModelMetadataResponse_TensorMetadata{{Name: name, Datatype: datatype, Shape: shape}}
}

func output(name, datatype string, raw []byte, shape ...int64) *inference.ModelInferResponse {
	return &inference.ModelInferResponse{
		Outputs:           []*inference.ModelInferResponse_InferOutputTensor{{Name: name, Datatype: datatype, Shape: shape}},
		RawOutputContents: [][]byte{raw},
	}
}

// TestHostile sends malformed responses, each of which must be an error that names the endpoint, and right ones in between.
func TestHostile(t *testing.T) {
	t.Parallel()
	h := &hostile{metadata: &inference.ModelMetadataResponse{Inputs: ports("INPUT", "INT32", 1, 1), Outputs: ports("OUTPUT", "BYTES", 1, -1)}}
	near := start(t, nil, map[string]string{"m": to(h.serve(t), "", "max_message_bytes=100000")})
	c := dial(t, near)["grpc"]
	two := tensor.AppendBytes(tensor.AppendBytes(nil, "ab"), "")
	good := output("OUTPUT", "BYTES", two, 1, 2)
	typed := output("OUTPUT", "BYTES", nil, 1, 2)
	typed.RawOutputContents, typed.Outputs[0].Contents = nil, &inference.InferTensorContents{BytesContents: [][]byte{[]byte("ab"), nil}}
	both := proto.CloneOf(typed)
	both.RawOutputContents = [][]byte{two}
	other := proto.CloneOf(typed)
	other.Outputs[0].Contents = &inference.InferTensorContents{IntContents: []int32{1, 2}}
	few := proto.CloneOf(good)
	few.Outputs = append(few.Outputs, proto.CloneOf(few.Outputs[0]))
	twice := proto.CloneOf(few)
	twice.RawOutputContents = append(twice.RawOutputContents, two)
	wide := output("OUTPUT", "BYTES", two, 1, 2)
	for range 100 {
		wide.Outputs[0].Shape = append(wide.Outputs[0].Shape, 1)
	}
	for name, resp := range map[string]*inference.ModelInferResponse{
		"":                   nil,
		"other type":         output("OUTPUT", "INT32", make([]byte, 8), 1, 2),
		"unknown type":       output("OUTPUT", "FP7", two, 1, 2),
		"other rank":         output("OUTPUT", "BYTES", two, 2),
		"other extent":       output("OUTPUT", "BYTES", two, 2, 1),
		"negative extent":    output("OUTPUT", "BYTES", two, 1, -2),
		"overflow":           output("OUTPUT", "BYTES", two, 1, 1<<62),
		"too many elements":  output("OUTPUT", "BYTES", two, 1, 1),
		"too few elements":   output("OUTPUT", "BYTES", two, 1, 3),
		"cut element":        output("OUTPUT", "BYTES", two[:5], 1, 2),
		"fewer raw contents": few,
		"twice":              twice,
		"both contents":      both,
		"contents of ints":   other,
		"many dimensions":    wide,
		"huge":               output("OUTPUT", "BYTES", make([]byte, 200_000), 1, 2),
	} {
		if name != "" {
			h.response.Store(resp)
			_, err := c.Infer(t.Context(), number("m", 1))
			if e, ok := errors.AsType[*client.Error](err); !ok || !strings.Contains(e.Text, "model 'm' at '") {
				t.Errorf("%s: %v, want an error that names the endpoint", name, err)
			}
		}
		for kind, resp := range map[string]*inference.ModelInferResponse{"raw": good, "typed": typed} {
			h.response.Store(resp)
			got, err := c.Infer(t.Context(), number("m", 1))
			if err != nil {
				t.Fatalf("%s contents after '%s': %v", kind, name, err)
			}
			if list, err := got.Output("OUTPUT").Strings(); err != nil || strings.Join(list, ",") != "ab," {
				t.Errorf("%s contents: %q (%v)", kind, list, err)
			}
		}
	}
}

// TestHostileMetadata checks metadata that cannot be used.
func TestHostileMetadata(t *testing.T) {
	t.Parallel()
	ok := ports("OUTPUT", "INT32", -1, 1)
	for name, h := range map[string]*hostile{
		"type":  {metadata: &inference.ModelMetadataResponse{Inputs: ports("INPUT", "FP7", 1), Outputs: ok}},
		"shape": {metadata: &inference.ModelMetadataResponse{Inputs: ports("INPUT", "INT32", -7), Outputs: ok}},
		"twice": {metadata: &inference.ModelMetadataResponse{Inputs: append(ports("INPUT", "INT32", 1), ports("INPUT", "INT32", 1)...), Outputs: ok}},
		"batch": {metadata: &inference.ModelMetadataResponse{Inputs: ports("INPUT", "INT32", 1), Outputs: ok}, config: &modelconfig.ModelConfig{MaxBatchSize: 4}},
	} {
		address := h.serve(t)
		if _, err := load(t, to(address, ""), false); err == nil || !strings.Contains(err.Error(), address) {
			t.Errorf("%s: %v, want an error that names the endpoint", name, err)
		}
	}
}

// FuzzResponse checks that no message makes the decoder fail otherwise than by an error, in one buffer or many, nor leak.
func FuzzResponse(f *testing.F) {
	for _, m := range []proto.Message{
		output("OUTPUT", "BYTES", tensor.AppendBytes(nil, "ab"), 1, 1),
		&inference.ModelStreamInferResponse{ErrorMessage: "e", InferResponse: output("N", "INT32", make([]byte, 4), 1, 1)},
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, 3)
	}
	d := remote.NewDecoder(&config.Signature{MaxBatch: 4, Outputs: []config.Port{
		{Name: "OUTPUT", DType: tensor.Bytes, Dims: tensor.Of(-1)}, {Name: "N", DType: tensor.Int32, Dims: tensor.Of(-1)},
	}})
	f.Fuzz(func(t *testing.T, b []byte, n int) {
		var parts mem.BufferSlice
		for rest := b; len(rest) > 0; {
			k := min(len(rest), max(n, 1))
			parts, rest = append(parts, mem.SliceBuffer(rest[:k:k])), rest[k:]
		}
		a := tensortest.NewChecked(t, nil)
		for _, stream := range []bool{false, true} {
			out, _ := d.Decode(parts, stream, a)
			tensor.ReleaseAll(out)
		}
	})
}

// flowConfig is a decoupled model of the backend probe.
const flowConfig = probeConfig + `model_transaction_policy { decoupled: true }`

// TestStreams checks a decoupled model: its responses arrive one by one, a stream that is cut in the middle ends with an error after
// the responses before, and a client that leaves ends it at the far server.
func TestStreams(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{}, 1)
	var far *server
	p := &probe{hook: func(_ context.Context, b *backends.Batch) error {
		n := tensor.Slice[int32](&b.In[0])[0]
		for i := int32(0); i < 3 || n > 10; i++ {
			if n == 5 && i == 2 {
				return status.Errorf(status.InvalidArg, "the far reason")
			}
			out, err := tensor.New(b.Allocator, tensor.Int32, tensor.Of(1, 1))
			if err != nil {
				return err
			}
			tensor.Slice[int32](&out)[0] = n + i
			if err := b.Send(0, []tensor.Tensor{out}, false); err != nil {
				gone <- struct{}{}
				return err
			}
		}
		return nil
	}}
	far = start(t, p, map[string]string{"m": flowConfig}, "--exit-timeout-secs=1") // it is stopped while a client does not read
	near := start(t, nil, map[string]string{"m": to(far.GRPCAddress(), "")})
	s := dial(t, near)["grpc"].(client.Streamer) //nolint:forcetypeassert // gRPC streams
	collect := func(v int32, most int) (got []int32, err error) {
		err = s.Stream(t.Context(), number("m", v), func(r *client.Response) error {
			list, err := client.Values[int32](r.Output("OUTPUT"))
			if got = append(got, list...); len(got) == most {
				return io.ErrUnexpectedEOF
			}
			return err
		})
		return got, err
	}
	if got, err := collect(1, 0); err != nil || len(got) != 3 || got[2] != 3 {
		t.Errorf("got %v (%v), want 1 to 3", got, err)
	}
	got, err := collect(5, 0)
	if e, ok := errors.AsType[*client.Error](err); !ok || len(got) != 2 || !strings.Contains(e.Text, "the far reason") {
		t.Errorf("a stream that is cut gave %v (%v)", got, err)
	}
	if got, err := collect(20, 4); !errors.Is(err, io.ErrUnexpectedEOF) || len(got) != 4 {
		t.Errorf("got %v (%v)", got, err)
	}
	<-gone
	got = nil
	err = s.Stream(t.Context(), number("m", 30), func(r *client.Response) error {
		list, err := client.Values[int32](r.Output("OUTPUT"))
		if got = append(got, list...); len(got) == 3 {
			far.stop()
		}
		return err
	})
	if e, ok := errors.AsType[*client.Error](err); !ok || len(got) < 3 || !strings.Contains(e.Text, far.GRPCAddress()) {
		t.Errorf("a stream whose server was killed ended with %v after %d responses", err, len(got))
	}
}

// TestForwarded checks what a request carries to the far server.
func TestForwarded(t *testing.T) {
	t.Parallel()
	p := &probe{}
	far := start(t, p, map[string]string{"m": probeConfig}, "--trace-config=level=TIMESTAMPS", "--trace-config=rate=1", "--trace-config=mode=opentelemetry",
		"--trace-config=opentelemetry,url=http://127.0.0.1:1/v1/traces")
	m, err := load(t, to(far.GRPCAddress(), "", "balancing=sequence"), false)
	if err != nil {
		t.Fatal(err)
	}
	inst, err := m.NewInstance(t.Context(), tensor.Place{})
	if err != nil {
		t.Fatal(err)
	}
	a := tensortest.NewChecked(t, nil)
	send := func(metas ...*infer.Meta) {
		t.Helper()
		b := &backends.Batch{Rows: len(metas), Out: make([]tensor.Tensor, 1), Allocator: a}
		in, err := tensor.New(a, tensor.Int32, tensor.Of(int64(len(metas)), 1))
		if err != nil {
			t.Fatal(err)
		}
		b.In = []tensor.Tensor{in}
		for i, meta := range metas {
			one := in.Retain()
			one.Off, one.Len, one.Shape = 4*i, 4, tensor.Of(1, 1)
			tensor.Slice[int32](&one)[0] = int32(i)
			b.Requests = append(b.Requests, backends.Request{Meta: meta, Ctx: t.Context(), First: i, Rows: 1, In: []tensor.Tensor{one}})
		}
		if err := inst.Execute(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		for i := range b.Requests {
			q := &b.Requests[i]
			if q.Err != nil {
				t.Error(q.Err)
			}
			if q.Out != nil && tensor.Slice[int32](&q.Out[0])[0] != int32(i) {
				t.Errorf("request %d got the output of another", i)
			}
			tensor.ReleaseAll(q.In)
			tensor.ReleaseAll(q.Out)
		}
		tensor.ReleaseAll(b.In)
		tensor.ReleaseAll(b.Out)
	}
	key := infer.Params{{Key: "k", Kind: infer.ParamString, String: "v"}, {Key: "n", Kind: infer.ParamDouble, Double: 2}}
	send(&infer.Meta{ID: "id", Priority: 2, Timeout: 1 << 40, Params: key, Sequence: infer.Sequence{ID: 9, Start: true}})
	send(&infer.Meta{ID: "a", Params: key}, &infer.Meta{ID: "b", Params: key})
	send(&infer.Meta{ID: "a", Params: key}, &infer.Meta{ID: "b"})
	send(&infer.Meta{Background: true}, &infer.Meta{Background: true})
	send(&infer.Meta{Background: true}, &infer.Meta{})
	got := p.requests()
	if len(got) != 6 {
		t.Fatalf("the far server got %d requests, want 6: three batches of two, one request, and two with different parameters", len(got))
	}
	if !got[4].meta.Background || got[5].meta.Background {
		t.Errorf("background is %v for a batch of such requests, and %v for one with an online request", got[4].meta.Background, got[5].meta.Background)
	}
	first := got[0]
	if first.meta.ID != "id" || first.meta.Priority != 2 || first.meta.Timeout == 0 || first.meta.Timeout > 1<<40 || first.meta.Sequence != (infer.Sequence{ID: 9, Start: true}) {
		t.Errorf("the far server got %+v", first.meta)
	}
	if text := strings.Join(first.params, " "); !strings.Contains(text, "k=") || !strings.Contains(text, "n=") {
		t.Errorf("parameters %s", text)
	}
	if got[1].rows != 2 || got[2].rows != 1 {
		t.Errorf("rows %d and %d, want 2 and 1", got[1].rows, got[2].rows)
	}
}

// TestTrace checks that the far server's part of a request belongs to the client's trace, below the step that sent it.
func TestTrace(t *testing.T) {
	t.Parallel()
	traced := []string{"--trace-config=level=TIMESTAMPS", "--trace-config=rate=1", "--trace-config=triton,file=" + filepath.Join(t.TempDir(), "trace.json")}
	p := &probe{}
	far := start(t, p, map[string]string{"m": probeConfig}, traced...)
	near := start(t, nil, map[string]string{"m": to(far.GRPCAddress(), "")}, traced...)
	const id = "0af7651916cd43dd8448eb211c80319c"
	for name, c := range dial(t, near) {
		req := number("m", 1)
		req.TraceParent = "00-" + id + "-b7ad6b7169203331-01"
		if _, err := c.Infer(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		list := p.requests()
		if got := list[len(list)-1].trace; got.ID.String() != id {
			t.Errorf("%s: the far request belongs to trace %s, want %s", name, got.ID, id)
		}
	}
}
