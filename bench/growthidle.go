package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// idleConnections is the number of open connections that send nothing during a measurement.
const idleConnections = 10000

// growthIdle compares a server without idle connections with a server that holds thousands of them, over HTTP and
// over gRPC.
func (b *bench) growthIdle() error {
	var errs []error
	for _, c := range []struct {
		name       string
		http, grpc int
	}{
		{"HTTP", idleConnections, 0},
		{"gRPC", 0, idleConnections},
	} {
		errs = append(errs, b.idle(c.name, c.http, c.grpc))
	}
	return errors.Join(errs...)
}

func (b *bench) idle(name string, http, grpc int) (err error) {
	alone, err := b.serve(identities)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, alone.Stop()) }()
	crowded, err := b.serve(identities)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, crowded.Stop()) }()
	before, err := crowded.resident()
	if err != nil {
		return err
	}
	var held []net.Conn
	defer func() {
		for _, c := range held {
			_ = c.Close() // the server ends with it
		}
	}()
	for i := range http + grpc {
		open, address := idleHTTP, crowded.HTTP
		if i >= http {
			open, address = idleGRPC, crowded.GRPC
		}
		c, err := open(address)
		if err != nil {
			return fmt.Errorf("connection %d: %w", i, err)
		}
		held = append(held, c)
	}
	after, err := crowded.resident()
	if err != nil {
		return err
	}
	fmt.Fprintf(b.table, "%d idle %s connections\t%.1f KiB each\n", len(held), name, (after-before)*1024/float64(len(held)))
	return b.compareSmall(fmt.Sprintf("with %d idle %s connections", len(held), name), alone, crowded)
}

const idlePatience = 10 * time.Second

// idleHTTP opens a connection, sends one request so that the server has served the connection, and leaves it open.
func idleHTTP(address string) (net.Conn, error) {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	if err := c.SetDeadline(time.Now().Add(idlePatience)); err != nil {
		return c, err
	}
	return c, discard(c, bufio.NewReaderSize(c, 512), []byte("GET /v2/health/live HTTP/1.1\r\nHost: bench\r\n\r\n"))
}

// idleGRPC opens a connection, does the HTTP/2 handshake, and leaves it open.
func idleGRPC(address string) (net.Conn, error) {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	if err := c.SetDeadline(time.Now().Add(idlePatience)); err != nil {
		return c, err
	}
	const settings, acknowledged = "\x00\x00\x00\x04\x00\x00\x00\x00\x00", "\x00\x00\x00\x04\x01\x00\x00\x00\x00"
	if _, err := io.WriteString(c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"+settings+acknowledged); err != nil {
		return c, err
	}
	var head [9]byte // of the server's settings
	_, err = io.ReadFull(c, head[:])
	return c, err
}
