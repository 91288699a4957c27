package python

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tutti-server/tutti/core/status"
)

// exitTime is how long a worker that closed its sockets may take to exit.
const exitTime = 2 * time.Second

// processPrefix and the model's name name a worker's process.
const processPrefix = "py:"

// worker is a process that runs model.py.
type worker struct {
	m       *model
	about   started
	proc    *process
	calls   *link
	side    *side
	regions *regions
	stdout  *output
	stderr  *output
	killed  atomic.Pointer[string]
	leaving atomic.Bool // its end is nothing to log
	sides   sync.WaitGroup
	ctx     context.Context //nolint:containedctx // the worker's life, for what it asks on its own
	cancel  context.CancelFunc
	running executions
	ready   readiness
	command atomic.Pointer[context.Context] // of the command at hand, which is no execution

	mu       sync.Mutex
	instance string             // the name of the one that it serves, or is to serve first; guarded by mu
	died     func()             // called when the process has ended that an instance has, nil before; guarded by mu
	joined   map[*side]struct{} // of processes that the model has forked; guarded by mu

	seq  uint32
	pkt  packet
	body []byte
}

// started is what a worker says of itself and its model.
type started struct {
	Python   string `json:"python"`
	Numpy    string `json:"numpy"`
	Complete bool   `json:"complete"`
	Ready    bool   `json:"ready"`
}

// startWorker starts a worker that has imported the model's file.
func startWorker(ctx context.Context, m *model) (*worker, error) {
	w := &worker{m: m, instance: m.instanceName(0), joined: map[*side]struct{}{}}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	w.stdout = &output{ctx: w.ctx, log: m.log, level: slog.LevelInfo, what: "stdout"}
	w.stderr = &output{ctx: w.ctx, log: m.log, level: slog.LevelWarn, what: "stderr"}
	if err := w.spawn(ctx); err != nil {
		w.cancel()
		return nil, err
	}
	err := w.run(ctx, kindStart, map[string]any{
		"file": m.file, "model": m.sig.Model, "version": m.version, "paths": []string{filepath.Dir(m.file), m.dir},
	}, &w.about)
	if err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

// mallocEnv has C's allocator keep what numpy frees: giving pages back and taking them again for every array costs more
// than the arrays' arithmetic. The server's own environment comes after it and wins.
var mallocEnv = [...]string{"MALLOC_TRIM_THRESHOLD_=134217728", "MALLOC_MMAP_THRESHOLD_=33554432"}

func (w *worker) spawn(ctx context.Context) error {
	calls, callsEnd, err := newLink("calls")
	if err != nil {
		return err
	}
	side, sideEnd, err := newLink("side")
	if err != nil {
		return errors.Join(err, calls.close(), callsEnd.Close())
	}
	w.calls, w.side = calls, w.newSide(side, true)
	w.regions = newRegions(calls, w.m.b.set.first, w.m.b.set.growth)
	w.proc, err = w.launch(ctx, callsEnd, sideEnd)
	err = errors.Join(err, callsEnd.Close(), sideEnd.Close())
	if err != nil {
		return errors.Join(status.Errorf(status.Unavailable, "cannot start '%s' for model '%s': %w", w.m.python, w.m.sig.Model, err), calls.close(), side.close())
	}
	w.sides.Go(w.side.serve)
	w.sides.Go(w.watch)
	return nil
}

// watch waits for the end of the process, and logs one that nobody has asked for. Processes that it has left behind may hold its
// sockets open: they are of no use any more.
func (w *worker) watch() {
	<-w.proc.ended
	w.calls.hangUp()
	w.hangUpSides()
	if w.leaving.Load() {
		return
	}
	w.m.log.ErrorContext(w.ctx, "the worker of a python model exited", slog.String("instance", w.name()), slog.String("reason", w.end()))
	w.mu.Lock()
	died := w.died
	w.mu.Unlock()
	if died != nil {
		died()
	}
}

// serves names the instance that the worker serves, and what to call when it dies.
func (w *worker) serves(instance string, died func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.instance, w.died = instance, died
}

func (w *worker) name() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.instance
}

// launch has a nursery fork the worker's process, or starts it where there is none.
func (w *worker) launch(ctx context.Context, calls, side *os.File) (*process, error) {
	name := processPrefix + w.m.sig.Model
	if w.m.nest != nil {
		p, err := w.forked(ctx, name, calls, side)
		if err == nil {
			return p, nil
		}
		w.m.log.DebugContext(ctx, "a python worker is started by itself", slog.String("reason", err.Error()))
	}
	cmd := exec.Command(w.m.python, "-u", filepath.Join(w.m.b.files.path, mainScript), name) //nolint:gosec,noctx // the interpreter is a setting; the worker ends itself
	cmd.Env = w.m.env
	cmd.ExtraFiles = []*os.File{calls, side}
	cmd.Stdout, cmd.Stderr = w.stdout, w.stderr
	return startProcess(cmd)
}

// forked returns a process of the nursery, which prints into pipes.
func (w *worker) forked(ctx context.Context, name string, calls, side *os.File) (*process, error) {
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
	p, err := w.m.nest.fork(ctx, name, [...]*os.File{calls, side, outEnd, faultEnd})
	if err != nil {
		return nil, errors.Join(err, out.Close(), fault.Close())
	}
	p.copy(w.stdout, out)
	p.copy(w.stderr, fault)
	p.follow()
	return p, nil
}

// unhealthy says that the worker of an instance is no more, in Triton's words.
func unhealthy(instance string) string { return "Stub process '" + instance + "' is not healthy." }

// kill ends the process and what it has started, for a reason that its requests are told.
func (w *worker) kill(why string) {
	w.killed.CompareAndSwap(nil, &why)
	w.proc.kill()
}

// close frees the worker, killing it where it has not exited by itself.
func (w *worker) close() {
	select {
	case <-w.proc.ended: // by itself, which watch logs
	default:
		w.leaving.Store(true)
	}
	w.cancel()
	w.calls.hangUp()
	w.waitExit("it did not exit")
	w.sides.Wait()
	_ = w.calls.close()
	_ = w.side.link.close()
	w.regions.close()
	w.pkt.free()
}

func (w *worker) waitExit(why string) {
	t := time.NewTimer(exitTime)
	defer t.Stop()
	select {
	case <-w.proc.ended:
	case <-t.C:
		w.kill(why)
		<-w.proc.ended
	}
}

// gone returns that the worker is no more, in Triton's words and with its code, and why, in place of err, the failure of its socket.
func (w *worker) gone(err error) error {
	if !errors.Is(err, io.EOF) && !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, os.ErrClosed) {
		w.kill(err.Error())
	}
	w.waitExit("it closed its socket and did not exit")
	return status.Errorf(status.Internal, "%s the python worker of model '%s' ('%s') exited: %s", unhealthy(w.name()), w.m.sig.Model, w.m.file, w.end())
}

// end says how the process has ended, and what it printed last.
func (w *worker) end() string {
	how := w.proc.how
	if why := w.killed.Load(); why != nil {
		how = *why
	}
	if tail := w.stderr.tail(); tail != "" {
		return how + ": " + tail
	}
	return how
}

// run sends a command with a JSON body and reads the answer's into out, nil for none. The worker is of no use after
// an error that is not the model's.
func (w *worker) run(ctx context.Context, kind uint16, in, out any) error {
	text, err := json.Marshal(in)
	if err != nil {
		return err
	}
	w.body = append(newBody(w.body), text...)
	w.command.Store(&ctx)
	defer w.command.Store(nil) //nolint:contextcheck // it forgets the context
	stop := context.AfterFunc(ctx, func() {
		w.leaving.Store(true)
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

// call sends body and returns the answer, valid until the next call.
func (w *worker) call(kind uint16) (*packet, error) {
	w.seq++
	w.calls.unlimited()
	if err := w.calls.send(kind, 0, w.seq, w.body); err != nil {
		return nil, w.gone(err)
	}
	if err := w.calls.receive(&w.pkt); err != nil {
		return nil, w.gone(err)
	}
	return w.answered()
}

func (w *worker) answered() (*packet, error) {
	if p := &w.pkt; (p.kind == kindDone || p.kind == kindFailed) && p.id == w.seq {
		return p, nil
	}
	return nil, w.gone(status.Errorf(status.Internal, "it answered with a packet of kind %d", w.pkt.kind))
}

// failure returns what a worker's FAILED says.
func failure(p *packet) error {
	r := reader{b: p.body}
	code := codeOf(r.u8())
	return &status.Error{Code: code, Msg: strings.ToValidUTF8(string(p.body[r.at:]), "\uFFFD")}
}

// Levels of LOG.
var logLevels = [...]slog.Level{slog.LevelInfo, slog.LevelWarn, slog.LevelError, slog.LevelDebug}

// logFailure is the level of what a model has raised that no request was told.
const logFailure = 4
