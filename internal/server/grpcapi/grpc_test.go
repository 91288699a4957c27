package grpcapi_test

import (
	"context"
	"encoding/binary"
	"math"
	"net"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor/tensortest"
	"github.com/tutti-server/tutti/internal/server/grpcapi"
	"github.com/tutti-server/tutti/internal/server/servertest"
	"github.com/tutti-server/tutti/proto/inference"
)

// serve starts a server over echo models. All tensor memory must be released when the test ends.
func serve(t *testing.T) (inference.GRPCInferenceServiceClient, *grpc.ClientConn, *servertest.Echo, *grpcapi.Server) {
	t.Helper()
	e := servertest.NewEcho()
	c, conn, s := serveWith(t, grpcapi.Settings{Infer: e, Catalog: e})
	return c, conn, e, s
}

// serveWith starts a server with these settings; defaults fill the others.
func serveWith(t *testing.T, set grpcapi.Settings, opts ...grpc.DialOption) (inference.GRPCInferenceServiceClient, *grpc.ClientConn, *grpcapi.Server) {
	t.Helper()
	set.Name, set.Version, set.Extensions = "tutti", "1.0.0", []string{"statistics"}
	if set.Alloc == nil {
		set.Alloc = tensortest.NewChecked(t, nil)
	}
	s := grpcapi.New(set)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	if set.TLS == nil {
		opts = append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))
	}
	conn, err := grpc.NewClient(l.Addr().String(), opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		if err := s.Shutdown(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return inference.NewGRPCInferenceServiceClient(conn), conn, s
}

// message parses a request from text.
func message(t *testing.T, text string) *inference.ModelInferRequest {
	t.Helper()
	m := new(inference.ModelInferRequest)
	if err := prototext.Unmarshal([]byte(text), m); err != nil {
		t.Fatal(err)
	}
	if m.ModelName == "" {
		m.ModelName = "echo"
	}
	return m
}

func le[T any](v ...T) []byte {
	var b []byte
	for _, x := range v {
		b, _ = binary.Append(b, binary.LittleEndian, x)
	}
	return b
}

func TestModelInfer(t *testing.T) {
	t.Parallel()
	c, _, _, _ := serve(t)
	typed := func(dtype, contents string) string {
		return `inputs { name: "X" datatype: "` + dtype + `" shape: 2 contents { ` + contents + ` } }`
	}
	tests := []struct {
		name, req string
		dtype     string
		shape     []int64
		want      []byte
	}{
		{"raw", `inputs { name: "X" datatype: "FP16" shape: 1 shape: 2 } raw_input_contents: "abcd"`, "FP16", []int64{1, 2}, []byte("abcd")},
		{"raw, one too many", `inputs { name: "X" datatype: "INT8" shape: 2 } raw_input_contents: "ab" raw_input_contents: "z"`, "INT8", []int64{2}, []byte("ab")},
		{"raw, no elements", `inputs { name: "X" datatype: "FP32" shape: 0 } raw_input_contents: ""`, "FP32", []int64{0}, nil},
		{"BOOL", typed("BOOL", `bool_contents: [true, false]`), "BOOL", []int64{2}, []byte{1, 0}},
		{"INT8", typed("INT8", `int_contents: [200, -1]`), "INT8", []int64{2}, []byte{200, 255}},
		{"INT16", typed("INT16", `int_contents: [-2, 3]`), "INT16", []int64{2}, le[int16](-2, 3)},
		{"INT32", typed("INT32", `int_contents: [-2, 3]`), "INT32", []int64{2}, le[int32](-2, 3)},
		{"INT64", typed("INT64", `int64_contents: [-2, 3]`), "INT64", []int64{2}, le[int64](-2, 3)},
		{"UINT8", typed("UINT8", `uint_contents: [2, 255]`), "UINT8", []int64{2}, []byte{2, 255}},
		{"UINT16", typed("UINT16", `uint_contents: [2, 65535]`), "UINT16", []int64{2}, le[uint16](2, 65535)},
		{"UINT32", typed("UINT32", `uint_contents: [2, 3]`), "UINT32", []int64{2}, le[uint32](2, 3)},
		{"UINT64", typed("UINT64", `uint64_contents: [2, 3]`), "UINT64", []int64{2}, le[uint64](2, 3)},
		{"FP32", typed("FP32", `fp32_contents: [0.5, -3]`), "FP32", []int64{2}, le[float32](0.5, -3)},
		{"FP64", typed("FP64", `fp64_contents: [0.5, -3]`), "FP64", []int64{2}, le[float64](0.5, -3)},
		{"BYTES", typed("BYTES", `bytes_contents: ["a", ""]`), "BYTES", []int64{2}, []byte("\x01\x00\x00\x00a\x00\x00\x00\x00")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			req := message(t, tt.req)
			req.Id, req.ModelVersion = "7", "1"
			got, err := c.ModelInfer(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			want := &inference.ModelInferResponse{
				ModelName: "echo", ModelVersion: "1", Id: "7",
				Outputs:           []*inference.ModelInferResponse_InferOutputTensor{{Name: "X", Datatype: tt.dtype, Shape: tt.shape}},
				RawOutputContents: [][]byte{tt.want},
			}
			if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestModelInferSeveral(t *testing.T) {
	t.Parallel()
	c, _, _, _ := serve(t)
	got, err := c.ModelInfer(t.Context(), message(t, `inputs { name: "A" datatype: "UINT8" shape: 1 } inputs { name: "B" datatype: "UINT8" shape: 3 }
		raw_input_contents: "a" raw_input_contents: "bcd" outputs { name: "B" } outputs { name: "A" }`))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([][]byte{[]byte("bcd"), []byte("a")}, got.RawOutputContents); diff != "" || got.Outputs[0].Name != "B" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestModelInferParameters(t *testing.T) {
	t.Parallel()
	c, _, e, _ := serve(t)
	req := message(t, `model_name: "params" inputs { name: "X" datatype: "UINT8" shape: 1 } raw_input_contents: "a"
		parameters { key: "sequence_id" value { int64_param: 5 } } parameters { key: "sequence_end" value { bool_param: true } }
		parameters { key: "priority" value { uint64_param: 2 } } parameters { key: "timeout" value { int64_param: 9 } }
		parameters { key: "triton_enable_empty_final_response" value { bool_param: true } }
		parameters { key: "b" value { bool_param: true } } parameters { key: "d" value { double_param: 0.5 } }
		parameters { key: "i" value { int64_param: -1 } } parameters { key: "s" value { string_param: "x" } }
		parameters { key: "u" value { uint64_param: 18446744073709551615 } }`)
	got, err := c.ModelInfer(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	want := &infer.Meta{
		Sequence: infer.Sequence{ID: 5, End: true}, Priority: 2, Timeout: 9,
		Params: infer.Params{
			{Key: "b", Kind: infer.ParamBool, Bool: true},
			{Key: "d", Kind: infer.ParamDouble, Double: 0.5},
			{Key: "i", Kind: infer.ParamInt, Int: -1},
			{Key: "s", Kind: infer.ParamString, String: "x"},
			{Key: "u", Kind: infer.ParamUint, Uint: math.MaxUint64},
		},
	}
	if diff := cmp.Diff(want, e.Last.Load()); diff != "" {
		t.Errorf("meta (-want +got):\n%s", diff)
	}
	for _, k := range []string{"sequence_id", "sequence_end", "priority", "timeout", "triton_enable_empty_final_response"} {
		delete(req.Parameters, k)
	}
	if diff := cmp.Diff(req.Parameters, got.Parameters, protocmp.Transform()); diff != "" {
		t.Errorf("response (-want +got):\n%s", diff)
	}
}

const shmDisabled = "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable."

// shows: grpc.errors
func TestModelInferErrors(t *testing.T) {
	t.Parallel()
	c, _, _, _ := serve(t)
	const good = `inputs { name: "X" datatype: "UINT8" shape: 1 } raw_input_contents: "a" `
	param := func(key, value string) string {
		return good + `parameters { key: "` + key + `" value { ` + value + ` } }`
	}
	tests := []struct {
		name, req string
		code      codes.Code
		want      string
	}{
		{"unknown model", `model_name: "nope" ` + good, codes.InvalidArgument, "Request for unknown model: 'nope' is not found"},
		{"unknown model before bad data", `model_name: "nope" inputs { datatype: "x" }`, codes.InvalidArgument, "Request for unknown model: 'nope' is not found"},
		{"unknown version", `model_version: "3" ` + good, codes.NotFound, "Request for unknown model: 'echo' version 3 is not found"},
		{"version no number", `model_version: "a" ` + good, codes.InvalidArgument, "failed to get model version from specified version string 'a' (details: stol), version should be an integral value > 0"},
		{"version negative", `model_version: "-1" ` + good, codes.InvalidArgument, "failed to get model version from specified version string '-1', version should be an integral value > 0"},
		{"not ready", `model_name: "unready" ` + good, codes.Unavailable, "Request for unknown model: 'unready' version 1 is not at ready state"},
		{"failure", `model_name: "fail" ` + good, codes.Internal, `in ensemble 'fail', it went "wrong"`},
		{"no response", `model_name: "silent" ` + good, codes.Internal, "received an unexpected null response"},
		{"datatype", `inputs { name: "X" datatype: "UINT9" shape: 1 } raw_input_contents: "a"`, codes.InvalidArgument, "invalid datatype for input X"},
		{"negative shape", `inputs { name: "X" datatype: "UINT8" shape: -1 } raw_input_contents: "a"`, codes.InvalidArgument, "invalid shape for input 'X': shape [-1] contains one or more invalid dimensions"},
		{"too many elements", `inputs { name: "X" datatype: "UINT8" shape: 9223372036854775807 shape: 2 } raw_input_contents: "a"`, codes.InvalidArgument, "invalid shape for input 'X': shape [9223372036854775807,2] causes total element count to exceed maximum size of 9223372036854775807"},
		{"too many bytes", `inputs { name: "X" datatype: "FP64" shape: 9223372036854775807 } raw_input_contents: "a"`, codes.InvalidArgument, "byte size overflow for input 'X': shape [9223372036854775807] of FP64"},
		{"raw size", `id: "q" inputs { name: "X" datatype: "FP32" shape: 2 } raw_input_contents: "abcd"`, codes.InvalidArgument, "[request id: q] input byte size mismatch for input 'X' for model 'echo'. Expected 8, got 4"},
		{"raw BYTES", `inputs { name: "X" datatype: "BYTES" shape: 2 } raw_input_contents: "\001\000\000\000a"`, codes.InvalidArgument, "[request id: <id_unknown>] expected 2 string elements for inference input 'X' for model 'echo', got 1"},
		{"raw BYTES in both", `inputs { name: "X" datatype: "BYTES" shape: 2 } inputs { name: "Y" datatype: "BYTES" shape: 2 } raw_input_contents: "\001\000\000\000a" raw_input_contents: "\001\000\000\000a"`, codes.InvalidArgument, "[request id: <id_unknown>] expected 2 string elements for inference input 'Y' for model 'echo', got 1"},
		{"typed size", `inputs { name: "X" datatype: "FP32" shape: 2 contents { fp32_contents: 1 } }`, codes.InvalidArgument, "[request id: <id_unknown>] input byte size mismatch for input 'X' for model 'echo'. Expected 8, got 4"},
		{"raw and typed", `inputs { name: "X" datatype: "UINT8" shape: 1 contents { uint_contents: 1 } } raw_input_contents: "a"`, codes.InvalidArgument, "contents field must not be specified when using raw_input_contents for 'X' for model 'echo'"},
		{"no data", `inputs { name: "X" datatype: "UINT8" shape: 1 }`, codes.InvalidArgument, "unable to find data for input tensor 'X' for model 'echo' in request."},
		{"no raw data left", good + `inputs { name: "Y" datatype: "UINT8" shape: 1 }`, codes.InvalidArgument, "unable to find data for input tensor 'Y' for model 'echo' in request."},
		{"FP16 typed", `inputs { name: "X" datatype: "FP16" shape: 1 contents { } }`, codes.InvalidArgument, "unable to find data for input tensor 'X' for model 'echo' in request."},
		{"wrong field", `inputs { name: "X" datatype: "FP32" shape: 1 contents { fp64_contents: 1 } }`, codes.InvalidArgument, "unexpected explicit tensor data for input tensor 'X' for model 'echo' of type 'FP64', expected datatype 'FP32'"},
		{"input twice", good + good, codes.InvalidArgument, "[request id: <id_unknown>] input 'X' already exists in request"},
		{"output twice", good + `outputs { name: "X" } outputs { name: "X" }`, codes.InvalidArgument, "[request id: <id_unknown>] output 'X' already exists in request"},
		{"shared memory in", `inputs { name: "X" datatype: "UINT8" shape: 1 parameters { key: "shared_memory_region" value { string_param: "r" } } }`, codes.Unimplemented, shmDisabled},
		{"shared memory out", good + `outputs { name: "X" parameters { key: "shared_memory_region" value { string_param: "r" } } }`, codes.Unimplemented, shmDisabled},
		{"classification type", good + `outputs { name: "X" parameters { key: "classification" value { string_param: "2" } } }`, codes.InvalidArgument, "invalid value type for 'classification' parameter, expected int64_param"},
		{"classification 0", good + `outputs { name: "X" parameters { key: "classification" value { int64_param: 0 } } }`, codes.InvalidArgument, "invalid value for 'classification' parameter, expected >= 0"},
		{"classification of BYTES", `inputs { name: "X" datatype: "BYTES" shape: 0 } raw_input_contents: "" outputs { name: "X" parameters { key: "classification" value { int64_param: 1 } } }`, codes.InvalidArgument, "class result not available for output due to unsupported type 'BYTES'"},
		{"offset without region", `inputs { name: "X" datatype: "UINT8" shape: 1 parameters { key: "shared_memory_offset" value { int64_param: 1 } } } raw_input_contents: "a"`, codes.InvalidArgument, "'shared_memory_offset' can not be specified without 'shared_memory_region' parameter for tensor 'X'"},
		{"region type", good + `outputs { name: "X" parameters { key: "shared_memory_region" value { int64_param: 1 } } }`, codes.InvalidArgument, "invalid value type for 'shared_memory_region' parameter for tensor 'X', expected string_param."},
		{"byte size type", good + `outputs { name: "X" parameters { key: "shared_memory_region" value { string_param: "r" } } parameters { key: "shared_memory_byte_size" value { string_param: "r" } } }`, codes.InvalidArgument, "invalid value type for 'shared_memory_byte_size' parameter for tensor 'X', expected int64_param."},
		{"sequence id", param("sequence_id", "bool_param: true"), codes.InvalidArgument, "invalid value type for 'sequence_id' parameter, expected int64_param or string_param."},
		{"sequence start", param("sequence_start", "int64_param: 1"), codes.InvalidArgument, "invalid value type for 'sequence_start' parameter, expected bool_param."},
		{"priority", param("priority", `string_param: "1"`), codes.InvalidArgument, "invalid value type for 'priority' parameter, expected int64_param or uint64_param."},
		{"reserved", param("triton_x", "bool_param: true"), codes.InvalidArgument, "parameter keys starting with 'triton_' are reserved for Triton usage. Only the following keys starting with 'triton_' are allowed: triton_enable_empty_final_response"},
		{"no value", param("k", ""), codes.InvalidArgument, "invalid value type for 'k' parameter, expected bool_param, int64_param, uint64_param, double_param or string_param."},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := c.ModelInfer(t.Context(), message(t, tt.req))
			if s := status.Convert(err); s.Code() != tt.code || s.Message() != tt.want {
				t.Errorf("got %s %q\nwant %s %q", s.Code(), s.Message(), tt.code, tt.want)
			}
		})
	}
}

// shows: infer.cancel
func TestModelInferCancel(t *testing.T) {
	t.Parallel()
	c, _, e, _ := serve(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := c.ModelInfer(ctx, &inference.ModelInferRequest{ModelName: "wait"})
		done <- err
	}()
	<-e.Waiting
	cancel()
	if err := <-done; status.Code(err) != codes.Canceled {
		t.Errorf("got %v, want cancelled", err)
	}
	<-e.Cancelled
}

// TestShutdownCancels checks that Shutdown cancels a request that does not end by itself.
func TestShutdownCancels(t *testing.T) {
	t.Parallel()
	c, _, e, s := serve(t)
	done := make(chan error, 1)
	go func() {
		_, err := c.ModelInfer(t.Context(), &inference.ModelInferRequest{ModelName: "wait"})
		done <- err
	}()
	<-e.Waiting
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Shutdown(over); err == nil {
		t.Error("Shutdown did not say that a request was active")
	}
	<-e.Cancelled
	if err := <-done; err == nil {
		t.Error("the request succeeded")
	}
}

func TestMetadataAndReadiness(t *testing.T) {
	t.Parallel()
	c, conn, e, _ := serve(t)
	ctx := t.Context()
	same := func(got, want proto.Message, err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	live, err := c.ServerLive(ctx, &inference.ServerLiveRequest{})
	same(live, &inference.ServerLiveResponse{Live: true}, err)
	ready, err := c.ServerReady(ctx, &inference.ServerReadyRequest{})
	same(ready, &inference.ServerReadyResponse{Ready: true}, err)
	about, err := c.ServerMetadata(ctx, &inference.ServerMetadataRequest{})
	same(about, &inference.ServerMetadataResponse{Name: "tutti", Version: "1.0.0", Extensions: []string{"statistics"}}, err)
	mr, err := c.ModelReady(ctx, &inference.ModelReadyRequest{Name: "echo"})
	same(mr, &inference.ModelReadyResponse{Ready: true}, err)
	for _, name := range []string{"unready", "nope"} {
		mr, err = c.ModelReady(ctx, &inference.ModelReadyRequest{Name: name})
		same(mr, &inference.ModelReadyResponse{}, err)
	}
	x := []*inference.ModelMetadataResponse_TensorMetadata{{Name: "X", Datatype: "FP32", Shape: []int64{-1}}}
	md, err := c.ModelMetadata(ctx, &inference.ModelMetadataRequest{Name: "echo", Version: "1"})
	same(md, &inference.ModelMetadataResponse{Name: "echo", Versions: []string{"1"}, Platform: "echo", Inputs: x, Outputs: x}, err)
	cfg, err := c.ModelConfig(ctx, &inference.ModelConfigRequest{Name: "echo"})
	want, _ := e.Config("echo", 0)
	same(cfg, &inference.ModelConfigResponse{Config: want}, err)
	st, err := c.ModelStatistics(ctx, &inference.ModelStatisticsRequest{})
	if err != nil || len(st.GetModelStats()) != 2 || st.ModelStats[0].InferenceStats.Success.Ns != 1000 || st.ModelStats[0].BatchStats[0].BatchSize != 4 {
		t.Errorf("statistics: %v, %v", st, err)
	}

	health := grpc_health_v1.NewHealthClient(conn)
	h, err := health.Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: "anything"})
	same(h, &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING}, err)
	e.NotReady.Store(true)
	h, err = health.Check(ctx, &grpc_health_v1.HealthCheckRequest{})
	same(h, &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_NOT_SERVING}, err)
	ready, err = c.ServerReady(ctx, &inference.ServerReadyRequest{})
	same(ready, &inference.ServerReadyResponse{}, err)
}

func TestMetadataErrors(t *testing.T) {
	t.Parallel()
	c, _, _, _ := serve(t)
	ctx := t.Context()
	check := func(err error, code codes.Code, want string) {
		t.Helper()
		if s := status.Convert(err); s.Code() != code || s.Message() != want {
			t.Errorf("got %s %q, want %s %q", s.Code(), s.Message(), code, want)
		}
	}
	_, err := c.ModelReady(ctx, &inference.ModelReadyRequest{})
	check(err, codes.InvalidArgument, "Missing model name in ModelReady request")
	_, err = c.ModelMetadata(ctx, &inference.ModelMetadataRequest{})
	check(err, codes.InvalidArgument, "Missing model name in ModelMetadata request")
	_, err = c.ModelConfig(ctx, &inference.ModelConfigRequest{Name: "echo", Version: "2"})
	check(err, codes.NotFound, "Request for unknown model: 'echo' version 2 is not found")
	_, err = c.ModelStatistics(ctx, &inference.ModelStatisticsRequest{Name: "nope"})
	check(err, codes.InvalidArgument, "requested model 'nope' is not available")
	_, err = c.RepositoryIndex(ctx, &inference.RepositoryIndexRequest{})
	check(err, codes.Unimplemented, "the RepositoryIndex method is not supported by this server")
	_, err = c.LogSettings(ctx, &inference.LogSettingsRequest{})
	check(err, codes.Unimplemented, "the LogSettings method is not supported by this server")
}
