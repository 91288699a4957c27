package proc

import (
	"errors"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

func set(cpus []int) *unix.CPUSet {
	s := &unix.CPUSet{}
	for _, c := range cpus {
		s.Set(c)
	}
	return s
}

// on calls start, which starts a process, such that the process runs on the given CPUs from its first instruction.
// A child inherits the affinity of the thread that starts it.
func on(cpus []int, start func() error) error {
	if len(cpus) == 0 {
		return start()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return err
	}
	if err := unix.SchedSetaffinity(0, set(cpus)); err != nil {
		return err
	}
	return errors.Join(start(), unix.SchedSetaffinity(0, &before))
}

// Pin puts all threads of this process on the given CPUs. Threads that they start later inherit this.
func Pin(cpus []int) error {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, t := range tasks {
		tid, err := strconv.Atoi(t.Name())
		if err != nil {
			return err
		}
		if err := unix.SchedSetaffinity(tid, set(cpus)); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	return nil
}

// Split divides the CPUs of this process between servers and clients. With four CPUs or more, the clients get a
// quarter, and at least two. For example, 8 CPUs give 6 to the servers and 2 to the clients. With fewer CPUs both
// lists are empty, and the caller should pin nothing.
func Split() (servers, clients []int, err error) {
	var s unix.CPUSet
	if err := unix.SchedGetaffinity(0, &s); err != nil {
		return nil, nil, err
	}
	var all []int
	for c := 0; len(all) < s.Count(); c++ {
		if s.IsSet(c) {
			all = append(all, c)
		}
	}
	servers, clients = share(all)
	return servers, clients, nil
}

func share(all []int) (servers, clients []int) {
	if len(all) < 4 {
		return nil, nil
	}
	n := len(all) - max(2, len(all)/4)
	return all[:n], all[n:]
}
