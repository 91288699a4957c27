package grpcapi_test

import (
	"bytes"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/server/grpcapi"
	"github.com/tutti-server/tutti/internal/server/servertest"
	"github.com/tutti-server/tutti/proto/inference"
)

// transcript is what a server sends for some calls.
type transcript struct {
	Response        *inference.ModelInferResponse
	Large           int // equal bytes of a large response
	Refused, Wrong  error
	Header, Trailer metadata.MD
	Live            *inference.ServerLiveResponse
	Health          *grpc_health_v1.HealthCheckResponse
	Streamed        []*inference.ModelStreamInferResponse
	StreamEnd       error
	Services        []string
}

// TestGRPCGo compares the responses that are served by grpc-go with those that are not.
func TestGRPCGo(t *testing.T) {
	t.Parallel()
	var all []transcript
	for _, slow := range []bool{false, true} {
		e := servertest.NewEcho()
		c, conn, _ := serveWith(t, grpcapi.Settings{
			Infer: e, Catalog: e, NoFastPath: slow, InFlight: infer.NewInFlight(64 << 20),
			Restricted: []infer.Restriction{{APIs: []infer.API{infer.APIStatistics}, Key: "k", Value: "v"}},
		})
		all = append(all, talk(t, c, conn))
	}
	compareErrors := cmp.Comparer(func(a, b error) bool {
		return status.Code(a) == status.Code(b) && status.Convert(a).Message() == status.Convert(b).Message() &&
			cmp.Equal(status.Convert(a).Proto(), status.Convert(b).Proto(), protocmp.Transform())
	})
	if d := cmp.Diff(all[1], all[0], protocmp.Transform(), compareErrors); d != "" {
		t.Errorf("grpc-go -, ours +:\n%s", d)
	}
	if got := status.Code(all[0].Refused); got != codes.Unavailable && got != codes.PermissionDenied {
		t.Errorf("the refused call: %v", all[0].Refused)
	}
}

func talk(t *testing.T, c inference.GRPCInferenceServiceClient, conn *grpc.ClientConn) (got transcript) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var err error
	got.Response, err = c.ModelInfer(t.Context(), message(t, xAB), grpc.Header(&got.Header), grpc.Trailer(&got.Trailer))
	must(err)
	large := &inference.ModelInferRequest{
		ModelName: "echo", RawInputContents: [][]byte{bytes.Repeat([]byte("l"), 3<<20)},
		Inputs: []*inference.ModelInferRequest_InferInputTensor{{Name: "X", Datatype: "UINT8", Shape: []int64{3 << 20}}},
	}
	response, err := c.ModelInfer(t.Context(), large)
	must(err)
	got.Large = bytes.Count(response.GetRawOutputContents()[0], []byte("l"))
	_, got.Refused = c.ModelStatistics(t.Context(), &inference.ModelStatisticsRequest{})
	_, got.Wrong = c.ModelInfer(t.Context(), message(t, `inputs { name: "X" datatype: "UINT8" shape: 3 } raw_input_contents: "ab"`))
	got.Live, err = c.ServerLive(t.Context(), &inference.ServerLiveRequest{})
	must(err)
	got.Health, err = grpc_health_v1.NewHealthClient(conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	must(err)
	s, err := c.ModelStreamInfer(t.Context())
	must(err)
	for _, text := range []string{xAB, `model_name: "none"`, xAB} {
		must(s.Send(message(t, text)))
		out, err := s.Recv()
		must(err)
		got.Streamed = append(got.Streamed, out)
	}
	must(s.CloseSend())
	if _, got.StreamEnd = s.Recv(); got.StreamEnd == io.EOF { //nolint:errorlint // grpc's own
		got.StreamEnd = nil
	}
	r, err := reflectionpb.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
	must(err)
	must(r.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{ListServices: "*"}}))
	list, err := r.Recv()
	must(err)
	for _, v := range list.GetListServicesResponse().GetService() {
		got.Services = append(got.Services, v.GetName())
	}
	must(r.CloseSend())
	return got
}
