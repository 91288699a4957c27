package temporald

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tutti-server/tutti/core/status"
)

const programName = "tutti-temporal"

// Times of the supervision.
const (
	probeEvery  = 200 * time.Millisecond // that a server of another process is looked at
	firstPause  = 250 * time.Millisecond // before a program that ended is started again; it doubles
	longestTime = 30 * time.Second
	healthy     = time.Minute     // a program that ran as long is started again after firstPause
	patience    = 3 * time.Second // of a new connection, while the program starts
)

// find returns the path of the program.
func find(given string) (string, error) {
	if given != "" {
		path, err := exec.LookPath(given)
		if err != nil {
			return "", option("temporal-program", fmt.Errorf("'%s' cannot be started: %w", given, err))
		}
		return path, nil
	}
	beside := "the executable"
	if self, err := os.Executable(); err == nil {
		if target, err := filepath.EvalSymlinks(self); err == nil {
			self = target
		}
		beside = "'" + self + "'"
		if path, err := exec.LookPath(filepath.Join(filepath.Dir(self), programName)); err == nil {
			return path, nil
		}
	}
	path, err := exec.LookPath(programName)
	if err != nil {
		return "", status.Errorf(status.InvalidArg, "--jobs needs Temporal, and the program %s is neither beside %s nor in PATH: "+
			"build it with `make temporal`, name it with --temporal-program, or name a Temporal server with --temporal-address", programName, beside)
	}
	return path, nil
}

// child keeps a Temporal server of a data directory running. Exactly one process serves a directory: the one that has its
// lock. The others use its address.
type child struct {
	program, dir, namespace string
	log                     *slog.Logger
	stop                    context.CancelFunc
	done                    chan struct{}

	mu      sync.Mutex
	cmd     *exec.Cmd // nil while this process has started none
	stdin   io.Closer
	ended   chan struct{} // closed when cmd has ended
	reason  string        // why there is no server
	changed chan struct{} // closed when reason or the server changes
}

// supervise starts to keep the server of a directory running.
func supervise(program, dir, namespace string, log *slog.Logger) (*child, error) {
	if dir == "" {
		return nil, status.Errorf(status.InvalidArg, "--jobs needs a folder for the Temporal server: name it with --data-dir, or name a Temporal server with --temporal-address")
	}
	if err := os.MkdirAll(filepath.Join(dir, "temporal"), 0o700); err != nil {
		return nil, option("data-dir", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	c := &child{program: program, dir: dir, namespace: namespace, log: log, stop: stop, done: make(chan struct{}), changed: make(chan struct{}), reason: "it is starting"}
	go c.run(ctx)
	return c, nil
}

// run starts the program whenever nobody serves the directory, until ctx is done.
func (c *child) run(ctx context.Context) {
	defer close(c.done)
	pause := firstPause
	for ctx.Err() == nil {
		pid, err := Owner(c.dir)
		switch {
		case err != nil:
			c.say("its lock cannot be read: " + err.Error())
		case pid != 0: // the server of another process
			c.say("")
			wait(ctx, probeEvery)
			continue
		default:
			before := time.Now()
			err = c.serve(ctx)
			if time.Since(before) > healthy {
				pause = firstPause
			}
			if ctx.Err() != nil {
				return
			}
			if pid, _ := Owner(c.dir); pid != 0 { // another process was faster
				continue
			}
			c.say(fmt.Sprintf("it ended: %v; it is started again", err))
			c.log.WarnContext(ctx, "Temporal ended and is started again", slog.Any("error", err), slog.Duration("after", pause))
		}
		wait(ctx, pause)
		pause = min(2*pause, longestTime)
	}
}

// wait returns after a time, or when ctx is done.
func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// say sets the reason why there is no server, "" if there is one, and wakes those that wait for it.
func (c *child) say(reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reason != reason {
		c.reason = reason
		close(c.changed)
		c.changed = make(chan struct{})
	}
}

// serve starts the program and returns why it ended.
func (c *child) serve(ctx context.Context) error {
	cmd := exec.Command(c.program, "--data-dir", c.dir, "--namespace", c.namespace, "--child") //nolint:noctx // it ends when its standard input is closed
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}                                      // Ctrl-C is for this process, which ends its child last
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	tail := &tail{log: c.log}
	cmd.Stderr = tail
	c.mu.Lock()
	if ctx.Err() != nil {
		c.mu.Unlock()
		return ctx.Err()
	}
	if err := startBehind(cmd); err != nil {
		c.mu.Unlock()
		return err
	}
	ended := make(chan struct{})
	c.cmd, c.stdin, c.ended = cmd, in, ended
	c.mu.Unlock()
	line, _ := bufio.NewReader(out).ReadString('\n')
	if address, ok := strings.CutPrefix(strings.TrimSpace(line), "ready "); ok {
		c.log.InfoContext(ctx, "Temporal is ready", slog.String("address", address), slog.Int("process", cmd.Process.Pid))
		c.say("")
	}
	err = cmd.Wait()
	close(ended)
	if last := tail.last(); last != "" {
		err = errors.Join(err, errors.New(last))
	}
	if err == nil {
		err = errors.New("its status is 0")
	}
	return err
}

// niceness is that of the program: online requests of this process go first. It keeps a tenth of a processor that others fill.
const niceness = 10

// startBehind starts a program with the niceness. It has the one of the thread that starts it, which is not needed for anything else: only a
// privileged process could undo it.
func startBehind(cmd *exec.Cmd) error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // until the goroutine ends, and the thread with it
		if now, err := syscall.Getpriority(syscall.PRIO_PROCESS, 0); err == nil && 20-now < niceness {
			_ = syscall.Setpriority(syscall.PRIO_PROCESS, 0, niceness) // without it the program runs at the niceness of this process
		}
		started <- cmd.Start()
	}()
	return <-started
}

// Owner returns the id of the process that serves a data directory, 0 if there is none.
func Owner(dir string) (int, error) {
	f, err := os.Open(filepath.Join(dir, "temporal", "lock"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	lock := syscall.Flock_t{Type: syscall.F_WRLCK}
	if err := syscall.FcntlFlock(f.Fd(), syscall.F_GETLK, &lock); err != nil {
		return 0, err
	}
	switch {
	case lock.Type == syscall.F_UNLCK:
		return 0, nil
	case lock.Pid == 0:
		return -1, nil // it is in another container
	}
	return int(lock.Pid), nil
}

// address returns the address of the server that runs, empty if there is none.
func (c *child) address() string {
	if pid, err := Owner(c.dir); err != nil || pid == 0 {
		return ""
	}
	text, err := os.ReadFile(filepath.Join(c.dir, "temporal", "address"))
	if err != nil {
		return ""
	}
	address, _, _ := strings.Cut(string(text), " ")
	return address
}

// dial connects to the server that runs now. It waits a little for one that starts.
func (c *child) dial(ctx context.Context, _ string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		if at := c.address(); at != "" {
			conn, err := new(net.Dialer).DialContext(ctx, "tcp", at)
			if err == nil || ctx.Err() != nil {
				return conn, err
			}
		}
		c.mu.Lock()
		reason, changed := c.reason, c.changed
		c.mu.Unlock()
		select {
		case <-changed:
		case <-time.After(probeEvery):
		case <-ctx.Done():
			if reason == "" {
				reason = "it does not accept connections yet"
			}
			return nil, fmt.Errorf("%s below '%s' does not run: %s", programName, c.dir, reason)
		}
	}
}

// close ends the program, if this process has started it, and the supervision.
func (c *child) close(ctx context.Context) error {
	c.stop()
	c.mu.Lock()
	cmd, in, ended := c.cmd, c.stdin, c.ended
	c.mu.Unlock()
	if cmd == nil {
		<-c.done
		return nil
	}
	_ = in.Close() // the program ends in order; an error says that it has ended
	var err error
	select {
	case <-ended:
	case <-ctx.Done():
		err = fmt.Errorf("%s did not end in time and was killed: %w", programName, ctx.Err())
		_ = cmd.Process.Kill() // an error says that it has ended
	}
	<-c.done
	return err
}

// tail passes lines on to the log and keeps the last one, which is the error of a program that fails.
type tail struct {
	log *slog.Logger

	mu   sync.Mutex
	part []byte
	text string
}

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.part = append(t.part, p...)
	for {
		line, rest, ok := bytes.Cut(t.part, []byte("\n"))
		if !ok {
			return len(p), nil
		}
		t.part = rest
		if t.text = strings.TrimSpace(string(line)); t.text != "" {
			t.log.Warn(programName, slog.String("message", t.text))
		}
	}
}

func (t *tail) last() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text
}
