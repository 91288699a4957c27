package python

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/tutti-server/tutti/core/status"
)

// Kinds of packets of a nursery. See the package comment.
const kindFork uint16 = 64

const (
	kindBorn uint16 = iota + 80
	kindForked
	kindEnded
)

// nurseryArgument has worker.py be a nursery.
const nurseryArgument = "forkserver"

// errNoNursery says that workers have to be started, not forked.
var errNoNursery = errors.New("workers of this interpreter cannot be forked")

// born is what a nursery says of itself.
type born struct {
	Python string `json:"python"`
	Numpy  string `json:"numpy"`
	Fault  string `json:"fault"`
}

// nursery is a process that has imported what every worker needs, and forks workers from itself. They live on without it.
type nursery struct {
	proc  *process
	calls *link
	about born
	gone  chan struct{} // closed when it is read no more

	mu     sync.Mutex
	last   uint32            // guarded by mu
	births map[uint32]*birth // the workers that are being forked, and those that live; guarded by mu
	over   bool              // guarded by mu
}

// birth is one FORK.
type birth struct {
	told    chan struct{} // closed when pid or err is known
	pid     int
	err     error
	settled bool // told is closed
	ended   chan struct{}
	how     string
}

// startNursery starts a nursery and waits until it can fork.
func startNursery(ctx context.Context, python, script string, env []string) (*nursery, error) {
	calls, end, err := newLink("nursery")
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(python, "-u", script, nurseryArgument) //nolint:gosec,noctx // the interpreter is a setting; it ends with its socket
	cmd.Env, cmd.ExtraFiles = env, []*os.File{end}
	proc, err := startProcess(cmd)
	if err = errors.Join(err, end.Close()); err != nil {
		return nil, errors.Join(err, calls.close())
	}
	n := &nursery{proc: proc, calls: calls, gone: make(chan struct{}), births: map[uint32]*birth{}}
	stop := context.AfterFunc(ctx, proc.kill)
	err = n.greet()
	stop()
	if err != nil || n.about.Fault != "" {
		_ = calls.close()
		n.await()
		return nil, errors.Join(errNoNursery, err)
	}
	go n.read()
	return n, nil
}

// greet takes what the nursery says first.
func (n *nursery) greet() error {
	var p packet
	if err := n.calls.receive(&p); err != nil {
		return err
	}
	defer p.free()
	if p.kind != kindBorn {
		return status.Errorf(status.Internal, "unexpected packet of kind %d from a nursery of python workers", p.kind)
	}
	return json.Unmarshal(p.body, &n.about)
}

// await waits for the end of the process, killing it where it does not come by itself.
func (n *nursery) await() {
	t := time.NewTimer(exitTime)
	defer t.Stop()
	select {
	case <-n.proc.ended:
	case <-t.C:
		n.proc.kill()
		<-n.proc.ended
	}
}

// close ends the nursery. Its workers live on.
func (n *nursery) close() {
	_ = n.calls.close()
	<-n.gone
	n.await()
}

// read takes what the nursery says until it is gone.
func (n *nursery) read() {
	var p packet
	for n.calls.receive(&p) == nil {
		n.take(&p)
	}
	p.free()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.over = true
	for _, x := range n.births {
		x.orphan()
	}
	n.births = nil
	close(n.gone)
}

// orphan has the end of a worker seen that nobody tells any more. The caller holds the nursery's mu.
func (x *birth) orphan() {
	if !x.settled {
		x.settle(0, io.EOF)
		return
	}
	go func() {
		x.how = waitOrphan(x.pid)
		close(x.ended)
	}()
}

func (n *nursery) take(p *packet) {
	n.mu.Lock()
	defer n.mu.Unlock()
	x := n.births[p.id]
	switch {
	case x == nil:
	case p.kind == kindForked && len(p.body) >= 4 && !x.settled:
		x.settle(int(binary.LittleEndian.Uint32(p.body)), nil)
	case p.kind == kindFailed && !x.settled:
		delete(n.births, p.id)
		x.settle(0, failure(p))
	case p.kind == kindEnded && len(p.body) >= 4 && x.settled:
		delete(n.births, p.id)
		x.how = stateText(syscall.WaitStatus(binary.LittleEndian.Uint32(p.body)))
		close(x.ended)
	}
}

func (x *birth) settle(pid int, err error) {
	x.pid, x.err, x.settled = pid, err, true
	close(x.told)
}

// fork returns a new worker's process, which has the files as descriptors 3, 4, 1 and 2; follow has its end seen.
func (n *nursery) fork(ctx context.Context, name string, files [4]*os.File) (*process, error) {
	x := &birth{told: make(chan struct{}), ended: make(chan struct{})}
	n.mu.Lock()
	if n.over {
		n.mu.Unlock()
		return nil, io.EOF
	}
	n.last++
	id := n.last
	n.births[id] = x
	n.mu.Unlock()
	fds := make([]int, len(files))
	for i, f := range files {
		fds[i] = int(f.Fd()) //nolint:gosec // a descriptor fits
	}
	if err := n.calls.sendFiles(kindFork, id, append(newBody(nil), name...), fds); err != nil {
		_ = n.calls.close() // the reader ends, and settles all
	}
	select {
	case <-x.told:
	case <-ctx.Done(): // a worker that comes nevertheless finds its sockets closed, and exits
		return nil, status.ErrCancelled
	}
	if x.err != nil {
		return nil, x.err
	}
	return &process{pid: x.pid, ended: make(chan struct{}), born: x}, nil
}

// nest has the nurseries of one interpreter in one environment: the one at hand, and those before it whose workers live.
type nest struct {
	key    nestKey
	script string
	env    []string
	users  int // guarded by the backend's mu

	mu   sync.Mutex
	at   *nursery   // guarded by mu
	old  []*nursery // guarded by mu
	none bool       // it cannot have one; guarded by mu
}

// nursery returns the one at hand, or a new one.
func (h *nest) nursery(ctx context.Context) (*nursery, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.none {
		return nil, errNoNursery
	}
	if h.at != nil {
		return h.at, nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeTime)
	defer cancel()
	n, err := startNursery(ctx, h.key.python, h.script, h.env)
	h.at, h.none = n, err != nil
	return n, err
}

// replace has a nursery be no longer used. It stays for its workers.
func (h *nest) replace(n *nursery) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.at == n {
		h.at = nil
		h.old = append(h.old, n)
	}
}

// fork returns a new worker's process, of another nursery when the one at hand cannot.
func (h *nest) fork(ctx context.Context, name string, files [4]*os.File) (*process, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	for try := 0; ; try++ {
		n, err := h.nursery(ctx)
		if err != nil {
			return nil, err
		}
		p, err := n.fork(ctx, name, files)
		if err == nil || try > 0 || ctx.Err() != nil {
			return p, err
		}
		h.replace(n)
	}
}

func (h *nest) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.none = true
	if h.at != nil {
		h.old = append(h.old, h.at)
		h.at = nil
	}
	for _, n := range h.old {
		n.close()
	}
	h.old = nil
}

// nestKey names an interpreter and the environment that it is used in.
type nestKey struct{ python, home string }

// takeNest returns what forks the workers of a model. dropNest gives it back.
func (b *backend) takeNest(key nestKey, env []string) *nest {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.nests[key]
	if h == nil {
		h = &nest{key: key, script: filepath.Join(b.files.path, mainScript), env: env}
		b.nests[key] = h
	}
	h.users++
	return h
}

// dropNest ends the nursery of an interpreter that no model uses any more.
func (b *backend) dropNest(key nestKey) {
	b.mu.Lock()
	h := b.nests[key]
	last := false
	if h != nil {
		h.users--
		if last = h.users == 0; last {
			delete(b.nests, key)
		}
	}
	b.mu.Unlock()
	if last {
		h.close()
	}
}
