package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goccy/go-json"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"tutti/proto/inference"
)

const (
	wireLimit   = 1.35
	parsingPath = "/parse"
	wireCalls   = 20000
	bigCalls    = 200
	bigFloats   = 1 << 20 // 4 MiB
)

// wire compares an identity model with bare echo servers of the same bytes on the
// same libraries: HTTP binary and JSON against net/http, gRPC against grpc-go, for
// small tensors and for large ones.
func (b *bench) wire() error {
	ours, err := b.serve("bench/testdata/identity")
	if err != nil {
		return err
	}
	echo, err := startEcho()
	if err != nil {
		return errors.Join(err, ours.stop())
	}
	for _, c := range wireCases() {
		for _, connections := range []int{1, concurrency} {
			if err = b.compare(ours, echo, &c, connections); err != nil {
				return errors.Join(err, ours.stop(), echo.stop())
			}
		}
	}
	return errors.Join(ours.stop(), echo.stop())
}

// wireCase is one way to send one tensor.
type wireCase struct {
	name  string
	calls int
	limit float64
	send  func(p *process, connections, n int) (time.Duration, error)
}

func wireCases() []wireCase {
	overHTTP := func(request []byte) func(*process, int, int) (time.Duration, error) {
		return func(p *process, connections, n int) (time.Duration, error) {
			return p.load([][]byte{request}, connections, n)
		}
	}
	// The parsing echo reads the same body at a path of its own.
	parsed := func(p *process, connections, n int) (time.Duration, error) {
		path := "/v2/models/fp32x16/infer"
		if p.echo {
			path = parsingPath
		}
		return p.load([][]byte{jsonInfer(path, 16)}, connections, n)
	}
	overGRPC := func(floats int) func(*process, int, int) (time.Duration, error) {
		return func(p *process, connections, n int) (time.Duration, error) { return p.loadGRPC(floats, connections, n) }
	}
	return []wireCase{
		{"HTTP binary, FP32[16], against an echo", wireCalls, wireLimit, overHTTP(binaryInfer("fp32x16", 16))},
		{"HTTP JSON, FP32[16], against an echo that parses and prints it", wireCalls, wireLimit, parsed},
		{"HTTP JSON, FP32[16], against an echo of its bytes", wireCalls, wireLimit, overHTTP(jsonInfer("/v2/models/fp32x16/infer", 16))},
		{"gRPC, FP32[16], against an echo", wireCalls, wireLimit, overGRPC(16)},
		{"HTTP binary, 4 MiB, against an echo", bigCalls, wireLimit, overHTTP(binaryInfer("fp32", bigFloats))},
		{"gRPC, 4 MiB, against an echo", bigCalls, wireLimit, overGRPC(bigFloats)},
	}
}

// compare measures both sides in turn, after one round that is not counted.
func (b *bench) compare(ours, echo *process, c *wireCase, connections int) error {
	var a, e []float64
	for round := range b.rounds + 1 {
		us, err := c.send(ours, connections, c.calls)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		floor, err := c.send(echo, connections, c.calls)
		if err != nil {
			return fmt.Errorf("%s: echo: %w", c.name, err)
		}
		if round > 0 {
			a, e = append(a, us.Seconds()*1e6), append(e, floor.Seconds()*1e6)
		}
	}
	b.row(fmt.Sprintf("%s, %d connections: CPU per request", c.name, connections), "us", a, e, c.limit)
	return nil
}

// binaryInfer is an inference request of n floats in the binary extension.
func binaryInfer(model string, n int) []byte {
	header := fmt.Sprintf(`{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[%d],"parameters":{"binary_data_size":%d}}],"parameters":{"binary_data_output":true}}`, n, 4*n)
	return post("/v2/models/"+model+"/infer", header, make([]byte, 4*n))
}

// jsonInfer is an inference request of n floats as JSON.
func jsonInfer(path string, n int) []byte {
	values := make([]string, n)
	for i := range values {
		values[i] = fmt.Sprintf("%.4f", float64(i)*0.37)
	}
	body := fmt.Sprintf(`{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[%d],"data":[%s]}]}`, n, strings.Join(values, ","))
	return fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body)
}

// loadGRPC is load over gRPC: each connection has four calls under way.
func (p *process) loadGRPC(floats, connections, n int) (time.Duration, error) {
	model := "fp32"
	if floats == 16 {
		model = "fp32x16"
	}
	raw := make([]byte, 0, 4*floats)
	for i := range floats {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(float32(i)))
	}
	request := &inference.ModelInferRequest{
		ModelName: model, RawInputContents: [][]byte{raw},
		Inputs: []*inference.ModelInferRequest_InferInputTensor{{Name: "INPUT0", Datatype: "FP32", Shape: []int64{int64(floats)}}},
	}
	clients := make([]*grpc.ClientConn, connections)
	for i := range clients {
		var err error
		clients[i], err = grpc.NewClient(p.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32), grpc.MaxCallSendMsgSize(math.MaxInt32)))
		if err != nil {
			return 0, err
		}
		defer clients[i].Close()
	}
	before, err := p.cpu()
	if err != nil {
		return 0, err
	}
	if err := calls(clients, request, n); err != nil {
		return 0, err
	}
	after, err := p.cpu()
	return (after - before) / time.Duration(n), err
}

func calls(clients []*grpc.ClientConn, request *inference.ModelInferRequest, n int) error {
	const each = 4
	var next atomic.Int64
	errs := make([]error, each*len(clients))
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			client := inference.NewGRPCInferenceServiceClient(clients[i%len(clients)])
			for next.Add(1) <= int64(n) {
				answer, err := client.ModelInfer(context.Background(), request)
				if err == nil && len(answer.GetRawOutputContents()[0]) != len(request.GetRawInputContents()[0]) {
					err = errors.New("the answer has another size")
				}
				if err != nil {
					errs[i] = err
					return
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// startEcho runs this program as the echo servers.
func startEcho() (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	addrs := make([]string, 2)
	for i, env := range []string{"BENCH_ECHO", "BENCH_ECHO_GRPC"} {
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		addrs[i] = "127.0.0.1:" + port
		if err := os.Setenv(env, addrs[i]); err != nil {
			return nil, err
		}
	}
	p, err := start(addrs[0], self, "-echo")
	if err != nil {
		return nil, err
	}
	p.grpc, p.echo = addrs[1], true
	return p, nil
}

// echoService gives the raw contents of a request back as grpc-go hands them over.
type echoService struct {
	inference.UnimplementedGRPCInferenceServiceServer
}

func (echoService) ModelInfer(_ context.Context, r *inference.ModelInferRequest) (*inference.ModelInferResponse, error) {
	in := r.GetInputs()[0]
	return &inference.ModelInferResponse{
		ModelName: r.GetModelName(), ModelVersion: "1", RawOutputContents: r.GetRawInputContents(),
		Outputs: []*inference.ModelInferResponse_InferOutputTensor{{Name: "OUTPUT0", Datatype: in.GetDatatype(), Shape: in.GetShape()}},
	}, nil
}

// inferJSON is an inference request and answer as far as the parsing echo reads them.
type inferJSON struct {
	Model   string       `json:"model_name,omitempty"`
	Inputs  []tensorJSON `json:"inputs,omitempty"`
	Outputs []tensorJSON `json:"outputs,omitempty"`
}

type tensorJSON struct {
	Name     string    `json:"name"`
	Datatype string    `json:"datatype"`
	Shape    []int64   `json:"shape"`
	Data     []float64 `json:"data"`
}

// parseAndPrint turns a request's inputs into an answer's outputs with the fastest of
// the general JSON libraries that were measured.
func parseAndPrint(body []byte) ([]byte, error) {
	var request inferJSON
	if err := json.Unmarshal(body, &request); err != nil {
		return nil, err
	}
	return json.Marshal(inferJSON{Model: "echo", Outputs: request.Inputs})
}
