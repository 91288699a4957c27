// Package tools serves the Model Context Protocol (MCP): each model or ensemble whose configuration has a description is a tool that an
// agent can list and call.
//
//   - tools.go: Service; a message from its body to the SDK, which knows the protocol
//   - list.go: the list of tools, in pages
//   - schema.go: the JSON schema of a tool's arguments and results
//   - call.go: a call, from its arguments to its result
//   - arguments.go: tensors from JSON; results.go: JSON, text and images from tensors
//
// The protocol is stateless: every message is answered on its own, so any server behind a load balancer can have the next one. The list is
// read from the catalog each time, so that it has what is loaded now.
package tools

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/server/httpapi/transport"
	"github.com/tutti-server/tutti/internal/tracing"
)

// Service serves the endpoint. It is safe for concurrent use.
type Service struct {
	*transport.Shared

	handler *mcp.StreamableHTTPHandler
	server  mcp.Implementation
	options mcp.ServerOptions
}

// New returns a Service.
func New(s *transport.Shared) *Service {
	quiet := slog.New(slog.DiscardHandler) // clients get the errors
	return &Service{
		Shared: s,
		handler: mcp.NewStreamableHTTPHandler(serverOf, &mcp.StreamableHTTPOptions{
			Stateless: true, JSONResponse: true, Logger: quiet,
			// The table of routes checks the sites, and transport.Body the size.
			DisableLocalhostProtection: true, MaxRequestBodyBytes: -1,
		}),
		server:  mcp.Implementation{Name: s.Name, Version: s.Version},
		options: mcp.ServerOptions{Logger: quiet, Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}}},
	}
}

// serverKey is the key of the *mcp.Server in the context of a message.
type serverKey struct{}

func serverOf(r *http.Request) *mcp.Server {
	s, _ := r.Context().Value(serverKey{}).(*mcp.Server)
	return s
}

// message is what the calls in one HTTP request share. It must not be modified.
type message struct {
	*Service

	ctx    context.Context //nolint:containedctx // that of the HTTP request, which the SDK does not pass on
	header http.Header
	client *infer.Client
	read   tracing.Interval // in which the body was received
}

// Serve responds to one message.
func (s *Service) Serve(w http.ResponseWriter, r *http.Request, _ transport.Path) {
	var in transport.Body
	in.Begin(s.Shared)
	in.Charge.For(s.Client(r))
	defer in.Release()
	span := s.Tracer.Begin()
	err := transport.RequireIdentity(r)
	if err == nil {
		err = in.Open(w, r, false)
	}
	var body []byte
	if err == nil {
		body, err = in.ReadJSON(nil)
	}
	if err != nil {
		s.Reject(w, r, err)
		return
	}
	span.End()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	// A call may outlive the handler when its client disconnects, and the header belongs to the connection.
	m := &message{Service: s, ctx: ctx, header: r.Header.Clone(), client: in.Charge.Client(), read: span}
	server := mcp.NewServer(&s.server, &s.options)
	server.AddReceivingMiddleware(m.receive)
	read := r.WithContext(context.WithValue(ctx, serverKey{}, server))
	read.Body, read.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	delete(w.Header(), "Content-Type") // the SDK has its own
	s.handler.ServeHTTP(w, read)
}

// receive serves the methods of tools, and leaves the others to the SDK.
func (m *message) receive(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		switch req := req.(type) {
		case *mcp.ListToolsRequest:
			return m.list(req.Params)
		case *mcp.CallToolRequest:
			return m.call(ctx, req.Params)
		}
		return next(ctx, method, req)
	}
}
