package httpapi

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"tutti/core/infer"
	"tutti/core/status"
)

// inferModel answers one inference request.
//
// hot: what it allocates itself is counted by a test.
func (s *Server) inferModel(w http.ResponseWriter, r *http.Request, t target) {
	x := s.newExchange()
	defer x.release()
	if err := x.serve(w, r, t); err != nil {
		writeError(w, err)
	}
}

func (x *exchange) serve(w http.ResponseWriter, r *http.Request, t target) error {
	version, err := infer.ParseVersion(t.version)
	if err != nil {
		return err
	}
	if err := identity(w, r); err != nil {
		return err
	}
	x.req = infer.NewRequest()
	x.req.Model, x.req.Version = t.model, version
	if err := x.decode(r); err != nil {
		x.req.Release()
		return x.srv.refuse(t.model, version, err)
	}
	resp, err := x.submit(r.Context())
	if err != nil {
		return err
	}
	defer resp.Release()
	return x.reply(w, resp)
}

// submit hands the request over and waits for its only answer.
func (x *exchange) submit(ctx context.Context) (*infer.Response, error) {
	x.seq = x.req.Sequence
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

// refuse returns why a request cannot be decoded, unless its model cannot be asked
// at all, which clients expect to be told first.
func (s *Server) refuse(model string, version int64, err error) error {
	if unknown := s.catalog.ModelReady(model, version); unknown != nil {
		return unknown
	}
	return err
}

// identity refuses a body in any encoding.
func identity(w http.ResponseWriter, r *http.Request) error {
	v := r.Header["Content-Encoding"]
	if len(v) == 0 {
		return nil
	}
	switch v[0] {
	case "", "identity":
		return nil
	case "gzip", "deflate":
		w.Header().Set("Accept-Encoding", "identity")
		return status.Errorf(status.Unsupported, "Unsupported compression type: '%s' requests are not supported, only 'identity'", v[0])
	}
	w.Header().Set("Accept-Encoding", "identity")
	return status.Errorf(status.Unsupported, "Unsupported compression type")
}

// writeError answers a failure with the status of its code and its text.
func writeError(w http.ResponseWriter, err error) {
	writeErrorText(w, status.CodeOf(err).HTTP(), errorText(err))
}

// errorText is what a client reads of a failure; a cancelled request has no text.
func errorText(err error) string {
	var coded *status.Error
	if !errors.As(err, &coded) && status.CodeOf(err) == status.Cancelled {
		return ""
	}
	return err.Error()
}

func writeErrorText(w http.ResponseWriter, code int, text string) {
	w.Header()["Content-Type"] = jsonType
	w.WriteHeader(code)
	// A client that is gone by now gets nothing.
	_, _ = w.Write(appendError(nil, text))
}

// appendError appends the JSON of a failure. Its text may repeat names as the client
// wrote them, which need not be UTF-8.
func appendError(b []byte, text string) []byte {
	b = append(b, `{"error":`...)
	return append(appendString(b, strings.ToValidUTF8(text, "\ufffd")), '}')
}
