// Package subprocess runs this program again, as a process that executes models. It starts the process, watches it, ends it, and says why it has
// ended. What the two sides say to each other is the caller's.
//
//	process.go  the child as the server sees it, with a socket to it
//	range.go    the memory that the child writes, and outputs in it
//	child.go    the start of the child itself
package subprocess

import (
	"cmp"
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

	"golang.org/x/sys/unix"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/environ"
	"github.com/tutti-server/tutti/internal/memory"
)

// Settings describe a child.
type Settings struct {
	// Mode selects what the child does. Name is shown beside it in lists of processes.
	Mode Mode
	Name string
	// Env is added to the environment of this process, without its secrets.
	Env []string
	// Files are those of the child from file descriptor 4 on. Shared is behind them, and once more for reading only. All are borrowed.
	Files  []*os.File
	Shared *os.File
	// Log gets each line that the child prints, with the message Printed.
	Log     *slog.Logger
	Printed string
	// ExitTime is how long the process may take to exit when it is asked to.
	ExitTime time.Duration
	// Exited is called once, when the process has exited and Why is known, before Ended is closed.
	Exited func()

	_ struct{}
}

// Process is a running child. Its methods are safe for concurrent use.
type Process struct {
	PID    int
	Socket *os.File      // to the child, which has its end as file descriptor 3
	Ended  chan struct{} // closed when it has exited
	Why    string        // it has ended; valid after Ended is closed

	exitTime time.Duration
	exited   func()
	printed  printed
	dead     atomic.Bool // it has exited, or was killed

	mu     sync.Mutex
	killed string // why this process killed it; guarded by mu
	asked  error  // why it was recycled; guarded by mu
	reaped bool   // its number may be that of another process; guarded by mu
}

// Start starts the program again, as a child of a thread that stays while the child lives.
func Start(s *Settings) (*Process, error) {
	p := &Process{Ended: make(chan struct{}), exitTime: s.ExitTime, exited: s.Exited, printed: printed{log: s.Log, text: s.Printed}}
	read, err := os.Open("/proc/self/fd/" + strconv.Itoa(int(s.Shared.Fd())))
	if err != nil {
		return nil, err
	}
	defer read.Close()
	own, theirs, err := SocketPair(unix.SOCK_STREAM)
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	p.Socket = own
	cmd := exec.Command("/proc/self/exe", s.Mode.Argument, s.Name) //nolint:gosec,noctx // this program; Kill ends it
	cmd.Args[0] = "tutti"
	cmd.Env = append(environ.WithoutSecrets(os.Environ(), nil), "GOTRACEBACK="+cmp.Or(os.Getenv("GOTRACEBACK"), "none"))
	cmd.Env = append(append(cmd.Env, s.Mode.Guard+"=1"), s.Env...)
	cmd.ExtraFiles = append(append([]*os.File{theirs}, s.Files...), s.Shared, read)
	cmd.Stdout, cmd.Stderr = &p.printed, &p.printed
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
			p.PID = cmd.Process.Pid
		}
		started <- err
		if err == nil {
			p.watch(cmd)
		}
	}()
	if err := <-started; err != nil {
		return nil, errors.Join(err, own.Close())
	}
	return p, nil
}

// SocketPair returns the two ends of a new socket, of which the caller keeps the first one.
func SocketPair(kind int) (own, theirs *os.File, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	_ = unix.SetNonblock(pair[0], true) // it is a socket
	return os.NewFile(uintptr(pair[0]), "child"), os.NewFile(uintptr(pair[1]), "parent"), nil
}

// Child returns the process, for those who embed it.
func (p *Process) Child() *Process { return p }

// watch waits until the process exits. One that is stopped is killed: it would hold its requests for ever.
func (p *Process) watch(cmd *exec.Cmd) {
	const stopped = 5 // CLD_STOPPED
	for options := unix.WEXITED | unix.WSTOPPED | unix.WNOWAIT; ; {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, p.PID, &info, options, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err == nil && info.Code == stopped {
			p.Kill("it was stopped by a signal")
			options = unix.WEXITED | unix.WNOWAIT
			continue
		}
		break
	}
	p.mu.Lock()
	_ = syscall.Kill(-p.PID, syscall.SIGKILL) // the rest of its group, while it is a zombie and its number not used again
	p.reaped = true
	p.mu.Unlock()
	_ = cmd.Wait() // ProcessState has the exit status
	p.Why = p.reason(cmd.ProcessState.String())
	p.dead.Store(true)
	p.exited()
	close(p.Ended)
}

// reason describes the end of the process.
func (p *Process) reason(how string) string {
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

// Ending returns why a process that is not alive was killed, or that it exits.
func (p *Process) Ending() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return cmp.Or(p.killed, "it exits")
}

// Kill kills the process group. It does not wait for the end. Of several reasons the first one counts.
func (p *Process) Kill(why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.signal(why)
}

// signal is Kill. The caller holds mu.
func (p *Process) signal(why string) {
	p.killed = cmp.Or(p.killed, why)
	p.dead.Store(true)
	if !p.reaped {
		_ = syscall.Kill(-p.PID, syscall.SIGKILL)
	}
}

// Recycle kills a process that is alive, and returns whether it was. What it executes fails with why.
func (p *Process) Recycle(why error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.Alive() || p.reaped {
		return false
	}
	p.asked = why
	p.signal(status.Text(why))
	return true
}

// Recycled returns why the process was recycled, nil if it was not.
func (p *Process) Recycled() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked
}

// Resident returns the memory of the process in bytes, without what it shares. It is 0 once the process has exited.
func (p *Process) Resident() int64 {
	n := memory.Private(p.PID)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped { // it may be that of another process
		return 0
	}
	return n
}

// AwaitEnd waits until a process that was asked to exit has exited. After ExitTime it is killed, for the reason why.
func (p *Process) AwaitEnd(why string) {
	late := time.AfterFunc(p.exitTime, func() { p.Kill(why) })
	<-p.Ended
	late.Stop()
}

// Close asks the process to exit by closing the socket, and waits until it has.
func (p *Process) Close() {
	_ = p.Socket.Close()
	p.AwaitEnd("it did not exit when it was asked to")
}

// Alive reports whether the process has not exited and was not killed.
//
// hot: a load.
func (p *Process) Alive() bool { return !p.dead.Load() }

// printed logs what a child prints, and keeps the first line of its crash. It is safe for concurrent use.
type printed struct {
	log  *slog.Logger
	text string // the message

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
		o.log.Warn(o.text, slog.String("text", text)) //nolint:sloglint // the caller's message
	}
	return len(b), nil
}

// crashLine reports whether Go or the C++ library prints such a line at the start of a crash.
func crashLine(text string) bool {
	for _, start := range []string{
		"SIGSEGV", "SIGFPE", "SIGABRT", "SIGBUS", "SIGILL", "SIGTRAP", "SIGSYS", "fatal error:", "panic:", "runtime:", "terminate called", "what():",
	} {
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
