package grpcapi_test

import (
	"context"
	"net"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/racetest"
	"github.com/tutti-server/tutti/internal/server/grpcapi"
	"github.com/tutti-server/tutti/internal/server/servertest"
	"github.com/tutti-server/tutti/proto/inference"
)

// echo responds with the inputs at almost no cost.
type echo struct{ infer.Catalog }

var identity = &infer.Description{Model: "identity", Version: 1}

func (echo) Describe(string, int64) (*infer.Description, error) { return identity, nil }

func (echo) Submit(_ context.Context, req *infer.Request, sink infer.Sink) {
	resp := infer.NewResponse()
	resp.Model, resp.Version = req.Model, 1
	for i := range req.Inputs {
		resp.Outputs = append(resp.Outputs, infer.Named{Name: req.Inputs[i].Name, Tensor: req.Inputs[i].Tensor.Move()})
	}
	req.Release()
	sink.Send(resp)
	sink.Close(nil)
}

func echoSettings() grpcapi.Settings {
	m := echo{servertest.NewEcho()}
	return grpcapi.Settings{Infer: m, Catalog: m, Alloc: tensor.NewPool()}
}

// encoded returns an encoded request with an FP32[n] input, raw or typed.
func encoded(tb testing.TB, n int, typed bool) []byte {
	tb.Helper()
	in := &inference.ModelInferRequest_InferInputTensor{Name: "INPUT0", Datatype: "FP32", Shape: []int64{1, int64(n)}}
	req := &inference.ModelInferRequest{ModelName: "identity", Inputs: []*inference.ModelInferRequest_InferInputTensor{in}}
	if typed {
		in.Contents = &inference.InferTensorContents{Fp32Contents: make([]float32, n)}
	} else {
		req.RawInputContents = [][]byte{make([]byte, 4*n)}
	}
	b, err := proto.Marshal(req)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// TestAllocations bounds the allocated bytes of a request, without those of grpc itself.
func TestAllocations(t *testing.T) { //nolint:paralleltest // others would be counted
	if racetest.Enabled {
		t.Skip("pools drop at random under the race detector")
	}
	end := grpcapi.NewEndpoint(echoSettings())
	for _, tt := range []struct {
		name   string
		data   mem.BufferSlice
		budget float64
	}{
		{"raw", grpcapi.Chunks(encoded(t, 16, false), 1<<20), 1}, // the list of the response's buffers
		{"typed", grpcapi.Chunks(encoded(t, 16, true), 1<<20), 1},
		{"cut", grpcapi.Chunks(encoded(t, 16, false), 7), 1},
		{"large", grpcapi.Chunks(encoded(t, 1<<16, false), 16<<10), 6}, // and the lease of its tensor
	} {
		t.Run(tt.name, func(t *testing.T) {
			size := 0
			got := testing.AllocsPerRun(200, func() {
				out, err := end.Infer(t.Context(), tt.data)
				if err != nil {
					t.Fatal(err)
				}
				size = out.Len()
				out.Free()
			})
			if got > tt.budget || size < 64 {
				t.Errorf("%v allocations, budget %v; %d bytes in the response", got, tt.budget, size)
			}
		})
	}
}

// BenchmarkEchoFloor measures grpc alone: the server sends the bytes back.
func BenchmarkEchoFloor(b *testing.B) { floor(b, encoded(b, 16, false)) }

// BenchmarkEchoFloorProto is BenchmarkEchoFloor with the generated messages and grpc's own codec.
func BenchmarkEchoFloorProto(b *testing.B) {
	s := grpc.NewServer()
	inference.RegisterGRPCInferenceServiceServer(s, protoEcho{})
	benchmark(b, s, s.Stop, encoded(b, 16, false))
}

// BenchmarkInferRaw sends the same bytes as an inference request.
func BenchmarkInferRaw(b *testing.B) { inferring(b, encoded(b, 16, false)) }

// BenchmarkInferTyped sends the elements in a typed field.
func BenchmarkInferTyped(b *testing.B) { inferring(b, encoded(b, 16, true)) }

// BenchmarkEchoFloorLarge and BenchmarkInferRawLarge measure a 4 MiB tensor.
func BenchmarkEchoFloorLarge(b *testing.B) { floor(b, encoded(b, 1<<20, false)) }

func BenchmarkInferRawLarge(b *testing.B) { inferring(b, encoded(b, 1<<20, false)) }

// BenchmarkHandler measures the handler without grpc and sockets.
func BenchmarkHandler(b *testing.B) {
	end, data := grpcapi.NewEndpoint(echoSettings()), grpcapi.Chunks(encoded(b, 16, false), 1<<20)
	b.ReportAllocs()
	for b.Loop() {
		out, err := end.Infer(b.Context(), data)
		if err != nil {
			b.Fatal(err)
		}
		out.Free()
	}
}

// protoEcho returns the contents of the request.
type protoEcho struct {
	inference.UnimplementedGRPCInferenceServiceServer
}

func (protoEcho) ModelInfer(_ context.Context, req *inference.ModelInferRequest) (*inference.ModelInferResponse, error) {
	return &inference.ModelInferResponse{ModelName: req.GetModelName(), RawOutputContents: req.GetRawInputContents()}, nil
}

type server interface {
	Serve(l net.Listener) error
}

// floor measures a server that sends the request's bytes back.
func floor(b *testing.B, req []byte) {
	b.Helper()
	s := grpc.NewServer(grpc.ForceServerCodecV2(plain{}), grpc.MaxRecvMsgSize(1<<30), grpc.UnknownServiceHandler(
		func(_ any, stream grpc.ServerStream) error {
			var data []byte
			if err := stream.RecvMsg(&data); err != nil {
				return err
			}
			return stream.SendMsg(&data)
		}))
	benchmark(b, s, s.Stop, req)
}

// BenchmarkInferCounted and BenchmarkInferCountedLarge count the bytes in flight, as a server with its defaults does.
func BenchmarkInferCounted(b *testing.B) { inferCounted(b, encoded(b, 16, false)) }

func BenchmarkInferCountedLarge(b *testing.B) { inferCounted(b, encoded(b, 1<<20, false)) }

func inferCounted(b *testing.B, req []byte) {
	b.Helper()
	set := echoSettings()
	set.InFlight = infer.NewInFlight(1 << 30)
	inferringWith(b, set, req)
}

func inferring(b *testing.B, req []byte) {
	b.Helper()
	inferringWith(b, echoSettings(), req)
}

func inferringWith(b *testing.B, set grpcapi.Settings, req []byte) {
	b.Helper()
	s := grpcapi.New(set)
	benchmark(b, s, func() {
		if err := s.Shutdown(context.WithoutCancel(b.Context())); err != nil {
			b.Error(err)
		}
	}, req)
}

// benchmark sends the same bytes over four connections. The client runs in the same process and costs the same for
// every server.
func benchmark(b *testing.B, s server, stop func(), req []byte) {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	defer func() {
		stop()
		<-done
	}()
	b.SetParallelism(4)
	b.ReportAllocs()
	before := cpu(b)
	b.RunParallel(func(pb *testing.PB) {
		conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.ForceCodecV2(plain{}), grpc.MaxCallRecvMsgSize(1<<30)))
		if err != nil {
			b.Error(err)
			return
		}
		defer conn.Close()
		var out []byte
		for pb.Next() {
			if err := conn.Invoke(b.Context(), inference.GRPCInferenceService_ModelInfer_FullMethodName, &req, &out); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric(float64(cpu(b)-before)/float64(b.N), "cpu-ns/op")
}

func cpu(b *testing.B) int64 {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}
