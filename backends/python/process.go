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

// process is one that runs worker.py: a worker or a nursery.
type process struct {
	pid   int
	ended chan struct{} // closed when it is gone and what it printed is read
	how   string        // how it ended; read once ended is closed

	born    *birth // of a nursery, else nil
	pipes   []*os.File
	copying sync.WaitGroup
}

// startProcess starts a command in a process group of its own.
func startProcess(cmd *exec.Cmd) (*process, error) {
	// A signal from a terminal is the server's to handle: requests are answered first.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = exitTime
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{pid: cmd.Process.Pid, ended: make(chan struct{})}
	go func() {
		waitEnd(p.pid)
		p.kill()       // what it has started and left
		_ = cmd.Wait() // how it ended is in ProcessState
		p.how = cmd.ProcessState.String()
		close(p.ended)
	}()
	return p, nil
}

// waitEnd waits for the end of a child, which stays to be waited for: until then nobody else has its number.
func waitEnd(pid int) {
	for {
		if err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// copy copies what comes out of a pipe, which it closes, until its other end is closed.
func (p *process) copy(to io.Writer, from *os.File) {
	p.pipes = append(p.pipes, from)
	p.copying.Go(func() { _, _ = io.Copy(to, from) })
}

// follow has the end of a process seen that a nursery forked, and what it printed read until then. What it has started may
// print on: nobody reads that.
func (p *process) follow() {
	go func() {
		<-p.born.ended
		p.how = p.born.how
		late := time.AfterFunc(exitTime, p.closePipes)
		p.copying.Wait()
		late.Stop()
		p.closePipes()
		close(p.ended)
	}()
}

func (p *process) closePipes() {
	for _, f := range p.pipes {
		_ = f.Close() // again, where it is
	}
}

// kill ends the process and what it has started.
func (p *process) kill() { _ = syscall.Kill(-p.pid, syscall.SIGKILL) } // it may be gone already

// stateText says how a process ended, in the words of package os.
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

// waitOrphan waits for the end of a process whose parent has gone, and says how it ended where that can be known: where this
// process is the system's first, which inherits orphans.
func waitOrphan(pid int) string {
	if fd, err := unix.PidfdOpen(pid, 0); err == nil { // else it has gone, too
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
