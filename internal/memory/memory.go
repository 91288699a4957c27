// Package memory measures how much of the memory that a server may use is in use, so that it can refuse requests before the machine
// swaps or the kernel ends a process.
//
// The bound is, in this order: a given one for the server with its child processes, the control group (v2) with the least room, or
// the machine. For example, in a container with memory.max of 8 GiB, of which 7.7 GiB are in use, Watch calls its function with an
// error, and again with nil when less than 90 % are in use.
//
// The machine, and a group above the server's own one, are shared with other programs. They are full for the server only when its
// processes have at least half of what is in use: to refuse requests frees nothing that others have.
package memory

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"os"
	"path"
	"strconv"
	"strings"
	"time"
)

// The marks, in percent of the bound: requests are refused from high on until the use is below low.
const (
	high = 95
	low  = 90
	// The share of the server in what is in use, in percent, from which on a shared bound is full, and until it is below the second.
	highShare = 50
	lowShare  = 40
	// interval is the time between two looks.
	interval = 250 * time.Millisecond
)

// Use is what is in use of a bound.
type Use struct {
	Bytes, Limit int64
	Of           string // what the bound is of. For example, "control group /system.slice/tutti.service".
	Shared       bool   // with other programs
}

// above reports whether the use is at a mark, in percent, and if it is shared, whether the server's part is at share. own returns the
// bytes of the server, and is called only if they decide.
func (u *Use) above(mark, share int64, own func() int64) bool {
	if u.Limit <= 0 || u.Bytes/100*100 < u.Limit/100*mark {
		return false
	}
	return !u.Shared || own() >= u.Bytes/100*share
}

// full returns the reason why nothing more may begin. own are the bytes of the server.
func (u *Use) full(own int64) error {
	by := ""
	if u.Shared {
		by = fmt.Sprintf(", %d of them by the server and its child processes", own)
	}
	return fmt.Errorf("%d of the %d bytes of %s are in use%s, and from %d %% on requests are refused; send it again later or to another server, or change --memory-limit-bytes", u.Bytes, u.Limit, u.Of, by, high)
}

// Room returns the bytes that may be allocated at once. What is shared with other programs has room while it has memory: if others have
// filled it, to keep a part of it free helps nobody.
func (u *Use) Room() int64 {
	if u.Shared {
		return max(u.Limit-u.Bytes, 0)
	}
	return max(u.Limit/100*high-u.Bytes, 0)
}

// Meter measures. The zero value is not ready; see New.
type Meter struct {
	bound int64
	read  func(string) ([]byte, error)
	own   func() int64 // the resident bytes of this process and its children
	page  int64
}

// New returns a meter with a bound for this process and its children; 0 for that of the control group or the machine.
func New(bound int64) *Meter {
	m := &Meter{bound: bound, read: os.ReadFile, page: int64(os.Getpagesize())}
	m.own = func() int64 { return m.resident(os.Getpid()) }
	return m
}

// Use returns what is in use of the bound. Without a bound that can be read the limit is 0.
func (m *Meter) Use() Use {
	if m.bound > 0 {
		return Use{m.own(), m.bound, "--memory-limit-bytes", false}
	}
	if u := m.group(); u.Limit > 0 {
		return u
	}
	return m.machine()
}

// Watch calls changed with the reason when the memory is full, and with nil when there is room again. It returns when ctx is
// done.
func (m *Meter) Watch(ctx context.Context, changed func(why error)) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for full := false; ; {
		u := m.Use()
		switch {
		case !full && u.above(high, highShare, m.own):
			full = true
			changed(u.full(m.own()))
		case full && !u.above(low, lowShare, m.own):
			full = false
			changed(nil)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// group returns the use of the control group, this process's or one above it, that has the least room.
func (m *Meter) group() (found Use) {
	const root = "/sys/fs/cgroup"
	own := "/"
	if text, err := m.read("/proc/self/cgroup"); err == nil {
		for line := range bytes.Lines(text) {
			if at, ok := strings.CutPrefix(strings.TrimSpace(string(line)), "0::"); ok {
				own = at
			}
		}
	}
	least := math.Inf(1)
	for at := path.Join("/", own); ; at = path.Dir(at) {
		dir := path.Join(root, at)
		limit, used := m.number(dir+"/memory.max"), m.number(dir+"/memory.current")
		if limit > 0 && used >= 0 {
			u := Use{max(used-m.cached(dir+"/memory.stat"), 0), limit, "control group " + at, at != path.Join("/", own)}
			if room := 1 - float64(u.Bytes)/float64(limit); room < least {
				least, found = room, u
			}
		}
		if at == "/" {
			return found
		}
	}
}

// cached returns the bytes of files that the kernel drops before it swaps.
func (m *Meter) cached(stat string) int64 {
	text, err := m.read(stat)
	if err != nil {
		return 0
	}
	return field(text, "inactive_file", 1)
}

// number reads a file with a number; -1 for one without, such as "max".
func (m *Meter) number(file string) int64 {
	text, err := m.read(file)
	if err != nil {
		return -1
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// machine returns the use of the machine's memory. What the kernel can free is not in use.
func (m *Meter) machine() Use {
	text, err := m.read("/proc/meminfo")
	if err != nil {
		return Use{}
	}
	total, free := field(text, "MemTotal:", 1<<10), field(text, "MemAvailable:", 1<<10)
	if total <= 0 || free < 0 {
		return Use{}
	}
	return Use{total - free, total, "the machine", true}
}

// field returns the number after a name, times unit; 0 without one.
func field(text []byte, name string, unit int64) int64 {
	for line := range bytes.Lines(text) {
		f := strings.Fields(string(line))
		if len(f) > 1 && f[0] == name {
			if n, err := strconv.ParseInt(f[1], 10, 64); err == nil && n < math.MaxInt64/unit {
				return n * unit
			}
		}
	}
	return 0
}

// resident returns the resident bytes of a process and of its children, and theirs.
func (m *Meter) resident(pid int) int64 { return m.tree(pid, m.all) }

// all returns the resident bytes of the process with a folder below /proc.
func (m *Meter) all(dir string) int64 {
	if text, err := m.read(dir + "/statm"); err == nil {
		if f := strings.Fields(string(text)); len(f) > 1 {
			if n, err := strconv.ParseInt(f[1], 10, 64); err == nil {
				return n * m.page
			}
		}
	}
	return 0
}

// private is all without shared memory.
func (m *Meter) private(dir string) int64 {
	text, err := m.read(dir + "/status")
	if err != nil {
		return 0
	}
	return field(text, "RssAnon:", 1<<10) + field(text, "RssFile:", 1<<10)
}

// tree sums what of returns of a process and of its children, and theirs.
func (m *Meter) tree(pid int, of func(dir string) int64) int64 {
	dir := "/proc/" + strconv.Itoa(pid)
	sum := of(dir)
	threads, err := os.ReadDir(dir + "/task")
	if err != nil {
		return sum // it has ended
	}
	for _, t := range threads {
		text, err := m.read(dir + "/task/" + t.Name() + "/children")
		if err != nil {
			continue
		}
		for child := range strings.FieldsSeq(string(text)) {
			if n, err := strconv.Atoi(child); err == nil {
				sum += m.tree(n, of)
			}
		}
	}
	return sum
}

// Resident returns the resident bytes of a process and of its children, and theirs; 0 for one that has ended.
func Resident(pid int) int64 { return New(0).resident(pid) }

// Private is Resident without shared memory.
func Private(pid int) int64 {
	m := New(0)
	return m.tree(pid, m.private)
}
