package inference

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/job"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/server/httpapi/transport"
)

// callbackURL is the header with the URL that is told of the end of an asynchronous request.
const callbackURL = "Callback-Url"

// storedHeaders are the fields that the response to a request depends on, besides those that are forwarded to models.
var storedHeaders = []string{"Content-Type", "Content-Encoding", transport.JSONLength, "Traceparent", "Tracestate", transport.BackgroundHeader}

// inferLater stores a request, and responds 202 with its status, or with the result if there is one in the time that the
// client waits. A request that the server refuses has the response that it has without the preference. One that cannot be
// executed later, because its tensors are in the client's shared memory or because it is part of a sequence, is executed now.
func (s *Service) inferLater(w http.ResponseWriter, r *http.Request, p transport.Path, wants preferences) {
	version, err := infer.ParseVersion(p.Version)
	if err == nil {
		_, err = s.Catalog.Describe(p.Model, version)
	}
	var in transport.Body
	in.Begin(s.Shared)
	defer in.Release()
	if err == nil {
		err = in.Open(w, r, false)
	}
	if err != nil { // before the body is read
		in.Release()
		in.Begin(s.Shared)
		s.inferNow(w, r, p)
		return
	}
	body, err := in.ReadRest(nil)
	if err != nil {
		w.Header()["Content-Type"] = transport.JSONType
		s.Reject(w, r, err)
		return
	}
	callback := r.Header.Get(callbackURL)
	read := withBody(r, body)
	now, ok := s.checked(w, read, p)
	switch {
	case !ok:
		return
	case now && callback != "":
		transport.WriteError(w, status.Errorf(status.InvalidArg, "a request of a sequence, or with tensors in shared memory, cannot be executed later: send it without %s", callbackURL))
		return
	case now:
		s.inferNow(w, withBody(r, body), p)
		return
	}
	ctx := r.Context()
	st, err := s.Requests.Submit(ctx, &job.Request{Model: p.Model, Version: p.Version, Header: s.stored(r), Body: body, Callback: callback})
	if err == nil && wants.wait > 0 {
		if again, failed := s.Requests.Wait(ctx, st.ID, wants.wait); failed == nil { // otherwise the client asks later
			st = again
		}
	}
	if err != nil {
		w.Header()["Content-Type"] = transport.JSONType
		s.Reject(w, read, err)
		return
	}
	s.accepted(ctx, w, r, st, wants)
}

// accepted responds with the result of a request that has ended, else 202 with its status.
func (s *Service) accepted(ctx context.Context, w http.ResponseWriter, r *http.Request, st *job.RequestStatus, wants preferences) {
	h := w.Header()
	h.Set("Location", st.StatusURL)
	h.Set("Preference-Applied", wants.applied())
	if st.State.Final() {
		if reply, _, err := s.Requests.Result(ctx, st.ID); err == nil && reply != nil {
			s.WriteReply(w, r, reply)
			return
		}
	}
	h["Content-Type"] = transport.JSONType
	w.WriteHeader(http.StatusAccepted)
	transport.WriteJSON(w, st)
}

// checked decodes and checks a request without executing it. It responds if the request is refused. now reports that the
// request cannot be executed later.
func (s *Service) checked(w http.ResponseWriter, r *http.Request, p transport.Path) (now, ok bool) {
	x := s.newExchange(r)
	defer x.release()
	x.req = infer.NewRequest()
	err := x.readInfer(w, r, p)
	x.received(r.Header)
	if c, can := s.Settings.Infer.(infer.Checker); err == nil && can {
		err = c.CheckRequest(x.req)
		x.parsing = err != nil && notStarted(err)
	}
	if err != nil {
		x.reject(p, err)
		x.closeWindows()
		if x.parsing {
			w.Header()["Content-Type"] = transport.JSONType
		}
		s.Reject(w, r, err)
		return false, false
	}
	now = x.req.Sequence.ID != 0 || x.req.Sequence.Name != "" ||
		slices.ContainsFunc(x.inputs, func(in input) bool { return in.have.has(hasRegion) }) ||
		slices.ContainsFunc(x.wanted.outputs, func(o output) bool { return o.window != nil })
	x.req.Release()
	x.req = nil
	return now, true
}

// withBody returns a request with a body that was read.
func withBody(r *http.Request, body []byte) *http.Request {
	read := r.WithContext(r.Context())
	read.Body, read.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return read
}

// stored returns the header fields of a request that are stored with it. Others, such as credentials, are not.
func (s *Service) stored(r *http.Request) http.Header {
	h := http.Header{}
	for _, name := range storedHeaders {
		if v := r.Header[name]; len(v) > 0 {
			h[name] = slices.Clone(v)
		}
	}
	s.EachForwarded(r, func(name, value string) {
		if name = textproto.CanonicalMIMEHeaderKey(name); h[name] == nil {
			h[name] = []string{value}
		}
	})
	return h
}

// Replay executes a stored request as Infer does, and returns the response. The caller closes its body.
func (s *Service) Replay(ctx context.Context, req *job.Request) *job.Reply {
	r := (&http.Request{
		Method: http.MethodPost, URL: &url.URL{Path: "/"}, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: req.Header, Body: io.NopCloser(bytes.NewReader(req.Body)), ContentLength: int64(len(req.Body)),
	}).WithContext(ctx)
	w := &recorder{header: http.Header{}, code: http.StatusOK}
	s.inferNow(w, r, transport.Path{Model: req.Model, Version: req.Version})
	delete(w.header, "Content-Length") // of the transfer, as the next
	delete(w.header, "Connection")
	return &job.Reply{Code: w.code, Header: w.header, Size: int64(w.body.Len()), Body: io.NopCloser(&w.body)}
}

// recorder is a ResponseWriter that keeps the response.
type recorder struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (w *recorder) Header() http.Header { return w.header }

// Write implements http.ResponseWriter.
func (w *recorder) Write(b []byte) (int, error) { return w.body.Write(b) }

// WriteHeader implements http.ResponseWriter.
func (w *recorder) WriteHeader(code int) { w.code = code }
