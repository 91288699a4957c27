package python

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tutti-server/tutti/internal/tempfolder"
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

// follow watches the process of a started command.
func follow(cmd *exec.Cmd) *process {
	p := &process{pid: cmd.Process.Pid, ended: make(chan struct{})}
	go func() {
		// The child stays a zombie, so that its process id is not reused yet.
		uninterrupted(func() error { return unix.Waitid(unix.P_PID, p.pid, nil, unix.WEXITED|unix.WNOWAIT, nil) })
		p.kill()       // the rest of its process group
		_ = cmd.Wait() // ProcessState has the exit status
		p.how = cmd.ProcessState.String()
		close(p.ended)
	}()
	return p
}

// uninterrupted repeats a system call that signals interrupt.
func uninterrupted(call func() error) {
	for errors.Is(call(), unix.EINTR) {
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

// waitExit waits until the process exits, and kills it after exitTime.
func (p *process) waitExit(kill func()) {
	select {
	case <-p.ended:
	case <-time.After(exitTime):
		kill()
		<-p.ended
	}
}

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
		uninterrupted(func() error {
			_, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1) //nolint:gosec // a descriptor fits
			return err
		})
		_ = unix.Close(fd)
	}
	var s unix.WaitStatus
	if n, err := unix.Wait4(pid, &s, unix.WNOHANG, nil); err == nil && n == pid {
		return stateText(syscall.WaitStatus(s))
	}
	return "its exit status is unknown"
}

//go:embed worker/*.py
var scripts embed.FS

const (
	scriptFolderPrefix = "tutti-python-"
	mainScript         = "worker.py"
)

// scriptFolder is a temporary folder with the scripts of workers. The server that created it holds a lock on it, by which other
// servers recognise a stale folder.
type scriptFolder struct {
	path string
	lock *os.File
}

// writeScripts writes the scripts of workers to a new private folder in dir. It also removes stale folders, which servers that
// crashed left behind.
func writeScripts(dir string) (*scriptFolder, error) {
	tempfolder.RemoveStale(dir, scriptFolderPrefix, hasScripts)
	path, err := os.MkdirTemp(dir, scriptFolderPrefix)
	if err != nil {
		return nil, err
	}
	f := &scriptFolder{path: path}
	if f.lock, err = tempfolder.Lock(path); err != nil {
		return nil, errors.Join(err, os.Remove(path))
	}
	from, err := fs.Sub(scripts, "worker")
	if err == nil {
		err = os.CopyFS(path, from)
	}
	if err != nil {
		return nil, errors.Join(err, f.remove())
	}
	return f, nil
}

func (f *scriptFolder) remove() error {
	err := os.RemoveAll(f.path)
	_ = f.lock.Close() // it may be closed already
	return err
}

// hasScripts reports whether a folder has the main script: another server may be making it.
func hasScripts(path string) bool {
	st, err := os.Lstat(filepath.Join(path, mainScript))
	return err == nil && st.Mode().IsRegular()
}

const (
	maxLine = 8 << 10
	// lastLines is the number of lines of standard error in the error of a crashed worker.
	lastLines = 8
)

// output logs a standard stream of a worker line by line, and keeps the last lines. It is safe for concurrent use.
type output struct {
	ctx   context.Context //nolint:containedctx // the worker's context, for the logger
	log   *slog.Logger
	level slog.Level
	what  string

	mu    sync.Mutex
	line  []byte             // guarded by mu
	last  []string           // guarded by mu
	from  syscall.RawConn    // the pipe, nil until it is read; guarded by mu
	look  func(pipe uintptr) // sets older; guarded by mu
	older int                // bytes in the pipe that are forgotten; guarded by mu
}

// ReadFrom implements io.ReaderFrom: io.Copy calls it for a pipe. Bytes go from the pipe to the lines under the lock, so that forget finds all
// others in the pipe.
func (o *output) ReadFrom(r io.Reader) (total int64, err error) {
	c, ok := r.(syscall.Conn)
	if !ok {
		return 0, errors.New("the output of a worker is no pipe")
	}
	from, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	o.mu.Lock()
	o.from, o.look = from, func(pipe uintptr) {
		o.older, _ = unix.IoctlGetInt(int(pipe), unix.TIOCINQ)
	}
	o.mu.Unlock()
	buf := make([]byte, maxLine)
	for n := 1; n > 0 && err == nil; {
		var failed error
		err = from.Read(func(pipe uintptr) bool {
			o.mu.Lock()
			defer o.mu.Unlock()
			n, failed = unix.Read(int(pipe), buf)
			if errors.Is(failed, unix.EAGAIN) || errors.Is(failed, unix.EINTR) {
				return false
			}
			o.add(buf[:max(0, n)])
			return true
		})
		total += int64(max(0, n))
		err = cmp.Or(err, failed)
	}
	return total, err
}

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.add(p)
	return len(p), nil
}

// add adds text that was printed. The caller holds mu.
func (o *output) add(p []byte) {
	if n := min(o.older, len(p)); n > 0 {
		o.split(p[:n])
		if o.older -= n; o.older == 0 {
			o.drop()
		}
		p = p[n:]
	}
	o.split(p)
}

// split adds text that is forgotten as a whole or not at all. The caller holds mu.
func (o *output) split(p []byte) {
	for line := range bytes.Lines(p) {
		part, whole := bytes.CutSuffix(line, []byte("\n"))
		o.line = append(o.line, part[:min(len(part), maxLine-len(o.line))]...)
		if whole {
			o.flush()
		}
	}
}

// flush logs the current line. The caller holds mu.
func (o *output) flush() {
	text := strings.ToValidUTF8(strings.TrimRight(string(o.line), "\r \t"), "\uFFFD")
	o.line = o.line[:0]
	if text == "" {
		return
	}
	o.last = append(o.last[max(0, len(o.last)-lastLines+1):], text)
	o.log.LogAttrs(o.ctx, o.level, "a python model printed", slog.String("stream", o.what), slog.String("text", text))
}

// forget drops the last lines, and those that are still in the pipe.
//
// hot: no allocation.
func (o *output) forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.drop()
	if o.from != nil {
		_ = o.from.Control(o.look) // a closed pipe has nothing
	}
}

// drop drops the last lines and the current one. The caller holds mu.
func (o *output) drop() {
	if len(o.line) > 0 {
		o.flush()
	}
	clear(o.last)
	o.last = o.last[:0]
}

// tail returns the last lines.
func (o *output) tail() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.line) > 0 {
		o.flush()
	}
	if o.older > 0 {
		return "" // what was printed since then is behind it in the pipe
	}
	return strings.Join(o.last, "\n")
}
