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

// maxCore is the highest number of a core or node that the kernel's masks hold.
const maxCore = 1023

// Policy is a host policy: the cores and the memory node that instances use. Threads are bound while they load,
// create or execute an instance, and only then.
type Policy struct {
	Name string
	// Unread are the settings that Tutti does not support.
	Unread []string
	cores  *unix.CPUSet
	node   *unix.CPUSet
}

// ParsePolicy parses the settings of --host-policy: numa-node and cpu-cores, ranges of cores such as 0-3,8-11.
func ParsePolicy(name string, settings map[string]string) (*Policy, error) {
	p := &Policy{Name: name}
	var err error
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		switch key {
		case "numa-node":
			var n int
			if n, err = coreNumber("Parsing 'numa-node' value", settings[key]); err == nil {
				p.node = new(unix.CPUSet)
				p.node.Set(n)
			}
		case "cpu-cores":
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

// Binds reports whether the policy binds anything; a nil policy does not.
func (p *Policy) Binds() bool { return p != nil && (p.cores != nil || p.node != nil) }

// Probe applies the policy once and returns an error if the kernel does not allow it.
func (p *Policy) Probe() error {
	if !p.Binds() {
		return nil
	}
	var b binding
	defer b.leave(p)
	return b.enter(p)
}

// Do calls f on a bound thread, which f's own threads inherit. Errors of binding are Probe's to report.
func (p *Policy) Do(f func() error) error {
	if !p.Binds() {
		return f()
	}
	var b binding
	_ = b.enter(p) // Probe reports the error
	defer b.leave(p)
	return f()
}

// binding is the saved state of a bound thread.
type binding struct {
	before unix.CPUSet
	cores  bool // before must be restored
}

// enter locks the goroutine to a thread and binds the thread. leave must be called even after an error.
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
		if err := unix.SetMemPolicy(unix.MPOL_BIND, p.node); err != nil {
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
		_ = unix.SetMemPolicy(unix.MPOL_DEFAULT, nil) // always allowed, or never set
	}
	runtime.UnlockOSThread()
}

// Bind returns the instance with every execution bound, at two to four system calls, or the instance itself.
func (p *Policy) Bind(inst backends.Instance) backends.Instance {
	if !p.Binds() {
		return inst
	}
	return &bound{inst, p}
}

// bound is an instance whose executions are bound.
type bound struct {
	backends.Instance
	policy *Policy
}

// Unwrap returns the wrapped instance.
func (x *bound) Unwrap() backends.Instance { return x.Instance }

// Execute executes on a bound thread.
//
// hot: no allocation.
func (x *bound) Execute(ctx context.Context, b *backends.Batch) error {
	return x.policy.Do(func() error { return x.Instance.Execute(ctx, b) })
}
