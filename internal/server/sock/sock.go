// Package sock reads and writes TCP connections with raw system calls that Go's scheduler does not account for, when the piece
// is small. For example, a read of a 100-byte request is one raw call; a write of a 4 MiB tensor goes through package net.
//
// A normal system call tells the scheduler that the thread may block. Its monitor then looks every 20 us whether it does, and
// gives the processor to another thread when the kernel has preempted this one, which happens when the write wakes the peer.
// That costs about a tenth of the CPU of a small request. Sockets are non-blocking and small copies are short, so the
// scheduler loses nothing. It is an optimization only: --http-fast-path=false does without it.
package sock

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"unsafe"

	"github.com/tutti-server/tutti/internal/faults"
)

// rawLimit is the most bytes of a raw call, during which the processor runs no other goroutine. Larger reads and writes go
// through package net.
const rawLimit = 64 << 10

// Conn is a TCP connection. As with every net.Conn, methods may be called concurrently.
type Conn struct {
	*net.TCPConn
	in, out direction
}

var _ net.Conn = (*Conn)(nil)

// direction is the state of reading or of writing.
type direction struct {
	raw  syscall.RawConn
	mu   sync.Mutex            // held during a read or write
	p    []byte                // guarded by mu, with n and err: the call's buffer
	n    int                   // bytes that the call has copied
	err  error                 // of the call
	trap uintptr               // the system call
	call func(fd uintptr) bool // do; bound once, since binding it allocates
}

// New returns a connection that replaces c, which it owns from now on.
func New(c *net.TCPConn) (*Conn, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	s := &Conn{TCPConn: c, in: direction{raw: raw, trap: syscall.SYS_READ}, out: direction{raw: raw, trap: syscall.SYS_WRITE}}
	s.in.call, s.out.call = s.in.do, s.out.do
	return s, nil
}

// do makes the call and stores its result. It reports false when the call must be repeated once the socket is ready.
func (d *direction) do(fd uintptr) bool {
	n, _, e := syscall.RawSyscall(d.trap, fd, uintptr(unsafe.Pointer(unsafe.SliceData(d.p))), uintptr(len(d.p)))
	switch e {
	case 0:
		d.n, d.err = int(n), nil
	case syscall.EAGAIN, syscall.EINTR:
		return false
	default:
		d.n, d.err = 0, os.NewSyscallError("socket", e)
	}
	return true
}

// Read reads at least one byte.
//
// hot: no allocation.
func (s *Conn) Read(p []byte) (int, error) {
	if len(p) == 0 || len(p) > rawLimit {
		return s.TCPConn.Read(p)
	}
	d := &s.in
	d.mu.Lock()
	defer d.mu.Unlock()
	d.p = p
	err := d.raw.Read(d.call)
	d.p = nil
	switch {
	case err != nil:
		return 0, err
	case d.err == nil && d.n == 0:
		return 0, io.EOF
	}
	return d.n, d.err
}

// Write writes all of p.
//
// hot: no allocation.
func (s *Conn) Write(p []byte) (n int, err error) {
	if err := faults.At(faults.NetworkWrite); err != nil {
		return 0, errors.Join(err, s.Close()) // as when the peer has reset the connection: reading fails too
	}
	d := &s.out
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(p) > rawLimit {
		return s.TCPConn.Write(p)
	}
	for n < len(p) && err == nil {
		d.p = p[n:]
		if err = d.raw.Write(d.call); err == nil {
			n, err = n+d.n, d.err
		}
		d.p = nil
	}
	return n, err
}

// Listener wraps the TCP connections that another listener accepts in Conn. It passes other connections on.
type Listener struct{ net.Listener }

// Accept returns the next connection.
func (l Listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	tcp, ok := c.(*net.TCPConn)
	if err != nil || !ok {
		return c, err
	}
	s, err := New(tcp)
	if err != nil {
		return tcp, nil //nolint:nilerr // it is closed already, which the next read reports
	}
	return s, nil
}
