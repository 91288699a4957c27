package grpcapi

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/metadata"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/recovery"
	"github.com/tutti-server/tutti/internal/server/loads"
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
	s.set.Load.Begin()
	defer func() { s.set.Load.End(err) }()
	if ctx, err = s.resolve(ctx, methodInfer); err != nil {
		return nil, err
	}
	m, came := messages.Get(), s.set.Tracer.Begin()
	if err := s.receive(ctx, m, receive); err != nil {
		m.release()
		return nil, err
	}
	r, err := s.respond(ctx, m, came)
	s.attachLoad(ctx)
	if err != nil {
		return nil, refusal(ctx, err)
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
	err := s.set.InFlight.Admit()
	if err == nil {
		r := s.receiverOf(ctx, true)
		m.conn = r.conn
		err = r.receive(&m.incoming, m, receive)
	}
	if err != nil {
		return refusal(ctx, err)
	}
	return nil
}

// refusal returns err as a client gets it. It sets the retry-after trailer of the call if err has a time.
func refusal(ctx context.Context, err error) error {
	if d := status.DetailsOf(err).RetryAfter; d > 0 {
		// It fails only outside a call.
		_ = grpc.SetTrailer(ctx, metadata.Pairs("retry-after", strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10)))
	}
	return wireError(err)
}

var errLeaving error = &status.Error{
	Code: status.Unavailable, Reason: status.Draining, RetryAfter: infer.LeavingRetry, Msg: "GRPC server is shutting down and has stopped accepting new requests.",
}

func (s *service) infer(ctx context.Context, m *message, came tracing.Interval) (*response, error) {
	if s.refuses() {
		return nil, errLeaving
	}
	d := decoder{svc: s, msg: m, received: came}
	if err := d.decode(ctx, true); err != nil {
		return nil, err
	}
	r, call := responses.Get(), infer.NewCall()
	r.conn = m.conn
	s.set.Infer.Submit(ctx, d.req, call)
	resp, err := call.Wait()
	r.resp = resp
	switch {
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

// attachLoad sets the trailer of a call whose client asks for the load.
//
// hot: one lookup for other calls.
func (s *service) attachLoad(ctx context.Context) {
	if format := metadata.ValueFromIncomingContext(ctx, loads.FormatHeader); len(format) == 1 && format[0] == "bin" {
		_ = grpc.SetTrailer(ctx, metadata.Pairs(loads.Trailer, s.set.Load.Binary())) // it fails only outside a call
	}
}

// compressingStream is a call's stream of the transport, which knows the compressions of its client.
type compressingStream interface {
	RecvCompress() string
	ClientAdvertisedCompressors() []string
	SetSendCompress(name string) error
}

// compress selects a compressed response if the server is configured so and the client accepts it, whether or not
// the request was compressed.
func (s *service) compress(ctx context.Context) {
	stream, ok := grpc.ServerTransportStreamFromContext(ctx).(compressingStream)
	if !ok {
		return // uncompressed is the default
	}
	name := encoding.Identity
	if s.set.Compression != 0 {
		if slices.Contains(stream.ClientAdvertisedCompressors(), gzipName) {
			name = gzipName
		}
	} else if stream.RecvCompress() == "" {
		return
	}
	_ = stream.SetSendCompress(name) // it fails only after the response
}

// headStart is how long before its deadline a call ends at most. At the deadline the transport resets the stream,
// and clients report that as a cancelled call or a removed stream. The status must reach them before.
const headStart = 10 * time.Millisecond

// beforeDeadline returns a context that ends shortly before the call's deadline.
func beforeDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	d, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, d.Add(-min(headStart, time.Until(d)/20)))
}

// await runs f, a method, and returns its result, or DEADLINE_EXCEEDED at the deadline. An execution cannot be
// interrupted: f then continues without its client, and its result goes to drop.
func await[T any](ctx context.Context, s *service, method string, f func(context.Context) (T, error), drop func(T)) (T, error) {
	if _, ok := ctx.Deadline(); !ok {
		return f(ctx)
	}
	ctx, cancel := beforeDeadline(ctx)
	defer cancel()
	type outcome struct {
		value T
		err   error
	}
	done := make(chan outcome)
	s.streams.Go(func() {
		var o outcome
		func() {
			defer s.recovered(method, &o.err)
			o.value, o.err = f(ctx)
		}()
		select {
		case done <- o:
		case <-ctx.Done():
			if o.err == nil {
				drop(o.value)
			}
		}
	})
	select {
	case o := <-done:
		if o.err == nil || ctx.Err() == nil {
			return o.value, o.err
		}
	case <-ctx.Done():
	}
	var none T
	return none, ctx.Err()
}

// deadlinePassed reports whether err is the client's deadline.
func deadlinePassed(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, status.ErrDeadline)
}

// The interceptors turn a panic into the call's error. That of unary calls also ends them before their deadline, and converts
// their errors. ModelInfer runs without interceptors.

func (s *service) interceptUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
	defer s.recovered(info.FullMethod, &err)
	if ctx, err = s.resolve(ctx, info.FullMethod); err != nil {
		return nil, err
	}
	call := func(ctx context.Context) (any, error) { return s.controlled(ctx, req, info.FullMethod, handler) }
	resp, err = await(ctx, s, info.FullMethod, call, func(any) {})
	if err != nil {
		return nil, refusal(ctx, err)
	}
	return resp, nil
}

func (s *service) interceptStream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	defer s.recovered(info.FullMethod, &err)
	ctx, err := s.resolve(ss.Context(), info.FullMethod)
	if err != nil {
		return err
	}
	if ctx != ss.Context() {
		ss = &identified{ss, ctx}
	}
	if s.set.InFlight != nil { // streams stay open: while the memory is full, each would take more of it
		if err := s.set.InFlight.Blocked(); err != nil {
			return refusal(ctx, err)
		}
	}
	ss = &receivingStream{ServerStream: ss, r: s.receiverOf(ctx, !info.IsClientStream)}
	if isReflection(info.FullMethod) {
		return s.reflect(ctx, ss, func(ss grpc.ServerStream) error { return handler(srv, ss) })
	}
	return handler(srv, ss)
}

// recovered must be deferred: it turns a panic into the error of the call.
func (s *service) recovered(method string, err *error) {
	if p := recover(); p != nil {
		s.panicked.Store(true)
		var log *slog.Logger
		if s.set.Log != nil {
			log = s.set.Log.Logger()
		}
		*err = wireError(recovery.Report(p, log, method, slog.String("method", method)))
	}
}
