package load

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// loopConn is a connection of a Loop. Read and Write suspend the coroutine that calls them; at most one may read, and one write.
// Close may be called concurrently.
type loopConn struct {
	loop           *Loop
	fd             int
	local, remote  net.Addr
	readable       bool // data may have come since the last read
	ended          bool // the peer sends no more
	writable       bool
	reader, writer *Task // the coroutines that wait
	deadline       time.Time
	closed         atomic.Bool
	control        [64]byte
}

// dial opens a connection of the loop.
func (l *Loop) dial(addr string) (net.Conn, error) {
	conn, err := dial(addr, nil)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	tcp, ok := conn.(syscall.Conn)
	if !ok {
		return nil, fmt.Errorf("a connection to %s has no file descriptor", addr)
	}
	c := &loopConn{loop: l, fd: -1, local: conn.LocalAddr(), remote: conn.RemoteAddr(), writable: true}
	raw, err := tcp.SyscallConn()
	if err == nil {
		var failed error
		err = raw.Control(func(fd uintptr) { c.fd, failed = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) })
		err = errors.Join(err, failed)
	}
	if err != nil {
		return nil, err
	}
	_ = unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1)                                            // without it the time of the read counts
	event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET, Fd: int32(c.fd)} //nolint:gosec // file descriptors are small
	if err := unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, c.fd, &event); err != nil {
		return nil, errors.Join(os.NewSyscallError("epoll_ctl", err), unix.Close(c.fd))
	}
	l.conns[event.Fd] = c
	return c, nil
}

// changed handles an event of epoll.
func (c *loopConn) changed(events uint32) {
	c.ended = c.ended || events&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0
	if events&unix.EPOLLIN != 0 || c.ended {
		c.readable = true
		c.wakeReader()
	}
	if events&unix.EPOLLOUT != 0 || c.ended {
		c.writable = true
		c.wakeWriter()
	}
}

func (c *loopConn) wakeReader() {
	if t := c.reader; t != nil {
		c.reader = nil
		c.loop.Wake(t)
	}
}

func (c *loopConn) wakeWriter() {
	if t := c.writer; t != nil {
		c.writer = nil
		c.loop.Wake(t)
	}
}

func (c *loopConn) wake() {
	c.wakeReader()
	c.wakeWriter()
}

// expire wakes the coroutines of a connection whose deadline is over.
func (c *loopConn) expire() {
	if c.late() {
		c.wake()
	}
}

func (c *loopConn) late() bool { return !c.deadline.IsZero() && c.loop.now.After(c.deadline) }

// failed returns why the connection cannot be used.
func (c *loopConn) failed() error {
	switch {
	case c.closed.Load():
		return net.ErrClosed
	case c.late():
		return os.ErrDeadlineExceeded
	}
	return nil
}

// Read reads what has arrived, and waits until something has. The time at which it arrived is the loop's stamp.
func (c *loopConn) Read(p []byte) (int, error) {
	for {
		for !c.readable && c.failed() == nil {
			c.reader = c.loop.running
			c.loop.Suspend()
		}
		if err := c.failed(); err != nil {
			return 0, err
		}
		n, control, _, _, err := unix.Recvmsg(c.fd, p, c.control[:], 0)
		c.readable = n == len(p) || c.ended // otherwise an event follows
		switch {
		case errors.Is(err, unix.EAGAIN):
			c.readable = false
		case errors.Is(err, unix.EINTR):
			c.readable = true
		case err != nil:
			return 0, os.NewSyscallError("recvmsg", err)
		case n == 0 && len(p) > 0:
			return 0, io.EOF
		default:
			c.loop.stamp = c.arrived(c.control[:control])
			return n, nil
		}
	}
}

// arrived returns the time stamp of a control message, which is one of the wall clock.
func (c *loopConn) arrived(control []byte) time.Time {
	const header = 16
	order := binary.NativeEndian
	if len(control) < header+16 || order.Uint32(control[8:]) != unix.SOL_SOCKET || order.Uint32(control[12:]) != unix.SO_TIMESTAMPNS {
		return time.Now()
	}
	stamp := time.Unix(int64(order.Uint64(control[header:])), int64(order.Uint64(control[header+8:]))) //nolint:gosec // a timespec is signed
	return c.loop.now.Add(time.Duration(stamp.UnixNano() - c.loop.now.UnixNano()))
}

// Write writes all of p.
func (c *loopConn) Write(p []byte) (n int, err error) {
	for n < len(p) {
		if err := c.failed(); err != nil {
			return n, err
		}
		sent, err := unix.Write(c.fd, p[n:])
		switch {
		case errors.Is(err, unix.EAGAIN):
			for c.writable = false; !c.writable && c.failed() == nil; {
				c.writer = c.loop.running
				c.loop.Suspend()
			}
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return n, os.NewSyscallError("write", err)
		default:
			n += sent
		}
	}
	return n, nil
}

// Close ends the connection. The loop closes its file descriptor, which nothing uses then.
func (c *loopConn) Close() error {
	if c.closed.Swap(true) {
		return nil
	}
	_ = unix.Shutdown(c.fd, unix.SHUT_RDWR) // the peer may have closed it
	c.loop.mu.Lock()
	c.loop.closed = append(c.loop.closed, c)
	c.loop.mu.Unlock()
	return nil
}

// SetDeadline sets the time at which Read and Write fail. The loop looks at it every deadlineCheck.
func (c *loopConn) SetDeadline(t time.Time) error {
	c.deadline = t
	return nil
}

func (c *loopConn) SetReadDeadline(t time.Time) error  { return c.SetDeadline(t) }
func (c *loopConn) SetWriteDeadline(t time.Time) error { return c.SetDeadline(t) }
func (c *loopConn) LocalAddr() net.Addr                { return c.local }
func (c *loopConn) RemoteAddr() net.Addr               { return c.remote }
