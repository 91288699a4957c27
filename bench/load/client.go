package load

import (
	"errors"
	"fmt"
)

// The protocols that requests are sent in.
const (
	JSON   = "json"   // HTTP with JSON
	Binary = "binary" // HTTP with the binary extension
	GRPC   = "grpc"
	Shared = "shm" // HTTP with the tensors in system shared memory
)

// Protocols lists them.
func Protocols() []string { return []string{JSON, Binary, GRPC, Shared} }

// Client is one connection, which sends one request at a time. It is not for concurrent use.
type Client interface {
	// Do sends the client's i-th request, which are taken in turn, and reads the answer. Any answer but a good one is an
	// error. After an error the connection is made anew.
	Do(i int) error
	// Outputs reads the last answer.
	Outputs() ([]Output, error)
	Close() error
}

// Target is where a server listens, host:port each. What is not used may be empty.
type Target struct{ HTTP, GRPC string }

// Streams is how many clients share a connection of gRPC, as those in one program would.
const Streams = 4

// Group is clients of one server, with what they share.
type Group struct {
	Clients []Client
	close   []func() error
}

// Dial makes n clients that send the given requests in turn.
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

// Close closes the clients and removes what they shared.
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

// Ask sends one request and returns the answer's outputs.
func Ask(t Target, protocol string, r *Request) (outputs []Output, err error) {
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
