package load

import (
	"errors"
	"fmt"
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
	// Do sends request i, modulo the number of requests, and reads its response. Any response except a successful
	// one is an error. After an error the next call opens a new connection.
	Do(i int) error
	// Outputs decodes the last response.
	Outputs() ([]Output, error)
	Close() error
}

// Target holds the addresses of a server as host:port. Addresses of unused protocols may be empty. For example,
// Target{HTTP: "127.0.0.1:8000"} is enough for JSON.
type Target struct{ HTTP, GRPC string }

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
	g := &Group{}
	var err error
	switch protocol {
	case JSON:
		err = g.http(t.HTTP, requests, n, (*Request).JSON)
	case Binary:
		err = g.http(t.HTTP, requests, n, (*Request).Binary)
	case GRPC:
		err = g.grpc(t.GRPC, requests, n)
	case Shared:
		err = g.shared(t.HTTP, requests, n)
	default:
		err = fmt.Errorf("unknown protocol '%s', expected one of %v", protocol, Protocols())
	}
	if err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

func (g *Group) http(addr string, requests []Request, n int, encode func(*Request) ([]byte, error)) error {
	messages, err := encoded(requests, encode)
	if err != nil {
		return err
	}
	for range n {
		g.Clients = append(g.Clients, NewHTTP(addr, messages))
	}
	return nil
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
