// Package identity decides who may use what: it finds the identity of a request by its token or client certificate, and its rights by
// the roles of an auth file. Without a file everybody may infer, and clients of other machines may not change the server.
//
//   - identity.go: groups of the API, roles, Identity
//   - guard.go: Guard, which the front ends ask; local.go: what is closed to other machines
//   - file.go, reader.go: the auth file, with errors that name lines
//   - rights.go: what a file allows to whom, for people
//   - issuer.go, keys.go: tokens of OpenID Connect issuers, and their keys
//   - audit.go: the log of control actions; notices.go: bounded messages about refusals
//
// For example:
//
//	g, err := identity.Open(ctx, identity.Settings{File: "auth.yaml"})
//	who, err := g.Authenticate(ctx, identity.Credentials{Authorization: r.Header["Authorization"]})
//	err = who.May(identity.GroupOf(infer.APIInference), "resnet")
package identity

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
)

// Group is a part of the API that roles name: the categories of package infer, and what only Tutti has.
type Group uint8

// The groups besides those of infer.API.
const (
	GroupDashboard = Group(infer.APINone) + 1 + iota // reading the dashboard and its API
	GroupCapture                                     // capturing tensors, and reading captured ones
	GroupMetrics                                     // the metrics port
	numGroups
)

// GroupOf returns the group of a category of the API.
func GroupOf(a infer.API) Group { return Group(a) }

var ownGroups = map[Group]string{GroupDashboard: "dashboard", GroupCapture: "capture", GroupMetrics: "metrics"}

// String returns the name of the group in auth files, for example "model-repository".
func (g Group) String() string {
	if name, ok := ownGroups[g]; ok {
		return name
	}
	return infer.API(g).String()
}

// Groups returns all groups.
func Groups() (list []Group) {
	for g := range numGroups {
		if g != Group(infer.APINone) {
			list = append(list, g)
		}
	}
	return list
}

// wholeServer are the groups that show or change things of all models. A role that is limited to some models cannot have them.
var wholeServer = []Group{GroupOf(infer.APILogging), GroupOf(infer.APIJobs), GroupDashboard, GroupCapture, GroupMetrics}

// groupSet is a set of groups.
type groupSet uint32

func setOf(list ...Group) (s groupSet) {
	for _, g := range list {
		s |= 1 << g
	}
	return s
}

func (s groupSet) has(g Group) bool { return s&(1<<g) != 0 }

// names returns the names of the groups, for messages.
func (s groupSet) names() string {
	var list []string
	for _, g := range Groups() {
		if s.has(g) {
			list = append(list, g.String())
		}
	}
	return strings.Join(list, ", ")
}

// role allows groups, for models that match one of the patterns and are in the namespaces; no patterns, and no namespaces, stand for all.
type role struct {
	name   string
	groups groupSet
	models []string
	spaces []string // patterns of namespaces
	of     func(model string, control bool) []string
}

// limited reports whether the role is for some models only.
func (r *role) limited() bool { return len(r.models)+len(r.spaces) > 0 }

// matches reports whether the role is for a model. With namespaces it is if every namespace that has a model of this name is the role's:
// a request cannot name a namespace.
func (r *role) matches(g Group, model string) bool {
	if len(r.models) > 0 && !matchesAny(r.models, model) {
		return false
	}
	if len(r.spaces) == 0 {
		return true
	}
	list := r.of(model, g == GroupOf(infer.APIModelRepository))
	return len(list) > 0 && !slices.ContainsFunc(list, func(space string) bool { return !slices.Contains(r.spaces, space) && !matchesAny(r.spaces, space) })
}

func matchesAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		ok, err := path.Match(pattern, name)
		return ok && err == nil
	})
}

// Identity is who sent a request. It is immutable. The nil Identity may do everything: there is no auth file.
type Identity struct {
	Name  string // of the token, the subject or the certificate, for example "ci"
	By    string // how it is known: token, issuer, certificate, dashboard-token, anonymous
	roles []*role
}

// Known reports whether the request had credentials.
func (i *Identity) Known() bool { return i != nil && i.By != byAnonymous }

// Label returns the name of the identity, empty without credentials.
func (i *Identity) Label() string {
	if !i.Known() {
		return ""
	}
	return i.Name
}

// The ways in which an identity is known.
const (
	byToken       = "token"
	byIssuer      = "issuer"
	byCertificate = "certificate"
	byDashboard   = "dashboard-token"
	byAnonymous   = "anonymous"
)

// Has reports whether a role of the identity has a group, for any model.
func (i *Identity) Has(g Group) bool {
	return i == nil || slices.ContainsFunc(i.roles, func(r *role) bool { return r.groups.has(g) })
}

// Sees reports whether the identity may use a group for a model. The empty model stands for the server: lists, which the caller filters
// by Sees, and what has no model. Settings of traces for the empty model are those of all models.
func (i *Identity) Sees(g Group, model string) bool {
	if i == nil {
		return true
	}
	for _, r := range i.roles {
		if !r.groups.has(g) {
			continue
		}
		if model == "" && (!r.limited() || g != GroupOf(infer.APITrace)) || model != "" && r.matches(g, model) {
			return true
		}
	}
	return false
}

// May returns why the identity may not use a group for a model, see Sees. The error is a *RefusedError.
func (i *Identity) May(g Group, model string) error {
	if i.Sees(g, model) {
		return nil
	}
	of := ""
	switch {
	case model != "":
		of = fmt.Sprintf(" of model '%.200s'", model)
	case i.Has(g):
		of = " of all models"
	}
	return i.refusal(g, of)
}

// MayAll returns why the identity may not use a group for all models, as May does.
func (i *Identity) MayAll(g Group) error {
	if i == nil || slices.ContainsFunc(i.roles, func(r *role) bool { return r.groups.has(g) && !r.limited() }) {
		return nil
	}
	return i.refusal(g, " of all models")
}

// MayReach returns why the identity may not change a model in a way that reaches others: an ensemble or a program that comes with a load
// request uses whatever models it names, and an unload may take along the models of an ensemble. The error is a *RefusedError.
func (i *Identity) MayReach(change string) error {
	err := i.MayAll(GroupOf(infer.APIModelRepository))
	if r, ok := errors.AsType[*RefusedError](err); ok {
		return &RefusedError{Reason: r.Reason, Text: change + " reaches other models: " + r.Text}
	}
	return nil
}

func (i *Identity) refusal(g Group, of string) error {
	return &RefusedError{Reason: Forbidden, Text: fmt.Sprintf("'%s' may not use '%s'%s: %s", i.Name, g, of, i.rights())}
}

// rights says which roles the identity has.
func (i *Identity) rights() string {
	if len(i.roles) == 0 {
		return "it has no role"
	}
	var all groupSet
	names := make([]string, len(i.roles))
	for n, r := range i.roles {
		names[n] = r.name
		all |= r.groups
	}
	what := "role"
	if len(names) > 1 {
		what = "roles"
	}
	return fmt.Sprintf("its %s (%s) may use %s", what, strings.Join(names, ", "), all.names())
}

// Reason is why a request is refused.
type Reason uint8

// The reasons.
const (
	Unauthenticated Reason = iota // nobody is known: HTTP 401, UNAUTHENTICATED
	Forbidden                     // the role lacks it: HTTP 403, PERMISSION_DENIED
	Undecided                     // the issuer's keys could not be had: HTTP 503, UNAVAILABLE; the request may be sent again
)

// RefusedError is the error of a request that is refused. Its text has no secret.
type RefusedError struct {
	Reason Reason
	Text   string
}

func (r *RefusedError) Error() string { return r.Text }

// Coded returns the refusal with what clients are told besides its text. Its code is not that of the front ends, which have own statuses.
func (r *RefusedError) Coded() error {
	e := &status.Error{Code: status.Unavailable, Msg: r.Text, Err: r, Reason: status.PermissionDenied}
	switch r.Reason {
	case Unauthenticated:
		e.Reason = status.Unauthenticated
	case Undecided:
		e.Reason, e.RetryAfter = "", time.Second
	case Forbidden:
	}
	return e
}

type contextKey struct{}

// With returns a context with the identity of a request.
func With(ctx context.Context, who *Identity) context.Context {
	return context.WithValue(ctx, contextKey{}, who)
}

// From returns the identity of a request, nil if there is no auth file.
func From(ctx context.Context) *Identity {
	who, _ := ctx.Value(contextKey{}).(*Identity)
	return who
}
