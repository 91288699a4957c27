package python

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/environ"
	"github.com/tutti-server/tutti/internal/faults"
)

// starter starts the processes of the backend: fork servers and spawned workers. All that belongs to their start is in this file: the
// thread they are children of, the sandbox and the environment. It is safe for concurrent use until close.
type starter struct {
	sandbox bool
	jobs    chan func()
	closed  chan struct{}
	once    sync.Once
}

// newStarter returns a starter with a thread of its own: the kernel sends PR_SET_PDEATHSIG when the thread that has started a process
// ends, and threads of Go may end before the program does.
func newStarter(sandbox bool) *starter {
	s := &starter{sandbox: sandbox, jobs: make(chan func()), closed: make(chan struct{})}
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for {
			select {
			case job := <-s.jobs:
				job()
			case <-s.closed:
				return
			}
		}
	}()
	return s
}

// close ends the starter. Its processes must have exited.
func (s *starter) close() { s.once.Do(func() { close(s.closed) }) }

// start starts a command in a new process group, so that it does not get Ctrl-C of the terminal: the server drains requests first. If
// mortal, the kernel kills the process when the server exits, however that happens.
func (s *starter) start(cmd *exec.Cmd, mortal bool) (*process, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if mortal {
		cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}
	if s.sandbox {
		isolate(cmd)
	}
	cmd.WaitDelay = exitTime // its children may hold its output
	if err := faults.At(faults.SpawnWorker); err != nil {
		return nil, s.refused(err)
	}
	done := make(chan error, 1)
	select {
	case s.jobs <- func() { done <- cmd.Start() }:
	case <-s.closed:
		return nil, os.ErrClosed
	}
	if err := <-done; err != nil {
		return nil, s.refused(err)
	}
	return follow(cmd), nil
}

// sandboxVariable makes worker.py give up new privileges before it imports anything of a model.
const sandboxVariable = "TUTTI_PYTHON_SANDBOX"

// isolate gives a command user and network namespaces of its own. Its network has no device but a loopback that is down, and the user
// namespace keeps the process from reading the memory and the environment of the server.
func isolate(cmd *exec.Cmd) {
	a := cmd.SysProcAttr
	a.Cloneflags |= syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET
	a.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}}
	a.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}}
	cmd.Env = append(slices.Clip(cmd.Env), sandboxVariable+"=1")
}

// refused explains an error of a kernel that allows no namespaces.
func (s *starter) refused(err error) error {
	if !s.sandbox || !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOSYS) {
		return err
	}
	return status.Reasonf(status.RuntimeMissing, "the kernel refuses the namespaces of --python-sandbox (%w): allow them to this user "+
		"(sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns; in a container its seccomp profile), "+
		"or serve without --python-sandbox", err)
}

// passAll as a value of pass-environment passes every variable.
const passAll = environ.All

// parsePassed parses the value of pass-environment: names, separated by commas.
func parsePassed(value string) ([]string, error) {
	if value == "" {
		return nil, nil
	}
	names := strings.Split(value, ",")
	for _, name := range names {
		if name == "" || strings.ContainsAny(name, "= \t") {
			return nil, status.Errorf(status.InvalidArg, "unexpected value '%s' of python setting '%s': expected names of environment variables, separated by commas, or '%s'", value, keyPass, passAll)
		}
	}
	return names, nil
}

// environ returns the environment of the backend's processes.
func (b *backend) environ() []string {
	return environ.WithoutTelemetry(environ.WithoutSecrets(os.Environ(), b.set.pass))
}
