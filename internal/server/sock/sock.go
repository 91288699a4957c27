// Package sock reads and writes small pieces of TCP connections without telling Go's scheduler that the system is called:
// the calls never block, and are over soon. When it is told, the scheduler looks every 20 us whether they do, and takes the processor away from one that was
// only preempted because it woke its peer; together a tenth of a small request.
package sock

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"unsafe"
)

// largest is what such a call copies at most, since the processor serves no other goroutine meanwhile. What is larger goes
// as it always does, in as few calls.
const largest = 64 << 10

// Conn is a TCP connection. Like any, it may be read by one goroutine while others write to it.
type Conn struct {
	*net.TCPConn
	in, out half
}

var _ net.Conn = (*Conn)(nil)

// half is one direction.
type half struct {
	raw  syscall.RawConn
	mu   sync.Mutex // of the goroutine that uses it
	p    []byte
	n    int
	err  error
	call func(fd uintptr) bool // made once: a new one would be allocated every time
}

// New returns a connection that takes the place of c.
func New(c *net.TCPConn) (*Conn, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	s := &Conn{TCPConn: c}
	s.in.raw, s.out.raw = raw, raw
	s.in.call, s.out.call = s.in.read, s.out.write
	return s, nil
}

func (h *half) read(fd uintptr) bool {
	n, _, e := syscall.RawSyscall(syscall.SYS_READ, fd, uintptr(unsafe.Pointer(unsafe.SliceData(h.p))), uintptr(len(h.p)))
	return h.done(n, e)
}

func (h *half) write(fd uintptr) bool {
	n, _, e := syscall.RawSyscall(syscall.SYS_WRITE, fd, uintptr(unsafe.Pointer(unsafe.SliceData(h.p))), uintptr(len(h.p)))
	return h.done(n, e)
}

// done takes what a call returned. It reports false for one that has to be made again once it can succeed.
func (h *half) done(n uintptr, e syscall.Errno) bool {
	switch e {
	case 0:
		h.n, h.err = int(n), nil
	case syscall.EAGAIN, syscall.EINTR:
		return false
	default:
		h.n, h.err = 0, os.NewSyscallError("socket", e)
	}
	return true
}

// Read reads what there is, at least a byte.
//
// hot: no allocation.
func (s *Conn) Read(p []byte) (int, error) {
	if len(p) == 0 || len(p) > largest {
		return s.TCPConn.Read(p)
	}
	h := &s.in
	h.mu.Lock()
	defer h.mu.Unlock()
	h.p = p
	err := h.raw.Read(h.call)
	h.p = nil
	switch {
	case err != nil:
		return 0, err
	case h.err == nil && h.n == 0:
		return 0, io.EOF
	}
	return h.n, h.err
}

// Write writes all of p.
//
// hot: no allocation.
func (s *Conn) Write(p []byte) (n int, err error) {
	h := &s.out
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(p) > largest {
		return s.TCPConn.Write(p)
	}
	for n < len(p) && err == nil {
		h.p = p[n:]
		if err = h.raw.Write(h.call); err == nil {
			n, err = n+h.n, h.err
		}
		h.p = nil
	}
	return n, err
}

// Listener makes what another one accepts connections of this package, where it is TCP.
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
		return tcp, nil //nolint:nilerr // it is closed already, which whoever uses it finds out
	}
	return s, nil
}
