package load

import (
	"errors"
	"iter"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Loop runs clients as coroutines of one goroutine, the caller of Poll. Their connections belong to no poller of the runtime: a
// response wakes no thread, and is read at the next Poll. The kernel's time stamps say when it arrived. For a load of many short
// requests this takes a fraction of the CPU time of a goroutine for each client.
//
//  1. NewLoop. A Target with the loop makes its clients part of it.
//  2. Go adds a coroutine, for example one that calls Client.Do in turn.
//  3. Poll, again and again, runs the coroutines. The requests under way proceed in Poll only.
//  4. Close, after the clients were closed.
//
// Only Wake may be called concurrently with other methods. Dial blocks all coroutines.
type Loop struct {
	epoll   int
	events  []unix.EpollEvent
	conns   map[int32]*loopConn
	now     time.Time // of the last look at the connections
	checked time.Time // when the deadlines were last checked
	stamp   time.Time // when the data of the last read arrived
	running *Task
	turn    []*Task // the spare memory of ready

	mu     sync.Mutex
	ready  []*Task     // guarded by mu
	closed []*loopConn // whose file descriptors are to be closed; guarded by mu
}

// Task is a coroutine of a Loop.
type Task struct {
	resume func() (struct{}, bool)
	yield  func(struct{}) bool
}

const (
	loopEvents = 64
	// deadlineCheck is the time between looks at the deadlines of connections.
	deadlineCheck = 100 * time.Millisecond
)

// NewLoop returns a loop. The caller must Close it.
func NewLoop() (*Loop, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	return &Loop{epoll: fd, events: make([]unix.EpollEvent, loopEvents), conns: map[int32]*loopConn{}, now: time.Now()}, nil
}

// CanLoop reports whether the clients of a protocol can be part of a Loop. Those over TLS and those of streams cannot.
func (t *Target) CanLoop(protocol string) bool {
	return t.TLS == nil && (protocol == JSON || protocol == Binary || protocol == Shared || protocol == GRPC)
}

// Go adds a coroutine. It begins in the next Poll.
func (l *Loop) Go(f func()) {
	t := &Task{}
	t.resume, _ = iter.Pull(func(yield func(struct{}) bool) {
		t.yield = yield
		f()
	})
	l.Wake(t)
}

// Running returns the coroutine that calls it.
func (l *Loop) Running() *Task { return l.running }

// Suspend ends the turn of the coroutine that calls it, until the next Wake. There may be more calls of Wake than reasons: check.
func (l *Loop) Suspend() { l.running.yield(struct{}{}) }

// Wake continues a suspended coroutine in the next Poll, or in the one under way.
func (l *Loop) Wake(t *Task) {
	l.mu.Lock()
	l.ready = append(l.ready, t)
	l.mu.Unlock()
}

// Poll reads what has arrived, and returns when all coroutines are suspended. Before, it waits until something has arrived, for at most the
// given time in whole milliseconds.
func (l *Loop) Poll(wait time.Duration) error {
	for ; ; wait = 0 {
		n, err := unix.EpollWait(l.epoll, l.events, int(wait.Milliseconds()))
		if err != nil && !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("epoll_wait", err)
		}
		l.now = time.Now()
		for i := range max(n, 0) {
			if c := l.conns[l.events[i].Fd]; c != nil {
				c.changed(l.events[i].Events)
			}
		}
		if l.now.Sub(l.checked) > deadlineCheck {
			l.checked = l.now
			for _, c := range l.conns {
				c.expire()
			}
		}
		l.Run()
		if n < len(l.events) {
			return nil
		}
	}
}

// Run is Poll without a look at the connections.
func (l *Loop) Run() {
	for {
		l.mu.Lock()
		turn, closed := l.ready, l.closed
		l.ready, l.closed = l.turn[:0], nil
		l.mu.Unlock()
		for _, c := range closed {
			c.wake()
			delete(l.conns, int32(c.fd)) //nolint:gosec // file descriptors are small
			_ = unix.Close(c.fd)         // it was shut down
		}
		for _, t := range turn {
			l.running = t
			t.resume()
		}
		l.running, l.turn = nil, turn
		if len(turn)+len(closed) == 0 {
			return
		}
	}
}

// Close ends the loop and its connections.
func (l *Loop) Close() error {
	for _, c := range l.conns {
		_ = c.Close() // which returns nil
	}
	l.Run()
	return unix.Close(l.epoll)
}
