package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// loopback is the only interface that the server listens on.
const loopback = "127.0.0.1"

// acquire locks the folder of a database for this process; closing the file, or the end of the process, unlocks it. The
// lock is one of fcntl, so that others can ask who has it without taking it.
func acquire(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("the folder of --data-dir cannot be written: %w", err)
	}
	err = syscall.FcntlFlock(f.Fd(), syscall.F_SETLK, &syscall.Flock_t{Type: syscall.F_WRLCK})
	if err == nil {
		return f, nil
	}
	defer f.Close() //nolint:errcheck // nothing was written
	if !errors.Is(err, syscall.EAGAIN) && !errors.Is(err, syscall.EACCES) {
		return nil, fmt.Errorf("'%s' cannot be locked, is the folder on a network? %w", f.Name(), err)
	}
	holder := syscall.Flock_t{Type: syscall.F_WRLCK}
	if err := syscall.FcntlFlock(f.Fd(), syscall.F_GETLK, &holder); err != nil {
		return nil, fmt.Errorf("'%s' is locked, and its owner cannot be found: %w", f.Name(), err)
	}
	return nil, fmt.Errorf("process %d serves the folder '%s' already: use its address, or end it first", holder.Pid, dir)
}

// addressFile has the address of the server and its process id in one line. It is valid while the folder is locked.
func addressFile(dir string) string { return filepath.Join(dir, "address") }

// announce writes the address file in one step.
func announce(file, address string) error {
	part := file + ".part"
	if err := os.WriteFile(part, fmt.Appendf(nil, "%s %d\n", address, os.Getpid()), 0o600); err != nil {
		return fmt.Errorf("the address cannot be written: %w", err)
	}
	return os.Rename(part, file)
}

// lastPort returns the port of an address file, 0 if there is none, and removes the file: it is not valid any more.
func lastPort(file string) (int, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	address, _, _ := strings.Cut(string(text), " ")
	_, number, err := net.SplitHostPort(address)
	if err != nil {
		return 0, os.Remove(file)
	}
	port, _ := strconv.Atoi(number)
	return port, os.Remove(file)
}

// ports are those of Temporal's services.
type ports struct{ frontend, history, matching, worker int }

// The ports to choose from are below those that Linux gives to outgoing connections: one of these took a port before Temporal listened.
// The frontend's are apart from those of the internal services: clients connect again to the port of a server that ended, and one of its
// successors' internal services there would refuse their calls as unknown.
const (
	firstPort     = 10240
	firstInternal = 21504
	endPort       = 32768
	portTries     = 50
)

// choose returns ports that are free now. The frontend has the port wanted, or without one that of the last time, so that
// clients find a server that was started again.
func choose(wanted int, file string) (p ports, err error) {
	last, err := lastPort(file)
	if err != nil {
		return p, err
	}
	var held []net.Listener
	defer func() {
		for _, l := range held {
			err = errors.Join(err, l.Close())
		}
	}()
	take := func(port int) (int, error) {
		l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", net.JoinHostPort(loopback, strconv.Itoa(port)))
		if err != nil {
			return 0, err
		}
		held = append(held, l)
		return l.Addr().(*net.TCPAddr).Port, nil
	}
	free := func(first, end int) (int, error) {
		for range portTries {
			port, err := take(first + rand.IntN(end-first)) //nolint:gosec // not a secret
			if err == nil {
				return port, nil
			}
		}
		return take(0)
	}
	switch {
	case wanted != 0:
		p.frontend, err = take(wanted)
		if errors.Is(err, syscall.EADDRINUSE) {
			return p, fmt.Errorf("--port: %s:%d is in use by another program: choose another port, or 0 for a free one", loopback, wanted)
		}
	case last != 0:
		p.frontend, err = take(last)
		if err != nil {
			p.frontend, err = free(firstPort, firstInternal)
		}
	default:
		p.frontend, err = free(firstPort, firstInternal)
	}
	for _, at := range []*int{&p.history, &p.matching, &p.worker} {
		if err == nil {
			*at, err = free(firstInternal, endPort)
		}
	}
	return p, err
}

// await returns when the server at an address executes calls.
func await(ctx context.Context, address string) error {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // nothing is in flight
	client := workflowservice.NewWorkflowServiceClient(conn)
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if _, err := client.GetSystemInfo(ctx, &workflowservice.GetSystemInfoRequest{}, grpc.WaitForReady(true)); err != nil {
		return fmt.Errorf("the server at %s was started and does not respond: %w", address, err)
	}
	return nil
}
