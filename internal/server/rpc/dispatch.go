package rpc

import (
	"runtime"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	grpcstatus "google.golang.org/grpc/status"
)

// execute calls the handlers of the calls that have arrived, and writes what is to be written. It reports whether the caller still leads.
//
// A short call executes on this goroutine if it is the only open call of the connection. Beside others it executes on a worker: their handlers may
// be ready to run without a processor, which this goroutine would keep while clients send without a pause, and it would not read further calls
// meanwhile.
//
// hot: no allocation but the worker's for further calls.
func (c *conn) execute() bool {
	for _, s := range c.unstarted {
		if !s.begun {
			c.start(s)
		}
	}
	clear(c.unstarted)
	c.unstarted = c.unstarted[:0]
	n := len(c.ready)
	if n == 0 {
		return c.write()
	}
	s := c.ready[0]
	inline := n == 1 && s.head.method.short && c.slow.Load() <= 0 && c.alone()
	if !inline {
		for _, s := range c.ready {
			c.start(s)
		}
	}
	clear(c.ready)
	c.ready = c.ready[:0]
	if !inline || !c.begin(s) {
		return c.write()
	}
	v := c.lend()
	s.serve()
	return c.reclaim(v)
}

// write writes what is to be written.
func (c *conn) write() bool {
	c.mu.Lock()
	if len(c.out) == 0 || c.writing {
		c.mu.Unlock()
		return true
	}
	c.mu.Unlock()
	v := c.lend()
	c.mu.Lock()
	c.flush()
	c.mu.Unlock()
	return c.reclaim(v)
}

// start calls the handler of a call on another goroutine.
func (c *conn) start(s *stream) {
	if c.begin(s) {
		c.srv.workers.run(s)
	}
}

// alone reports whether at most one call is open. Only the leader opens calls, so it stays true until the caller reads on.
func (c *conn) alone() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.streams) <= 1
}

// begin counts a handler, and reports false if its call has ended. It waits while too many run: calls that are reset at once are no longer
// counted as open, but their handlers may run.
func (c *conn) begin(s *stream) bool {
	s.begun = true
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.running >= c.srv.set.MaxStreams && !s.done {
		c.room.Wait()
	}
	if s.done {
		return false
	}
	c.running++
	c.srv.handlers.Add(1)
	return true
}

// serve calls the handler of a call and sends its status.
func (s *stream) serve() {
	c, m := s.c, s.head.method
	since := time.Now()
	var err error
	if st := s.prepare(); st != nil {
		err = st.Err()
	} else if m.unary != nil {
		err = s.callUnary()
	} else {
		err = s.callStream()
	}
	s.finish(statusOf(err))
	if m.short && s.whole { // else it has waited for the client too
		c.timed(time.Since(since))
	}
	c.mu.Lock()
	if c.running--; c.running == c.srv.set.MaxStreams-1 {
		c.room.Broadcast()
	}
	c.mu.Unlock()
	c.srv.handlers.Done()
}

// timed notes how long a short call took.
func (c *conn) timed(took time.Duration) {
	if took > slowCall {
		c.slow.Store(fastCalls)
	} else if c.slow.Load() > 0 {
		c.slow.Add(-1)
	}
}

// prepare selects the compressions of a call.
func (s *stream) prepare() *grpcstatus.Status {
	name := s.head.encoding
	if name == "" || name == encoding.Identity {
		return nil
	}
	s.inflater = encoding.GetCompressor(name)
	if s.inflater == nil {
		return grpcstatus.Newf(codes.Unimplemented, "grpc: Decompressor is not installed for grpc-encoding %q", name)
	}
	s.sendCompress = name
	return nil
}

func (s *stream) callUnary() error {
	m := s.head.method
	reply, err := m.unary.Handler(m.impl, s.ctx, s.RecvMsg, s.c.srv.set.Unary)
	if err != nil {
		return err
	}
	return s.sendLast(reply)
}

func (s *stream) callStream() error {
	m := s.head.method
	if intercept := s.c.srv.set.Stream; intercept != nil {
		return intercept(m.impl, s, &m.info, m.stream.Handler)
	}
	return m.stream.Handler(m.impl, s)
}

var statusOK = grpcstatus.New(codes.OK, "")

// statusOf returns the status of a handler's error.
func statusOf(err error) *grpcstatus.Status {
	if err == nil {
		return statusOK
	}
	if st, ok := grpcstatus.FromError(err); ok {
		return st
	}
	return grpcstatus.FromContextError(err)
}

// workers call handlers on goroutines that stay, because the stack of a new one grows to the depth of a run. The zero value is ready.
type workers struct {
	mu      sync.Mutex
	idle    []*worker // the last one was busy last; guarded by mu
	stopped bool      // guarded by mu
}

type worker struct{ next chan *stream }

// maxIdle is how many workers stay.
func maxIdle() int { return max(16, 4*runtime.GOMAXPROCS(0)) }

// run calls the handler of a call.
func (w *workers) run(s *stream) {
	w.mu.Lock()
	n := len(w.idle)
	if n == 0 {
		w.mu.Unlock()
		go w.work(s)
		return
	}
	one := w.idle[n-1]
	w.idle[n-1] = nil
	w.idle = w.idle[:n-1]
	w.mu.Unlock()
	one.next <- s
}

func (w *workers) work(s *stream) {
	one := &worker{make(chan *stream, 1)}
	for s != nil {
		s.serve()
		w.mu.Lock()
		if w.stopped || len(w.idle) >= maxIdle() {
			w.mu.Unlock()
			return
		}
		w.idle = append(w.idle, one)
		w.mu.Unlock()
		s = <-one.next
	}
}

// stop ends the idle workers, and the others when they have returned.
func (w *workers) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	for _, one := range w.idle {
		close(one.next)
	}
	w.idle = nil
}
