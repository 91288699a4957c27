package python

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
)

const (
	// exitTime is how long a process may take to exit after its sockets were closed.
	exitTime = 2 * time.Second
	// processPrefix precedes the model's name in the name of a worker process.
	processPrefix = "py:"
)

// worker is a process that runs model.py. One goroutine at a time may send commands; everything else is safe for concurrent use.
type worker struct {
	m        *model
	about    struct{ Complete, Ready bool } // the result of START
	proc     *process
	commands *link
	side     *side
	regions  *regions
	gpu      *gpuRegions
	stdout   *output
	stderr   *output
	killed   atomic.Pointer[string]
	recycled atomic.Pointer[error] // the error of its requests, once it is recycled
	mixed    atomic.Bool           // requests of several clients are executed
	leaving  atomic.Bool           // its exit is expected and not logged
	sides    sync.WaitGroup
	ctx      context.Context //nolint:containedctx // cancelled when the worker exits
	cancel   context.CancelFunc
	running  executions
	ready    readiness
	owner    atomic.Pointer[instance]        // the instance that it serves, nil until that is known
	command  atomic.Pointer[context.Context] // context of the current command other than EXECUTE

	mu     sync.Mutex
	joined map[*side]struct{} // side channels of forked processes; guarded by mu

	seq  uint32
	pkt  packet
	body []byte
}

// startWorker starts a worker and imports model.py in it.
func startWorker(ctx context.Context, m *model) (*worker, error) {
	w := &worker{m: m, joined: map[*side]struct{}{}}
	w.gpu = newGPURegions(w)
	w.ctx, w.cancel = context.WithCancel(context.Background())
	w.stdout = &output{ctx: w.ctx, log: m.log, level: slog.LevelInfo, what: "stdout"}
	w.stderr = &output{ctx: w.ctx, log: m.log, level: slog.LevelWarn, what: "stderr"}
	if err := w.spawn(ctx); err != nil {
		w.cancel()
		return nil, err
	}
	err := w.prepare(ctx, kindStart, "import model.py", map[string]any{
		"file": m.file, "model": m.sig.Model, "version": m.version, "paths": []string{filepath.Dir(m.file), m.dir},
	}, &w.about)
	if err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

// mallocEnv are environment variables that make the C allocator keep freed memory: returning pages to the kernel and faulting
// them in again for every array costs more than the arithmetic on it. The server's environment overrides them.
var mallocEnv = [...]string{"MALLOC_TRIM_THRESHOLD_=134217728", "MALLOC_MMAP_THRESHOLD_=33554432"}

// spawn starts the process.
func (w *worker) spawn(ctx context.Context) error {
	if err := w.launch(ctx); err != nil {
		return status.Reasonf(status.InstanceLost, "cannot start '%s' for model '%s': %w", w.m.python, w.m.sig.Model, err)
	}
	w.sides.Go(w.side.serve)
	w.sides.Go(w.watch)
	return nil
}

// attempt calls start with new sockets, and keeps them if it succeeds. Every attempt needs its own: a process of an attempt that failed may
// exist, for example because its fork server died before it could confirm the fork. It finds its sockets closed, and exits. With the
// sockets of the next attempt it would take packets of the other process.
func (w *worker) attempt(start func(commands, side *os.File) (*process, error)) error {
	commands, commandsEnd, err := newLink("commands")
	if err != nil {
		return err
	}
	side, sideEnd, err := newLink("side")
	if err != nil {
		return errors.Join(err, commands.close(), commandsEnd.Close())
	}
	proc, err := start(commandsEnd, sideEnd)
	err = errors.Join(err, commandsEnd.Close(), sideEnd.Close())
	if err != nil {
		return errors.Join(err, commands.close(), side.close())
	}
	w.proc, w.commands, w.side = proc, commands, w.newSide(side, true)
	w.regions = &regions{commands: commands, first: w.m.b.set.first, growth: w.m.b.set.growth}
	return nil
}

// watch waits until the process exits, and logs an unexpected exit. It shuts the sockets down, which children of the process may
// still hold open.
func (w *worker) watch() {
	<-w.proc.ended
	w.commands.hangUp()
	w.hangUpSides()
	if w.leaving.Load() {
		return
	}
	w.m.log.ErrorContext(w.ctx, "the worker of a python model exited", slog.String("instance", w.name()), slog.String("reason", w.end()))
	if x := w.owner.Load(); x != nil {
		x.died(w.reason(), w.recycled.Load() != nil)
	}
}

// name returns the name of the instance that the worker serves.
func (w *worker) name() string {
	if x := w.owner.Load(); x != nil {
		return x.name
	}
	return w.m.instanceName(0)
}

// launch forks the process from a fork server. It spawns the process when there is none or the fork fails.
func (w *worker) launch(ctx context.Context) error {
	name := processPrefix + w.m.sig.Model
	if w.m.forkServers != nil {
		err := w.m.forkServers.use(ctx, func(ctx context.Context, s *forkServer) error {
			return w.attempt(func(commands, side *os.File) (*process, error) { return w.fork(ctx, s, name, commands, side) })
		})
		if err == nil {
			return nil
		}
		w.m.log.DebugContext(ctx, "a python worker is spawned, not forked", slog.String("reason", err.Error()))
	}
	cmd := exec.Command(w.m.python, "-u", filepath.Join(w.m.b.scripts.path, mainScript), name) //nolint:gosec,noctx // the interpreter is a setting; the worker ends itself
	cmd.Env = w.m.env
	cmd.Stdout, cmd.Stderr = w.stdout, w.stderr
	return w.attempt(func(commands, side *os.File) (*process, error) {
		cmd.ExtraFiles = []*os.File{commands, side}
		return w.m.b.starter.start(cmd, true)
	})
}

// fork forks the process from a fork server, with pipes as its standard streams.
func (w *worker) fork(ctx context.Context, s *forkServer, name string, commands, side *os.File) (*process, error) {
	out, outEnd, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer outEnd.Close()
	fault, faultEnd, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, out.Close())
	}
	defer faultEnd.Close()
	p, err := s.fork(ctx, name, [...]*os.File{commands, side, outEnd, faultEnd})
	if err != nil {
		return nil, errors.Join(err, out.Close(), fault.Close())
	}
	p.copy(w.stdout, out)
	p.copy(w.stderr, fault)
	p.follow()
	return p, nil
}

// unhealthy returns Triton's text for an instance whose worker has exited.
func unhealthy(instance string) string { return "Stub process '" + instance + "' is not healthy." }

// exited reports whether the process has exited.
func (w *worker) exited() bool {
	select {
	case <-w.proc.ended:
		return true
	default:
		return false
	}
}

// kill kills the process group. why becomes part of the error of its requests.
func (w *worker) kill(why string) {
	w.killed.CompareAndSwap(nil, &why)
	w.proc.kill()
}

// close ends and frees the worker.
func (w *worker) close() {
	w.stop()
	w.free()
}

// stop ends the process, and kills it when it does not exit. The calls that it has made are cancelled. No more commands are sent then.
func (w *worker) stop() {
	select {
	case <-w.proc.ended: // a crash, which watch logs
	default:
		w.leaving.Store(true)
	}
	w.cancel()
	w.commands.hangUp()
	w.proc.waitExit(func() { w.kill("it did not exit") })
	w.m.b.callGraph.forget(w)
}

// free frees what is left after stop. It waits for the models that the worker has called and for the clients to which it has sent responses.
func (w *worker) free() {
	w.sides.Wait()
	_ = w.commands.close()
	_ = w.side.link.close()
	w.regions.close()
	w.gpu.close()
	w.pkt.free()
}

// gone converts an error of the worker's socket to one that says why the worker exited, with Triton's text and code.
func (w *worker) gone(err error) error {
	if !errors.Is(err, io.EOF) && !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, os.ErrClosed) {
		w.kill(err.Error())
	}
	w.proc.waitExit(func() { w.kill("it closed its socket and did not exit") })
	if why := w.recycled.Load(); why != nil {
		return *why
	}
	how := w.end()
	if w.mixed.Load() { // what it printed may belong to another client
		how = w.reason()
	}
	return status.Errorf(status.Internal, "%s the python worker of model '%s' ('%s') exited: %s", unhealthy(w.name()), w.m.sig.Model, w.m.file, how)
}

// lost is gone for requests in flight. They may be sent again: the next one starts another worker.
func (w *worker) lost(err error) error {
	return &status.Error{Code: status.Unavailable, Reason: status.InstanceLost, Msg: status.Text(w.gone(err)), RetryAfter: retryAfter}
}

// retryAfter is the time after which a request whose worker has exited may be sent again.
const retryAfter = time.Second

// separate keeps the text of one client's requests from the errors of another one: a batch begins.
//
// hot: no allocation.
func (w *worker) separate(requests int) {
	if w.running.busy() {
		w.mixed.Store(true)
		return
	}
	w.stderr.forget()
	w.mixed.Store(requests > 1)
}

// end describes the exit of the process, with the last lines of standard error since the current batch began.
func (w *worker) end() string {
	how := w.reason()
	if tail := w.stderr.tail(); tail != "" {
		return how + ": " + tail
	}
	return how
}

// reason returns why the process exited: its exit status, or why it was killed.
func (w *worker) reason() string {
	if why := w.killed.Load(); why != nil {
		return *why
	}
	return w.proc.how
}

// slowError is the cause of a command that took too long.
type slowError struct {
	what  string
	after time.Duration
}

// Error implements error.
func (e *slowError) Error() string {
	return fmt.Sprintf("it took longer than %v to %s: --backend-config=python,%s=SECONDS sets the limit", e.after, e.what, keyTimeout)
}

// prepare is run for a command of a model that is loaded. It has a limit of time: the model may hang.
func (w *worker) prepare(ctx context.Context, kind uint16, what string, in, out any) error {
	limit := w.m.b.set.load
	ctx, cancel := context.WithTimeoutCause(ctx, limit, &slowError{what, limit})
	defer cancel()
	return w.run(ctx, kind, in, out)
}

// run sends a command with a JSON body and decodes the result into out, unless it is nil. After an error other than the model's
// the worker must be closed.
func (w *worker) run(ctx context.Context, kind uint16, in, out any) error {
	text, err := json.Marshal(in)
	if err != nil {
		return err
	}
	w.body = append(newBody(w.body), text...)
	w.command.Store(&ctx)
	defer w.command.Store(nil) //nolint:contextcheck // it resets the pointer
	stop := context.AfterFunc(ctx, func() {
		w.leaving.Store(true)
		if slow, ok := errors.AsType[*slowError](context.Cause(ctx)); ok {
			w.kill(slow.Error())
			return
		}
		w.kill("loading was given up")
	})
	defer stop()
	p, err := w.call(kind)
	if err != nil {
		return err
	}
	if p.kind == kindFailed {
		return failure(p)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(p.body, out); err != nil {
		return status.Errorf(status.Internal, "unexpected answer of the python worker of model '%s': %w", w.m.sig.Model, err)
	}
	return nil
}

// call sends body and returns the result, valid until the next call.
func (w *worker) call(kind uint16) (*packet, error) {
	w.seq++
	w.commands.unlimited()
	if err := w.commands.send(kind, 0, w.seq, w.body); err != nil {
		return nil, w.gone(err)
	}
	if err := w.commands.receive(&w.pkt); err != nil {
		return nil, w.gone(err)
	}
	return w.checkResult()
}

func (w *worker) checkResult() (*packet, error) {
	if p := &w.pkt; (p.kind == kindDone || p.kind == kindFailed) && p.id == w.seq {
		return p, nil
	}
	return nil, w.gone(status.Errorf(status.Internal, "it answered with a packet of kind %d", w.pkt.kind))
}

// failure returns the error of a FAILED packet.
func failure(p *packet) error {
	r := reader{b: p.body}
	code, params := r.u8(), infer.Params(nil)
	if code&detailed != 0 {
		params = r.params(nil)
	}
	return failureOf(codeOf(code&^detailed), string(p.body[r.at:]), params)
}

// detailed is the bit of the code of FAILED with parameters.
const detailed = 0x80

// Levels of LOG.
var logLevels = [...]slog.Level{slog.LevelInfo, slog.LevelWarn, slog.LevelError, slog.LevelDebug}

// logFailure is the LOG level of an exception that no request reports.
const logFailure = 4
