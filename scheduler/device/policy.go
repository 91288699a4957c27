package device

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tutti-server/tutti/backends"
)

// The settings of a host policy.
const (
	numaNode = "numa-node"
	cpuCores = "cpu-cores"
)

// maxCore bounds the numbers of cores and nodes: what the kernel's masks hold.
const maxCore = 1023

// Policy is a host policy: the part of the machine that instances use. Its threads are
// bound while they load, make or execute an instance, and only then.
type Policy struct {
	Name string
	// Unread are settings that mean nothing here.
	Unread []string
	cores  *unix.CPUSet
	node   *unix.CPUSet
}

// ParsePolicy reads the settings of --host-policy: numa-node, the node whose memory is
// used, and cpu-cores, ranges such as 0-3,8-11 of the cores that may execute.
func ParsePolicy(name string, settings map[string]string) (*Policy, error) {
	p := &Policy{Name: name}
	var err error
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		switch key {
		case numaNode:
			p.node, err = parseNode(settings[key])
		case cpuCores:
			p.cores, err = parseCores(settings[key])
		default:
			p.Unread = append(p.Unread, key)
		}
		if err != nil {
			return nil, fmt.Errorf("host policy '%s': %w", name, err)
		}
	}
	return p, nil
}

func parseNode(text string) (*unix.CPUSet, error) {
	n, err := coreNumber("Parsing 'numa-node' value", text)
	if err != nil {
		return nil, err
	}
	set := new(unix.CPUSet)
	set.Set(n)
	return set, nil
}

func parseCores(text string) (*unix.CPUSet, error) {
	const what = "Parsing 'cpu-cores' value"
	set := new(unix.CPUSet)
	for part := range strings.SplitSeq(text, ",") {
		from, to, ok := strings.Cut(part, "-")
		if !ok {
			return nil, fmt.Errorf("host policy setting 'cpu-cores' format is '<lower_cpu_core_id>-<upper_cpu_core_id>'. Got %s", part)
		}
		lower, err := coreNumber(what, from)
		if err != nil {
			return nil, err
		}
		upper, err := coreNumber(what, to)
		if err != nil {
			return nil, err
		}
		for ; lower <= upper; lower++ {
			set.Set(lower)
		}
	}
	if set.Count() == 0 {
		return nil, fmt.Errorf("host policy setting 'cpu-cores' is '%s', which names no core", text)
	}
	return set, nil
}

func coreNumber(what, text string) (int, error) {
	n, err := strconv.Atoi(text)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%s: Can't parse '%s' to integer", what, text)
	case n < 0 || n > maxCore:
		return 0, fmt.Errorf("%s: %d is out of range, expected 0 to %d", what, n, maxCore)
	}
	return n, nil
}

// Binds reports whether the policy asks for anything; a nil one does not.
func (p *Policy) Binds() bool { return p != nil && (p.cores != nil || p.node != nil) }

// Probe tries the policy and returns why this machine does not allow it.
func (p *Policy) Probe() error {
	if !p.Binds() {
		return nil
	}
	var b binding
	err := b.enter(p)
	b.leave(p)
	return err
}

// Do calls f on a thread that is bound. Threads that f's libraries start are bound too,
// for as long as they live. What cannot be bound is left as it is; Probe tells.
func (p *Policy) Do(f func() error) error {
	if !p.Binds() {
		return f()
	}
	var b binding
	_ = b.enter(p) // Probe has told
	defer b.leave(p)
	return f()
}

// binding is a goroutine on a thread that is bound.
type binding struct {
	before unix.CPUSet
	cores  bool // before is to be restored
}

// The modes of set_mempolicy.
const (
	memoryDefault = unix.MPOL_DEFAULT
	memoryBind    = unix.MPOL_BIND
)

// enter binds the goroutine to a thread and the thread to the policy's part of the
// machine; leave is due whatever it returns.
func (b *binding) enter(p *Policy) error {
	runtime.LockOSThread()
	if p.cores != nil {
		if err := unix.SchedGetaffinity(0, &b.before); err != nil {
			return fmt.Errorf("unable to get thread affinity: %w", err)
		}
		if err := unix.SchedSetaffinity(0, p.cores); err != nil {
			return fmt.Errorf("unable to set NUMA thread affinity: %w", err)
		}
		b.cores = true
	}
	if p.node != nil {
		if err := unix.SetMemPolicy(memoryBind, p.node); err != nil {
			return fmt.Errorf("unable to set NUMA memory policy: %w", err)
		}
	}
	return nil
}

func (b *binding) leave(p *Policy) {
	if b.cores {
		_ = unix.SchedSetaffinity(0, &b.before) // it was allowed before
	}
	if p.node != nil {
		_ = unix.SetMemPolicy(memoryDefault, nil) // always allowed, or never set
	}
	runtime.UnlockOSThread()
}

// Bind returns the instance with every execution bound, at the price of two to four
// calls of the kernel; the instance itself when the policy asks for nothing.
func (p *Policy) Bind(inst backends.Instance) backends.Instance {
	if !p.Binds() {
		return inst
	}
	return &bound{inst, p}
}

// bound is an instance that executes on a part of the machine.
type bound struct {
	backends.Instance
	policy *Policy
}

// Unwrap returns the instance itself.
func (x *bound) Unwrap() backends.Instance { return x.Instance }

// Execute executes on a thread that is bound.
//
// hot: no allocation.
func (x *bound) Execute(ctx context.Context, b *backends.Batch) error {
	var where binding
	_ = where.enter(x.policy) // Probe has told
	defer where.leave(x.policy)
	return x.Instance.Execute(ctx, b)
}
