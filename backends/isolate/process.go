package isolate

import (
	"cmp"
	"context"
	"encoding/gob"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/environ"
	"github.com/tutti-server/tutti/internal/memory"
)

// description is what a child needs to load a model.
type description struct {
	Backend       string
	Values        map[string]string            // of --backend-config
	Others        map[string]map[string]string // of the other backends
	Model         string
	Version       int64
	ModelDir, Dir string
	Config        []byte // modelconfig.ModelConfig
	Filename      string
	Instances     int
	Strict        bool

	RangeOff, RangeLen, SharedLen int
}

func describe(b *backend, s *backends.Settings) (*description, error) {
	cfg := proto.CloneOf(s.Config)
	delete(cfg.GetParameters(), Param)
	text, err := proto.Marshal(cfg)
	return &description{
		Backend: b.factory.Name, Values: b.options.Config, Others: b.options.Others, Model: s.Model, Version: s.Version, ModelDir: s.ModelDir, Dir: s.Dir,
		Config: text, Filename: s.Filename, Instances: s.Instances, Strict: s.Strict,
	}, err
}

// loaded is the response of a child: an error, or what the model is.
type loaded struct {
	Code                status.Code
	Reason              status.Reason
	RetryAfter          time.Duration
	Text                string
	Model               string
	Version             int64
	MaxBatch            int
	Inputs, Outputs     []port
	Threads, PID, Procs int
	Precision           string
}

// port is a config.Port of a backend's model.
type port struct {
	Name                                        string
	DType                                       tensor.DType
	Dims                                        []int64
	Optional, Unbatched, ShapeTensor, Unchecked bool
}

func portsOf(list []config.Port) (out []port) {
	for i := range list {
		p := &list[i]
		out = append(out, port{p.Name, p.DType, p.Dims.Dims(), p.Optional, p.Unbatched, p.ShapeTensor, p.Unchecked})
	}
	return out
}

func (l *loaded) signature() (*config.Signature, error) {
	sig := &config.Signature{Model: l.Model, Version: l.Version, MaxBatch: l.MaxBatch}
	add := func(to *[]config.Port, from []port) {
		for _, p := range from {
			*to = append(*to, config.Port{
				Name: p.Name, DType: p.DType, Dims: tensor.Of(p.Dims...), Optional: p.Optional, Unbatched: p.Unbatched, ShapeTensor: p.ShapeTensor, Unchecked: p.Unchecked,
			})
		}
	}
	add(&sig.Inputs, l.Inputs)
	add(&sig.Outputs, l.Outputs)
	if len(sig.Outputs) == 0 {
		return nil, status.Errorf(status.Internal, "model '%s': its process describes no outputs", l.Model)
	}
	return sig, nil
}

// rangeMost is the address space of a process for outputs. It is smaller where the shared memory is.
const rangeMost = 1 << 32

// process is a running child.
type process struct {
	model   string
	shared  *tensor.SharedMemory
	mem     []byte // its range
	off     int    // of the range
	control control
	socket  *os.File
	output  *output
	pid     int
	ended   chan struct{} // closed when it has exited
	dead    atomic.Bool   // it has exited, or was killed: no batch may be sent
	why     string        // valid after ended is closed

	mu     sync.Mutex
	killed string   // why the server killed it; guarded by mu
	asked  error    // why it was recycled; guarded by mu
	reaped bool     // its number may be that of another process; guarded by mu
	freed  []uint64 // slots of outputs to free; guarded by mu
	held   int      // outputs that are in use, and one for the process; guarded by mu
	spare  []*held  // guarded by mu
}

// start starts a child that loads the model and makes an instance. It gives up when ctx is done.
func (m *model) start(ctx context.Context) (p *process, made *loaded, err error) {
	mem, err := m.shared.Map(min(rangeMost, m.shared.Len()/256))
	if err != nil {
		return nil, nil, status.Reasonf(status.MemoryLimit, "model '%s': no memory for its process: %w", m.name, err)
	}
	off, _ := m.shared.Offset(unsafe.Pointer(unsafe.SliceData(mem)))
	p = &process{model: m.name, shared: m.shared, mem: mem, off: off, control: control{mem[:controlSize]}, ended: make(chan struct{}), held: 1, output: &output{log: m.log}}
	clear(mem[:atRequest])
	if err := p.launch(); err != nil {
		m.shared.Unmap(mem)
		return nil, nil, status.Reasonf(status.InstanceLost, "cannot start a process for model '%s': %w", m.name, err)
	}
	stop := context.AfterFunc(ctx, func() { p.kill("loading was given up") })
	defer stop()
	about := *m.about
	about.RangeOff, about.RangeLen, about.SharedLen = off, len(mem), m.shared.Len()
	made = &loaded{}
	err = gob.NewEncoder(p.socket).Encode(&about)
	if err == nil {
		err = gob.NewDecoder(p.socket).Decode(made)
	}
	switch {
	case err == nil && made.Text == "":
		m.log.DebugContext(ctx, "an isolated instance has a process", slog.Int("pid", p.pid))
		return p, made, nil
	case err == nil:
		err = &status.Error{Code: made.Code, Reason: status.ParseReason(string(made.Reason)), RetryAfter: made.RetryAfter, Msg: made.Text}
	case ctx.Err() != nil:
		err = status.ErrCancelled
	default:
		p.awaitEnd("it closed its socket")
		err = status.Reasonf(status.InstanceLost, "the process of model '%s' ended while it loaded the model: %s", m.name, p.why)
	}
	p.close()
	return nil, nil, err
}

// launch starts the program again, as a child of a thread that stays while the child lives.
func (p *process) launch() error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	_ = unix.SetNonblock(pair[0], true) // it is a socket
	p.socket = os.NewFile(uintptr(pair[0]), "isolated")
	theirs := os.NewFile(uintptr(pair[1]), "isolated")
	defer theirs.Close()
	read, err := os.Open("/proc/self/fd/" + strconv.Itoa(int(p.shared.File().Fd())))
	if err != nil {
		return errors.Join(err, p.socket.Close())
	}
	defer read.Close()
	cmd := exec.Command("/proc/self/exe", hiddenArgument, p.model) //nolint:gosec,noctx // this program; kill ends it
	cmd.Args[0] = "tutti"
	cmd.Env = append(environ.WithoutSecrets(os.Environ(), nil), guard+"=1", "GOMAXPROCS="+strconv.Itoa(runtime.GOMAXPROCS(0)))
	if os.Getenv("GOTRACEBACK") == "" {
		cmd.Env = append(cmd.Env, "GOTRACEBACK=none")
	}
	cmd.ExtraFiles = []*os.File{theirs, p.shared.File(), read}
	cmd.Stdout, cmd.Stderr = p.output, p.output
	cmd.WaitDelay = time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	var cores unix.CPUSet
	bound := unix.SchedGetaffinity(0, &cores) == nil
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread has the caller's cores, and ends
		if bound {
			_ = unix.SchedSetaffinity(0, &cores) // they are the caller's
		}
		err := cmd.Start()
		if err == nil {
			p.pid = cmd.Process.Pid
		}
		started <- err
		if err == nil {
			p.watch(cmd)
		}
	}()
	if err := <-started; err != nil {
		return errors.Join(err, p.socket.Close())
	}
	return nil
}

// watch waits until the process exits. One that is stopped is killed: it would hold its requests for ever.
func (p *process) watch(cmd *exec.Cmd) {
	const stopped = 5 // CLD_STOPPED
	for options := unix.WEXITED | unix.WSTOPPED | unix.WNOWAIT; ; {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, p.pid, &info, options, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err == nil && info.Code == stopped {
			p.kill("it was stopped by a signal")
			options = unix.WEXITED | unix.WNOWAIT
			continue
		}
		break
	}
	p.mu.Lock()
	_ = syscall.Kill(-p.pid, syscall.SIGKILL) // the rest of its group, while it is a zombie and its number not used again
	p.reaped = true
	p.mu.Unlock()
	_ = cmd.Wait() // ProcessState has the exit status
	p.why = p.reason(cmd.ProcessState.String())
	p.dead.Store(true)
	p.control.counter(atEnded).Store(gone)
	wake(p.control.counter(atEnded))
	close(p.ended)
}

// reason describes the end of the process.
func (p *process) reason(how string) string {
	p.mu.Lock()
	killed := p.killed
	p.mu.Unlock()
	switch first := p.output.crash(); {
	case killed != "":
		return killed
	case first != "":
		return how + ": " + first
	case how == "signal: killed":
		return how + " (by another process, or by the system for lack of memory)"
	}
	return how
}

// ending returns why a process that is not alive was killed, or that it exited.
func (p *process) ending() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return cmp.Or(p.killed, "it exits")
}

// kill kills the process group. It does not wait for the end.
func (p *process) kill(why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end(why)
}

// end is kill. The caller holds mu.
func (p *process) end(why string) {
	if p.killed == "" {
		p.killed = why
	}
	p.dead.Store(true)
	if !p.reaped {
		_ = syscall.Kill(-p.pid, syscall.SIGKILL)
	}
}

// recycle kills a process that is alive. The batch that it executes fails with why.
func (p *process) recycle(why error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.alive() || p.reaped {
		return false
	}
	p.asked = why
	p.end(status.Text(why))
	return true
}

// recycled returns why the process was recycled, nil if it was not.
func (p *process) recycled() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked
}

// resident returns the memory of the process, without tensors: they are the server's. It is 0 once the process has exited.
func (p *process) resident() int64 {
	n := memory.Private(p.pid)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped { // it may be that of another process
		return 0
	}
	return n
}

// exitTime is how long a process may take to exit.
const exitTime = 5 * time.Second

func (p *process) awaitEnd(why string) {
	late := time.AfterFunc(exitTime, func() { p.kill(why) })
	<-p.ended
	late.Stop()
}

// alive reports whether the process has not exited and was not killed.
//
// hot: a load.
func (p *process) alive() bool { return !p.dead.Load() }

// close ends the process and frees its memory, once no tensor is there any more.
func (p *process) close() {
	_ = p.socket.Close()
	p.awaitEnd("it did not exit when it was asked to")
	p.release()
}

// use keeps the range. It returns false when that is too late; else release must follow.
func (p *process) use() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held == 0 {
		return false
	}
	p.held++
	return true
}

// release gives up one use of the range.
func (p *process) release() {
	p.mu.Lock()
	p.held--
	last := p.held == 0
	p.mu.Unlock()
	if last {
		p.shared.Unmap(p.mem)
	}
}

// held is an output in the range of a process.
type held struct {
	buf  tensor.Buffer
	of   *process
	slot uint64
}

// Free implements tensor.Owner: the child frees the output with the next request.
func (h *held) Free(*tensor.Buffer) {
	p := h.of
	p.mu.Lock()
	p.freed = append(p.freed, h.slot)
	p.spare = append(p.spare, h)
	p.mu.Unlock()
	p.release()
}

// wrap returns an output in the range as a buffer.
func (p *process) wrap(slot uint64, mem []byte) *tensor.Buffer {
	p.mu.Lock()
	var h *held
	if n := len(p.spare); n > 0 {
		h, p.spare = p.spare[n-1], p.spare[:n-1]
	}
	p.held++
	p.mu.Unlock()
	if h == nil {
		h = &held{of: p}
	}
	h.slot = slot
	h.buf.Reset(h, tensor.Place{}, unsafe.Pointer(unsafe.SliceData(mem)), len(mem))
	return &h.buf
}

// output logs what a child prints, and keeps the first lines of its crash. It is safe for concurrent use.
type output struct {
	log *slog.Logger

	mu    sync.Mutex
	line  []byte   // guarded by mu
	lines []string // the last ones; guarded by mu
	first string   // of a crash; guarded by mu
}

// Write implements io.Writer.
func (o *output) Write(b []byte) (int, error) {
	const longest, kept = 4096, 8
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, c := range b {
		if c != '\n' {
			if len(o.line) < longest {
				o.line = append(o.line, c)
			}
			continue
		}
		text := strings.ToValidUTF8(strings.TrimSpace(string(o.line)), "\uFFFD")
		o.line = o.line[:0]
		if text == "" {
			continue
		}
		o.lines = append(o.lines[max(0, len(o.lines)-kept+1):], text)
		if o.first == "" && crashLine(text) {
			o.first = text
		}
		o.log.Warn("the process of an isolated model printed", slog.String("text", text))
	}
	return len(b), nil
}

// crashLine reports whether Go prints such a line at the start of a crash.
func crashLine(text string) bool {
	for _, start := range []string{"SIGSEGV", "SIGFPE", "SIGABRT", "SIGBUS", "SIGILL", "SIGTRAP", "SIGSYS", "fatal error:", "panic:", "runtime:"} {
		if strings.HasPrefix(text, start) {
			return true
		}
	}
	return false
}

// crash returns the line that names the crash, else the last line.
func (o *output) crash() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.first != "" || len(o.lines) == 0 {
		return o.first
	}
	return o.lines[len(o.lines)-1]
}
