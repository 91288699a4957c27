package proc

import (
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
)

// Process is a server under measurement.
type Process struct {
	// Ready is how long it took from its start until its health endpoint said so.
	Ready time.Duration
	// HTTP and GRPC are where it listens, host:port.
	HTTP, GRPC string

	pid  int // 0 when it is not known
	cmd  *exec.Cmd
	done chan struct{} // closed when the process ended, whose error is err
	err  error
}

// Settings say how a server is started.
type Settings struct {
	Command []string
	// Env is added to what this process has.
	Env    []string
	Output io.Writer // of its standard output and error, discarded without
	// HTTP and GRPC are where the command will listen.
	HTTP, GRPC string
	// Patience is how long it may take until it is ready; a minute unless set.
	Patience time.Duration
	// CPUs are those that it and its children may run on; all without.
	CPUs []int
}

const (
	readyPath = "/v2/health/ready"
	pollEvery = 2 * time.Millisecond
	// goodbye is how long a server may take to end before it is killed.
	goodbye = 15 * time.Second
)

// ExitError says that a server ended before it was ready.
type ExitError struct{ Code int }

// Error names the status.
func (e *ExitError) Error() string {
	return fmt.Sprintf("it ended with status %d before it was ready", e.Code)
}

// Start runs a command in a process group of its own and waits until GET /v2/health/ready gives 200.
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
	if err := p.ready(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", s.Command[0], err), p.Stop())
	}
	p.Ready = time.Since(began)
	return p, nil
}

// Attach stands for a server that runs already. Without a pid, 0, nothing is known of what it takes.
func Attach(pid int, http, grpc string) *Process { return &Process{HTTP: http, GRPC: grpc, pid: pid} }

// ready waits until the server says that it is, or ends.
func (p *Process) ready(ctx context.Context) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		if healthy(ctx, p.HTTP) {
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

// healthy asks on a connection of its own, so that none is left open to a server that is measured.
func healthy(ctx context.Context, addr string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+readyPath, http.NoBody)
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

// PID is the server's process, or 0 when it is not known.
func (p *Process) PID() int { return p.pid }

// Measured reports whether it is known which process the server is.
func (p *Process) Measured() bool { return p.pid != 0 }

// CPU returns the CPU time that the server and what it started have used.
func (p *Process) CPU() (time.Duration, error) { return CPU(p.pid) }

// Memory returns what the server and what it started have in memory.
func (p *Process) Memory() (Memory, error) { return Use(p.pid) }

// Stop ends a server that Start started, and kills what is left of its tree when that takes too long. It is safe to call
// twice.
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
	timer := time.NewTimer(goodbye)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		_ = p.cmd.Process.Kill()
		<-p.done
	}
	for _, s := range all { // most are gone, with their parent
		if s.there() {
			_ = syscall.Kill(s.pid, syscall.SIGKILL)
		}
	}
	return awaitEnd(all)
}

// awaitEnd waits until processes that were killed are gone.
func awaitEnd(all []stat) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for until := time.Now().Add(goodbye); slices.ContainsFunc(all, stat.there); <-tick.C {
		if time.Now().After(until) {
			return errors.New("processes of the server are left after they were killed")
		}
	}
	return nil
}

// FreePort returns a port of this machine that nobody listens on now.
func FreePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}
