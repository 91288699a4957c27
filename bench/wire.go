package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/goccy/go-json"

	"github.com/tutti-server/tutti/bench/proc"
	"github.com/tutti-server/tutti/internal/load"
	"github.com/tutti-server/tutti/proto/inference"
)

const (
	wireLimit   = 1.35
	parsingPath = "/parse"
	wireCalls   = 20000
	bigCalls    = 200
	bigFloats   = 1 << 20 // 4 MiB
)

// wire compares an identity model, and then an ensemble of three ONNX models, with servers that echo the same bytes
// on the same libraries: net/http for HTTP binary and JSON, grpc-go for gRPC. It measures small and large tensors.
func (b *bench) wire() error {
	for _, part := range []struct {
		repository  string
		cases       []wireCase
		connections []int
	}{
		{"bench/testdata/identity", wireCases(), []int{1, concurrency}},
		{"bench/repository/identity3", floorCases(), []int{1, concurrency, 32}},
	} {
		if err := b.againstEcho(part.repository, part.cases, part.connections); err != nil {
			return err
		}
	}
	return nil
}

// againstEcho measures a repository's cases and the echo's alternately.
func (b *bench) againstEcho(repository string, cases []wireCase, connections []int) error {
	ours, err := b.serve(repository)
	if err != nil {
		return err
	}
	echo, err := startEcho()
	if err != nil {
		return errors.Join(err, ours.Stop())
	}
	for _, c := range cases {
		for _, n := range connections {
			if err = b.compare(ours, echo, &c, n); err != nil {
				return errors.Join(err, ours.Stop(), echo.Stop())
			}
		}
	}
	return errors.Join(ours.Stop(), echo.Stop())
}

// floorCases returns the limits of an ensemble of three small models, relative to an echo without models.
func floorCases() []wireCase {
	one := ramp("identity3", 16)
	one.Inputs[0].Shape = []int64{1, 16}
	over := func(protocol string) func(*process, int) (*load.Group, error) {
		return func(p *process, connections int) (*load.Group, error) { return p.dial(protocol, one, connections) }
	}
	return []wireCase{
		{"HTTP binary, identity3, against an echo", wireCalls, 2.2, over(load.Binary)},
		{"HTTP JSON, identity3, against an echo", wireCalls, 2.5, over(load.JSON)},
		{"gRPC, identity3, against an echo", wireCalls, 2.5, over(load.GRPC)},
	}
}

// wireCase is one way to send one tensor.
type wireCase struct {
	name  string
	calls int
	limit float64
	// dial opens the clients of one side.
	dial func(p *process, connections int) (*load.Group, error)
}

func wireCases() []wireCase {
	over := func(protocol, model string, floats int) func(*process, int) (*load.Group, error) {
		return func(p *process, connections int) (*load.Group, error) {
			return p.dial(protocol, ramp(model, floats), connections)
		}
	}
	// The echo that parses JSON reads the same body at another path.
	parsed := func(p *process, connections int) (*load.Group, error) {
		message := jsonInfer("fp32x16", 16)
		if p.echo {
			message = bytes.Replace(message, []byte(" /v2/models/fp32x16/infer "), []byte(" "+parsingPath+" "), 1)
		}
		g := &load.Group{}
		for range connections {
			g.Clients = append(g.Clients, load.NewHTTP(p.HTTP, [][]byte{message}))
		}
		return g, nil
	}
	return []wireCase{
		{"HTTP binary, FP32[16], against an echo", wireCalls, wireLimit, over(load.Binary, "fp32x16", 16)},
		{"HTTP JSON, FP32[16], against an echo that parses and prints it", wireCalls, wireLimit, parsed},
		{"HTTP JSON, FP32[16], against an echo of its bytes", wireCalls, wireLimit, over(load.JSON, "fp32x16", 16)},
		{"gRPC, FP32[16], against an echo", wireCalls, wireLimit, over(load.GRPC, "fp32x16", 16)},
		{"HTTP binary, 4 MiB, against an echo", bigCalls, wireLimit, over(load.Binary, "fp32", bigFloats)},
		{"gRPC, 4 MiB, against an echo", bigCalls, wireLimit, over(load.GRPC, "fp32", bigFloats)},
	}
}

// compare measures both sides alternately, after one round that is not counted.
func (b *bench) compare(ours, echo *process, c *wireCase, connections int) error {
	var a, e []float64
	send := func(p *process) (float64, error) {
		g, err := c.dial(p, connections)
		if err != nil {
			return 0, err
		}
		each, err := p.load(g, c.calls)
		return each.Seconds() * 1e6, err
	}
	for round := range b.rounds + 1 {
		us, err := send(ours)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		floor, err := send(echo)
		if err != nil {
			return fmt.Errorf("%s: echo: %w", c.name, err)
		}
		if round > 0 {
			a, e = append(a, us), append(e, floor)
		}
	}
	b.row(fmt.Sprintf("%s, %d connections: CPU per request", c.name, connections), "us", a, e, c.limit)
	return nil
}

// dial opens clients that send one request over the given number of connections. Over gRPC each connection has
// load.Streams calls in flight.
func (p *process) dial(protocol string, r load.Request, connections int) (*load.Group, error) {
	if protocol == load.GRPC {
		connections *= load.Streams
	}
	return load.Dial(load.Target{HTTP: p.HTTP, GRPC: p.GRPC}, protocol, []load.Request{r}, connections)
}

// binaryInfer returns a whole HTTP request in the binary extension, with a ramp of n floats.
func binaryInfer(model string, n int) []byte {
	r := ramp(model, n)
	message, err := r.Binary()
	fail(err) // numbers can always be written
	return message
}

// jsonInfer returns a whole HTTP request in JSON, with a ramp of n floats.
func jsonInfer(model string, n int) []byte {
	r := ramp(model, n)
	message, err := r.JSON()
	fail(err) // as above
	return message
}

// ramp returns a request of n increasing floats.
func ramp(model string, n int) load.Request {
	values := make([]float32, n)
	for i := range values {
		values[i] = float32(i) * 0.37
	}
	return load.Request{Model: model, Inputs: []load.Tensor{load.Floats("INPUT0", []int64{int64(n)}, values)}}
}

// startEcho runs this program as the echo servers.
func startEcho() (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	addrs := make([]string, 2)
	for i, env := range []string{"BENCH_ECHO", "BENCH_ECHO_GRPC"} {
		port, err := proc.FreePort()
		if err != nil {
			return nil, err
		}
		addrs[i] = "127.0.0.1:" + port
		if err := os.Setenv(env, addrs[i]); err != nil {
			return nil, err
		}
	}
	p, err := start(addrs[0], addrs[1], self, "-echo")
	p.echo = true
	return p, err
}

// echoService responds with the raw contents of a request, without another copy. It passes requests for the model remote on to far.
type echoService struct {
	inference.UnimplementedGRPCInferenceServiceServer

	far inference.GRPCInferenceServiceClient // nil for none
}

func (e echoService) ModelInfer(ctx context.Context, r *inference.ModelInferRequest) (*inference.ModelInferResponse, error) {
	if e.far != nil && r.GetModelName() == farModel {
		return e.far.ModelInfer(ctx, r)
	}
	in := r.GetInputs()[0]
	return &inference.ModelInferResponse{
		ModelName: r.GetModelName(), ModelVersion: "1", RawOutputContents: r.GetRawInputContents(),
		Outputs: []*inference.ModelInferResponse_InferOutputTensor{{Name: "OUTPUT0", Datatype: in.GetDatatype(), Shape: in.GetShape()}},
	}, nil
}

// inferJSON holds the parts of a request or a response that the parsing echo reads.
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

// parseAndPrint decodes a request and encodes its inputs as a response's outputs, with the fastest general JSON
// library of those that were measured.
func parseAndPrint(body []byte) ([]byte, error) {
	var request inferJSON
	if err := json.Unmarshal(body, &request); err != nil {
		return nil, err
	}
	return json.Marshal(inferJSON{Model: "echo", Outputs: request.Inputs})
}
