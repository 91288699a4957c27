package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tutti-server/tutti/bench/proc"
)

// redis is a real Redis that goes away and comes back.
type redis struct {
	path, port, dir string
	mu              sync.Mutex
	cmd             *exec.Cmd // guarded by mu
}

func startRedis(path, dir string) (*redis, error) {
	port, err := proc.FreePort()
	if err != nil {
		return nil, err
	}
	r := &redis{path: path, port: port, dir: dir}
	return r, r.start()
}

// start starts it and waits until it accepts connections.
func (r *redis) start() error {
	cmd := exec.Command(r.path, "--port", r.port, "--bind", "127.0.0.1", "--save", "", "--dir", r.dir, "--maxmemory", "32mb", "--maxmemory-policy", "allkeys-lru") //nolint:gosec // the flag names it
	if err := cmd.Start(); err != nil {
		return err
	}
	r.cmd = cmd
	for until := time.Now().Add(20 * time.Second); time.Now().Before(until); {
		c, err := net.Dial("tcp", "127.0.0.1:"+r.port)
		if err == nil {
			return c.Close()
		}
		time.Sleep(10 * time.Millisecond)
	}
	return errors.Join(errors.New("redis does not accept connections"), r.stop())
}

func (r *redis) stop() error {
	if r.cmd == nil {
		return nil
	}
	err := r.cmd.Process.Kill()
	_ = r.cmd.Wait() // killed
	r.cmd = nil
	return err
}

// away kills Redis for a while.
func (r *redis) away(ctx context.Context, d time.Duration) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.stop(); err != nil {
		return err
	}
	pause(ctx, d)
	return r.start()
}

// bucket is an S3 server behind a relay, which can break all its connections.
type bucket struct {
	cmd    *exec.Cmd
	in     io.Closer // ends the S3 server
	target string
	l      net.Listener

	mu    sync.Mutex
	gone  bool                  // guarded by mu
	conns map[net.Conn]struct{} // guarded by mu
}

func startBucket(path, name string) (*bucket, error) {
	cmd := exec.Command(path, name) //nolint:gosec // the flag names it
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, errors.Join(err, in.Close())
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(err, in.Close())
	}
	b := &bucket{cmd: cmd, in: in, target: strings.TrimSpace(line), l: l, conns: map[net.Conn]struct{}{}}
	go b.relay()
	return b, nil
}

func (b *bucket) address(name string) string {
	return "s3://http://" + b.l.Addr().String() + "/" + name
}

func (b *bucket) relay() {
	for {
		c, err := b.l.Accept()
		if err != nil {
			return
		}
		go b.serve(c)
	}
}

// serve copies a connection in both directions. While the bucket is gone, it is reset.
func (b *bucket) serve(c net.Conn) {
	to, err := net.Dial("tcp", b.target)
	b.mu.Lock()
	if err != nil || b.gone {
		b.mu.Unlock()
		reset(c)
		if err == nil {
			_ = to.Close()
		}
		return
	}
	b.conns[c] = struct{}{}
	b.mu.Unlock()
	go func() {
		_, _ = io.Copy(to, c)
		_ = to.Close()
	}()
	_, _ = io.Copy(c, to)
	_ = c.Close()
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.conns, c)
}

// reset closes a connection without the usual exchange: the peer reads ECONNRESET.
func reset(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	_ = c.Close()
}

// set makes the bucket gone or back.
func (b *bucket) set(gone bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gone = gone
	if gone {
		for c := range b.conns {
			reset(c)
		}
	}
}

func (b *bucket) close() {
	_ = b.l.Close()
	_ = b.in.Close()
	_ = b.cmd.Wait()
}

// fullDisk makes writes and growing files of a process fail for a while, as a full disk does: the limit on the size of its files is
// smaller than what they have. It needs no file system of its own.
func fullDisk(ctx context.Context, pid int, d time.Duration) error {
	var before unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_FSIZE, nil, &before); err != nil {
		return fmt.Errorf("cannot read the limit of process %d: %w", pid, err)
	}
	small := unix.Rlimit{Cur: 1, Max: before.Max}
	if err := unix.Prlimit(pid, unix.RLIMIT_FSIZE, &small, nil); err != nil {
		return err
	}
	pause(ctx, d)
	return unix.Prlimit(pid, unix.RLIMIT_FSIZE, &before, nil)
}

// readable reports whether a file is there.
func readable(path string) bool {
	if path == "" {
		return false
	}
	_, err := os.Stat(path)
	return err == nil
}
