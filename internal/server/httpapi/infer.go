package httpapi

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/jsontext"
	"github.com/tutti-server/tutti/internal/tracing"
)

// inferModel answers one inference request.
//
// hot: what it allocates itself is counted by a test.
func (s *Server) inferModel(w http.ResponseWriter, r *http.Request, t target) {
	x := s.newExchange()
	defer x.release()
	if err := x.serve(w, r, t); err != nil {
		x.closeWindows()
		if x.parsing {
			w.Header()["Content-Type"] = jsonType
		}
		s.refuse(w, r, err)
	}
}

var errDecoupled = status.Errorf(status.Unsupported, "HTTP end point doesn't support models with decoupled transaction policy")

func (x *exchange) serve(w http.ResponseWriter, r *http.Request, t target) error {
	x.req = infer.NewRequest()
	err := x.take(w, r, t)
	x.arrived(r.Header)
	if err != nil {
		x.refuse(t, err)
		return err
	}
	resp, err := x.submit(r.Context())
	x.parsing = err != nil && refused(err)
	if err != nil {
		return err
	}
	defer resp.Release()
	if err := x.finish(resp); err != nil {
		return err
	}
	x.closeWindows()
	x.sends(resp)
	defer resp.Trace.Mark(tracing.HTTPSendEnd)
	x.charge.Add(resp.Size())
	return x.reply(w, r.Header, resp)
}

// take makes the request of what the client sends.
func (x *exchange) take(w http.ResponseWriter, r *http.Request, t target) error {
	// Clients expect to be told first when a model cannot be asked at all.
	about, err := x.describe(t)
	switch {
	case err != nil:
		return err
	case about.Decoupled:
		return errDecoupled
	}
	if err := x.receive(w, r); err != nil {
		return err
	}
	return x.forward(r)
}

// describe finds out what is asked, and notes it in the request.
func (x *exchange) describe(t target) (*infer.Description, error) {
	version, err := infer.ParseVersion(t.version)
	if err != nil {
		return nil, err
	}
	about, err := x.srv.catalog.Describe(t.model, version)
	if err == nil {
		x.req.Model, x.req.Version, x.about = t.model, version, about
	}
	return about, err
}

// refuse gives the request up, and has a trace tell of it.
func (x *exchange) refuse(t target, err error) {
	version := int64(0)
	if x.about != nil {
		version = x.about.Version
	}
	x.srv.tracer.Refused(t.model, version, x.req.ID, &x.req.Origin, err)
	x.req.Release()
	x.req = nil
}

// receive reads the request, decompressing it if need be.
func (x *exchange) receive(w http.ResponseWriter, r *http.Request) error {
	zipped, err := compressed(w, r)
	if err != nil {
		return err
	}
	b, err := x.open(w, r, zipped)
	if err != nil {
		return err
	}
	return x.decode(&b, r.Header)
}

// open begins to read a request's body, unless it says that it is too large, or there
// is no room for it. One that does not say its length is charged as it is read, and
// so is one that will be longer once it is decompressed.
func (x *exchange) open(w http.ResponseWriter, r *http.Request, zipped bool) (body, error) {
	x.src.begin(w, r, x.srv.stall)
	b := body{r: &x.src, left: r.ContentLength, max: x.srv.maxInput, raw: withoutJSON(r.Header)}
	switch {
	case b.left > b.max:
		x.parsing = true
		return b, b.tooLarge(b.left)
	case zipped:
		x.zip = newInflater(&x.src)
		b.r, b.left, b.inflated = x.zip, -1, true
	case b.left >= 0:
		return b, x.charge.Take(b.left)
	}
	b.charge = &x.charge
	return b, x.srv.inFlight.Admit()
}

// submit hands the request over and waits for its only answer.
func (x *exchange) submit(ctx context.Context) (*infer.Response, error) {
	call := infer.NewCall()
	req := x.req
	x.req = nil
	x.srv.infer.Submit(ctx, req, call)
	resp, err := call.Wait()
	if err == nil && resp == nil {
		err = status.Errorf(status.Internal, "received an unexpected null response")
	}
	return resp, err
}

// arrived notes for the request's trace that the request has been read, and whose
// trace it follows.
func (x *exchange) arrived(h http.Header) {
	x.came.End()
	x.req.Origin = tracing.Origin{Read: x.came, Start: tracing.HTTPRecvStart, Done: tracing.HTTPRecvEnd}
	if parent := h["Traceparent"]; len(parent) == 1 && x.srv.tracer.On() {
		x.req.Origin.Follow(parent[0], strings.Join(h["Tracestate"], ","))
	}
}

// sends records in the request's trace that an answer is about to be written.
func (*exchange) sends(resp *infer.Response) {
	resp.Trace.Mark(tracing.HTTPSendStart)
}

// writeError answers a failure with the status of its code and its text.
func writeError(w http.ResponseWriter, err error) {
	if _, late := errors.AsType[stalledError](err); late {
		writeErrorText(w, http.StatusRequestTimeout, err.Error())
		return
	}
	retryAfter(w, err)
	code := status.CodeOf(err).HTTP()
	if errors.Is(err, infer.ErrTooLarge) {
		code = http.StatusRequestEntityTooLarge
	}
	writeErrorText(w, code, status.Text(err))
}

// retryAfter tells the client when to come again, when that is known.
func retryAfter(w http.ResponseWriter, err error) {
	if d := status.RetryAfter(err); d > 0 {
		w.Header().Set("Retry-After", strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10))
	}
}

// writeErrorText answers with an error, which is text/plain unless its Content-Type has been set.
func writeErrorText(w http.ResponseWriter, code int, text string) {
	body := appendError(nil, text)
	h := w.Header()
	if h["Content-Type"] == nil {
		h["Content-Type"] = textType
	}
	h["Content-Length"] = []string{strconv.Itoa(len(body))} // it may be sent before the handler ends
	w.WriteHeader(code)
	// A client that is gone by now gets nothing.
	_, _ = w.Write(body)
}

// appendError appends the JSON of a failure. Its text may repeat names as the client
// wrote them, which need not be UTF-8.
func appendError(b []byte, text string) []byte {
	b = append(b, `{"error":`...)
	return append(jsontext.Append(b, strings.ToValidUTF8(text, "\ufffd")), '}')
}
