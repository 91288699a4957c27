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
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"tutti/core/recovery"
	"tutti/core/status"
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
	side    *link
	regions *regions
	stdout  *output
	stderr  *output
	killed  atomic.Pointer[string]
	sides   sync.WaitGroup
	ctx     context.Context //nolint:containedctx // the worker's life, for what it asks on its own
	cancel  context.CancelFunc
	running executions
	open    openCalls
	meters  meters
	// commanded is whether a command other than an execution is at hand.
	commanded atomic.Bool

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
	w := &worker{m: m}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	w.stdout = &output{ctx: w.ctx, log: m.log, level: slog.LevelInfo, what: "stdout"}
	w.stderr = &output{ctx: w.ctx, log: m.log, level: slog.LevelWarn, what: "stderr"}
	if err := w.spawn(ctx); err != nil {
		w.cancel()
		return nil, err
	}
	err := w.command(ctx, kindStart, map[string]any{
		"file": m.file, "model": m.sig.Model, "version": m.version, "paths": []string{filepath.Dir(m.file), m.dir},
	}, &w.about)
	if err != nil {
		w.end()
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
	w.calls, w.side = calls, side
	w.regions = newRegions(calls, w.m.b.set.first, w.m.b.set.growth)
	w.proc, err = w.launch(ctx, callsEnd, sideEnd)
	err = errors.Join(err, callsEnd.Close(), sideEnd.Close())
	if err != nil {
		return errors.Join(status.Errorf(status.Unavailable, "cannot start '%s' for model '%s': %w", w.m.python, w.m.sig.Model, err), calls.close(), side.close())
	}
	w.sides.Go(w.serveSide)
	return nil
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

// kill ends the process and what it has started, for a reason that its requests are told.
func (w *worker) kill(why string) {
	w.killed.CompareAndSwap(nil, &why)
	w.proc.kill()
}

// end frees the worker, killing it where it has not exited by itself.
func (w *worker) end() {
	w.cancel()
	_ = w.calls.close()
	w.waitExit("it did not exit")
	_ = w.side.close()
	w.sides.Wait()
	w.meters.close()
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

// gone returns why the worker is no more, in place of err, the failure of its socket.
func (w *worker) gone(err error) error {
	if !errors.Is(err, io.EOF) && !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
		w.kill(err.Error())
	}
	w.waitExit("it closed its socket and did not exit")
	how := w.proc.how
	if why := w.killed.Load(); why != nil {
		how = *why
	}
	text := ""
	if tail := w.stderr.tail(); tail != "" {
		text = ": " + tail
	}
	return status.Errorf(status.Unavailable, "the python worker of model '%s' ('%s') exited: %s%s", w.m.sig.Model, w.m.file, how, text)
}

// command sends a command with a JSON body and reads the answer's into out, nil for none. The worker is of no use after
// an error that is not the model's.
func (w *worker) command(ctx context.Context, kind uint16, in, out any) error {
	text, err := json.Marshal(in)
	if err != nil {
		return err
	}
	w.body = append(newBody(w.body), text...)
	w.commanded.Store(true)
	defer w.commanded.Store(false)
	stop := context.AfterFunc(ctx, func() { w.kill("loading was given up") })
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

// serveSide takes what the worker asks and tells until it is gone.
func (w *worker) serveSide() {
	var p packet
	defer p.free()
	for {
		err := w.side.receive(&p)
		if err == nil {
			err = w.takeSide(&p)
		}
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrClosed) {
				w.kill(err.Error())
			}
			w.cancel()
			return
		}
	}
}

// takeSide serves one packet. What may take its time gets a goroutine and a body of its own. Only a packet that cannot be
// understood gives an error.
func (w *worker) takeSide(p *packet) (err error) {
	defer recovery.Error(&err, w.m.log, "serving python model '"+w.m.sig.Model+"'")
	switch p.kind {
	case kindLog:
		w.logText(p.body)
		return nil
	case kindCancelled:
		w.tellCancelled(p)
		return nil
	case kindAbandon:
		w.open.abandon(p.id)
		return nil
	}
	own := *p
	if p.mapped {
		p.mapped = false
	} else {
		own.body = append([]byte(nil), p.body...)
	}
	if p.kind == kindCall {
		w.open.add(w, own.id)
	}
	w.sides.Go(func() { w.serve(&own) })
	return nil
}

func (w *worker) serve(p *packet) {
	err := w.handle(p)
	if p.flags&flagAsks != 0 && !errors.Is(err, errReplied) {
		w.reply(p.id, flagFinal, err)
	}
	p.free()
}

// handle does what a packet of the worker asks for.
func (w *worker) handle(p *packet) (err error) {
	defer recovery.Error(&err, w.m.log, "serving python model '"+w.m.sig.Model+"'")
	switch p.kind {
	case kindCall:
		return w.infer(p)
	case kindSend:
		return w.deliver(p)
	case kindMetric:
		return w.meter(p)
	case kindModel:
		return w.control(p)
	default:
		return status.Errorf(status.Unsupported, "unexpected packet of kind %d", p.kind)
	}
}

// errReplied says that a question has its reply already.
var errReplied = errors.New("replied")

// reply answers a question with success or an error.
func (w *worker) reply(id uint32, flags uint16, err error) {
	_ = w.side.send(kindReply, flags, id, appendError(newBody(nil), err)) // a worker that is gone needs none
}

// appendError appends an answer without outputs.
func appendError(b []byte, err error) []byte {
	if err == nil {
		return append(b, stateAnswered, 0, 0, 0, 0, 0, 0, 0)
	}
	b = append(b, stateError, byte(status.CodeOf(err)), 0, 0, 0, 0, 0, 0)
	at := len(b)
	b = appendText(b, status.Text(err))
	b = append(b, 0, 0)
	for (len(b)-at)%8 != 0 {
		b = append(b, 0)
	}
	binary.LittleEndian.PutUint32(b[at-4:], uint32(len(b)-at))
	return b
}

var logLevels = [...]slog.Level{slog.LevelInfo, slog.LevelWarn, slog.LevelError, slog.LevelDebug}

func (w *worker) logText(body []byte) {
	if len(body) == 0 || int(body[0]) >= len(logLevels) {
		return
	}
	text := strings.ToValidUTF8(string(body[1:]), "\uFFFD")
	w.m.log.LogAttrs(w.ctx, logLevels[body[0]], "a python model logged", slog.String("text", text))
}
