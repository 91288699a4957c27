package inference

import (
	"context"
	"net/http"
	"strings"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/server/httpapi/transport"
	"github.com/tutti-server/tutti/internal/tracing"
)

// Infer serves an infer request.
//
// hot: a test counts its own allocations.
func (s *Service) Infer(w http.ResponseWriter, r *http.Request, p transport.Path) {
	x := s.newExchange()
	defer x.release()
	if err := x.infer(w, r, p); err != nil {
		x.closeWindows()
		if x.parsing {
			w.Header()["Content-Type"] = transport.JSONType
		}
		s.Limits.Reject(w, r, err)
	}
}

var errDecoupled = status.Errorf(status.Unsupported, "HTTP end point doesn't support models with decoupled transaction policy")

func (x *exchange) infer(w http.ResponseWriter, r *http.Request, p transport.Path) error {
	x.req = infer.NewRequest()
	err := x.readInfer(w, r, p)
	x.received(r.Header)
	if err != nil {
		x.reject(p, err)
		return err
	}
	resp, err := x.submit(r.Context())
	x.parsing = err != nil && notStarted(err)
	if err != nil {
		return err
	}
	defer resp.Release()
	if err := x.placeOutputs(resp); err != nil {
		return err
	}
	x.closeWindows()
	resp.Trace.Mark(tracing.HTTPSendStart)
	defer resp.Trace.Mark(tracing.HTTPSendEnd)
	x.in.Charge.Add(resp.Size())
	return x.respond(w, r.Header, resp)
}

// readInfer decodes the request. A model that cannot serve it is reported before any error in the body, as in Triton.
func (x *exchange) readInfer(w http.ResponseWriter, r *http.Request, p transport.Path) error {
	desc, err := x.describe(p)
	switch {
	case err != nil:
		return err
	case desc.Decoupled:
		return errDecoupled
	}
	compressed, err := transport.Compressed(w, r)
	if err != nil {
		return err
	}
	if err := x.in.Open(w, r, compressed); err != nil {
		x.parsing = x.in.Oversized()
		return err
	}
	if err := x.decode(r.Header); err != nil {
		return err
	}
	return x.forwardHeaders(r)
}

// describe looks the model up and sets it in the request.
func (x *exchange) describe(p transport.Path) (*infer.Description, error) {
	version, err := infer.ParseVersion(p.Version)
	if err != nil {
		return nil, err
	}
	desc, err := x.srv.Catalog.Describe(p.Model, version)
	if err == nil {
		x.req.Model, x.req.Version, x.desc = p.Model, version, desc
	}
	return desc, err
}

// reject releases a request that cannot be submitted, and reports it to the tracer.
func (x *exchange) reject(p transport.Path, err error) {
	version := int64(0)
	if x.desc != nil {
		version = x.desc.Version
	}
	x.srv.Tracer.RecordRefusal(p.Model, version, x.req.ID, &x.req.Origin, err)
	x.req.Release()
	x.req = nil
}

// submit submits the request and waits for its only response.
func (x *exchange) submit(ctx context.Context) (*infer.Response, error) {
	call := infer.NewCall()
	req := x.req
	x.req = nil
	x.srv.Inferer.Submit(ctx, req, call)
	resp, err := call.Wait()
	if err == nil && resp == nil {
		err = status.Errorf(status.Internal, "received an unexpected null response")
	}
	return resp, err
}

// received records, for the request's trace, when the request was read and which trace of the client it belongs to.
func (x *exchange) received(h http.Header) {
	x.span.End()
	x.req.Origin = tracing.Origin{Read: x.span, Start: tracing.HTTPRecvStart, Done: tracing.HTTPRecvEnd}
	if parent := h["Traceparent"]; len(parent) == 1 && x.srv.Tracer.On() {
		x.req.Origin.Follow(parent[0], strings.Join(h["Tracestate"], ","))
	}
}

// notStarted reports whether err, by its code, is that of a request which no model has executed.
func notStarted(err error) bool {
	switch status.CodeOf(err) {
	case status.InvalidArg, status.NotFound, status.Unavailable, status.Unsupported:
		return true
	default:
		return false
	}
}
