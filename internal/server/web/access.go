package web

import (
	"crypto/subtle"
	"net/http"
	"strings"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/identity"
)

func forbidden(text string) error {
	return &identity.RefusedError{Reason: identity.Forbidden, Text: text}
}

// admit returns who sent a request, nil without an auth file, and why it is refused. Errors are of package identity.
func (s *Server) admit(r *http.Request, a infer.API, secret bool) (*identity.Identity, error) {
	if want := s.limited.Of(a); want != nil && !want.Met(r.Header.Get(want.Key)) {
		return nil, forbidden("This API is restricted, expecting header '" + want.Key + "'")
	}
	if a == infer.APINone { // it says nothing about the server
		return nil, nil //nolint:nilnil // nobody need be known
	}
	if s.set.Guard.Required() {
		return s.identify(r, a, secret)
	}
	switch {
	case !secret || s.hasToken(r):
		return nil, nil //nolint:nilnil // there is no auth file
	case s.set.Token == "":
		return nil, forbidden("the dashboard is read-only: the server has no --dashboard-token")
	}
	return nil, forbidden("this needs the dashboard's token, expecting header 'Authorization: Bearer TOKEN'")
}

// identify returns who sent a request, and why it may not use the dashboard for a category. A secret endpoint of traces shows tensors, or
// changes which are kept.
func (s *Server) identify(r *http.Request, a infer.API, secret bool) (*identity.Identity, error) {
	c := identity.Credentials{Authorization: r.Header["Authorization"]}
	if r.TLS != nil {
		c.Chains = r.TLS.VerifiedChains
	}
	who, err := s.set.Guard.Authenticate(r.Context(), c)
	if err != nil {
		return nil, err
	}
	needed := []identity.Group{identity.GroupDashboard, identity.GroupOf(a)}
	if secret && a == infer.APITrace {
		needed = append(needed, identity.GroupCapture)
	}
	for _, g := range needed {
		err := who.MayAll(g)
		if model := r.PathValue("model"); model != "" {
			err = who.May(g, model)
		}
		if err != nil {
			return who, err
		}
	}
	return who, nil
}

// still reports whether the client of an event stream may see a category now.
func (s *Server) still(r *http.Request, a infer.API) bool {
	_, err := s.admit(r, a, false)
	return err == nil
}

// admitted reports whether a request may see tensors and change things.
func (s *Server) admitted(r *http.Request) bool {
	if s.set.Guard.Required() {
		_, err := s.identify(r, infer.APITrace, true)
		return err == nil
	}
	return s.hasToken(r)
}

// hasToken reports whether a request has the dashboard's token. The comparison takes constant time.
func (s *Server) hasToken(r *http.Request) bool {
	got, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok || s.set.Token == "" {
		return false
	}
	return subtle.ConstantTimeCompare([]byte(got), []byte(s.set.Token)) == 1
}

// try reports whether a request may see tensors and change things, as admitted does. Wrong credentials are counted, logged and recorded:
// a page asks whether its token is right, and so could someone who guesses it.
func (s *Server) try(r *http.Request) bool {
	ok := s.admitted(r)
	if !ok && r.Header.Get("Authorization") != "" {
		who, err := s.admit(r, infer.APITrace, true)
		if err == nil {
			return true // the auth file has changed
		}
		_ = s.set.Guard.Refuse(who, eventOf(r), err) // the response says that the token is not admitted
	}
	return ok
}

// event describes a request for the audit log.
func eventOf(r *http.Request) identity.Event {
	method, path, _ := strings.Cut(r.Pattern, " ")
	e := identity.Event{From: r.RemoteAddr, Via: "dashboard", Action: "read", Object: r.PathValue("id") + r.PathValue("model")}
	switch {
	case method == http.MethodGet:
	case strings.HasSuffix(path, "/load"):
		e.Action = "model.load"
	case strings.HasSuffix(path, "/unload"):
		e.Action = "model.unload"
	case strings.HasSuffix(path, "/sampling"):
		e.Action = "sampling.set"
	case method == http.MethodDelete:
		e.Action = "capture.end"
	case method == http.MethodPost:
		e.Action = "capture.start"
	}
	return e
}

// statuses are those of refusals.
var statuses = map[identity.Reason]int{
	identity.Unauthenticated: http.StatusUnauthorized, identity.Forbidden: http.StatusForbidden, identity.Undecided: http.StatusServiceUnavailable,
}

// refuse responds to a request that is refused.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, who *identity.Identity, err error) {
	refusal := s.set.Guard.Refuse(who, eventOf(r), err)
	if refusal.Reason == identity.Unauthenticated {
		w.Header().Set("WWW-Authenticate", `Bearer realm="tutti"`)
	}
	writeJSON(w, statuses[refusal.Reason], map[string]string{"error": refusal.Text})
}
