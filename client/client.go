// Package client is a client of KServe v2 servers, Tutti or others, over HTTP or gRPC.
//
//	c, err := client.Dial("http://127.0.0.1:8000")
//	resp, err := c.Infer(ctx, &client.Request{Model: "ensemble", Inputs: []client.Tensor{client.Text("TEXT", []int64{1, 1}, "hello")}})
//	embedding, err := client.Values[float32](resp.Output("embedding"))
package client

import (
	"context"
	"crypto/tls"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// Client sends requests to one server. It is safe for concurrent use. A refusal by the server is an *Error.
type Client interface {
	// Infer sends one request and returns its response.
	Infer(ctx context.Context, req *Request) (*Response, error)
	// Decoupled reports whether a model may send any number of responses to a request. Such a model needs a
	// Streamer.
	Decoupled(ctx context.Context, model, version string) (bool, error)
	// Ready reports whether the server is ready.
	Ready(ctx context.Context) (bool, error)
	// Metadata describes a model.
	Metadata(ctx context.Context, model string) (*infer.Metadata, error)
	// Config returns the completed configuration of a model.
	Config(ctx context.Context, model string) (*modelconfig.ModelConfig, error)
	// Statistics returns the statistics of a model, or of all models if model is empty.
	Statistics(ctx context.Context, model string) ([]infer.Statistics, error)
	// Close closes the connections.
	Close() error
}

// Streamer is a Client of a protocol in which a request may have any number of responses.
type Streamer interface {
	Client
	// Stream sends one request and calls each with every response in order. It returns after the last response, or
	// with the first error of each.
	Stream(ctx context.Context, req *Request, each func(*Response) error) error
}

// Manager is a Client that also loads and unloads models.
type Manager interface {
	Client
	// Index lists the models of the server's repositories.
	Index(ctx context.Context) ([]infer.Entry, error)
	// Load loads a model, and returns when it is ready or has failed to load.
	Load(ctx context.Context, model string) error
	// Unload unloads a model. With dependents, it also unloads the models that were loaded only for it.
	Unload(ctx context.Context, model string, dependents bool) error
}

// Request is an inference request to a model.
type Request struct {
	Model string
	// Version is the requested version; empty for the server's choice.
	Version string
	// ID is returned in the response.
	ID     string
	Inputs []Tensor
	// Outputs names the requested outputs; empty for all.
	Outputs []string
	// TraceParent and TraceState are the W3C Trace Context of the request; empty for none.
	TraceParent, TraceState string
}

// Response is the response of a model.
type Response struct {
	Model, Version, ID string
	Outputs            []Tensor
}

// Output returns the named output, or nil.
func (r *Response) Output(name string) *Tensor {
	for i := range r.Outputs {
		if r.Outputs[i].Name == name {
			return &r.Outputs[i]
		}
	}
	return nil
}

// Error is the response of a server that refused a request.
type Error struct {
	// Status is the HTTP status ("400 Bad Request") or the gRPC code ("InvalidArgument").
	Status string
	// Text is the error text of the server.
	Text string
}

// Error returns status and text.
func (e *Error) Error() string { return e.Status + ": " + e.Text }

// Dial returns a client of the server at a URL that ParseURL accepts. It opens no connection: the first request
// does.
func Dial(server string) (Manager, error) { return DialWith(server, nil) }

// DialWith is Dial with options, which may be nil.
func DialWith(server string, o *Options) (Manager, error) {
	u, err := ParseURL(server)
	if err != nil {
		return nil, err
	}
	if o == nil {
		o = &Options{}
	}
	switch u.Scheme {
	case schemeGRPC:
		return NewGRPC(u.Host, &Options{Header: o.Header})
	case schemeGRPCS:
		if o.TLS == nil {
			o = &Options{TLS: &tls.Config{MinVersion: tls.VersionTLS12}, Header: o.Header}
		}
		return NewGRPC(u.Host, o)
	}
	return NewHTTP(u.String(), &HTTPOptions{Options: *o}), nil
}
