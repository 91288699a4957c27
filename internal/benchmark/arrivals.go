package benchmark

import (
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// arrivals is the schedule of an open loop, which does not depend on the server. Clients that are free take the arrivals in
// order. It is safe for concurrent use.
type arrivals struct {
	mu    sync.Mutex
	began time.Time
	next  time.Duration // guarded by mu
	index int           // guarded by mu
	gap   func() time.Duration
	grid  time.Duration
}

// newArrivals returns the arrivals of a load: at random with exponential gaps, or with equal gaps. Unless grid is 0, each one is moved to
// the next multiple of it.
func newArrivals(l *Load, began time.Time, grid time.Duration) *arrivals {
	a := &arrivals{began: began, grid: grid}
	mean := float64(time.Second) / l.Rate
	r := rand.New(rand.NewPCG(l.Seed, 0x9e3779b97f4a7c15)) //nolint:gosec // the same arrivals in every run are wanted
	a.gap = func() time.Duration { return time.Duration(r.ExpFloat64() * mean) }
	if l.Constant {
		a.gap = func() time.Duration { return time.Duration(mean) }
	}
	return a
}

// take returns the next arrival.
func (a *arrivals) take() (index int, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	index, at = a.index, a.began.Add(a.offset())
	a.index++
	a.next += a.gap()
	return index, at
}

// offset returns the time of the next arrival after the begin. It is called with mu.
func (a *arrivals) offset() time.Duration {
	if a.grid > 0 {
		return (a.next + a.grid - 1) / a.grid * a.grid
	}
	return a.next
}

// due reports whether an arrival is due.
func (a *arrivals) due(now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.began.Add(a.offset()).Compare(now) <= 0
}

// backlog returns how long the next arrival is overdue.
func (a *arrivals) backlog() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return max(0, time.Since(a.began.Add(a.offset())))
}

// alarm wakes a goroutine at a time, with the precision of the kernel's timers: the runtime's are up to a millisecond late on
// an idle machine, which is longer than many requests take.
type alarm struct {
	fd   int
	file *os.File
}

func newAlarm() (*alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("timerfd_create", err)
	}
	return &alarm{fd: fd, file: os.NewFile(uintptr(fd), "timer")}, nil
}

// wait waits until a time. It returns false at once after stop.
func (a *alarm) wait(at time.Time) bool {
	d := time.Until(at)
	if d <= 0 {
		return true
	}
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}
	if err := unix.TimerfdSettime(a.fd, 0, &spec, nil); err != nil {
		return false
	}
	var count [8]byte
	_, err := a.file.Read(count[:])
	return err == nil
}

// stop ends a wait under way and all further ones.
func (a *alarm) stop() { _ = a.file.SetReadDeadline(time.Unix(1, 0)) }

func (a *alarm) close() { _ = a.file.Close() }
