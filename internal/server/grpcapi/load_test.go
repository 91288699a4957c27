package grpcapi_test

import (
	"context"
	"testing"
	"time"

	orcapb "github.com/cncf/xds/go/xds/data/orca/v3"
	orcaservice "github.com/cncf/xds/go/xds/service/orca/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
)

// echoed is a request of two bytes.
const echoed = `model_name: "echo" inputs { name: "X" datatype: "INT8" shape: 2 } raw_input_contents: "ab"`

// TestLoadReports checks the load that clients balance by: in the trailer of calls that ask for it, in no other, and by the ORCA
// service.
func TestLoadReports(t *testing.T) {
	t.Parallel()
	c, conn, _, _ := serve(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var trailer metadata.MD
	if _, err := c.ModelInfer(ctx, message(t, echoed), grpc.Trailer(&trailer)); err != nil {
		t.Fatal(err)
	}
	if got := trailer.Get("endpoint-load-metrics-bin"); len(got) != 0 {
		t.Errorf("a call that asks for no load got %q", got)
	}
	asking := metadata.AppendToOutgoingContext(ctx, "endpoint-load-metrics-format", "bin")
	report := &orcapb.OrcaLoadReport{}
	for report.GetRpsFractional() == 0 || report.GetCpuUtilization() == 0 { // measured over a tenth of a second
		if _, err := c.ModelInfer(asking, message(t, echoed), grpc.Trailer(&trailer)); err != nil {
			t.Fatal(err)
		}
		got := trailer.Get("endpoint-load-metrics-bin")
		if len(got) != 1 {
			t.Fatalf("the trailer is %q", trailer)
		}
		report = &orcapb.OrcaLoadReport{}
		if err := proto.Unmarshal([]byte(got[0]), report); err != nil {
			t.Fatal(err)
		}
	}
	if running, ok := report.GetNamedMetrics()["running"]; !ok || running < 1 {
		t.Errorf("named metrics are %v, want the running call", report.GetNamedMetrics())
	}
	stream, err := orcaservice.NewOpenRcaServiceClient(conn).StreamCoreMetrics(ctx, &orcaservice.OrcaLoadReportRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Errorf("the ORCA service: %v", err)
	}
}
