// Package client asks KServe v2 servers, this project's or others, over HTTP or gRPC.
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

// Client asks one server. It is safe for concurrent use.
type Client interface {
	// Infer sends one request and waits for its answer.
	Infer(ctx context.Context, req *Request) (*Response, error)
	// Decoupled reports whether a model answers a request any number of times, for which
	// it takes a Streamer.
	Decoupled(ctx context.Context, model, version string) (bool, error)
	// Ready reports whether the server says that it is.
	Ready(ctx context.Context) (bool, error)
	// Metadata describes a model.
	Metadata(ctx context.Context, model string) (*infer.Metadata, error)
	// Config returns the completed configuration of a model.
	Config(ctx context.Context, model string) (*modelconfig.ModelConfig, error)
	// Statistics returns those of a model, or of all models when it is empty.
	Statistics(ctx context.Context, model string) ([]infer.Statistics, error)
	// Close ends the connections.
	Close() error
}

// Streamer is a Client of a protocol in which a request may have any number of answers.
type Streamer interface {
	Client
	// Stream sends one request and hands each answer over as it comes, until the last
	// one, or until each returns an error.
	Stream(ctx context.Context, req *Request, each func(*Response) error) error
}

// Manager is a Client that also changes which models the server has.
type Manager interface {
	Client
	// Index lists the models of the server's repositories.
	Index(ctx context.Context) ([]infer.Entry, error)
	// Load has the server load a model, which waits until it serves or cannot.
	Load(ctx context.Context, model string) error
	// Unload has the server unload a model, with dependents what is only there for it too.
	Unload(ctx context.Context, model string, dependents bool) error
}

// Request asks a model for outputs.
type Request struct {
	Model string
	// Version is the wanted version, empty for the one that the server prefers.
	Version string
	// ID comes back in the answer.
	ID     string
	Inputs []Tensor
	// Outputs names those wanted; empty for all.
	Outputs []string
	// TraceParent and TraceState are the W3C Trace Context that the request belongs to;
	// empty for none.
	TraceParent, TraceState string
}

// Response is a model's answer.
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

// Error is a server's refusal.
type Error struct {
	// Status is the HTTP status ("400 Bad Request") or the gRPC code ("InvalidArgument").
	Status string
	// Text is the server's own.
	Text string
}

// Error returns status and text.
func (e *Error) Error() string { return e.Status + ": " + e.Text }

// Dial returns a client of the server at a URL that ParseURL takes. It does not connect
// yet.
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
