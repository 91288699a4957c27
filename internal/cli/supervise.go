package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/tutti-server/tutti"
)

// activated returns the sockets that systemd has passed to this process, none without systemd.
func activated() (list []tutti.Listener, err error) {
	for _, f := range activation.Files(true) {
		l, e := net.FileListener(f)
		tcp, ok := l.(*net.TCPListener)
		if e == nil && !ok {
			e = errors.Join(fmt.Errorf("the socket is of %s", l.Addr().Network()), l.Close())
		}
		if e = errors.Join(e, f.Close()); e != nil {
			err = errors.Join(err, fmt.Errorf("socket activation: '%s' is no listening TCP socket: %w; use ListenStream=PORT in the socket unit", f.Name(), e))
			continue
		}
		list = append(list, tutti.Listener{Name: f.Name(), TCPListener: tcp})
	}
	return list, err
}

// notify informs systemd, if it started this process. An error means that systemd does not read, which nothing here can change.
func notify(states ...string) { _, _ = daemon.SdNotify(false, strings.Join(states, "\n")) }

// keepAlive sends the notifications that systemd's WatchdogSec expects while the server responds, until ctx is done.
func keepAlive(ctx context.Context, s *tutti.Server) {
	every, err := daemon.SdWatchdogEnabled(false)
	if err != nil || every <= 0 {
		return
	}
	tick := time.NewTicker(every / 2)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			_ = s.Live() // the server responds; a repository that cannot be read is no reason for a restart
			notify(daemon.SdNotifyWatchdog)
		case <-ctx.Done():
			return
		}
	}
}

// supervise runs a started server until ctx is done, a service fails or another process has replaced it. SIGUSR2 starts this
// program again, with --upgrade.
func (p *program) supervise(ctx context.Context, s *tutti.Server) error {
	notify(daemon.SdNotifyReady)
	alive, stop := context.WithCancel(ctx)
	defer stop()
	go keepAlive(alive, s)
	upgrade := make(chan os.Signal, 1)
	signal.Notify(upgrade, syscall.SIGUSR2)
	defer signal.Stop(upgrade)
	go func() {
		for {
			select {
			case <-upgrade:
				s.Upgrade(alive, p.again())
			case <-alive.Done():
				return
			}
		}
	}()
	err := s.Wait(ctx)
	if pid := s.Successor(); pid != 0 {
		notify(fmt.Sprintf("MAINPID=%d", pid))
	} else {
		notify(daemon.SdNotifyStopping)
	}
	return err
}

// again returns the command line of this process with --upgrade. The file of the program may be a new one.
func (p *program) again() *exec.Cmd {
	args := slices.Clone(p.args)
	if !slices.Contains(args, "--upgrade") {
		args = append(args, "--upgrade")
	}
	env := slices.DeleteFunc(os.Environ(), func(e string) bool {
		return strings.HasPrefix(e, "WATCHDOG_PID=") // the notifications of the new process count once it is the main one
	})
	return &exec.Cmd{Path: p.file, Args: args, Env: env, Stdin: os.Stdin, Stdout: original(p.stdout), Stderr: p.stderr}
}
