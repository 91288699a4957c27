package main

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"testing"

	"github.com/tutti-server/tutti"
	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/sim"
	"github.com/tutti-server/tutti/backends/sim/simtest"
	"github.com/tutti-server/tutti/core/tensor/cuda/cudatest"
	"github.com/tutti-server/tutti/core/tensor/tensortest"
	"github.com/tutti-server/tutti/steps"
)

// drive is a checking driver of one server, all of whose models run at its devices.
type drive struct {
	*cudatest.Driver
	traffic sim.Traffic
}

// newDrive returns the components and the flags of a server at the devices of a checking driver of its own. After the last request check
// compares the copies that the driver has made with those of the models, which represent kernels, and of the server's ledger.
func newDrive(tb testing.TB, devices int, seed int64) (d *drive, c tutti.Components, flags []string) {
	tb.Helper()
	d = &drive{Driver: cudatest.New(tb, devices)}
	d.Set("seed", seed)
	d.Set("late_us", 30)
	return d, d.components(components()), []string{"--cuda-driver=" + d.Path(), "--backend-config=sim,all=true"}
}

// components returns c with the copies of the backend sim counted.
func (d *drive) components(c tutti.Components) tutti.Components {
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
	return c
}

// check compares the metrics of the server with the driver's counters, after the last request. All steps must be at one device.
func (d *drive) check(t *testing.T, metrics string) {
	t.Helper()
	got := d.compare(t, metrics)
	_, between := simtest.CopiesOf(metrics)
	for _, line := range between {
		t.Errorf("a copy between steps that are all at one device: %s", line)
	}
	if got["peer copies"] != 0 {
		t.Errorf("%d copies between devices", got["peer copies"])
	}
	if got["host_to_device copies"] == 0 || got["device_to_host copies"] == 0 {
		t.Error("nothing was copied")
	}
}

// compare checks that the ledger in the metrics has exactly the driver's copies, and returns them.
func (d *drive) compare(tb testing.TB, metrics string) simtest.Copies {
	tb.Helper()
	ledger, _ := simtest.CopiesOf(metrics)
	got := simtest.Since(cudatest.Counters{}, d.Count(), &d.traffic)
	if fmt.Sprint(ledger) != fmt.Sprint(got) {
		tb.Errorf("the ledger has\n%v, the driver without the models' kernels\n%v", ledger, got)
	}
	return got
}

// within checks that the driver has made each copy of the ledger. It may have made more: for warm-ups, for models that were unloaded
// since, and for requests whose clients left.
func (d *drive) within(tb testing.TB, a addresses) {
	tb.Helper()
	resp, err := http.Get("http://" + a.metrics + "/metrics") //nolint:noctx // ends with the server
	if err != nil {
		return // the test has stopped the server
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return // as above
	}
	ledger, _ := simtest.CopiesOf(string(text))
	got := simtest.Since(cudatest.Counters{}, d.Count(), &d.traffic)
	for name, n := range ledger {
		if n > got[name] {
			tb.Errorf("the ledger has %d %s, the driver without the models' kernels %d", n, name, got[name])
		}
	}
}

// TestExamplesOnCheckingDriver runs TestExamples with every model at the devices of the checking driver.
func TestExamplesOnCheckingDriver(t *testing.T) {
	t.Parallel()
	d, c, flags := newDrive(t, 2, 1)
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
			d, comps, flags := newDrive(t, 2, int64(seed))
			c := newChaos(t, seed, seed%2 == 0)
			t.Cleanup(func() { c.print(t) })
			addr := serveWith(t, comps, append(flags, "--model-repository="+c.root, "--cache-config=local,size=65536",
				"--model-control-mode=explicit", "--load-model=*")...)
			c.run(t, addr, requests)
			if c.calm {
				d.check(t, metricsOf(t, addr))
			}
		})
	}
	chaosHTTP.CloseIdleConnections()
}
