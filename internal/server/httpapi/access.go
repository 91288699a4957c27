package httpapi

import (
	"cmp"
	"errors"
	"net/http"
	"strings"

	"github.com/tutti-server/tutti/internal/identity"
	"github.com/tutti-server/tutti/internal/server/httpapi/transport"
)

// identify returns the request with the identity of its client, nil if it was refused.
func (s *Server) identify(w http.ResponseWriter, r *http.Request, p *pattern, path transport.Path) *http.Request {
	c := identity.Credentials{Authorization: r.Header["Authorization"]}
	if r.TLS != nil {
		c.Chains = r.TLS.VerifiedChains
	}
	who, err := s.shared.Guard.Authenticate(r.Context(), c)
	if err == nil {
		err = who.May(identity.GroupOf(p.api), path.Model)
	}
	if err != nil {
		s.refuse(w, r, p.form, who, p.event(r, path), err)
		return nil
	}
	return r.WithContext(identity.With(r.Context(), who))
}

// statuses are those of refusals.
var statuses = map[identity.Reason]int{
	identity.Unauthenticated: http.StatusUnauthorized, identity.Forbidden: http.StatusForbidden, identity.Undecided: http.StatusServiceUnavailable,
}

// challenge is the header of a response with status 401.
var challenge = []string{`Bearer realm="tutti"`}

func (s *Server) refuse(w http.ResponseWriter, r *http.Request, form transport.ErrorForm, who *identity.Identity, e identity.Event, err error) {
	refusal := s.shared.Guard.Refuse(who, e, err)
	switch refusal.Reason {
	case identity.Unauthenticated:
		w.Header()["Www-Authenticate"] = challenge
	case identity.Undecided, identity.Forbidden:
	}
	s.shared.Drain(w, r, nil)
	form.WriteAs(w, statuses[refusal.Reason], refusal.Coded())
}

// changes reports whether a request changes the server.
func (p *pattern) changes(r *http.Request) bool { return p.action != "" && r.Method != http.MethodGet }

// event describes a request for the audit log.
func (p *pattern) event(r *http.Request, path transport.Path) identity.Event {
	action := p.api.String()
	switch {
	case p.changes(r):
		action = p.action
	case p.infers && len(r.Header["Prefer"]) > 0:
		action = "request.submit"
	}
	return identity.Event{From: r.RemoteAddr, Via: "http", Action: action, Object: cmp.Or(path.Name, path.Model)}
}

// refuseChange responds to a request of a page or a machine that may not change the server, and reports whether it has.
func (s *Server) refuseChange(w http.ResponseWriter, r *http.Request, p *pattern, path transport.Path) bool {
	err := s.shared.Sites.Change(r)
	if err != nil {
		err = &identity.RefusedError{Reason: identity.Forbidden, Text: err.Error()}
	} else if p.changes(r) && !strings.HasPrefix(p.action, "job") && !strings.HasPrefix(p.action, "request") { // jobs are off by default, and have --job-path
		restricted := s.shared.Restrictions.Of(p.api) != nil
		err = s.shared.Guard.Control(p.action, identity.Local(r.RemoteAddr, r.Header.Get), restricted)
	}
	if err == nil {
		return false
	}
	s.refuse(w, r, p.form, identity.From(r.Context()), p.event(r, path), err)
	return true
}

// record serves a request and writes its outcome to the audit log. An inference request is recorded only if it was stored for later.
func (s *Server) record(w http.ResponseWriter, r *http.Request, p *pattern, path transport.Path) {
	e := p.event(r, path)
	o := &observed{ResponseWriter: w}
	p.serve(o, r, path)
	at := w.Header().Get("Location")
	if p.infers && at == "" {
		return
	}
	if at != "" {
		e.Object = at[strings.LastIndexByte(at, '/')+1:]
	}
	var err error
	if o.code >= http.StatusBadRequest {
		err = errors.New(cmp.Or(o.text(), http.StatusText(o.code)))
	}
	s.shared.Guard.Record(identity.From(r.Context()), e, err)
}

// maxObserved bounds what is kept of the body of a failure.
const maxObserved = 1 << 10

// observed is a response whose status, and whose body if it is a failure, are observed.
type observed struct {
	http.ResponseWriter

	code int
	body []byte
}

// Unwrap is for http.ResponseController.
func (o *observed) Unwrap() http.ResponseWriter { return o.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (o *observed) WriteHeader(code int) {
	o.code = code
	o.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (o *observed) Write(b []byte) (int, error) {
	if o.code >= http.StatusBadRequest {
		o.body = append(o.body, b[:min(len(b), maxObserved-len(o.body))]...)
	}
	return o.ResponseWriter.Write(b)
}

// text returns the text of the error that was the response.
func (o *observed) text() string {
	text := strings.TrimPrefix(string(o.body), `{"error":"`)
	if before, _, members := strings.Cut(text, `","reason":"`); members { // quotes of the text itself are escaped
		return before
	}
	return strings.TrimSuffix(text, `"}`)
}
