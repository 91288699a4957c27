package remote

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/tutti-server/tutti/internal/server/sock"
)

// watcher opens the connections of a channel and knows which of them are open. It is safe for concurrent use.
type watcher struct {
	wake chan struct{} // has a token when unchecked may have an address

	mu     sync.Mutex
	open   map[string]int  // connections by address; guarded by mu
	fresh  map[string]bool // addresses whose metadata must be compared; guarded by mu
	opened map[string]int  // connections so far by address; guarded by mu
	failed error           // why the last attempt or connection failed; guarded by mu
}

func newWatcher() *watcher {
	return &watcher{wake: make(chan struct{}, 1), open: map[string]int{}, fresh: map[string]bool{}, opened: map[string]int{}}
}

// dial opens a connection. grpc calls it.
func (w *watcher) dial(ctx context.Context, addr string) (net.Conn, error) {
	network, address := "tcp", addr
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		network, address = "unix", strings.TrimPrefix(path, "//")
	}
	d := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}}
	c, err := d.DialContext(ctx, network, address)
	if tcp, ok := c.(*net.TCPConn); ok && err == nil {
		if fast, failed := sock.New(tcp); failed == nil {
			c = fast
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.failed = err
		return nil, err
	}
	w.open[addr]++
	w.opened[addr]++
	w.fresh[addr] = true
	w.signal()
	return &watched{Conn: c, w: w, addr: addr}, nil
}

// signal wakes the check; mu may be held.
func (w *watcher) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// watched is an open connection.
type watched struct {
	net.Conn
	w    *watcher
	addr string
	once sync.Once
}

var errClosed = errors.New("the connection was closed")

// Close closes the connection.
func (c *watched) Close() error {
	c.once.Do(func() { c.w.gone(c.addr) })
	return c.Conn.Close()
}

func (w *watcher) gone(addr string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed = errClosed
	if w.open[addr]--; w.open[addr] <= 0 {
		delete(w.open, addr)
		delete(w.fresh, addr)
	}
}

// away returns why there is no connection, nil when there is one or none was tried.
func (w *watcher) away() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.open) > 0 {
		return nil
	}
	return w.failed
}

// connected reports whether there is a connection to an address.
func (w *watcher) connected(addr string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.open[addr] > 0
}

// unchecked returns the connected addresses whose metadata are to be compared, once, each with the number of connections
// that were opened to it so far.
func (w *watcher) unchecked() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := map[string]int{}
	for addr := range w.fresh {
		list[addr] = w.opened[addr]
	}
	clear(w.fresh)
	return list
}

// again has an address compared again later.
func (w *watcher) again(addr string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open[addr] > 0 {
		w.fresh[addr] = true
	}
}

// recheck has the metadata at all connected addresses compared again.
func (w *watcher) recheck() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for addr := range w.open {
		w.fresh[addr] = true
	}
	w.signal()
}
