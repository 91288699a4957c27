// Package handover passes the listening sockets of a running server to the process that replaces it.
//
// The running server offers its sockets at an abstract Unix socket, whose name has the address that it serves. The new process takes
// them, starts, and says that it is ready; then the running one leaves. Both processes must have the same user. The dialogue has
// one line of JSON per message:
//
//  1. The running server sends greeting, with the sockets as file descriptors.
//  2. The new process sends outcome. Without one, because it died, or with an error in it, the running server goes on.
//  3. The running server stops accepting, frees the name and sends farewell.
//
// For example, a server at port 8000 has `handover.Open("127.0.0.1:8000", ...)`, and its successor `handover.Take(ctx, "127.0.0.1:8000")`.
package handover

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// greeting names the sockets in the order of the file descriptors.
type greeting struct {
	PID     int      `json:"pid"`
	Sockets []string `json:"sockets,omitempty"`
	Error   string   `json:"error,omitempty"` // why there are none
}

// outcome is the end of the start of the new process.
type outcome struct {
	Ready bool   `json:"ready"`
	Error string `json:"error,omitempty"`
}

// farewell says that the running server accepts no more.
type farewell struct {
	Left bool `json:"left"`
}

// maxMessage is above the size of every message.
const maxMessage = 64 << 10

// nameOf returns the abstract name of a server at an address. Abstract names belong to the network namespace, as ports do, and
// vanish with their process.
func nameOf(address string) *net.UnixAddr {
	return &net.UnixAddr{Net: "unix", Name: "@tutti-upgrade/" + address}
}

// Socket is a listening socket with its name.
type Socket struct {
	Name     string
	Listener *net.TCPListener
}

// Settings configure an Offer. All fields are required.
type Settings struct {
	// Sockets are those that are offered.
	Sockets []Socket
	// Leave is called once, when the process pid is ready to serve. It must stop accepting before it returns.
	Leave func(pid int)
	// Failed is called for each process that took the sockets and did not become ready, with the reason.
	Failed func(pid int, err error)
}

// Offer offers the sockets of a server. It is safe for concurrent use.
type Offer struct {
	set  Settings
	l    *net.UnixListener
	busy sync.Mutex // held while a process starts
	wait sync.WaitGroup

	mu    sync.Mutex
	taker int                        // the process that starts; 0 for none; guarded by mu
	open  map[*net.UnixConn]struct{} // guarded by mu; nil once closed
}

// Open offers sockets at the name of an address until Close, or until a process has replaced this one.
func Open(address string, set Settings) (*Offer, error) {
	l, err := net.ListenUnix("unix", nameOf(address))
	if err != nil {
		return nil, err
	}
	o := &Offer{set: set, l: l, open: map[*net.UnixConn]struct{}{}}
	o.wait.Go(o.accept)
	return o, nil
}

// Close ends the offer. A process that starts with the sockets keeps them.
func (o *Offer) Close() error {
	if o == nil {
		return nil
	}
	err := o.l.Close()
	o.mu.Lock()
	for c := range o.open {
		_ = c.Close() // which ends its dialogue
	}
	o.open = nil
	o.mu.Unlock()
	o.wait.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (o *Offer) accept() {
	for {
		c, err := o.l.AcceptUnix()
		if err != nil {
			return
		}
		o.mu.Lock()
		if o.open == nil {
			o.mu.Unlock()
			_ = c.Close() // the offer has ended
			return
		}
		o.open[c] = struct{}{}
		o.wait.Go(func() { o.serve(c) })
		o.mu.Unlock()
	}
}

// serve has the dialogue with one process.
func (o *Offer) serve(c *net.UnixConn) {
	defer func() {
		_ = c.Close() // the dialogue is over
		o.mu.Lock()
		delete(o.open, c)
		o.mu.Unlock()
	}()
	pid, err := peer(c)
	if err == nil && !o.busy.TryLock() {
		o.mu.Lock()
		err = fmt.Errorf("process %d is taking over already", o.taker)
		o.mu.Unlock()
	}
	if err != nil {
		_ = send(c, greeting{PID: os.Getpid(), Error: err.Error()}, nil) // the process finds out by itself
		return
	}
	o.mu.Lock()
	o.taker = pid
	o.mu.Unlock()
	err = o.dialogue(c, pid)
	o.busy.Unlock()
	if err != nil {
		o.set.Failed(pid, err)
	}
}

func (o *Offer) dialogue(c *net.UnixConn, pid int) error {
	hello, fds := greeting{PID: os.Getpid()}, []int{}
	for _, s := range o.set.Sockets {
		raw, err := s.Listener.SyscallConn()
		if err != nil {
			return err
		}
		if err := raw.Control(func(fd uintptr) { fds = append(fds, int(fd)) }); err != nil { //nolint:gosec // descriptors are small
			return err
		}
		hello.Sockets = append(hello.Sockets, s.Name)
	}
	if err := send(c, hello, fds); err != nil {
		return err
	}
	var out outcome
	line, err := bufio.NewReader(io.LimitReader(c, maxMessage)).ReadBytes('\n')
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, unix.ECONNRESET):
		return errors.New("it ended before it was ready")
	case err != nil:
		return err
	}
	if err := json.Unmarshal(line, &out); err != nil {
		return fmt.Errorf("it sent %q: %w", line, err)
	}
	if !out.Ready {
		return errors.New(out.Error)
	}
	o.set.Leave(pid)
	_ = o.l.Close() // frees the name
	return send(c, farewell{Left: true}, nil)
}

// ErrNone is the error of Take without a running server.
var ErrNone = errors.New("no server offers its sockets")

// Taken are the sockets of a running server, in the process that replaces it. Its lifecycle:
//
//  1. Take.
//  2. Ready, when the process accepts on the sockets, or Fail.
//
// It is used by one goroutine.
type Taken struct {
	PID     int // of the running server
	Sockets []Socket

	c *net.UnixConn
	r *bufio.Reader
}

// Take takes the sockets of the server at the first of some addresses that has one. Without one the error is ErrNone.
func Take(ctx context.Context, addresses ...string) (*Taken, error) {
	var d net.Dialer
	for _, a := range addresses {
		c, err := d.DialContext(ctx, "unix", nameOf(a).Name)
		if errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return nil, err
		}
		t := &Taken{c: c.(*net.UnixConn)} //nolint:errcheck,forcetypeassert // of the network unix
		if err := t.receive(); err != nil {
			return nil, errors.Join(fmt.Errorf("taking over the server at %s: %w", a, err), t.c.Close())
		}
		return t, nil
	}
	return nil, fmt.Errorf("%w at %s", ErrNone, strings.Join(addresses, ", "))
}

// greetingTime bounds the wait for messages of a running server.
const greetingTime = 10 * time.Second

// receive receives the sockets.
func (t *Taken) receive() error {
	if _, err := peer(t.c); err != nil {
		return err
	}
	if err := t.c.SetReadDeadline(time.Now().Add(greetingTime)); err != nil {
		return err
	}
	text, rights := make([]byte, maxMessage), make([]byte, unix.CmsgSpace(4*maxSockets))
	n, m, _, _, err := t.c.ReadMsgUnix(text, rights)
	if err != nil {
		return err
	}
	files, err := filesOf(rights[:m])
	var hello greeting
	if err == nil {
		err = json.Unmarshal(text[:n], &hello)
	}
	switch {
	case err != nil:
	case hello.Error != "":
		err = errors.New(hello.Error)
	case len(hello.Sockets) != len(files):
		err = fmt.Errorf("it sent %d sockets for the names %q", len(files), hello.Sockets)
	}
	if err != nil {
		return errors.Join(err, closeAll(files))
	}
	t.PID, t.r = hello.PID, bufio.NewReader(io.LimitReader(t.c, maxMessage))
	for i, f := range files {
		l, err := net.FileListener(f)
		tcp, ok := l.(*net.TCPListener)
		if err == nil && !ok {
			err = errors.Join(fmt.Errorf("the socket '%s' is not of TCP", hello.Sockets[i]), l.Close())
		}
		if err != nil {
			return errors.Join(err, closeAll(files), t.Close())
		}
		t.Sockets = append(t.Sockets, Socket{hello.Sockets[i], tcp})
	}
	return closeAll(files)
}

// maxSockets is above the number of sockets of a server.
const maxSockets = 16

// filesOf returns the files of a control message.
func filesOf(rights []byte) (files []*os.File, err error) {
	messages, err := unix.ParseSocketControlMessage(rights)
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			return files, err
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "socket")) //nolint:gosec // descriptors are not negative
		}
	}
	return files, err
}

func closeAll(files []*os.File) (err error) {
	for _, f := range files {
		err = errors.Join(err, f.Close())
	}
	return err
}

// Ready has the running server leave, and returns when it accepts no more. A server that has ended meanwhile is no error.
func (t *Taken) Ready() error {
	err := send(t.c, outcome{Ready: true}, nil)
	if err == nil {
		err = t.c.SetReadDeadline(time.Now().Add(greetingTime))
	}
	if err == nil {
		_, err = t.r.ReadBytes('\n')
	}
	if errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, io.EOF) {
		err = nil
	}
	return errors.Join(err, t.c.Close())
}

// Fail tells the running server why this process does not replace it, and closes the sockets. t may be nil.
func (t *Taken) Fail(reason error) error {
	if t == nil {
		return nil
	}
	return errors.Join(send(t.c, outcome{Error: reason.Error()}, nil), t.Close())
}

// Close closes what Take has opened.
func (t *Taken) Close() error {
	err := t.c.Close()
	for _, s := range t.Sockets {
		if e := s.Listener.Close(); !errors.Is(e, net.ErrClosed) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// send sends a message with file descriptors.
func send(c *net.UnixConn, v any, fds []int) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	_, _, err = c.WriteMsgUnix(append(text, '\n'), rights, nil)
	return err
}

// peer returns the process at the other end, which must have the user of this one.
func peer(c *net.UnixConn) (int, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var who *unix.Ucred
	if e := raw.Control(func(fd uintptr) { who, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); e != nil { //nolint:gosec // descriptors are small
		return 0, e
	}
	if err != nil {
		return 0, os.NewSyscallError("getsockopt", err)
	}
	if int(who.Uid) != os.Geteuid() && who.Uid != 0 {
		return 0, fmt.Errorf("process %d has the user %d, expected %d, which the other server has", who.Pid, who.Uid, os.Geteuid())
	}
	return int(who.Pid), nil
}
