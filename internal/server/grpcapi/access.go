package grpcapi

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"net/textproto"
	"path"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/tap"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/identity"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/proto/inference"
)

// admit refuses calls before a byte of them is read: of restricted methods, and of clients without the right to the method. It runs on the
// goroutine that reads the connection, so it does not wait for the issuer of a token: resolve does.
func admit(set *Settings) tap.ServerInHandle {
	restricted, guard := restrict(set.Restricted), set.Guard
	return func(ctx context.Context, call *tap.Info) (context.Context, error) {
		ctx, err := restricted(ctx, call)
		if err != nil || !guard.Required() {
			return ctx, err
		}
		c := identity.Credentials{Authorization: call.Header["authorization"], Chains: chainsOf(ctx), NoWait: true}
		who, err := guard.Authenticate(ctx, c)
		if errors.Is(err, identity.ErrPending) {
			return ctx, nil
		}
		if err == nil {
			err = mayCall(who, call.FullMethodName)
		}
		if err != nil {
			return nil, refuse(ctx, guard, who, call.FullMethodName, "", err)
		}
		return identity.With(ctx, who), nil
	}
}

// apiOf returns the category of a method. Reflection describes the server; what is unknown, and what reports the load, is for those who may
// read statistics.
func apiOf(method string) infer.API {
	if api, ok := methodAPIs[path.Base(method)]; ok {
		return api
	}
	if isReflection(method) {
		return infer.APIMetadata
	}
	return infer.APIStatistics
}

// mayCall returns why an identity may not call a method for any model.
func mayCall(who *identity.Identity, method string) error {
	g := identity.GroupOf(apiOf(method))
	if who.Has(g) {
		return nil
	}
	return who.May(g, "")
}

// resolve returns the context of a call with the identity of its client, for which it may wait for an issuer.
func (s *service) resolve(ctx context.Context, method string) (context.Context, error) {
	if !s.set.Guard.Required() || identity.From(ctx) != nil {
		return ctx, nil
	}
	md, _ := metadata.FromIncomingContext(ctx)
	who, err := s.set.Guard.Authenticate(ctx, identity.Credentials{Authorization: md.Get("authorization"), Chains: chainsOf(ctx)})
	if err == nil {
		err = mayCall(who, method)
	}
	if err != nil {
		return nil, refuse(ctx, s.set.Guard, who, method, "", err)
	}
	return identity.With(ctx, who), nil
}

// chainsOf returns the verified chains of the client's certificate.
func chainsOf(ctx context.Context) [][]*x509.Certificate {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	info := p.AuthInfo
	if l, ok := info.(*connection); ok {
		info = l.AuthInfo
	}
	if t, ok := info.(credentials.TLSInfo); ok {
		return t.State.VerifiedChains
	}
	return nil
}

// grpcCodes are those of refusals.
var grpcCodes = map[identity.Reason]codes.Code{
	identity.Unauthenticated: codes.Unauthenticated, identity.Forbidden: codes.PermissionDenied, identity.Undecided: codes.Unavailable,
}

func refuse(ctx context.Context, g *identity.Guard, who *identity.Identity, method, object string, err error) error {
	r := g.Refuse(who, eventOf(ctx, cmp.Or(actions[path.Base(method)], apiOf(method).String()), object), err)
	return detailed(grpcCodes[r.Reason], r.Text, r.Coded())
}

func eventOf(ctx context.Context, action, object string) identity.Event {
	return identity.Event{From: addressOf(ctx), Via: "grpc", Action: action, Object: object}
}

func addressOf(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		return p.Addr.String()
	}
	return ""
}

// clientOf returns the client of a call. There must be Shares.
func (s *service) clientOf(ctx context.Context) *infer.Client {
	var header []string
	if name := s.set.Shares.Header(); name != "" {
		header = metadata.ValueFromIncomingContext(ctx, name)
	}
	return s.set.Shares.Of(header, identity.From(ctx).Label(), addressOf(ctx), telemetry.Now())
}

// mayInfer returns why the client of a call may not infer with a model.
//
// hot: no allocation.
func (s *service) mayInfer(ctx context.Context, model string) error {
	if !s.set.Guard.Required() {
		return nil
	}
	who := identity.From(ctx)
	err := who.May(identity.GroupOf(infer.APIInference), model)
	if err == nil {
		return nil
	}
	return refuse(ctx, s.set.Guard, who, methodInfer, model, err)
}

// actions are the names of changes in the audit log.
var actions = map[string]string{
	"RepositoryModelLoad": "model.load", "RepositoryModelUnload": "model.unload",
	"SystemSharedMemoryRegister": "shared-memory.register", "CudaSharedMemoryRegister": "shared-memory.register",
	"SystemSharedMemoryUnregister": "shared-memory.unregister", "CudaSharedMemoryUnregister": "shared-memory.unregister",
	"TraceSetting": "trace.set", "LogSettings": "logging.set",
}

// actionOf returns the name of the change that a call makes, empty for none, and its object.
func actionOf(method string, req any) (action, object string) {
	switch r := req.(type) {
	case *inference.TraceSettingRequest:
		if len(r.GetSettings()) == 0 {
			return "", r.GetModelName()
		}
	case *inference.LogSettingsRequest:
		if len(r.GetSettings()) == 0 {
			return "", ""
		}
	}
	switch r := req.(type) {
	case interface{ GetModelName() string }:
		object = r.GetModelName()
	case interface{ GetName() string }:
		object = r.GetName()
	}
	return actions[path.Base(method)], object
}

// allow returns why a call may not be made: for its model, or because it changes the server from another machine.
func (s *service) allow(ctx context.Context, method, action, object string) error {
	api, model := apiOf(method), object
	if api == infer.APISharedMemory { // whose objects are regions
		model = ""
	}
	who := identity.From(ctx)
	err := who.May(identity.GroupOf(api), model)
	if err == nil && action != "" {
		md, _ := metadata.FromIncomingContext(ctx)
		local := identity.Local(addressOf(ctx), func(name string) string { return strings.Join(md.Get(textproto.CanonicalMIMEHeaderKey(name)), ",") })
		err = s.set.Guard.Control(action, local, s.limited.Of(api) != nil)
	}
	if err != nil {
		return refuse(ctx, s.set.Guard, who, method, object, err)
	}
	return nil
}

// controlled calls a method that may change the server, and records the change.
func (s *service) controlled(ctx context.Context, req any, method string, handler grpc.UnaryHandler) (any, error) {
	action, object := actionOf(method, req)
	if err := s.allow(ctx, method, action, object); err != nil {
		return nil, err
	}
	resp, err := handler(ctx, req)
	if r, ok := errors.AsType[*identity.RefusedError](err); ok {
		return nil, refuse(ctx, s.set.Guard, identity.From(ctx), method, object, r)
	}
	if action != "" {
		s.set.Guard.Record(identity.From(ctx), eventOf(ctx, action, object), err)
	}
	return resp, err
}

// identified is a stream whose context has the identity of its client.
type identified struct {
	grpc.ServerStream

	ctx context.Context //nolint:containedctx // grpc's interface has it
}

// Context implements grpc.ServerStream.
func (i *identified) Context() context.Context { return i.ctx }
