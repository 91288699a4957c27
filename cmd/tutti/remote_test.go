package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	orcapb "github.com/cncf/xds/go/xds/data/orca/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// remoteFront is an address of a real server, which passes its unary calls on. It counts inferences, and can refuse them or report another load
// than the server's.
type remoteFront struct {
	address string
	back    *grpc.ClientConn
	load    float64 // the utilization that it reports to clients that want reports; 0 for none
	sick    atomic.Bool
	count   atomic.Int64
}

func newRemoteFront(t *testing.T, to string, load float64) *remoteFront {
	t.Helper()
	back, err := grpc.NewClient("passthrough:///"+to, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.ForceCodecV2(frames{})))
	if err != nil {
		t.Fatal(err)
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &remoteFront{address: l.Addr().String(), back: back, load: load}
	server := grpc.NewServer(grpc.ForceServerCodecV2(frames{}), grpc.UnknownServiceHandler(f.pass))
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		if err := errors.Join(<-done, back.Close()); err != nil {
			t.Error(err)
		}
	})
	return f
}

// pass passes one unary call on.
func (f *remoteFront) pass(_ any, in grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(in)
	if strings.HasSuffix(method, "/Watch") { // health checks: a server without them counts as healthy
		return status.Error(codes.Unimplemented, "no health service")
	}
	if strings.HasSuffix(method, "/ModelInfer") {
		f.count.Add(1)
		if f.sick.Load() {
			return status.Error(codes.Unavailable, "this server is sick")
		}
		if asked, _ := metadata.FromIncomingContext(in.Context()); f.load > 0 && len(asked.Get("endpoint-load-metrics-format")) > 0 {
			report, err := proto.Marshal(&orcapb.OrcaLoadReport{ApplicationUtilization: f.load, RpsFractional: 100})
			if err != nil {
				return err
			}
			in.SetTrailer(metadata.Pairs("endpoint-load-metrics-bin", string(report)))
		}
	}
	var req, resp []byte
	if err := in.RecvMsg(&req); err != nil {
		return err
	}
	if err := f.back.Invoke(in.Context(), method, &req, &resp); err != nil {
		return err
	}
	return in.SendMsg(&resp)
}

// fronts starts a server with the model far, and a server whose model near is that one behind two addresses. call sends a request to near.
func fronts(t *testing.T, loads [2]float64, params ...string) (two [2]*remoteFront, call func(ctx context.Context) error) {
	t.Helper()
	two = farFronts(t, loads)
	near := nearOf(t, nil, append(params, "endpoint="+two[0].address+","+two[1].address)...)
	return two, func(ctx context.Context) error { return near(ctx) }
}

// farFronts starts a server with the model far, behind two addresses.
func farFronts(t *testing.T, loads [2]float64) (two [2]*remoteFront) {
	t.Helper()
	root := t.TempDir()
	writeModel(t, root, "far", `backend: "identity" input { name: "INPUT0" data_type: TYPE_INT32 dims: 1 } output { name: "OUTPUT0" data_type: TYPE_INT32 dims: 1 }`)
	_, far := startProcess(t, services, append([]string{"serve", "--model-repository", root}, freePorts...)...)
	for i, load := range loads {
		two[i] = newRemoteFront(t, far.grpc, load)
	}
	return two
}

// remoteModel returns the configuration of a remote model of far with the parameters KEY=VALUE.
func remoteModel(params ...string) string {
	var text strings.Builder
	text.WriteString("backend: \"remote\"\n")
	for _, p := range append([]string{"remote_model=far"}, params...) {
		key, value, _ := strings.Cut(p, "=")
		fmt.Fprintf(&text, "parameters { key: %q value { string_value: %q } }\n", key, value)
	}
	return text.String()
}

// nearOf starts a server whose model near is remote. call sends it a request, with these request parameters.
func nearOf(t *testing.T, env []string, params ...string) (call func(ctx context.Context, params ...map[string]any) error) {
	t.Helper()
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "near"), 0o700); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(root, "near", "config.pbtxt"), []byte(remoteModel(params...))) // it needs no version folder
	_, near := startProcessIn(t, env, services, append([]string{"serve", "--model-repository", root}, freePorts...)...)
	return func(ctx context.Context, params ...map[string]any) error {
		body := map[string]any{"inputs": []any{map[string]any{"name": "INPUT0", "shape": []int{1}, "datatype": "INT32", "data": []int{7}}}}
		if len(params) > 0 {
			body["parameters"] = params[0]
		}
		code, got, err := httpCall(ctx, http.MethodPost, "http://"+near.http+"/v2/models/near/infer", body)
		if err == nil && (code != http.StatusOK || !strings.Contains(string(got), `"data":[7]`)) {
			err = fmt.Errorf("status %d: %s", code, got)
		}
		return err
	}
}

func writeModel(t *testing.T, root, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(root, name, "1"), 0o700); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(root, name, "config.pbtxt"), []byte(text))
}

// burst sends n requests, and returns how many each address got and how many failed.
func burst(ctx context.Context, two [2]*remoteFront, n int, call func(ctx context.Context) error) (got [2]int64, failed int) {
	before := [2]int64{two[0].count.Load(), two[1].count.Load()}
	for range n {
		if call(ctx) != nil {
			failed++
		}
	}
	return [2]int64{two[0].count.Load() - before[0], two[1].count.Load() - before[1]}, failed
}

// TestOutlier checks that a server that fails gets no requests, as long as it is ejected, and gets them again afterwards. Nothing is sent
// twice: without the ejection half of the requests would fail.
func TestOutlier(t *testing.T) {
	t.Parallel()
	two, call := fronts(t, [2]float64{}, "outlier_detection=true", "outlier_interval=300ms", "outlier_time=3s", "outlier_requests=5", "outlier_failures=40")
	repeated(t, "requests at both", func(ctx context.Context) error {
		if got, failed := burst(ctx, two, 10, call); failed > 0 || got[0] == 0 || got[1] == 0 {
			return fmt.Errorf("%d requests, %d failed", got, failed)
		}
		return nil
	})
	two[1].sick.Store(true)
	repeated(t, "the sick server is ejected", func(ctx context.Context) error {
		if got, failed := burst(ctx, two, 20, call); failed > 0 || got != [2]int64{20, 0} {
			return fmt.Errorf("%d requests, %d failed", got, failed)
		}
		return nil
	})
	two[1].sick.Store(false)
	repeated(t, "the server is back", func(ctx context.Context) error {
		if got, failed := burst(ctx, two, 20, call); failed > 0 || got[0] != got[1] {
			return fmt.Errorf("%d requests, %d failed", got, failed)
		}
		return nil
	})
}

// TestWeightedShares checks that servers get requests in proportion to what they report: with the same rate at four times the
// utilization, a quarter.
func TestWeightedShares(t *testing.T) {
	t.Parallel()
	two, call := fronts(t, [2]float64{0.2, 0.8}, "balancing=weighted_round_robin")
	repeated(t, "shares by weight", func(ctx context.Context) error {
		got, failed := burst(ctx, two, 100, call)
		if failed > 0 {
			return fmt.Errorf("%d of 100 requests failed", failed)
		}
		if share := float64(got[0]) / 100; share < 0.77 || share > 0.83 {
			return fmt.Errorf("the shares are %d, expected 80 and 20", got)
		}
		return nil
	})
}
