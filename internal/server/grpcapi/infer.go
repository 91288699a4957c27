package grpcapi

import (
	"context"
	"slices"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/metadata"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/tracing"
	"github.com/tutti-server/tutti/proto/inference"
)

// The methods that carry tensors.
const (
	methodInfer  = "ModelInfer"
	methodStream = "ModelStreamInfer"
)

// serviceDesc is the generated service description, with own handlers for the two methods that carry tensors.
func serviceDesc() *grpc.ServiceDesc {
	d := inference.GRPCInferenceService_ServiceDesc
	d.Methods, d.Streams = slices.Clone(d.Methods), slices.Clone(d.Streams)
	d.Methods[slices.IndexFunc(d.Methods, func(m grpc.MethodDesc) bool { return m.MethodName == methodInfer })].Handler = modelInfer
	d.Streams[slices.IndexFunc(d.Streams, func(s grpc.StreamDesc) bool { return s.StreamName == methodStream })].Handler = modelStreamInfer
	return &d
}

// modelInfer handles ModelInfer. It runs no interceptor.
func modelInfer(srv any, ctx context.Context, receive func(any) error, _ grpc.UnaryServerInterceptor) (resp any, err error) { //nolint:revive // grpc's signature
	s := srv.(*service) //nolint:errcheck,forcetypeassert // registered as this
	defer s.recovered(methodInfer, &err)
	return s.modelInfer(ctx, newMessage(), receive)
}

// modelInfer receives one inference request into m and returns the response.
func (s *service) modelInfer(ctx context.Context, m *message, receive func(any) error) (any, error) {
	came := s.set.Tracer.Begin()
	if err := s.receive(ctx, m, receive); err != nil {
		m.release()
		return nil, err
	}
	r, err := s.respond(ctx, m, came)
	if err != nil {
		retryAfter(ctx, err)
		return nil, wireError(err)
	}
	s.compress(ctx)
	return r, nil
}

// respond executes the request in m, at most until the call's deadline, and releases m.
//
// hot: without a deadline there is no function to allocate.
func (s *service) respond(ctx context.Context, m *message, came tracing.Interval) (*response, error) {
	if _, ok := ctx.Deadline(); !ok {
		return s.execute(ctx, m, came)
	}
	return await(ctx, s, methodInfer, func(ctx context.Context) (*response, error) { return s.execute(ctx, m, came) }, (*response).release)
}

// execute executes the request in m and releases m.
func (s *service) execute(ctx context.Context, m *message, came tracing.Interval) (*response, error) {
	r, err := s.infer(ctx, m, came)
	m.release() // not deferred: after a panic the message may still be in use
	return r, err
}

// receive reads a message and charges its bytes. If there is no room the call is rejected before it is read.
func (s *service) receive(ctx context.Context, m *message, receive func(any) error) error {
	f := s.set.InFlight
	err := f.Admit()
	if err == nil {
		l := connectionOf(ctx, f)
		l.addWaiting(1)
		defer l.addWaiting(-1)
		if err := receive(m); err != nil {
			return err
		}
		err = m.chargeReceived(f, l)
	}
	if err != nil {
		retryAfter(ctx, err)
		return wireError(err)
	}
	return nil
}

// retryAfter sets the retry-after trailer if err has a time.
func retryAfter(ctx context.Context, err error) {
	if d := status.RetryAfter(err); d > 0 {
		// It fails only outside a call.
		_ = grpc.SetTrailer(ctx, metadata.Pairs("retry-after", strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10)))
	}
}

var errLeaving = status.Errorf(status.Unavailable, "GRPC server is shutting down and has stopped accepting new requests.")

func (s *service) infer(ctx context.Context, m *message, came tracing.Interval) (*response, error) {
	if s.shuttingDown() {
		return nil, errLeaving
	}
	d := decoder{svc: s, msg: m, received: came}
	if err := d.decode(ctx, true); err != nil {
		return nil, err
	}
	r, call := newResponse(), infer.NewCall()
	s.set.Infer.Submit(ctx, d.req, call)
	resp, err := call.Wait()
	switch r.resp = resp; {
	case err == nil && resp == nil:
		err = errNoResponse
	case err == nil:
		r.shared, err = applyOptions(resp, m.wants, d.about, s.set.Alloc, r.shared)
	}
	if err != nil {
		r.release()
		return nil, err
	}
	return r, nil
}

var errNoResponse = status.Errorf(status.Internal, "received an unexpected null response")

// compress selects a compressed response if the server is configured so and the client accepts it, whether or not
// the request was compressed.
func (s *service) compress(ctx context.Context) {
	name := "identity"
	if s.set.Compression != 0 {
		if names, err := grpc.ClientSupportedCompressors(ctx); err == nil && slices.Contains(names, gzip.Name) {
			name = gzip.Name
		}
	} else if c, ok := grpc.ServerTransportStreamFromContext(ctx).(interface{ RecvCompress() string }); !ok || c.RecvCompress() == "" {
		return // uncompressed is the default
	}
	// It fails only for a name that the client does not accept, or after the response.
	_ = grpc.SetSendCompressor(ctx, name)
}
