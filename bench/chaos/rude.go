package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"time"

	"github.com/tutti-server/tutti/client"
)

// rude runs a client that no server would want. Nothing that these get is checked: the traffic beside them is.
func (x *run) rude(ctx context.Context, e *event) error {
	r := rand.New(rand.NewPCG(x.set.seed, e.Draw)) //nolint:gosec // reproducible
	switch e.Kind {
	case "slow-sender":
		return x.slowSender(ctx, e, r)
	case "vanish":
		return x.vanish(r)
	case "no-reader":
		return x.noReader(ctx, e)
	case "flood-stream":
		return x.floodStream(ctx, e, r)
	case "connections":
		return x.connections(ctx, e, r)
	case "garbage":
		return x.garbage(r)
	default:
		return x.truncate(ctx, r)
	}
}

// port draws the address of HTTP or of gRPC.
func (x *run) port(r *rand.Rand) string { return []string{x.server.HTTP, x.server.GRPC}[r.IntN(2)] }

func connect(addr string) (net.Conn, error) { return net.DialTimeout("tcp", addr, patience) }

// preface begins a connection of HTTP/2, with empty settings.
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"

const head = "POST /v2/models/plain/infer HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"

// slowSender sends a request a byte at a time and never all of it.
func (x *run) slowSender(ctx context.Context, e *event, r *rand.Rand) error {
	c, err := connect(x.port(r))
	if err != nil {
		return err
	}
	defer reset(c)
	text := fmt.Sprintf(head, 1000) + `{"inputs":[{"name":"INPUT0","datatype":"FP32"`
	if c.RemoteAddr().String() == x.server.GRPC {
		text = preface
	}
	pace := e.For / time.Duration(len(text))
	for i := range len(text) {
		if _, err := c.Write([]byte(text[i : i+1])); err != nil || !pause(ctx, pace) {
			return nil // the server may end such a connection
		}
	}
	return nil
}

// vanish resets connections in the middle of requests.
func (x *run) vanish(r *rand.Rand) error {
	for range 20 {
		addr := x.port(r)
		c, err := connect(addr)
		if err != nil {
			return err
		}
		body := `{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1,3],"data":[1,2,3]}]}`
		text := fmt.Sprintf(head, len(body)) + body
		if addr == x.server.GRPC {
			text = preface + "\x00\x00\x20\x01\x04\x00\x00\x00\x01"
		}
		_, _ = c.Write([]byte(text[:1+r.IntN(len(text))]))
		reset(c)
	}
	return nil
}

// noReader sends many requests with large responses and reads nothing.
func (x *run) noReader(ctx context.Context, e *event) error {
	c, err := connect(x.server.HTTP)
	if err != nil {
		return err
	}
	defer reset(c)
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetReadBuffer(4096)
	}
	body := `{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1,20000],"data":[` + strings.Repeat("1.5,", 19999) + `1]}]}`
	text := fmt.Sprintf(head, len(body)) + body
	_ = c.SetWriteDeadline(time.Now().Add(e.For))
	for range 200 {
		if _, err := c.Write([]byte(text)); err != nil {
			break
		}
	}
	pause(ctx, e.For/2)
	return nil
}

// floodStream requests hundreds of thousands of responses on gRPC streams and reads none of them.
func (x *run) floodStream(ctx context.Context, e *event, r *rand.Rand) error {
	g, err := client.NewGRPC(x.server.GRPC, nil)
	if err != nil {
		return err
	}
	defer func() { _ = g.Close() }()
	for range 1 + r.IntN(4) {
		s, err := g.OpenStream(ctx)
		if err != nil {
			return nil // it may be refused
		}
		defer func() { _ = s.Close() }()
		_ = s.Send(&client.Request{Model: "flood", Inputs: []client.Tensor{client.Of("IN", []int64{1}, int32(300_000))}})
	}
	pause(ctx, e.For)
	return nil
}

// connections opens many connections that send nothing.
func (x *run) connections(ctx context.Context, e *event, r *rand.Rand) error {
	for range 300 {
		c, err := connect(x.port(r))
		if err != nil {
			return err
		}
		defer reset(c)
	}
	pause(ctx, e.For)
	return nil
}

// garbage sends random bytes, and requests with random changes.
func (x *run) garbage(r *rand.Rand) error {
	for range 20 {
		addr := x.port(r)
		c, err := connect(addr)
		if err != nil {
			return err
		}
		text := []byte(fmt.Sprintf(head, 30) + `{"inputs":[{"name":"INPUT0"}]}`)
		if addr == x.server.GRPC {
			text = []byte(preface + strings.Repeat("\x00\x00\x04\x08\x00\x00\x00\x00\x00\x00\x00\x00\x01", 4))
		}
		for range 1 + r.IntN(8) {
			text[r.IntN(len(text))] = byte(r.Uint32()) //nolint:gosec // any byte
		}
		_, _ = c.Write(text)
		reset(c)
	}
	return nil
}

// truncate registers shared memory, makes its file shorter, and has the server read and write there.
func (x *run) truncate(ctx context.Context, r *rand.Rand) error {
	name := fmt.Sprintf("%scut-%d", ownPrefix, r.Uint64())
	m, err := client.CreateShared("/"+name, 1<<16)
	if err != nil {
		return err
	}
	defer func() { _ = m.Close() }()
	if err := x.c.http.RegisterSystem(ctx, name, m.Key, 0, 1<<16); err != nil {
		return nil // a full disk, for example
	}
	if err := os.Truncate("/dev/shm/"+name, 100); err != nil {
		return err
	}
	req := &client.Request{
		Model: "plain", Outputs: []string{"OUTPUT0"}, Regions: map[string]client.Region{"OUTPUT0": {Name: name, Offset: 40_000, Size: 4000}},
		Inputs: []client.Tensor{{Name: "INPUT0", Shape: []int64{1, 1000}, DType: client.Of("", nil, float32(0)).DType, Region: &client.Region{Name: name, Offset: 20_000, Size: 4000}}},
	}
	if _, err := x.c.http.Infer(ctx, req); err == nil {
		x.fault("a request with shared memory that is no longer there succeeds")
	}
	return repeat(func() error { return x.c.http.UnregisterSystem(context.WithoutCancel(ctx), name) })
}
