package load

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// Protocols of requests.
const (
	JSON   = "json"   // HTTP with JSON
	Binary = "binary" // HTTP with the binary extension
	GRPC   = "grpc"
	Shared = "shm" // HTTP with the tensors in system shared memory
)

// Protocols lists them.
func Protocols() []string { return []string{JSON, Binary, GRPC, Shared} }

// Client is one connection that sends one request at a time. A Client is not safe for concurrent use.
type Client interface {
	// Do sends request i, modulo the number of requests, and reads its response. The error is a *ResponseError if the server
	// responded with one. After any other error the next call opens a new connection.
	Do(i int) error
	// Outputs decodes the last response.
	Outputs() ([]Output, error)
	Close() error
}

// Target holds the addresses of a server as host:port. Addresses of unused protocols may be empty. For example,
// Target{HTTP: "127.0.0.1:8000"} is enough for JSON.
type Target struct {
	HTTP, GRPC string
	Path       string      // precedes the path of each HTTP request; for example "/gateway"
	TLS        *tls.Config // nil for connections without TLS
	Header     http.Header // is sent with each request, as HTTP headers or gRPC metadata
	// OutputBytes is the space for each output in shared memory, 64 KiB if it is 0.
	OutputBytes int
	// Timeout is the time after which a server without a response counts as hanging, a minute if it is 0.
	Timeout time.Duration
	// Sequences, unless its length is 0, makes the requests of a client those of sequences.
	Sequences Sequences
	// Loop, unless nil, is the loop that the clients are part of: only its coroutines may use them. CanLoop says whether they can be.
	Loop *Loop
}

func (t *Target) timeout() time.Duration { return cmp.Or(t.Timeout, responseTimeout) }

// Received is a client of a Loop.
type Received interface {
	Client
	// Received returns when the end of the last response arrived at this machine.
	Received() time.Time
}

// ResponseError is the error of a request that the server responded to with an error.
type ResponseError struct {
	Code string // the HTTP status, for example "503", or the gRPC code, for example "Unavailable"; empty for an error message in a stream
	Text string // the response, cut off after 200 bytes
}

// Error returns the code, if there is one, and the text.
func (r *ResponseError) Error() string {
	if r.Code == "" {
		return r.Text
	}
	return "status " + r.Code + ": " + r.Text
}

// Streams is the number of gRPC clients that share a connection, as clients in one program would.
const Streams = 4

// Group holds clients of one server and the resources that they share.
type Group struct {
	Clients []Client
	close   []func() error
}

// Dial returns n clients that send the given requests in turn. The caller must Close the group.
func Dial(t Target, protocol string, requests []Request, n int) (*Group, error) {
	if len(requests) == 0 {
		return nil, errors.New("no requests to send")
	}
	if t.Sequences.Length > 0 && protocol != GRPC && protocol != Stream {
		return nil, errOnlyGRPC
	}
	g := &Group{}
	var err error
	switch protocol {
	case JSON:
		err = g.http(&t, requests, n, (*Request).JSON)
	case Binary:
		err = g.http(&t, requests, n, (*Request).Binary)
	case GRPC:
		err = g.grpc(&t, requests, n)
	case Stream:
		err = g.stream(&t, requests, n)
	case Events:
		err = g.events(&t, requests, n)
	case Shared:
		err = g.shared(&t, requests, n)
	default:
		err = fmt.Errorf("unknown protocol '%s', expected %s, %s or one of %v", protocol, Stream, Events, Protocols())
	}
	if err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

func (g *Group) http(t *Target, requests []Request, n int, encode func(*Request) ([]byte, error)) error {
	messages, err := encoded(requests, encode)
	if err != nil {
		return err
	}
	for i := range messages {
		messages[i] = t.address(messages[i])
	}
	for range n {
		g.Clients = append(g.Clients, t.client(messages))
	}
	return nil
}

// client returns a client over HTTP.
func (t *Target) client(messages [][]byte) *HTTP {
	c := NewHTTP(t.HTTP, messages)
	c.tls, c.loop = t.TLS, t.Loop
	c.Limit(t.timeout())
	return c
}

// Interrupt ends the requests under way with an error, and makes all further ones fail. Unlike the other methods it may be
// called while clients are in use.
func (g *Group) Interrupt() {
	for _, c := range g.Clients {
		if i, ok := c.(interface{ Interrupt() }); ok {
			i.Interrupt()
		}
	}
}

func encoded(requests []Request, encode func(*Request) ([]byte, error)) ([][]byte, error) {
	all := make([][]byte, len(requests))
	for i := range requests {
		var err error
		if all[i], err = encode(&requests[i]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Close closes the clients and frees the resources that they share.
func (g *Group) Close() error {
	var errs []error
	for _, c := range g.Clients {
		errs = append(errs, c.Close())
	}
	for _, f := range g.close {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}

// Infer sends one request and returns the outputs of its response.
func Infer(t Target, protocol string, r *Request) (outputs []Output, err error) {
	g, err := Dial(t, protocol, []Request{*r}, 1)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	if err := g.Clients[0].Do(0); err != nil {
		return nil, err
	}
	return g.Clients[0].Outputs()
}
