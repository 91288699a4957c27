package python

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/faults"
)

// Kinds of packets of a fork server. See the package comment.
const kindFork, kindHello, kindForked, kindExited uint16 = 64, 80, 81, 82

// forkServerArgument starts worker.py as a fork server.
const forkServerArgument = "forkserver"

// errNoForkServer means that workers must be spawned: this interpreter cannot fork them.
var errNoForkServer = errors.New("workers of this interpreter cannot be forked")

// forkServer is a process that has imported the modules of every worker, and forks workers. Workers outlive it.
type forkServer struct {
	proc *process
	link *link
	gone chan struct{} // closed when no further packet is read

	mu    sync.Mutex
	last  uint32             // guarded by mu
	forks map[uint32]*forked // workers that are being forked or alive; nil after the exit; guarded by mu
}

// forked is one worker of a fork server, from its FORK packet on.
type forked struct {
	started  chan error // receives the result of the fork once
	pid      int
	resolved bool // started has its value; guarded by the fork server's mu
	exited   chan struct{}
	how      string // how the worker exited; set before exited is closed
}

// startForkServer starts a fork server and waits for its HELLO.
func startForkServer(ctx context.Context, starter *starter, python, script string, env []string) (*forkServer, error) {
	l, end, err := newLink("forkserver")
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(python, "-u", script, forkServerArgument) //nolint:gosec,noctx // the interpreter is a setting; it exits with its socket
	cmd.Env, cmd.ExtraFiles = env, []*os.File{end}
	proc, err := starter.start(cmd, false) // it ends its workers when the server exits, and then itself
	if err = errors.Join(err, end.Close()); err != nil {
		return nil, errors.Join(err, l.close())
	}
	s := &forkServer{proc: proc, link: l, gone: make(chan struct{}), forks: map[uint32]*forked{}}
	stop := context.AfterFunc(ctx, proc.kill)
	fault, err := s.receiveHello()
	stop()
	if err != nil || fault != "" {
		_ = l.close()
		s.proc.waitExit(s.proc.kill)
		return nil, errors.Join(errNoForkServer, err)
	}
	go s.read()
	return s, nil
}

// receiveHello reads the first packet. It returns the reason why forking is unsupported, or "".
func (s *forkServer) receiveHello() (fault string, err error) {
	var p packet
	if err := s.link.receive(&p); err != nil {
		return "", err
	}
	defer p.free()
	if p.kind != kindHello {
		return "", status.Errorf(status.Internal, "unexpected packet of kind %d from a fork server of python workers", p.kind)
	}
	var hello struct{ Fault string }
	err = json.Unmarshal(p.body, &hello)
	return hello.Fault, err
}

// close stops the fork server. Its workers keep running.
func (s *forkServer) close() {
	_ = s.link.close()
	<-s.gone
	s.proc.waitExit(s.proc.kill)
}

// read handles packets until the fork server exits.
func (s *forkServer) read() {
	var p packet
	for s.link.receive(&p) == nil {
		s.handle(&p)
	}
	p.free()
	_ = s.link.close() // it may be closed already
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.forks {
		f.orphan()
	}
	s.forks = nil
	close(s.gone)
}

// orphan watches a worker whose fork server has exited. The caller holds the fork server's mu.
func (f *forked) orphan() {
	if !f.resolved {
		f.resolve(0, io.EOF)
		return
	}
	go func() {
		f.how = waitOrphan(f.pid)
		close(f.exited)
	}()
}

// exited reports whether the fork server has exited.
func (s *forkServer) exited() bool {
	select {
	case <-s.gone:
		return true
	default:
		return false
	}
}

// handle handles one packet.
func (s *forkServer) handle(p *packet) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.forks[p.id]
	switch {
	case f == nil:
	case p.kind == kindForked && len(p.body) >= 4 && !f.resolved:
		f.resolve(int(binary.LittleEndian.Uint32(p.body)), nil)
	case p.kind == kindFailed && !f.resolved:
		delete(s.forks, p.id)
		f.resolve(0, failure(p))
	case p.kind == kindExited && len(p.body) >= 4 && f.resolved:
		delete(s.forks, p.id)
		f.how = stateText(syscall.WaitStatus(binary.LittleEndian.Uint32(p.body)))
		close(f.exited)
	}
}

func (f *forked) resolve(pid int, err error) {
	f.pid, f.resolved = pid, true
	f.started <- err
}

// fork returns the process of a new worker, which has the files as descriptors 3, 4, 1 and 2. The caller must call
// process.follow to watch it.
func (s *forkServer) fork(ctx context.Context, name string, files [4]*os.File) (*process, error) {
	if err := faults.At(faults.SpawnWorker); err != nil {
		return nil, err
	}
	f := &forked{started: make(chan error, 1), exited: make(chan struct{})}
	s.mu.Lock()
	if s.forks == nil {
		s.mu.Unlock()
		return nil, io.EOF
	}
	s.last++
	id := s.last
	s.forks[id] = f
	s.mu.Unlock()
	fds := make([]int, len(files))
	for i, file := range files {
		fds[i] = int(file.Fd()) //nolint:gosec // a descriptor fits
	}
	if err := s.link.sendWith(kindFork, 0, id, len(name), append(newBody(nil), name...), fds...); err != nil {
		_ = s.link.close() // read ends, and resolves every pending fork
	}
	select {
	case err := <-f.started:
		if err != nil {
			return nil, err
		}
		return &process{pid: f.pid, ended: make(chan struct{}), forked: f}, nil
	case <-ctx.Done(): // a worker that starts anyway finds its sockets closed, and exits
		return nil, status.ErrCancelled
	}
}

// forkServers are the fork servers of one interpreter in one environment: the current one, and former ones whose workers
// are still alive. Models share it by reference counting (see useForkServer).
type forkServers struct {
	key    interpreterKey
	script string
	env    []string
	from   *starter
	users  int // guarded by the backend's mu

	mu          sync.Mutex
	current     *forkServer   // guarded by mu
	started     []*forkServer // the current and former ones that have not exited; guarded by mu
	proven      bool          // one has started: this interpreter can fork; guarded by mu
	unsupported bool          // guarded by mu
}

// server returns the current fork server, and starts one when there is none.
func (s *forkServers) server(ctx context.Context) (*forkServer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unsupported {
		return nil, errNoForkServer
	}
	if s.current != nil {
		return s.current, nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeTime)
	defer cancel()
	started, err := startForkServer(ctx, s.from, s.key.python, s.script, s.env)
	s.proven = s.proven || err == nil
	// An interpreter that has forked once can do so: the failure, for example a full disk, may pass.
	s.current, s.unsupported = started, !s.proven
	s.started = slices.DeleteFunc(s.started, (*forkServer).exited)
	if err == nil {
		s.started = append(s.started, started)
	}
	return started, err
}

// retire stops forking from a fork server. It stays open for its workers.
func (s *forkServers) retire(old *forkServer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == old {
		s.current = nil
	}
}

// use calls fork with the current fork server. When that fails, it calls fork once more with a new one.
func (s *forkServers) use(ctx context.Context, fork func(context.Context, *forkServer) error) error {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	for try := 0; ; try++ {
		server, err := s.server(ctx)
		if err != nil {
			return err
		}
		if err = fork(ctx, server); err == nil || try > 0 || ctx.Err() != nil {
			return err
		}
		s.retire(server)
	}
}

func (s *forkServers) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unsupported = true
	for _, started := range s.started {
		started.close()
	}
	s.current, s.started = nil, nil
}

// interpreterKey identifies an interpreter and the environment folder that it runs in.
type interpreterKey struct{ python, home string }

// useForkServer forks the model's workers from a fork server of its interpreter. It reports whether that is possible. A fork
// server that runs also proves that the interpreter has numpy.
func (m *model) useForkServer(ctx context.Context, home string) bool {
	b, key := m.b, interpreterKey{m.python, home}
	b.mu.Lock()
	s := b.forkServers[key]
	if s == nil {
		s = &forkServers{key: key, script: filepath.Join(b.scripts.path, mainScript), env: m.env, from: b.starter}
		b.forkServers[key] = s
	}
	s.users++
	b.mu.Unlock()
	m.forkServers = s
	if _, err := s.server(ctx); err != nil {
		m.log.DebugContext(ctx, "no python workers are forked", slog.String("reason", err.Error()))
		m.releaseForkServers()
		m.forkServers = nil
		return false
	}
	return true
}

// releaseForkServers stops the fork servers of the model's interpreter after the last model that uses them.
func (m *model) releaseForkServers() {
	s := m.forkServers
	if s == nil {
		return
	}
	m.b.mu.Lock()
	s.users--
	last := s.users == 0
	if last {
		delete(m.b.forkServers, s.key)
	}
	m.b.mu.Unlock()
	if last {
		s.close()
	}
}
