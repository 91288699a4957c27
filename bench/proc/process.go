package proc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"github.com/tutti-server/tutti/internal/addresstest"
)

// Process is a server under measurement.
//
// 1. Start runs a command and waits until the server is ready. Attach takes a server that already runs.
// 2. CPU and Memory may be called any number of times.
// 3. Stop ends a server from Start, and does nothing for an attached one. It may be called twice.
type Process struct {
	// Ready is the time from the start until the health endpoint returned 200.
	Ready time.Duration
	// HTTP and GRPC are its addresses as host:port.
	HTTP, GRPC string

	pid  int // 0 if unknown
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended; its error is in err
	err  error
}

// Settings describe the server to start.
type Settings struct {
	Command []string
	// Env is added to the environment of this process.
	Env    []string
	Output io.Writer // for its standard output and error; nil discards them
	// HTTP and GRPC are the addresses on which the command will listen.
	HTTP, GRPC string
	// Ready is the path that responds 200 once the server is ready; empty means that of the v2 protocol.
	Ready string
	// Patience is the longest time until the server must be ready; 0 means a minute.
	Patience time.Duration
	// CPUs are the CPUs of the server and its children; nil means all.
	CPUs []int
}

const (
	readyPath = "/v2/health/ready"
	pollEvery = 2 * time.Millisecond
	// stopTimeout is the time that a server has to end after SIGTERM before it is killed.
	stopTimeout = 15 * time.Second
)

// ExitError reports that a server ended before it was ready.
type ExitError struct{ Code int }

// Error names the status.
func (e *ExitError) Error() string {
	return fmt.Sprintf("it ended with status %d before it was ready", e.Code)
}

// Start runs a command in a new process group and waits until GET of Settings.Ready returns 200.
func Start(ctx context.Context, s *Settings) (*Process, error) {
	cmd := exec.Command(s.Command[0], s.Command[1:]...) //nolint:gosec // the bench names what it runs, and Stop ends it
	cmd.Env = append(os.Environ(), s.Env...)
	cmd.Stdout, cmd.Stderr = s.Output, s.Output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = time.Second // grandchildren may hold the pipe of Output
	p := &Process{HTTP: s.HTTP, GRPC: s.GRPC, cmd: cmd, done: make(chan struct{})}
	began := time.Now()
	if err := on(s.CPUs, cmd.Start); err != nil {
		return nil, err
	}
	p.pid = cmd.Process.Pid
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	patience := s.Patience
	if patience == 0 {
		patience = time.Minute
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := p.ready(ctx, cmp.Or(s.Ready, readyPath)); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", s.Command[0], err), p.Stop())
	}
	p.Ready = time.Since(began)
	return p, nil
}

// Attach returns a server that already runs. If pid is 0, its CPU time and memory are unknown.
func Attach(pid int, http, grpc string) *Process { return &Process{HTTP: http, GRPC: grpc, pid: pid} }

// ready waits until the server is ready or has ended.
func (p *Process) ready(ctx context.Context, path string) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		if healthy(ctx, p.HTTP+path) {
			return nil
		}
		select {
		case <-tick.C:
		case <-p.done:
			return &ExitError{Code: p.cmd.ProcessState.ExitCode()}
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w", p.HTTP, ctx.Err())
		}
	}
}

// healthy requests the server's readiness on a new connection and closes it, so that the measured server has no
// idle connection.
func healthy(ctx context.Context, url string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+url, http.NoBody)
	if err != nil {
		return false
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	return resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
}

// PID returns the server's process id, or 0 if it is unknown.
func (p *Process) PID() int { return p.pid }

// Measured reports whether the server's process id is known.
func (p *Process) Measured() bool { return p.pid != 0 }

// CPU returns the CPU time that the server and its children have used.
func (p *Process) CPU() (time.Duration, error) { return CPU(p.pid) }

// Memory returns the memory of the server and its children.
func (p *Process) Memory() (Memory, error) { return Use(p.pid) }

// Stop ends a server that Start started. It kills the remaining processes of its tree if that takes longer than
// stopTimeout. It may be called twice.
func (p *Process) Stop() error {
	if p.cmd == nil {
		return nil
	}
	all, err := tree(p.pid)
	if err != nil {
		return err
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	timer := time.NewTimer(stopTimeout)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		_ = p.cmd.Process.Kill()
		<-p.done
	}
	for _, s := range all { // most are gone, with their parent
		if s.running() {
			_ = syscall.Kill(s.pid, syscall.SIGKILL)
		}
	}
	return awaitEnd(all)
}

// awaitEnd waits until killed processes are gone.
func awaitEnd(all []stat) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for until := time.Now().Add(stopTimeout); slices.ContainsFunc(all, stat.running); <-tick.C {
		if time.Now().After(until) {
			return errors.New("processes of the server are left after they were killed")
		}
	}
	return nil
}

// FreePort returns a port of this machine on which no process listens. No other process gets it by chance before the one that it is for.
func FreePort() (string, error) {
	address, err := addresstest.Find()
	if err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(address)
	return port, err
}
