package benchmark

import (
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tutti-server/tutti/internal/load"
)

const (
	// tick is the time between the arrivals of a fast open loop, which come in groups. To program a timer takes up to 15 us of CPU time on
	// a virtual machine, and a wake-up of an idle processor as much.
	tick = 200 * time.Microsecond
	// fast is the least rate, in requests per second, of an open loop in ticks: a request a tick.
	fast = float64(time.Second / tick)
	// yieldTicks is the number of ticks after which the loop lets the scheduler go on. The runtime's monitor wakes every 20 us
	// for a while after a goroutine ran for 10 ms.
	yieldTicks = 25
	// busyWait is how long the loop waits for a response, if all clients are busy, before it looks whether it is stopped.
	busyWait = 10 * time.Millisecond
)

// dispatcher sends the requests of a fast open loop: it has all clients as coroutines of one goroutine. Its arrivals are those of a slower
// open loop, each moved to the next tick.
type dispatcher struct {
	s       *Session
	loop    *load.Loop
	timer   int          // a file descriptor
	free    []*seat      // the clients that wait for an arrival, in order
	paused  []*load.Task // the clients that wait after an error
	clients int          // that are not finished
}

// seat is the place in which a client gets an arrival.
type seat struct {
	task  *load.Task
	given bool
	index int
	at    time.Time
}

// beginDispatcher starts the clients of a fast open loop.
func (s *Session) beginDispatcher() error {
	timer, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("timerfd_create", err)
	}
	d := &dispatcher{s: s, loop: s.loop, timer: timer}
	s.running.Go(func() {
		defer unix.Close(timer)
		d.run()
	})
	return nil
}

// run sends requests until the session is stopped.
func (d *dispatcher) run() {
	for _, c := range d.s.group.Clients {
		d.clients++
		d.loop.Go(func() { d.client(c) })
	}
	for n, wait := 1, time.Duration(0); ; n++ {
		if err := d.loop.Poll(wait); err != nil {
			d.s.rec.failure(err)
		}
		if d.clients == 0 {
			return
		}
		d.give()
		d.loop.Run()
		if n%yieldTicks == 0 {
			runtime.Gosched()
		}
		// An arrival that waits for a client is sent with the next response, not at the next tick.
		if wait = busyWait; len(d.free) > 0 || !d.s.arrivals.due(time.Now()) {
			wait = 0
			d.sleep()
		}
	}
}

// give gives the free clients the arrivals that are due. After the stop it gives them nothing, which ends them.
func (d *dispatcher) give() {
	now, stopped, n := time.Now(), d.s.stopped(), 0
	for _, seat := range d.free {
		if !stopped {
			if !d.s.arrivals.due(now) {
				break
			}
			seat.index, seat.at = d.s.arrivals.take()
		}
		seat.given = true
		d.loop.Wake(seat.task)
		n++
	}
	d.free = append(d.free[:0], d.free[n:]...)
	for _, task := range d.paused {
		d.loop.Wake(task)
	}
	d.paused = d.paused[:0]
}

// sleep waits for the next tick.
func (d *dispatcher) sleep() {
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(tick - time.Since(d.s.arrivals.began)%tick))}
	var count [8]byte
	if unix.TimerfdSettime(d.timer, 0, &spec, nil) == nil {
		_, _ = unix.Read(d.timer, count[:]) // a signal may end it earlier
	}
}

// client sends the requests that a client is given.
func (d *dispatcher) client(c load.Client) {
	defer func() { d.clients-- }()
	defer d.s.finish(c)
	b := backoff{sleep: d.pause}
	for seat := (&seat{task: d.loop.Running()}); ; {
		seat.given = false
		d.free = append(d.free, seat)
		for !seat.given {
			d.loop.Suspend()
		}
		if d.s.stopped() || !d.s.count(c, c.Do(seat.index), seat.at, &b) {
			return
		}
	}
}

// pause waits. It returns false when the session is stopped.
func (d *dispatcher) pause(wait time.Duration) bool {
	for end := time.Now().Add(wait); !d.s.stopped() && time.Now().Before(end); {
		d.paused = append(d.paused, d.loop.Running())
		d.loop.Suspend()
	}
	return !d.s.stopped()
}
