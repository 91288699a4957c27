// Package client is a client of KServe v2 servers, Tutti or others, over HTTP or gRPC.
//
//	c, err := client.Dial("http://127.0.0.1:8000")
//	resp, err := c.Infer(ctx, &client.Request{Model: "ensemble", Inputs: []client.Tensor{client.Text("TEXT", []int64{1, 1}, "hello")}})
//	embedding, err := client.Values[float32](resp.Output("embedding"))
//
// The page docs/client.md has an example for each task.
//
//	client.go           the interfaces, requests, responses, Dial and its options
//	tensor.go           tensors and their elements
//	http.go, grpc.go    requests and descriptions over each protocol
//	conn.go             health, settings, loads and shared memory; httpadmin.go and grpcadmin.go implement them
//	stream.go           gRPC streams
//	generate.go         plain JSON requests and server-sent events
//	async.go, jobs.go   requests that a server executes later
//	shared.go           shared memory of this process
//	retry.go, probe.go  refused requests that are sent again; the protocol of a port
package client

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

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
	// Regions has the part of a shared memory region that each of these outputs is written to. They must be among Outputs.
	Regions map[string]Region
	// Parameters are the request's parameters: values of type bool, string, int, int64, uint64 or float64. For example: priority and
	// timeout (in microseconds), which queue policies read; others are the model's own.
	Parameters map[string]any
	// Sequence is the sequence that the request belongs to, unless nil.
	Sequence *Sequence
	// TraceParent and TraceState are the W3C Trace Context of the request; empty for none.
	TraceParent, TraceState string
}

// Sequence is the place of a request in a sequence: requests whose state a model keeps. All requests of one have the same ID, or the
// same Name.
type Sequence struct {
	ID   uint64
	Name string // used instead of ID, unless empty
	// Start marks the first request of the sequence, and End the last.
	Start, End bool
}

// Response is the response of a model.
type Response struct {
	Model, Version, ID string
	Outputs            []Tensor
	// Parameters has the parameters of the response, with values as in Request.Parameters.
	Parameters map[string]any
}

// Final reports whether no more responses to the request follow. Only servers of streams say so.
func (r *Response) Final() bool {
	final, _ := r.Parameters["triton_final_response"].(bool)
	return final
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
	// RetryAfter is the time after which the server expects the request to succeed; 0 when it does not say. The server has not
	// executed such a request.
	RetryAfter time.Duration
	// Reason says why the request was refused, for programs. For example, "QUEUE_FULL"; docs/errors.md lists them. It is empty if the
	// server does not say, as other servers of the protocol.
	Reason string
	// Retryable reports whether the same request may succeed when it is sent again. If the server does not say, the status decides.
	Retryable bool
	// Step is the step of the ensemble, or the model, that is the cause; empty if the server does not say.
	Step string
	// Finish is the time from the arrival of the request to its response that the server predicted; 0 when it does not say.
	Finish time.Duration
	// Foreign is true if the response has not the JSON form of the protocol's errors, so that probably a proxy or another program
	// has sent it. Text is then the beginning of its body.
	Foreign bool
}

// Error returns status and text.
func (e *Error) Error() string { return e.Status + ": " + e.Text }

// ForeignError is a successful response that no server of the protocol sends, for example the page of a web server.
type ForeignError struct {
	// URL is that of the request.
	URL string
	// Found is the beginning of the response's body.
	Found string
	// Err says why the body is not the expected one.
	Err error
}

// Error returns the URL and what was found there.
func (e *ForeignError) Error() string {
	found := "an empty body"
	if e.Found != "" {
		found = strconv.Quote(e.Found)
	}
	return fmt.Sprintf("the response of %s is not that of an inference server: expected JSON, found %s", e.URL, found)
}

// Unwrap returns Err.
func (e *ForeignError) Unwrap() error { return e.Err }

// mostFound is the most bytes of a foreign body in an error.
const mostFound = 120

// beginning returns the beginning of a body as text.
func beginning(body []byte) string {
	text := strings.ToValidUTF8(strings.TrimSpace(string(body[:min(len(body), mostFound)])), "")
	if len(body) > mostFound {
		text += "..."
	}
	return text
}

// Dial returns a client of the server at a URL that ParseURL accepts. It opens no connection: the first request
// does.
func Dial(server string) (Conn, error) { return DialWith(server, nil) }

// DialWith is Dial with options, which may be nil.
func DialWith(server string, o *Options) (Conn, error) {
	u, err := ParseURL(server)
	if err != nil {
		return nil, err
	}
	if o == nil {
		o = &Options{}
	}
	switch u.Scheme {
	case schemeGRPC:
		return NewGRPC(u.Host, &Options{Header: o.Header, Retry: o.Retry})
	case schemeGRPCS:
		return NewGRPC(u.Host, &Options{TLS: cmp.Or(o.TLS, &tls.Config{MinVersion: tls.VersionTLS12}), Header: o.Header, Retry: o.Retry})
	}
	return NewHTTP(u.String(), &HTTPOptions{Options: *o}), nil
}

// Options configure the connections of a client, and the headers of its requests.
type Options struct {
	// TLS configures the connections to https:// and grpcs:// URLs. nil trusts the authorities of the system and
	// presents no certificate.
	TLS *tls.Config
	// Header is sent with every request: as HTTP headers, or as gRPC metadata.
	Header http.Header
	// Retry sends refused requests again; nil never does.
	Retry *Retry

	_ struct{}
}

// The schemes of the URLs of servers.
const (
	schemeHTTP  = "http"
	schemeHTTPS = "https"
	schemeGRPC  = "grpc"
	schemeGRPCS = "grpcs"
)

// ParseURL parses the URL of a server: http://, https://, grpc:// or grpcs:// and HOST:PORT. It accepts HOST:PORT
// alone as http://HOST:PORT.
func ParseURL(server string) (*url.URL, error) {
	if !strings.Contains(server, "://") {
		server = schemeHTTP + "://" + server
	}
	u, err := url.Parse(server)
	if err != nil {
		return nil, err
	}
	switch u.Scheme {
	case schemeHTTP, schemeHTTPS, schemeGRPC, schemeGRPCS:
		if u.Host != "" {
			return u, nil
		}
	}
	return nil, fmt.Errorf("'%s' is no address of a server, expected http://HOST:PORT or grpc://HOST:PORT (https:// or grpcs:// with TLS)", server)
}

// RoundTripper returns a transport for HTTP requests with the options; o may be nil.
func (o *Options) RoundTripper() http.RoundTripper {
	t := &http.Transport{MaxIdleConnsPerHost: idlePerHost, DisableCompression: true, Proxy: http.ProxyFromEnvironment}
	if o == nil {
		return t
	}
	t.TLSClientConfig = o.TLS.Clone()
	if len(o.Header) == 0 {
		return t
	}
	return &withHeader{Transport: t, header: o.Header}
}

// withHeader adds headers to every request. It sets the field Host for the header of that name, as net/http
// requires.
type withHeader struct {
	*http.Transport
	header http.Header
}

// RoundTrip implements http.RoundTripper.
func (w *withHeader) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for name, values := range w.header {
		if name == "Host" {
			r.Host = values[0]
		} else {
			r.Header[name] = values
		}
	}
	return w.Transport.RoundTrip(r)
}

// CheckRedirect is the function of that name of an http.Client with RoundTripper: it refuses redirects to another server, which
// would get the headers with their secrets.
func CheckRedirect(r *http.Request, via []*http.Request) error {
	first := via[0].URL
	switch {
	case r.URL.Scheme != first.Scheme || r.URL.Host != first.Host:
		return fmt.Errorf("the server redirects to %s, which is another one: use its URL", r.URL.Redacted())
	case len(via) >= mostRedirects:
		return fmt.Errorf("the server redirects more than %d times", mostRedirects)
	}
	return nil
}

// mostRedirects is the number of redirects that a request follows.
const mostRedirects = 10

// dialOptions returns options that add the header to every call.
func (o *Options) dialOptions() []grpc.DialOption {
	if len(o.Header) == 0 {
		return nil
	}
	md := metadata.MD{}
	for name, values := range o.Header {
		md.Append(name, values...) // Append makes the name lower case
	}
	add := func(ctx context.Context) context.Context {
		sent, _ := metadata.FromOutgoingContext(ctx)
		return metadata.NewOutgoingContext(ctx, metadata.Join(sent, md))
	}
	return []grpc.DialOption{
		grpc.WithUnaryInterceptor(func(ctx context.Context, method string, req, reply any, c *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			return call(add(ctx), method, req, reply, c, opts...)
		}),
		grpc.WithStreamInterceptor(func(ctx context.Context, d *grpc.StreamDesc, c *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			return open(add(ctx), d, c, method, opts...)
		}),
	}
}
