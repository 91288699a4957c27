package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/tutti-server/tutti"
	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/sim"
	"github.com/tutti-server/tutti/core/tensor/cuda/cudatest"
	"github.com/tutti-server/tutti/steps"
)

// drive is the use of the checking driver by one server, all of whose models run at its devices. No other test may use the driver of
// this process meanwhile.
type drive struct {
	before  cudatest.Counters
	traffic sim.Traffic
}

// newDrive returns the components and the flags of a server at the checking driver's devices. When the test ends, after the server,
// it compares the copies that the driver has made with those of the models, which represent kernels, and of the server's ledger.
func newDrive(t *testing.T, seed int64) (d *drive, c tutti.Components, flags []string) {
	t.Helper()
	library := cudatest.Library(t)
	cudatest.Require(t)
	cudatest.Set(t, "seed", seed)
	cudatest.Set(t, "late_us", 30)
	t.Cleanup(func() { cudatest.Set(t, "late_us", 300) })
	d = &drive{before: cudatest.Count(t)}
	c = components()
	all := c.Backends
	c.Backends = func(registry *steps.Registry) []backends.Factory {
		list := all(registry)
		for i := range list {
			if list[i].Name == sim.Name {
				list[i] = sim.NewCountingFactory(&d.traffic, list[:i]...)
			}
		}
		return list
	}
	return d, c, []string{"--cuda-driver=" + library, "--backend-config=sim,all=true"}
}

// moveLine is a sample of a ledger: from, reason, to, and the value.
var moveLine = regexp.MustCompile(`(?m)^ensemble_moved?s?_?(total|bytes_total)\{from="([^"]*)",.*reason="([^"]*)",.*to="([^"]*)",.*\} (\S+)$`)

// check compares the metrics of the server with the driver's counters, after the last request.
func (d *drive) check(t *testing.T, metrics string) {
	t.Helper()
	cudatest.Check(t)
	ledger := map[string]uint64{}
	for line := range strings.SplitSeq(metrics, "\n") {
		m := moveLine.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		kind, from, reason, to := m[1], m[2], m[3], m[4]
		v, err := strconv.ParseFloat(m[5], 64)
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case reason != "device_step" && reason != "response" && reason != "capture":
			t.Errorf("a copy between steps that are all at one device: %s", line)
		case strings.HasPrefix(from, "device"):
			ledger["down "+kind] += uint64(v)
		default:
			ledger["up "+kind] += uint64(v)
			if !strings.HasPrefix(to, "device") {
				t.Errorf("a copy from host to host: %s", line)
			}
		}
	}
	after := cudatest.Count(t)
	got := map[string]uint64{
		"up total":         after.Up - d.before.Up - uint64(d.traffic.Up.Load()),
		"up bytes_total":   after.UpBytes - d.before.UpBytes - uint64(d.traffic.UpBytes.Load()),
		"down total":       after.Down - d.before.Down - uint64(d.traffic.Down.Load()),
		"down bytes_total": after.DownBytes - d.before.DownBytes - uint64(d.traffic.DownBytes.Load()),
	}
	if fmt.Sprint(ledger) != fmt.Sprint(got) {
		t.Errorf("the ledger has\n%v, the driver without the models' kernels\n%v", ledger, got)
	}
	if after.Peer != d.before.Peer {
		t.Errorf("%d copies between devices", after.Peer-d.before.Peer)
	}
	if got["up total"] == 0 || got["down total"] == 0 {
		t.Error("nothing was copied")
	}
}

// TestExamplesOnCheckingDriver runs TestExamples with every model at the devices of the checking driver.
func TestExamplesOnCheckingDriver(t *testing.T) { //nolint:paralleltest // counts the copies of the process
	d, c, flags := newDrive(t, 1)
	testExamples(t, c, d.check, flags...)
}
