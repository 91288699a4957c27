package python

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// process is an operating system process of worker.py: a worker or a fork server.
type process struct {
	pid   int
	ended chan struct{} // closed when it has exited and its output was read
	how   string        // exit status as text; valid after ended is closed

	forked  *forked // nil unless a fork server forked the process
	pipes   []*os.File
	copying sync.WaitGroup
}

// startProcess starts a command in a new process group.
func startProcess(cmd *exec.Cmd) (*process, error) {
	// A new group does not get Ctrl-C of the terminal: the server drains requests first.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = exitTime
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{pid: cmd.Process.Pid, ended: make(chan struct{})}
	go func() {
		waitEnd(p.pid)
		p.kill()       // the rest of its process group
		_ = cmd.Wait() // ProcessState has the exit status
		p.how = cmd.ProcessState.String()
		close(p.ended)
	}()
	return p, nil
}

// waitEnd waits until a child exits and leaves it a zombie, so that its process id is not reused yet.
func waitEnd(pid int) {
	for {
		if err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// copy copies a pipe to a writer, in the background, until the other end is closed. It takes over the pipe.
func (p *process) copy(to io.Writer, from *os.File) {
	p.pipes = append(p.pipes, from)
	p.copying.Go(func() { _, _ = io.Copy(to, from) })
}

// follow watches a process of a fork server. After the exit it reads the remaining output, but for at most exitTime, because
// children of the process may still hold the pipes.
func (p *process) follow() {
	go func() {
		<-p.forked.exited
		p.how = p.forked.how
		late := time.AfterFunc(exitTime, p.closePipes)
		p.copying.Wait()
		late.Stop()
		p.closePipes()
		close(p.ended)
	}()
}

func (p *process) closePipes() {
	for _, f := range p.pipes {
		_ = f.Close() // a second Close is harmless
	}
}

// kill kills the process group.
func (p *process) kill() { _ = syscall.Kill(-p.pid, syscall.SIGKILL) } // it may have exited already

// stateText describes an exit status as package os does, for example "exit status 1".
func stateText(s syscall.WaitStatus) string {
	if !s.Signaled() {
		return "exit status " + strconv.Itoa(s.ExitStatus())
	}
	text := "signal: " + s.Signal().String()
	if s.CoreDump() {
		text += " (core dumped)"
	}
	return text
}

// waitOrphan waits until a process exits whose parent has exited. The exit status is known only when the server is process 1,
// which inherits orphans, for example in a container.
func waitOrphan(pid int) string {
	if fd, err := unix.PidfdOpen(pid, 0); err == nil { // an error means that it has exited
		waitReadable(fd)
		_ = unix.Close(fd)
	}
	var s unix.WaitStatus
	if n, err := unix.Wait4(pid, &s, unix.WNOHANG, nil); err == nil && n == pid {
		return stateText(syscall.WaitStatus(s))
	}
	return "its exit status is unknown"
}

func waitReadable(fd int) {
	for {
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1) //nolint:gosec // a descriptor fits
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}
