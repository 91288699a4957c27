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
	"github.com/tutti-server/tutti/core/tensor/tensortest"
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

// copyLine is a sample of a ledger: total or bytes, direction, reason, and the value.
var copyLine = regexp.MustCompile(`^ensemble_(copies|copied_bytes)_total\{direction="([^"]*)",.*reason="([^"]*)",.*\} (\S+)$`)

// check compares the metrics of the server with the driver's counters, after the last request.
func (d *drive) check(t *testing.T, metrics string) {
	t.Helper()
	cudatest.Check(t)
	ledger := map[string]uint64{}
	for line := range strings.SplitSeq(metrics, "\n") {
		m := copyLine.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		v, err := strconv.ParseFloat(m[4], 64)
		if err != nil {
			t.Fatal(err)
		}
		switch m[3] {
		case "device_step", "response", "capture", "rows", "state":
		default:
			t.Errorf("a copy between steps that are all at one device: %s", line)
		}
		ledger[m[2]+" "+m[1]] += uint64(v)
	}
	after := cudatest.Count(t)
	got := map[string]uint64{}
	count := func(name string, n uint64) {
		if n > 0 {
			got[name] = n
		}
	}
	count("host_to_device copies", after.Up-d.before.Up-uint64(d.traffic.Up.Load()))
	count("host_to_device copied_bytes", after.UpBytes-d.before.UpBytes-uint64(d.traffic.UpBytes.Load()))
	count("device_to_host copies", after.Down-d.before.Down-uint64(d.traffic.Down.Load()))
	count("device_to_host copied_bytes", after.DownBytes-d.before.DownBytes-uint64(d.traffic.DownBytes.Load()))
	count("within_device copies", after.Within-d.before.Within)
	count("within_device copied_bytes", after.WithinBytes-d.before.WithinBytes)
	count("peer copies", after.Peer-d.before.Peer)
	if fmt.Sprint(ledger) != fmt.Sprint(got) {
		t.Errorf("the ledger has\n%v, the driver without the models' kernels\n%v", ledger, got)
	}
	if after.Peer != d.before.Peer {
		t.Errorf("%d copies between devices", after.Peer-d.before.Peer)
	}
	if got["host_to_device copies"] == 0 || got["device_to_host copies"] == 0 {
		t.Error("nothing was copied")
	}
}

// TestExamplesOnCheckingDriver runs TestExamples with every model at the devices of the checking driver.
func TestExamplesOnCheckingDriver(t *testing.T) { //nolint:paralleltest,tparallel // counts the copies of the process
	d, c, flags := newDrive(t, 1)
	testExamples(t, c, d.check, flags...)
}

// TestChaosOnCheckingDriver runs servers with random configurations, ensembles, sequences and decoupled models at the devices of the
// checking driver, with 64 clients at once. With calm clients the ledger must be exact.
func TestChaosOnCheckingDriver(t *testing.T) { //nolint:paralleltest // counts the copies of the process
	requests := 4
	if !testing.Short() {
		requests = 40
	}
	for i := range tensortest.Seeds(t, 2) {
		seed := *chaosSeed + i
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			d, comps, flags := newDrive(t, int64(seed))
			c := newChaos(t, seed, seed%2 == 0)
			t.Cleanup(func() { c.print(t) })
			addr := serveWith(t, comps, append(flags, "--model-repository="+c.root, "--cache-config=local,size=65536",
				"--model-control-mode=explicit", "--load-model=*")...)
			c.run(t, addr, requests)
			if c.calm {
				d.check(t, metricsOf(t, addr))
			}
			cudatest.Check(t)
		})
	}
	chaosHTTP.CloseIdleConnections()
}
