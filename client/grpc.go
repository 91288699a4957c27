package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	_ Manager  = (*GRPC)(nil)
	_ Streamer = (*GRPC)(nil)
)

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
	conn, err := grpc.NewClient(address, append(o.dialOptions(), grpc.WithTransportCredentials(security),
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
	if s, ok := status.FromError(err); ok && err != nil {
		return &Error{Status: s.Code().String(), Text: s.Message()}
	}
	return err
}

// message returns the gRPC message of a request.
func message(req *Request) *inference.ModelInferRequest {
	m := &inference.ModelInferRequest{ModelName: req.Model, ModelVersion: req.Version, Id: req.ID}
	for i := range req.Inputs {
		in := &req.Inputs[i]
		m.Inputs = append(m.Inputs, &inference.ModelInferRequest_InferInputTensor{
			Name: in.Name, Datatype: in.DType.String(), Shape: in.Shape,
		})
		m.RawInputContents = append(m.RawInputContents, in.Data)
	}
	for _, name := range req.Outputs {
		m.Outputs = append(m.Outputs, &inference.ModelInferRequest_InferRequestedOutputTensor{Name: name})
	}
	return m
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
	a, err := c.stub.ModelInfer(traced(ctx, req), message(req))
	if err != nil {
		return nil, rpcError(err)
	}
	return decodeResponse(a)
}

// Stream sends one request and calls each with every response in order.
func (c *GRPC) Stream(ctx context.Context, req *Request, each func(*Response) error) error {
	ctx, cancel := context.WithCancel(ctx) // ends a stream that each leaves early
	defer cancel()
	s, err := c.stub.ModelStreamInfer(traced(ctx, req))
	if err != nil {
		return rpcError(err)
	}
	if err := errors.Join(s.Send(message(req)), s.CloseSend()); err != nil && !errors.Is(err, io.EOF) {
		return rpcError(err) // only Recv knows the reason of the end
	}
	for {
		m, err := s.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return rpcError(err)
		case m.GetErrorMessage() != "":
			return &Error{Status: "error", Text: m.GetErrorMessage()}
		}
		resp, err := decodeResponse(m.GetInferResponse())
		if err == nil {
			err = each(resp)
		}
		if err != nil {
			return err
		}
	}
}

// Decoupled reports whether a model may send any number of responses to a request.
func (c *GRPC) Decoupled(ctx context.Context, model, version string) (bool, error) {
	a, err := c.stub.ModelConfig(ctx, &inference.ModelConfigRequest{Name: model, Version: version})
	return a.GetConfig().GetModelTransactionPolicy().GetDecoupled(), rpcError(err)
}

func decodeResponse(a *inference.ModelInferResponse) (*Response, error) {
	if len(a.GetRawOutputContents()) != len(a.GetOutputs()) {
		return nil, fmt.Errorf("the answer has %d outputs and %d raw contents", len(a.GetOutputs()), len(a.GetRawOutputContents()))
	}
	resp := &Response{Model: a.GetModelName(), Version: a.GetModelVersion(), ID: a.GetId()}
	for i, out := range a.GetOutputs() {
		resp.Outputs = append(resp.Outputs, Tensor{
			Name: out.GetName(), DType: tensor.ParseDType(out.GetDatatype()), Shape: out.GetShape(), Data: a.GetRawOutputContents()[i],
		})
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

// Load loads a model, and returns when it is ready or has failed to load.
func (c *GRPC) Load(ctx context.Context, model string) error {
	_, err := c.stub.RepositoryModelLoad(ctx, &inference.RepositoryModelLoadRequest{ModelName: model})
	return rpcError(err)
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
