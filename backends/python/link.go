package python

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tutti-server/tutti/core/status"
)

// Kinds of packets. See the package comment.
const (
	kindStart uint16 = iota + 1
	kindComplete
	kindInit
	kindRegion
	kindDrop
	kindExecute
	kindReady
	kindFinalize
	kindGPURegion
	kindGPUDrop
)

const kindDone, kindFailed, kindReply uint16 = 16, 17, 48

const (
	kindLog uint16 = iota + 32
	kindCall
	kindSend
	kindCancelled
	kindMetric
	kindModel
	kindAbandon
	kindCancel
	kindJoin
	kindGPUBorrow
	kindGPUGive
	kindGPUDropped
)

// Flags of packets.
const (
	flagInFile uint16 = 1 << iota
	flagFinal
	flagTrue
	flagRetained
	flagNeedsReply
	flagInPlace
	flagGPU
)

const (
	headBytes = 16
	// maxBody is the largest body in a packet; a larger one is passed in a file.
	maxBody = 61440
	// maxFile is the largest body in a file.
	maxFile = 1 << 40
	noFile  = -1 // an invalid descriptor
)

// packet is a received packet. Its body is valid until the next receive, unless it is mapped from a file.
type packet struct {
	kind, flags uint16
	id          uint32
	body        []byte
	mapped      bool     // body is a memory mapping that the packet owns
	file        *os.File // the socket of a JOIN, else nil
}

// free unmaps the body and closes the file, where the packet has them.
func (p *packet) free() {
	if p.mapped {
		_ = unix.Munmap(p.body)
		p.mapped, p.body = false, nil
	}
	if p.file != nil {
		_ = p.file.Close()
		p.file = nil
	}
}

// link is the server's end of a socket. One goroutine may receive; sending is safe for concurrent use.
type link struct {
	f   *os.File
	raw syscall.RawConn

	until time.Time // the deadline of receive, zero for none

	in    []byte
	oob   [64]byte
	iov   unix.Iovec
	msg   unix.Msghdr
	n, on int
	rerr  error
	read  func(uintptr) bool

	mu    sync.Mutex
	out   []byte // guarded by mu
	files []int  // guarded by mu
	werr  error  // guarded by mu
	write func(uintptr) bool
}

// newLink creates a pair of sockets. It returns the server's end and the worker's.
func newLink(name string) (l *link, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, status.Errorf(status.Unavailable, "no socket for a python worker: %w", err)
	}
	if l, err = openLink(pollable(fds[0], name)); err != nil {
		return nil, nil, errors.Join(err, unix.Close(fds[1]))
	}
	return l, os.NewFile(uintptr(fds[1]), name), nil
}

// pollable returns a socket as a file that Go's poller supports. It takes over the descriptor.
func pollable(fd int, name string) *os.File {
	_ = unix.SetNonblock(fd, true) // an error means that it is not a socket, which joined checks
	return os.NewFile(uintptr(fd), name)
}

// openLink returns a link over a socket. It takes over the file.
func openLink(f *os.File) (l *link, err error) {
	l = &link{f: f, in: make([]byte, headBytes+maxBody)}
	if l.raw, err = l.f.SyscallConn(); err != nil {
		return nil, errors.Join(err, l.f.Close())
	}
	l.read, l.write = l.readOnce, l.writeOnce
	return l, nil
}

// readOnce makes the system call directly, because package unix would allocate an address. readOnce and writeOnce use raw calls,
// which do not inform Go's scheduler: the calls never block, and otherwise the goroutine could lose its processor when the
// woken worker runs first.
func (l *link) readOnce(fd uintptr) bool {
	l.iov.Base = unsafe.SliceData(l.in)
	l.iov.SetLen(len(l.in))
	l.msg = unix.Msghdr{Iov: &l.iov, Iovlen: 1, Control: &l.oob[0], Controllen: uint64(len(l.oob))}
	n, _, e := unix.RawSyscall(unix.SYS_RECVMSG, fd, uintptr(unsafe.Pointer(&l.msg)), unix.MSG_CMSG_CLOEXEC)
	l.n, l.on, l.rerr = int(n), int(l.msg.Controllen), nil
	if e != 0 {
		l.rerr = e
	}
	return e != unix.EAGAIN && e != unix.EINTR
}

func (l *link) writeOnce(fd uintptr) bool {
	if len(l.files) == 0 {
		l.werr = nil
		if _, _, e := unix.RawSyscall(unix.SYS_WRITE, fd, uintptr(unsafe.Pointer(unsafe.SliceData(l.out))), uintptr(len(l.out))); e != 0 {
			l.werr = e
		}
	} else {
		l.werr = unix.Sendmsg(int(fd), l.out, unix.UnixRights(l.files...), nil, 0)
	}
	return !errors.Is(l.werr, unix.EAGAIN) && !errors.Is(l.werr, unix.EINTR)
}

// receive waits for a packet. The error is io.EOF when the worker has closed its end, and wraps os.ErrDeadlineExceeded after
// the deadline.
//
// hot: no allocation unless the body lies in a file.
func (l *link) receive(p *packet) error {
	p.free()
	err := l.raw.Read(l.read)
	if err == nil {
		err = l.rerr
	}
	switch {
	case errors.Is(err, unix.ECONNRESET), err == nil && l.n == 0:
		return io.EOF
	case err != nil:
		return err
	case l.n < headBytes:
		return errPacket("a packet of 16 bytes at least", l.n)
	}
	b := l.in[:l.n]
	p.kind, p.flags = binary.LittleEndian.Uint16(b), binary.LittleEndian.Uint16(b[2:])
	p.id = binary.LittleEndian.Uint32(b[4:])
	size := binary.LittleEndian.Uint64(b[8:])
	if l.on > 0 || p.flags&flagInFile != 0 {
		return l.takeFile(p, size)
	}
	if p.body = b[headBytes:]; size != uint64(len(p.body)) {
		return errPacket("a body as long as its packet says", l.n)
	}
	return nil
}

func errPacket(want string, n int) error {
	return status.Errorf(status.Internal, "unexpected packet of %d bytes from a python worker, expected %s", n, want)
}

// takeFile handles the file passed with a packet: the socket of a JOIN, or a file that holds the body.
func (l *link) takeFile(p *packet, size uint64) error {
	fd, err := passed(l.oob[:l.on])
	if err != nil {
		return err
	}
	if p.kind == kindJoin && p.flags&flagInFile == 0 && size == 0 {
		p.body, p.file = nil, pollable(fd, "joined")
		return nil
	}
	defer unix.Close(fd)
	if p.flags&flagInFile == 0 || size > maxFile {
		return errPacket("a file only as a body", l.n)
	}
	if size == 0 {
		p.body = nil
		return nil
	}
	p.body, err = mapFile(fd, int(size))
	p.mapped = err == nil
	return err
}

// passed returns the only descriptor of a control message.
func passed(oob []byte) (int, error) {
	list, err := unix.ParseSocketControlMessage(oob)
	if err == nil && len(list) == 1 {
		var fds []int
		if fds, err = unix.ParseUnixRights(&list[0]); err == nil {
			for _, fd := range fds[min(1, len(fds)):] {
				_ = unix.Close(fd)
			}
			if len(fds) > 0 {
				return fds[0], nil
			}
		}
	}
	return noFile, errPacket("one file with it", len(oob))
}

// newBody returns a buffer with room for the head, to which the caller appends a body. It reuses b.
func newBody(b []byte) []byte { return append(b[:0], make([]byte, headBytes)...) }

// send sends a packet. b is a buffer of newBody; borrowed.
//
// hot: no allocation unless the body is large.
func (l *link) send(kind, flags uint16, id uint32, b []byte) error {
	size := len(b) - headBytes
	if size <= maxBody {
		return l.sendWith(kind, flags, id, size, b)
	}
	return l.sendFile(kind, flags, id, size, func(mem []byte) { copy(mem, b[headBytes:]) })
}

// sendFile sends a packet whose body of size bytes is in a file. write writes the body.
func (l *link) sendFile(kind, flags uint16, id uint32, size int, write func(mem []byte)) error {
	fd, mem, err := newFile(size)
	if err != nil {
		return err
	}
	write(mem)
	err = l.sendWith(kind, flags|flagInFile, id, size, newBody(nil), fd)
	return errors.Join(err, unix.Munmap(mem), unix.Close(fd))
}

// sendWith writes the head of a packet with a body of size bytes to b, and sends b with files, which are borrowed.
func (l *link) sendWith(kind, flags uint16, id uint32, size int, b []byte, fds ...int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	binary.LittleEndian.PutUint16(b, kind)
	binary.LittleEndian.PutUint16(b[2:], flags)
	binary.LittleEndian.PutUint32(b[4:], id)
	binary.LittleEndian.PutUint64(b[8:], uint64(size))
	l.out, l.files = b, fds
	err := l.raw.Write(l.write)
	if err == nil {
		err = l.werr
	}
	l.out, l.files = nil, nil
	return err
}

// unlimited removes the deadline of receive.
func (l *link) unlimited() {
	if !l.until.IsZero() {
		l.until = time.Time{}
		_ = l.f.SetReadDeadline(l.until)
	}
}

// limit sets the deadline of receive to a tick from now, or somewhat earlier: a recent deadline is kept, because setting one
// is expensive.
func (l *link) limit(now time.Time, tick time.Duration) {
	if l.until.Sub(now) < tick/2 {
		l.until = now.Add(tick)
		_ = l.f.SetReadDeadline(l.until)
	}
}

// hangUp shuts the connection down: receive returns the packets that have arrived, and then io.EOF.
func (l *link) hangUp() {
	_ = l.raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_RDWR) })
}

func (l *link) close() error { return l.f.Close() }
