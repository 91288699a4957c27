package device_test

import (
	"context"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/scheduler/device"
)

func TestParsePolicy(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ key, value, err string }{
		{"numa-node", "0", ""},
		{"numa-node", "x", "host policy 'p': Parsing 'numa-node' value: Can't parse 'x' to integer"},
		{"numa-node", "-1", "host policy 'p': Parsing 'numa-node' value: -1 is out of range, expected 0 to 1023"},
		{"cpu-cores", "0-1,3-3", ""},
		{"cpu-cores", "4", "host policy 'p': host policy setting 'cpu-cores' format is '<lower_cpu_core_id>-<upper_cpu_core_id>'. Got 4"},
		{"cpu-cores", "", "host policy 'p': host policy setting 'cpu-cores' format is '<lower_cpu_core_id>-<upper_cpu_core_id>'. Got "},
		{"cpu-cores", "0-9999999999999999999", "host policy 'p': Parsing 'cpu-cores' value: Can't parse '9999999999999999999' to integer"},
		{"cpu-cores", "0-999999999", "host policy 'p': Parsing 'cpu-cores' value: 999999999 is out of range, expected 0 to 1023"},
		{"cpu-cores", "2-1", "host policy 'p': host policy setting 'cpu-cores' is '2-1', which names no core"},
		{"color", "red", ""},
	} {
		p, err := device.ParsePolicy("p", map[string]string{tc.key: tc.value})
		switch {
		case err != nil && err.Error() != tc.err, err == nil && tc.err != "":
			t.Errorf("%s=%s: %v, want %q", tc.key, tc.value, err, tc.err)
		case err == nil && p.Binds() == (tc.key == "color"):
			t.Errorf("%s=%s: binds %t", tc.key, tc.value, p.Binds())
		}
	}
}

// where is an instance that records the cores it may execute on.
type where struct{ cores unix.CPUSet }

func (w *where) Execute(context.Context, *backends.Batch) error {
	return unix.SchedGetaffinity(0, &w.cores)
}

func (*where) Close() error { return nil }

// TestBind checks that an execution is bound to one core and that its thread is unbound afterwards.
func TestBind(t *testing.T) {
	t.Parallel()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, after unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		t.Fatal(err)
	}
	p, err := device.ParsePolicy("p", map[string]string{"cpu-cores": "0-0"})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Probe(); err != nil {
		t.Skip(err)
	}
	w := &where{}
	if err := p.Bind(w).Execute(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if w.cores.Count() != 1 || !w.cores.IsSet(0) {
		t.Errorf("executed on %d cores", w.cores.Count())
	}
	if err := p.Do(func() error {
		return unix.SchedGetaffinity(0, &w.cores)
	}); err != nil || w.cores.Count() != 1 {
		t.Errorf("done on %d cores, %v", w.cores.Count(), err)
	}
	if err := unix.SchedGetaffinity(0, &after); err != nil || after != before {
		t.Errorf("the thread is left on %d of %d cores, %v", after.Count(), before.Count(), err)
	}
}

func TestProbe(t *testing.T) {
	t.Parallel()
	p, err := device.ParsePolicy("p", map[string]string{"cpu-cores": "1023-1023"})
	if err != nil {
		t.Fatal(err)
	}
	if p.Probe() == nil {
		t.Skip("this machine has a core 1023")
	}
	ran := false
	if err := p.Do(func() error { ran = true; return nil }); err != nil || !ran {
		t.Errorf("what cannot be bound was not done: %v", err)
	}
	var none *device.Policy
	if none.Binds() || none.Probe() != nil || none.Bind(nil) != nil {
		t.Error("no policy binds")
	}
}
