package grpcapi_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/tutti-server/tutti/core/infer"
	corestatus "github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/logs"
	"github.com/tutti-server/tutti/internal/server/grpcapi"
	"github.com/tutti-server/tutti/internal/server/servertest"
	"github.com/tutti-server/tutti/internal/shm"
	"github.com/tutti-server/tutti/internal/tracing"
	"github.com/tutti-server/tutti/proto/inference"
)

// lifecycle records the calls of a Lifecycle.
type lifecycle struct {
	loaded     infer.LoadOptions
	dependents bool
}

func (*lifecycle) Index(ready bool) []infer.Entry {
	if ready {
		return []infer.Entry{{Name: "a", Version: "1", State: infer.Ready}}
	}
	return []infer.Entry{{Name: "a", Version: "1", State: infer.Ready}, {Name: "b", Version: "2", State: infer.Unavailable, Reason: "unloaded"}, {Name: "c"}}
}

func (l *lifecycle) Load(_ context.Context, model string, o infer.LoadOptions) error {
	if model == "bad" {
		return corestatus.Errorf(corestatus.Internal, "failed to load 'bad', failed to poll from model repository")
	}
	l.loaded = o
	return nil
}

func (l *lifecycle) Unload(_ context.Context, _ string, dependents bool) error {
	l.dependents = dependents
	return nil
}

// textProto parses a message from text.
func textProto[M proto.Message](t *testing.T, text string, m M) M {
	t.Helper()
	if err := prototext.Unmarshal([]byte(text), m); err != nil {
		t.Fatal(err)
	}
	return m
}

func wantProto(t *testing.T, got proto.Message, err error, text string) {
	t.Helper()
	if err != nil {
		t.Error(err)
		return
	}
	want := textProto(t, text, got.ProtoReflect().New().Interface())
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func wantError(t *testing.T, err error, code codes.Code, text string) {
	t.Helper()
	if s := status.Convert(err); s.Code() != code || s.Message() != text {
		t.Errorf("got %s %q, want %s %q", s.Code(), s.Message(), code, text)
	}
}

// TestRepository checks the index, load and unload methods and their options.
// shows: repository
func TestRepository(t *testing.T) {
	t.Parallel()
	e, l := servertest.NewEcho(), &lifecycle{}
	c, _, _ := serveWith(t, grpcapi.Settings{Infer: e, Catalog: e, Lifecycle: l})
	ctx := t.Context()
	index, err := c.RepositoryIndex(ctx, &inference.RepositoryIndexRequest{RepositoryName: "any"})
	wantProto(t, index, err, `models { name: "a" version: "1" state: "READY" } models { name: "b" version: "2" state: "UNAVAILABLE" reason: "unloaded" } models { name: "c" }`)
	index, err = c.RepositoryIndex(ctx, &inference.RepositoryIndexRequest{Ready: true})
	wantProto(t, index, err, `models { name: "a" version: "1" state: "READY" }`)

	load := func(text string) error {
		_, err := c.RepositoryModelLoad(ctx, textProto(t, text, &inference.RepositoryModelLoadRequest{}))
		return err
	}
	err = load(`model_name: "a" parameters { key: "config" value { string_param: "{}" } } parameters { key: "file:1/m" value { bytes_param: "\001" } }`)
	want := infer.LoadOptions{Config: "{}", Files: map[string][]byte{"1/m": {1}}}
	if diff := cmp.Diff(want, l.loaded); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	wantError(t, load(`model_name: "bad"`), codes.Internal, "failed to load 'bad', failed to poll from model repository")
	wantError(t, load(`repository_name: "r"`), codes.Unimplemented, "'repository_name' specification is not supported")
	wantError(t, load(`parameters { key: "x" value { bool_param: true } }`), codes.InvalidArgument, "unrecognized load parameter 'x'.")
	wantError(t, load(`parameters { key: "config" value { bytes_param: "" } }`), codes.InvalidArgument, "invalid value type for load parameter 'config', expected string_param.")
	wantError(t, load(`parameters { key: "file:a" value { string_param: "" } }`), codes.InvalidArgument, "invalid value type for load parameter 'file:a', expected bytes_param.")

	unload := func(text string) error {
		_, err := c.RepositoryModelUnload(ctx, textProto(t, text, &inference.RepositoryModelUnloadRequest{}))
		return err
	}
	if err := unload(`model_name: "a" parameters { key: "unload_dependents" value { bool_param: true } }`); err != nil || !l.dependents {
		t.Errorf("%v, dependents %v", err, l.dependents)
	}
	wantError(t, unload(`repository_name: "r"`), codes.Unimplemented, "'repository_name' specification is not supported")
	wantError(t, unload(`parameters { key: "unload_dependents" value { int64_param: 1 } }`), codes.InvalidArgument, "invalid value type for 'unload_dependents' parameter, expected bool_param.")
}

// TestNotBuilt checks the errors of a server without optional services.
func TestNotBuilt(t *testing.T) {
	t.Parallel()
	c, _, _, _ := serve(t)
	ctx := t.Context()
	_, err := c.RepositoryModelLoad(ctx, &inference.RepositoryModelLoadRequest{})
	wantError(t, err, codes.Unimplemented, "the RepositoryModelLoad method is not supported by this server")
	_, err = c.RepositoryModelUnload(ctx, &inference.RepositoryModelUnloadRequest{})
	wantError(t, err, codes.Unimplemented, "the RepositoryModelUnload method is not supported by this server")
	_, err = c.TraceSetting(ctx, &inference.TraceSettingRequest{})
	wantError(t, err, codes.Unimplemented, "the TraceSetting method is not supported by this server")
	_, err = c.SystemSharedMemoryRegister(ctx, &inference.SystemSharedMemoryRegisterRequest{Name: "r"})
	wantError(t, err, codes.Unimplemented, shmDisabled)
	_, err = c.SystemSharedMemoryUnregister(ctx, &inference.SystemSharedMemoryUnregisterRequest{})
	wantError(t, err, codes.Unimplemented, shmDisabled)
	none, err := c.CudaSharedMemoryStatus(ctx, &inference.CudaSharedMemoryStatusRequest{})
	wantProto(t, none, err, "")
	_, err = c.CudaSharedMemoryUnregister(ctx, &inference.CudaSharedMemoryUnregisterRequest{})
	wantError(t, err, codes.Unimplemented, shmDisabled)
}

func TestSharedMemory(t *testing.T) {
	t.Parallel()
	f, err := os.CreateTemp("/dev/shm", "tutti_grpc_test_")
	if err != nil {
		t.Skip("no POSIX shared memory:", err)
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if _, err := f.WriteString("--abcdef--------"); err != nil {
		t.Fatal(err)
	}
	e := servertest.NewEcho()
	c, _, _ := serveWith(t, grpcapi.Settings{Infer: e, Catalog: e, Regions: shm.NewRegistry(true)})
	ctx := t.Context()
	key := filepath.Base(f.Name())
	if _, err = c.SystemSharedMemoryRegister(ctx, &inference.SystemSharedMemoryRegisterRequest{Name: "r", Key: key, Offset: 2, ByteSize: 14}); err != nil {
		t.Fatal(err)
	}
	regions, err := c.SystemSharedMemoryStatus(ctx, &inference.SystemSharedMemoryStatusRequest{})
	wantProto(t, regions, err, `regions { key: "r" value { name: "r" key: "`+key+`" offset: 2 byte_size: 14 } }`)
	_, err = c.SystemSharedMemoryStatus(ctx, &inference.SystemSharedMemoryStatusRequest{Name: "q"})
	wantError(t, err, codes.NotFound, "Unable to find system shared memory region: 'q'")
	_, err = c.CudaSharedMemoryRegister(ctx, &inference.CudaSharedMemoryRegisterRequest{Name: "g", RawHandle: make([]byte, 64)})
	wantError(t, err, codes.InvalidArgument, "failed to register shared memory region 'g': invalid args, GPUs not supported")

	const place = `parameters { key: "shared_memory_region" value { string_param: "r" } } parameters { key: "shared_memory_byte_size" value { int64_param: 4 } } `
	// Input A is in shared memory and output A is raw; B is the other way round.
	resp, err := c.ModelInfer(ctx, message(t, `inputs { name: "A" datatype: "UINT8" shape: 4 `+place+`parameters { key: "shared_memory_offset" value { int64_param: 1 } } }
		inputs { name: "B" datatype: "UINT8" shape: 2 } raw_input_contents: "xy"
		outputs { name: "A" } outputs { name: "B" `+place+`parameters { key: "shared_memory_offset" value { int64_param: 8 } } }`))
	wantProto(t, resp, err, `model_name: "echo" model_version: "1" outputs { name: "A" datatype: "UINT8" shape: 4 }
		outputs { name: "B" datatype: "UINT8" shape: 2 parameters { key: "shared_memory_region" value { string_param: "r" } }
			parameters { key: "shared_memory_byte_size" value { int64_param: 2 } } parameters { key: "shared_memory_offset" value { int64_param: 8 } } }
		raw_output_contents: "bcde" raw_output_contents: ""`)
	now, err := os.ReadFile(f.Name())
	if err != nil || string(now) != "--abcdef--xy----" {
		t.Errorf("%q, %v", now, err)
	}

	for _, tt := range []struct {
		req  string
		code codes.Code
		want string
	}{
		{`inputs { name: "A" datatype: "UINT8" shape: 4 ` + place + `contents { } }`, codes.InvalidArgument, "unexpected 'content' provided when using shared memory for input tensor 'A' for model 'echo'"},
		{`inputs { name: "A" datatype: "UINT8" shape: 5 ` + place + `}`, codes.InvalidArgument, "[request id: <id_unknown>] input byte size mismatch for input 'A' for model 'echo'. Expected 5, got 4"},
		{`inputs { name: "A" datatype: "UINT8" shape: 5 } raw_input_contents: "abcde" outputs { name: "A" ` + place + `}`, codes.Internal, "shared memory size specified with the request for output 'A' (4 bytes) should be at least 5 bytes to hold the results"},
		{`outputs { name: "A" ` + place + `parameters { key: "classification" value { int64_param: 1 } } }`, codes.InvalidArgument, "output can't set both 'shared_memory_region' and 'classification'"},
		{`outputs { name: "A" ` + place + `parameters { key: "shared_memory_offset" value { int64_param: 12 } } }`, codes.InvalidArgument, "Invalid offset + byte size for shared memory region: 'r'"},
	} {
		_, err := c.ModelInfer(ctx, message(t, tt.req))
		wantError(t, err, tt.code, tt.want)
	}
	if _, err = c.SystemSharedMemoryUnregister(ctx, &inference.SystemSharedMemoryUnregisterRequest{}); err != nil {
		t.Error(err)
	}
	regions, err = c.SystemSharedMemoryStatus(ctx, &inference.SystemSharedMemoryStatusRequest{})
	wantProto(t, regions, err, "")
}

// TestRegionInUse checks that the regions of a request cannot be unregistered while it executes, and can be once
// its response has been sent.
// shows: shm.use
func TestRegionInUse(t *testing.T) {
	t.Parallel()
	const place = `parameters { key: "shared_memory_region" value { string_param: "r" } } parameters { key: "shared_memory_byte_size" value { int64_param: 4 } } `
	for name, parts := range map[string]string{
		"input":  `inputs { name: "A" datatype: "UINT8" shape: 4 ` + place + `}`,
		"output": `inputs { name: "A" datatype: "UINT8" shape: 4 } raw_input_contents: "abcd" outputs { name: "A" ` + place + `}`,
	} {
		for _, call := range []func(context.Context, inference.GRPCInferenceServiceClient, *inference.ModelInferRequest) error{inferOnce, inferByStream} {
			f, err := os.CreateTemp("/dev/shm", "tutti_grpc_test_")
			if err != nil {
				t.Skip("no POSIX shared memory:", err)
			}
			defer os.Remove(f.Name())
			if _, err := f.WriteString("abcd"); err != nil || f.Close() != nil {
				t.Fatal(err)
			}
			regions, e := shm.NewRegistry(true), servertest.NewEcho()
			c, _, _ := serveWith(t, grpcapi.Settings{Infer: e, Catalog: e, Regions: regions})
			if err := regions.RegisterSystem("r", filepath.Base(f.Name()), 0, 4); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- call(ctx, c, message(t, `model_name: "wait" `+parts)) }()
			<-e.Waiting
			_, err = c.SystemSharedMemoryUnregister(t.Context(), &inference.SystemSharedMemoryUnregisterRequest{Name: "r"})
			wantError(t, err, codes.Internal, "Cannot unregister shared memory region 'r', it is currently in use.")
			_, err = c.SystemSharedMemoryUnregister(t.Context(), &inference.SystemSharedMemoryUnregisterRequest{})
			wantError(t, err, codes.Internal, "Failed to unregister the following system shared memory regions: r ,")
			cancel()
			<-e.Cancelled
			if err := <-done; err == nil {
				t.Errorf("%s: the request succeeded", name)
			}
		}
	}
}

// TestRegionFreeAfterResponse checks that a region can be unregistered as soon as the client has the response.
func TestRegionFreeAfterResponse(t *testing.T) {
	t.Parallel()
	f, err := os.CreateTemp("/dev/shm", "tutti_grpc_test_")
	if err != nil {
		t.Skip("no POSIX shared memory:", err)
	}
	defer os.Remove(f.Name())
	if _, err := f.WriteString("abcdefgh"); err != nil || f.Close() != nil {
		t.Fatal(err)
	}
	const place = `parameters { key: "shared_memory_region" value { string_param: "r" } } parameters { key: "shared_memory_byte_size" value { int64_param: 4 } } `
	regions, e := shm.NewRegistry(true), servertest.NewEcho()
	c, _, _ := serveWith(t, grpcapi.Settings{Infer: e, Catalog: e, Regions: regions})
	for _, parts := range []string{`datatype: "UINT8" shape: 4`, `datatype: "UINT8" shape: 5`} {
		for _, call := range []func(context.Context, inference.GRPCInferenceServiceClient, *inference.ModelInferRequest) error{inferOnce, inferByStream} {
			for range 50 {
				if err := regions.RegisterSystem("r", filepath.Base(f.Name()), 0, 8); err != nil {
					t.Fatal(err)
				}
				err := call(t.Context(), c, message(t, `inputs { name: "A" `+parts+" "+place+`} outputs { name: "A" `+place+`}`))
				if good := strings.HasSuffix(parts, "4"); (err == nil) != good {
					t.Fatal(err)
				}
				if err := regions.Unregister(shm.System, "r"); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

func inferOnce(ctx context.Context, c inference.GRPCInferenceServiceClient, req *inference.ModelInferRequest) error {
	_, err := c.ModelInfer(ctx, req)
	return err
}

// inferByStream sends one request on a stream and returns the response.
func inferByStream(ctx context.Context, c inference.GRPCInferenceServiceClient, req *inference.ModelInferRequest) error {
	s, err := c.ModelStreamInfer(ctx)
	if err != nil {
		return err
	}
	if err := s.Send(req); err != nil {
		return err
	}
	resp, err := s.Recv()
	if err == nil && resp.GetErrorMessage() != "" {
		err = errors.New(resp.GetErrorMessage())
	}
	return errors.Join(err, s.CloseSend())
}

func TestClassification(t *testing.T) {
	t.Parallel()
	c, _, _, _ := serve(t)
	resp, err := c.ModelInfer(t.Context(), message(t, `inputs { name: "X" datatype: "UINT8" shape: 3 } raw_input_contents: "\001\003\002"
		outputs { name: "X" parameters { key: "classification" value { int64_param: 2 } } }`))
	wantProto(t, resp, err, `model_name: "echo" model_version: "1" outputs { name: "X" datatype: "BYTES" shape: 2 }
		raw_output_contents: "\003\000\000\0003:1\003\000\000\0002:2"`)
}

// shows: trace
func TestTraceSetting(t *testing.T) {
	t.Parallel()
	tracer, err := tracing.New(tracing.Options{})
	if err != nil {
		t.Fatal(err)
	}
	e := servertest.NewEcho()
	c, _, _ := serveWith(t, grpcapi.Settings{Infer: e, Catalog: e, Tracer: tracer})
	set := func(text string) (*inference.TraceSettingResponse, error) {
		return c.TraceSetting(t.Context(), textProto(t, text, &inference.TraceSettingRequest{}))
	}
	rate := func(text, want string) {
		t.Helper()
		resp, err := set(text)
		if err != nil || !cmp.Equal(resp.GetSettings()["trace_rate"].GetValue(), []string{want}) {
			t.Errorf("%v, %v, want rate %s", resp, err, want)
		}
	}
	rate(``, "1000")
	rate(`settings { key: "trace_rate" value { value: "5" } } model_name: "echo"`, "5")
	rate(``, "1000")
	rate(`settings { key: "trace_rate" value { } } model_name: "echo"`, "1000")
	_, err = set(`model_name: "nope"`)
	wantError(t, err, codes.InvalidArgument, "Request for unknown model : nope")
	_, err = set(`settings { key: "trace_file" value { value: "f" } }`)
	wantError(t, err, codes.Unimplemented, "trace file location can not be updated through network protocol")
	_, err = set(`settings { key: "trace_rate" value { value: "x" } }`)
	wantError(t, err, codes.InvalidArgument, "Unable to parse 'trace_rate', got: x")
}

// shows: logging
func TestLogSettings(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log, err := logs.New(logs.Settings{Info: true, Error: true}, &out, &out)
	if err != nil {
		t.Fatal(err)
	}
	e := servertest.NewEcho()
	c, _, _ := serveWith(t, grpcapi.Settings{Infer: e, Catalog: e, Log: log})
	set := func(text string) (*inference.LogSettingsResponse, error) {
		return c.LogSettings(t.Context(), textProto(t, text, &inference.LogSettingsRequest{}))
	}
	resp, err := set(`settings { key: "log_info" value { bool_param: false } } settings { key: "log_warning" value { bool_param: true } }
		settings { key: "log_verbose_level" value { uint32_param: 2 } } settings { key: "log_format" value { string_param: "ISO8601" } }`)
	wantProto(t, resp, err, `settings { key: "log_info" value { bool_param: false } } settings { key: "log_warning" value { bool_param: true } }
		settings { key: "log_error" value { bool_param: true } } settings { key: "log_file" value { string_param: "" } }
		settings { key: "log_verbose_level" value { uint32_param: 2 } } settings { key: "log_format" value { string_param: "ISO8601" } }`)
	for _, tt := range []struct {
		req  string
		code codes.Code
		want string
	}{
		{`settings { key: "log_file" value { string_param: "f" } }`, codes.Unimplemented, "log file location can not be updated through network protocol"},
		{`settings { key: "log_format" value { string_param: "f" } }`, codes.InvalidArgument, "invalid argument for log_format, got: f"},
		{`settings { key: "log_info" value { uint32_param: 1 } }`, codes.InvalidArgument, "invalid value type for 'log_info' parameter, expected bool_param."},
		{`settings { key: "log_error" value { } }`, codes.InvalidArgument, "invalid value type for 'log_error' parameter, expected bool_param."},
		{`settings { key: "log_format" value { } }`, codes.InvalidArgument, "invalid value type for 'log_format' parameter, expected string_param."},
		{`settings { key: "log_verbose_level" value { } }`, codes.InvalidArgument, "invalid value type for 'log_verbose_level' parameter, expected uint32_param."},
		{`settings { key: "x" value { } }`, codes.InvalidArgument, "unrecognized log setting 'x'"},
	} {
		_, err := set(tt.req)
		wantError(t, err, tt.code, tt.want)
	}
}

func TestHealthWatch(t *testing.T) {
	t.Parallel()
	_, conn, e, s := serve(t)
	stream, err := grpc_health_v1.NewHealthClient(conn).Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: "any"})
	if err != nil {
		t.Fatal(err)
	}
	want := func(state grpc_health_v1.HealthCheckResponse_ServingStatus) {
		t.Helper()
		got, err := stream.Recv()
		if err != nil || got.GetStatus() != state {
			t.Fatalf("got %v, %v, want %v", got, err, state)
		}
	}
	want(grpc_health_v1.HealthCheckResponse_SERVING)
	e.NotReady.Store(true)
	s.ReadinessChanged()
	want(grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	e.NotReady.Store(false)
	s.ReadinessChanged()
	want(grpc_health_v1.HealthCheckResponse_SERVING)
	done := make(chan error, 1)
	go func() { done <- s.Shutdown(context.WithoutCancel(t.Context())) }()
	want(grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	_, err = stream.Recv()
	wantError(t, err, codes.Unavailable, "GRPC server is shutting down and has stopped accepting new requests.")
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestReflection(t *testing.T) {
	t.Parallel()
	_, conn, _, _ := serve(t)
	stream, err := reflectionpb.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ask := func(req *reflectionpb.ServerReflectionRequest) *reflectionpb.ServerReflectionResponse {
		t.Helper()
		if err := stream.Send(req); err != nil {
			t.Fatal(err)
		}
		resp, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	list := ask(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}})
	var names []string
	for _, s := range list.GetListServicesResponse().GetService() {
		names = append(names, s.GetName())
	}
	want := []string{"grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection", "inference.GRPCInferenceService", "xds.service.orca.v3.OpenRcaService"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	file := ask(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{
		FileContainingSymbol: "inference.GRPCInferenceService.ModelStreamInfer",
	}})
	if len(file.GetFileDescriptorResponse().GetFileDescriptorProto()) == 0 {
		t.Errorf("no file: %v", file)
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
}
