// Package cudatest gives tests a CUDA driver without a GPU that finds mistakes: see driver.c.
//
// The functions of the package are those of the driver that Variable names, which all tests of the process share. New loads a
// separate driver for one test. For example:
//
//	d := cudatest.New(t, 1)                            // one device; checked when the test ends
//	serve(t, "--cuda-driver="+d.Path())
//	if d.Count().Down != 1 { t.Error("expected one copy to the host") }
package cudatest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Variable names the library in the environment of tests. With libcuda.so.1 the tests use the machine's GPUs, of which no faults
// are known.
const Variable = "TUTTI_TEST_CUDA_DRIVER"

// AtDevicesVariable is 1 if the tests of ensembles run their models at the devices of checking drivers.
const AtDevicesVariable = "TUTTI_TEST_AT_DEVICES"

// AtDevices reports whether the environment asks for models at devices.
func AtDevices() bool { return os.Getenv(AtDevicesVariable) == "1" }

// NotAtDevices skips a test, with the reason, if models run at devices.
func NotAtDevices(tb testing.TB, reason string) {
	tb.Helper()
	if AtDevices() {
		tb.Skip("not at devices: " + reason)
	}
}

// Library returns the path of the driver's library. It skips the test when it was not built.
func Library(tb testing.TB) string {
	tb.Helper()
	path := os.Getenv(Variable)
	if path == "" {
		tb.Skip(Variable + " names no checking driver: run make test")
	}
	return path
}

// Driver is a driver's library. It is safe for concurrent use.
type Driver struct {
	tb   testing.TB
	path string
	lib  library
}

// shared returns the driver of Variable.
func shared(tb testing.TB) *Driver {
	tb.Helper()
	path := Library(tb)
	return &Driver{tb: tb, path: path, lib: load(tb, path)}
}

// New returns a checking driver with the given number of devices. It is a copy of the library, which the loader takes for another one, so that its
// settings, streams, faults and counters are separate from those of other tests. When the test ends, after everything that the test registers later, the
// driver must have found no fault, and nothing of it may be in use. It skips the test on a GPU.
func New(tb testing.TB, devices int) *Driver {
	tb.Helper()
	Require(tb)
	from, to := filepath.Dir(Library(tb)), tb.TempDir()
	for _, name := range []string{filepath.Base(Library(tb)), "kernels.so"} {
		data, err := os.ReadFile(filepath.Join(from, name)) //nolint:gosec // beside the library that the environment names
		if err != nil {
			tb.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(to, name), data, 0o700); err != nil { //nolint:gosec // a library
			tb.Fatal(err)
		}
	}
	path := filepath.Join(to, filepath.Base(Library(tb)))
	d := &Driver{tb: tb, path: path, lib: load(tb, path)}
	d.Set("devices", int64(devices))
	tb.Cleanup(func() {
		d.Check()
		d.Settled()
		d.Set("forget", 1)
	})
	return d
}

// Path returns the path of the library. For example, for --cuda-driver.
func (d *Driver) Path() string { return d.path }

// Checking reports whether the library is the checking driver.
func Checking(tb testing.TB) bool {
	tb.Helper()
	return shared(tb).lib.checking()
}

// Require skips a test that only the checking driver can carry out.
func Require(tb testing.TB) {
	tb.Helper()
	if !Checking(tb) {
		tb.Skip("needs the checking driver")
	}
}

// Report returns the faults and counters of this process so far, and the number of faults. On a GPU both are empty.
func Report(tb testing.TB) (string, int) {
	tb.Helper()
	return shared(tb).Report()
}

// Report returns the faults and counters so far, and the number of faults.
func (d *Driver) Report() (string, int) { return d.lib.report() }

// Counters are the counts of the driver in this process so far.
type Counters struct {
	// Copies from the host, to the host, within a device and between devices, and their bytes.
	Up, UpBytes, Down, DownBytes, Within, WithinBytes, Peer, PeerBytes uint64
	Kernels, Allocs                                                    uint64
	// Held is the bytes of device memory that are not released.
	Held uint64
	// Streams, Events, Pinned and Contexts are how many there are now.
	Streams, Events, Pinned, Contexts uint64
	// Refused is the allocations that failed because of a setting.
	Refused uint64
	// BusyNs is the time that the devices took because of the settings work_us and slow_mbs. What is measured is never less.
	BusyNs uint64
}

// Count returns the counters. On a GPU all are 0.
func Count(tb testing.TB) Counters {
	tb.Helper()
	return shared(tb).Count()
}

// Count returns the counters.
func (d *Driver) Count() Counters {
	text, _ := d.Report()
	return Parse(text)
}

// ParseFile returns the counters of each process that has written its report to the file that TUTTI_CUDA_CHECK_REPORT names, in the order in
// which they ended.
func ParseFile(text string) (list []Counters) {
	const first = "up " // begins the counters of a report
	parts := strings.Split("\n"+text, "\n"+first)
	for _, part := range parts[1:] {
		list = append(list, Parse(first+part))
	}
	return list
}

// Parse returns the counters of a report.
func Parse(report string) (c Counters) {
	for line := range strings.Lines(report) {
		var name string
		var n, size uint64
		if fields, _ := fmt.Sscan(line, &name, &n, &size); fields < 2 {
			continue
		}
		switch name {
		case "up":
			c.Up, c.UpBytes = n, size
		case "down":
			c.Down, c.DownBytes = n, size
		case "within":
			c.Within, c.WithinBytes = n, size
		case "peer":
			c.Peer, c.PeerBytes = n, size
		case "kernels":
			c.Kernels = n
		case "allocs":
			c.Allocs = n
		case "held":
			c.Held = n
		case "streams":
			c.Streams = n
		case "events":
			c.Events = n
		case "pinned":
			c.Pinned = n
		case "contexts":
			c.Contexts = n
		case "refused":
			c.Refused = n
		case "busy":
			c.BusyNs = n
		}
	}
	return c
}

// Settled fails the test when the process holds anything of the driver.
func Settled(tb testing.TB) {
	tb.Helper()
	shared(tb).Settled()
}

// Settled fails the test when anything of the driver is in use.
func (d *Driver) Settled() {
	d.tb.Helper()
	if c := d.Count(); c.Held+c.Streams+c.Events+c.Pinned+c.Contexts > 0 {
		d.tb.Errorf("%d bytes of device memory, %d streams, %d events, %d regions of pinned memory and %d contexts are left", c.Held, c.Streams, c.Events, c.Pinned, c.Contexts)
	}
}

// Check fails the test when the driver has found a fault in this process.
func Check(tb testing.TB) {
	tb.Helper()
	shared(tb).Check()
}

// Check fails the test when the driver has found a fault.
func (d *Driver) Check() {
	d.tb.Helper()
	if text, n := d.Report(); n != 0 {
		d.tb.Errorf("the checking driver found %d faults:\n%s", n, text)
	}
}

// Set changes a setting of the driver: oom, oom_at, oom_for, seed, late_us, slow_mbs, work_us, lose, lost_at, revive, exclusive. It skips the
// test on a GPU.
func Set(tb testing.TB, name string, v int64) {
	tb.Helper()
	Require(tb)
	shared(tb).Set(name, v)
}

// Set changes a setting of the driver, as the function Set does.
func (d *Driver) Set(name string, v int64) {
	d.tb.Helper()
	if !d.lib.set(name, v) {
		d.tb.Fatalf("the checking driver has no setting %s, or not now", name)
	}
}
