package subprocess

import (
	"errors"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// Mode is a mode of the program that is no command: that of a child.
type Mode struct {
	// Argument is the first argument of the program.
	Argument string
	// Guard is a variable of the child's environment, by which a program that ignores Argument starts no further children.
	Guard string
}

// Hidden reports whether the program was started in the mode. It must then do that and nothing else.
func (m Mode) Hidden(args []string) bool {
	return len(args) > 1 && args[1] == m.Argument && os.Getenv(m.Guard) != ""
}

// First is the first file descriptor of Settings.Files in a child.
const First = 4

// Child is this process as a child.
type Child struct {
	// Socket is connected to Process.Socket.
	Socket *os.File

	write, read int
}

// Begin returns this process as a child with so many Settings.Files. It leaves signals that ask to end to the server, which says when to, and
// lets the system end this process before the server when memory is short. Programs that it starts inherit no descriptors.
func (m Mode) Begin(files int) *Child {
	signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("500"), 0o600) // without it the system chooses
	_ = os.Unsetenv(m.Guard)                                           // programs that it starts are no children
	c := &Child{Socket: os.NewFile(First-1, "server"), write: First + files, read: First + files + 1}
	for fd := First - 1; fd <= c.read; fd++ {
		unix.CloseOnExec(fd)
	}
	return c
}

// Map maps the range of this process for writing, and all of the shared memory for reading. No descriptor gives access to it afterwards.
func (c *Child) Map(at Layout) (own, all []byte, err error) {
	own, err = unix.Mmap(c.write, int64(at.RangeOff), at.RangeLen, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_NORESERVE)
	if err == nil {
		all, err = unix.Mmap(c.read, 0, at.SharedLen, unix.PROT_READ, unix.MAP_SHARED|unix.MAP_NORESERVE)
	}
	if err != nil {
		return nil, nil, err
	}
	return own, all, errors.Join(unix.Close(c.write), unix.Close(c.read))
}
