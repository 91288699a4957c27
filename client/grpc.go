package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/inference"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// GRPC is a client over gRPC.
type GRPC struct {
	conn *grpc.ClientConn
	stub inference.GRPCInferenceServiceClient
}

var (
	_ Conn     = (*GRPC)(nil)
	_ Streamer = (*GRPC)(nil)
)

// window is how many bytes of a response a server may send before they are read.
const window = 4 << 20

// NewGRPC returns a client of the server at HOST:PORT. The options may be nil; with a TLS configuration it uses
// TLS.
func NewGRPC(address string, o *Options) (*GRPC, error) {
	if o == nil {
		o = &Options{}
	}
	security := insecure.NewCredentials()
	if o.TLS != nil {
		security = credentials.NewTLS(o.TLS.Clone())
	}
	conn, err := grpc.NewClient(address, append(append(o.dialOptions(), grpc.WithChainUnaryInterceptor(o.Retry.intercept)), grpc.WithTransportCredentials(security),
		grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(2*window), // without them a ping is sent with nearly every response
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32), grpc.MaxCallSendMsgSize(math.MaxInt32)))...)
	if err != nil {
		return nil, err
	}
	return &GRPC{conn: conn, stub: inference.NewGRPCInferenceServiceClient(conn)}, nil
}

// Close closes the connection.
func (c *GRPC) Close() error { return c.conn.Close() }

// rpcError converts a gRPC status to an Error.
func rpcError(err error) error {
	if _, done := errors.AsType[*Error](err); done {
		return err // an interceptor has converted it
	}
	if s, ok := status.FromError(err); ok && err != nil {
		e := &Error{Status: s.Code().String(), Text: s.Message()}
		e.Retryable = retryable(e.Status)
		e.explain(s)
		return e
	}
	return err
}

// message returns the gRPC message of a request.
func message(req *Request) (*inference.ModelInferRequest, error) {
	m := &inference.ModelInferRequest{ModelName: req.Model, ModelVersion: req.Version, Id: req.ID}
	params, err := req.parameters()
	if err != nil {
		return nil, err
	}
	m.Parameters = inferParameters(params)
	for i := range req.Inputs {
		in := &req.Inputs[i]
		t := &inference.ModelInferRequest_InferInputTensor{Name: in.Name, Datatype: in.DType.String(), Shape: in.Shape}
		if in.Region != nil {
			t.Parameters = in.Region.parameters()
		} else {
			m.RawInputContents = append(m.RawInputContents, in.Data)
		}
		m.Inputs = append(m.Inputs, t)
	}
	for _, name := range req.Outputs {
		t := &inference.ModelInferRequest_InferRequestedOutputTensor{Name: name}
		if r, ok := req.Regions[name]; ok {
			t.Parameters = r.parameters()
		}
		m.Outputs = append(m.Outputs, t)
	}
	return m, nil
}

// traced adds the trace context of a request to a call.
func traced(ctx context.Context, req *Request) context.Context {
	if req.TraceParent == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, traceParent, req.TraceParent, traceState, req.TraceState)
}

// Infer sends one request and returns its response.
func (c *GRPC) Infer(ctx context.Context, req *Request) (*Response, error) {
	m, err := message(req)
	if err != nil {
		return nil, err
	}
	a, err := c.stub.ModelInfer(traced(ctx, req), m)
	if err != nil {
		return nil, rpcError(err)
	}
	return decodeResponse(a)
}

// Decoupled reports whether a model may send any number of responses to a request.
func (c *GRPC) Decoupled(ctx context.Context, model, version string) (bool, error) {
	a, err := c.stub.ModelConfig(ctx, &inference.ModelConfigRequest{Name: model, Version: version})
	return a.GetConfig().GetModelTransactionPolicy().GetDecoupled(), rpcError(err)
}

func decodeResponse(a *inference.ModelInferResponse) (*Response, error) {
	resp := &Response{Model: a.GetModelName(), Version: a.GetModelVersion(), ID: a.GetId(), Parameters: values(a.GetParameters())}
	raw := a.GetRawOutputContents()
	all := len(raw) == len(a.GetOutputs()) // otherwise outputs in shared memory have no entry
	for _, out := range a.GetOutputs() {
		t := Tensor{Name: out.GetName(), DType: tensor.ParseDType(out.GetDatatype()), Shape: out.GetShape(), Region: regionOf(out.GetParameters())}
		if t.Region == nil || all {
			if len(raw) == 0 {
				return nil, fmt.Errorf("the response has %d outputs and %d raw contents", len(a.GetOutputs()), len(a.GetRawOutputContents()))
			}
			t.Data, raw = raw[0], raw[1:]
		}
		resp.Outputs = append(resp.Outputs, t)
	}
	if len(raw) > 0 {
		return nil, fmt.Errorf("the response has %d outputs and %d raw contents", len(a.GetOutputs()), len(a.GetRawOutputContents()))
	}
	return resp, nil
}

// Ready reports whether the server is ready.
func (c *GRPC) Ready(ctx context.Context) (bool, error) {
	a, err := c.stub.ServerReady(ctx, &inference.ServerReadyRequest{})
	return a.GetReady(), rpcError(err)
}

// Metadata describes a model.
func (c *GRPC) Metadata(ctx context.Context, model string) (*infer.Metadata, error) {
	a, err := c.stub.ModelMetadata(ctx, &inference.ModelMetadataRequest{Name: model})
	if err != nil {
		return nil, rpcError(err)
	}
	md := &infer.Metadata{Inputs: []infer.TensorMetadata{}, Outputs: []infer.TensorMetadata{}}
	return md, convert(a, md)
}

// Statistics returns the statistics of a model, or of all models if model is empty.
func (c *GRPC) Statistics(ctx context.Context, model string) ([]infer.Statistics, error) {
	a, err := c.stub.ModelStatistics(ctx, &inference.ModelStatisticsRequest{Name: model})
	if err != nil {
		return nil, rpcError(err)
	}
	list := []infer.Statistics{}
	err = convert(a.GetModelStats(), &list)
	return list, err
}

// convert copies a message to a description of core/infer. Both have the protocol's names in JSON.
func convert(from, to any) error {
	b, err := json.Marshal(from)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, to)
}

// Index lists the models of the server's repositories.
func (c *GRPC) Index(ctx context.Context) ([]infer.Entry, error) {
	a, err := c.stub.RepositoryIndex(ctx, &inference.RepositoryIndexRequest{})
	if err != nil {
		return nil, rpcError(err)
	}
	var list []infer.Entry
	err = convert(a.GetModels(), &list)
	return list, err
}

// Unload unloads a model. With dependents, it also unloads the models that were loaded only for it.
func (c *GRPC) Unload(ctx context.Context, model string, dependents bool) error {
	_, err := c.stub.RepositoryModelUnload(ctx, &inference.RepositoryModelUnloadRequest{
		ModelName: model, Parameters: map[string]*inference.ModelRepositoryParameter{
			"unload_dependents": {ParameterChoice: &inference.ModelRepositoryParameter_BoolParam{BoolParam: dependents}},
		},
	})
	return rpcError(err)
}

// Config returns the completed configuration of a model.
func (c *GRPC) Config(ctx context.Context, model string) (*modelconfig.ModelConfig, error) {
	a, err := c.stub.ModelConfig(ctx, &inference.ModelConfigRequest{Name: model})
	return a.GetConfig(), rpcError(err)
}
