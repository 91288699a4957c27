package tritonlib

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

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/environ"
	"github.com/tutti-server/tutti/internal/memory"
)

// description is what a child needs to load a model.
type description struct {
	Library, Backend, Folder, Settings string // Folder is that of the library, Settings are the backend's as JSON
	Model, ModelDir, Config            string // Config is JSON
	Version                            int64
	Complete                           bool // the library may complete the configuration

	RangeOff, RangeLen, SharedLen, Slots, Verbose int
}

// What a command tells a child to do.
const (
	opBind = iota
	opInstance
	opCloseInstance
	opUnload
)

// command is sent to a child, which responds with a reply.
type command struct {
	Op                      int
	Index                   int // of an instance
	Name                    string
	Kind                    int
	Profiles                []string
	Inputs, Outputs, States []string
}

// reply is the response of a child to its description, and to a command.
type reply struct {
	Failed bool
	Code   status.Code
	Text   string
	Config string // that the library has set, as JSON; empty if it has set none
}

func (r *reply) err() error {
	if !r.Failed {
		return nil
	}
	return status.Errorf(r.Code, "%s", r.Text)
}

// rangeMost is the address space of a process for outputs. It is smaller where the shared memory is.
const rangeMost = 1 << 32

// process is a running child.
type process struct {
	model   string
	shared  *tensor.SharedMemory
	mem     []byte // its range
	heap    int    // where blocks begin
	slots   []*slot
	used    chan struct{} // has a value for each slot in use
	socket  *os.File
	out     *gob.Encoder
	in      *gob.Decoder
	notices *os.File
	printed *printed
	pid     int
	ended   chan struct{} // closed when it has exited
	pumped  chan struct{} // closed when pump has returned
	told    chan struct{} // closed when all notices were handled
	dead    atomic.Bool   // it has exited, or was killed: no batch may be sent
	exited  atomic.Bool
	why     string // valid after ended is closed

	commands sync.Mutex // held by a command

	mu     sync.Mutex
	killed string  // why the server killed it; guarded by mu
	asked  error   // why it was recycled; guarded by mu
	reaped bool    // its number may be that of another process; guarded by mu
	uses   int     // uses of the range: outputs and executions, and one for the process; guarded by mu
	spare  []*held // guarded by mu
	idle   []*slot // the last one was used last; guarded by mu
}

// start starts a child that loads the library and the model. It gives up when ctx is done. made is the reply of the child.
func (m *model) start(ctx context.Context) (p *process, made *reply, err error) {
	mem, err := m.shared.Map(min(rangeMost, m.shared.Len()/256))
	if err != nil {
		return nil, nil, status.Reasonf(status.MemoryLimit, "model '%s': no memory for its process: %w", m.name, err)
	}
	p = &process{
		model: m.name, shared: m.shared, mem: mem, uses: 1, printed: &printed{log: m.log},
		ended: make(chan struct{}), pumped: make(chan struct{}), told: make(chan struct{}),
	}
	n := slotsOf(len(mem))
	p.heap = atSlots + n*slotSize
	clear(mem[:atMailbox])
	p.used = make(chan struct{}, n)
	for i := range n {
		s := newSlot(p, i)
		clear(s.mem[:slotRequest])
		p.slots = append(p.slots, s)
		p.idle = append(p.idle, s)
	}
	if err := p.launch(); err != nil {
		m.shared.Unmap(mem)
		return nil, nil, status.Reasonf(status.InstanceLost, "cannot start a process for model '%s': %w", m.name, err)
	}
	go p.pump()
	go newNotices(m, p).read(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { p.kill("loading was given up") })
	defer stop()
	about := m.about
	about.RangeOff, _ = m.shared.Offset(unsafe.Pointer(unsafe.SliceData(mem)))
	about.RangeLen, about.SharedLen, about.Slots = len(mem), m.shared.Len(), n
	made, err = p.exchange(&about)
	switch {
	case err == nil && !made.Failed:
		m.log.DebugContext(ctx, "a backend library has a process", slog.Int("pid", p.pid), slog.String("library", about.Library))
		return p, made, nil
	case err == nil:
		err = made.err()
	case ctx.Err() != nil:
		err = status.ErrCancelled
	default:
		err = status.Reasonf(status.InstanceLost, "the process of model '%s' ended while it loaded '%s': %s", m.name, about.Library, p.end())
	}
	p.close()
	return nil, nil, err
}

// end waits for the exit of a process that has closed its socket, and returns why it has ended.
func (p *process) end() string {
	p.awaitEnd("it closed its socket")
	return p.why
}

// exchange sends a value and receives the reply.
func (p *process) exchange(v any) (*reply, error) {
	p.commands.Lock()
	defer p.commands.Unlock()
	r := &reply{}
	err := p.out.Encode(v)
	if err == nil {
		err = p.in.Decode(r)
	}
	return r, err
}

// command has the child do something.
func (p *process) command(ctx context.Context, c command) error {
	stop := context.AfterFunc(ctx, func() { p.kill("loading was given up") })
	defer stop()
	r, err := p.exchange(&c)
	switch {
	case err == nil:
		return r.err()
	case ctx.Err() != nil:
		return status.ErrCancelled
	}
	return status.Reasonf(status.InstanceLost, "the process of model '%s' ended: %s", p.model, p.end())
}

// launch starts the program again, as a child of a thread that stays while the child lives.
func (p *process) launch() error {
	control, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	p.socket = os.NewFile(uintptr(control[0]), "commands")
	theirs := os.NewFile(uintptr(control[1]), "commands")
	defer theirs.Close()
	packets, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return errors.Join(err, p.socket.Close())
	}
	_ = unix.SetNonblock(packets[0], true) // it is a socket
	p.notices = os.NewFile(uintptr(packets[0]), "notices")
	theirNotices := os.NewFile(uintptr(packets[1]), "notices")
	defer theirNotices.Close()
	read, err := os.Open("/proc/self/fd/" + strconv.Itoa(int(p.shared.File().Fd())))
	if err != nil {
		return errors.Join(err, p.socket.Close(), p.notices.Close())
	}
	defer read.Close()
	p.out, p.in = gob.NewEncoder(p.socket), gob.NewDecoder(p.socket)
	cmd := exec.Command("/proc/self/exe", hiddenArgument, p.model) //nolint:gosec,noctx // this program; kill ends it
	cmd.Args[0] = "tutti"
	cmd.Env = append(environ.WithoutSecrets(os.Environ(), nil), guard+"=1", "GOMAXPROCS=2", "GOTRACEBACK="+cmp.Or(os.Getenv("GOTRACEBACK"), "none"))
	cmd.ExtraFiles = []*os.File{theirs, theirNotices, p.shared.File(), read}
	cmd.Stdout, cmd.Stderr = p.printed, p.printed
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
		return errors.Join(err, p.socket.Close(), p.notices.Close())
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
	p.exited.Store(true)
	notify := counter(p.mem, atNotify)
	notify.Add(1)
	wake(notify)
	close(p.ended)
}

// reason describes the end of the process.
func (p *process) reason(how string) string {
	p.mu.Lock()
	killed := p.killed
	p.mu.Unlock()
	switch first := p.printed.crash(); {
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
	p.signal(why)
}

// signal is kill. The caller holds mu.
func (p *process) signal(why string) {
	p.killed = cmp.Or(p.killed, why)
	p.dead.Store(true)
	if !p.reaped {
		_ = syscall.Kill(-p.pid, syscall.SIGKILL)
	}
}

// recycle kills a process that is alive. The batches that it executes fail with why.
func (p *process) recycle(why error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.alive() || p.reaped {
		return false
	}
	p.asked = why
	p.signal(status.Text(why))
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

// exitTime is how long a process may take to unload its library and to exit.
const exitTime = 10 * time.Second

func (p *process) awaitEnd(why string) {
	late := time.AfterFunc(exitTime, func() { p.kill(why) })
	<-p.ended
	late.Stop()
}

// alive reports whether the process has not exited and was not killed.
//
// hot: a load.
func (p *process) alive() bool { return !p.dead.Load() }

// close has the process unload its library and exit, and frees its memory once no tensor is there any more.
func (p *process) close() {
	_ = p.socket.Close()
	p.awaitEnd("it did not exit when it was asked to")
	<-p.pumped
	<-p.told
	_ = p.notices.Close()
	p.release()
}

// use keeps the range. It returns false when that is too late; else release must follow.
func (p *process) use() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.uses == 0 {
		return false
	}
	p.uses++
	return true
}

// release gives up one use of the range.
func (p *process) release() {
	p.mu.Lock()
	p.uses--
	last := p.uses == 0
	p.mu.Unlock()
	if last {
		p.shared.Unmap(p.mem)
	}
}

// printed logs what a child prints, and keeps the first line of its crash. It is safe for concurrent use.
type printed struct {
	log *slog.Logger

	mu    sync.Mutex
	line  []byte // guarded by mu
	last  string // guarded by mu
	first string // of a crash; guarded by mu
}

// Write implements io.Writer.
func (o *printed) Write(b []byte) (int, error) {
	const longest = 4096
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
		if o.last = text; o.first == "" && crashLine(text) {
			o.first = text
		}
		o.log.Warn("the process of a backend library printed", slog.String("text", text))
	}
	return len(b), nil
}

// crashLine reports whether Go or the C++ library prints such a line at the start of a crash.
func crashLine(text string) bool {
	for _, start := range []string{"SIG", "fatal error:", "panic:", "runtime:", "terminate called", "what():"} {
		if strings.HasPrefix(text, start) {
			return true
		}
	}
	return false
}

// crash returns the line that names the crash, else the last line.
func (o *printed) crash() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return cmp.Or(o.first, o.last)
}
