package simtest

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/backends/sim"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/cuda/cudatest"
	"github.com/tutti-server/tutti/internal/gpu"
	"github.com/tutti-server/tutti/internal/simdev"
	"github.com/tutti-server/tutti/internal/telemetry"
)

// Machine has the devices of a test: simulated ones, or with cudatest.AtDevices those of a checking driver of the test's own. It is
// safe for concurrent use. For example:
//
//	m := simtest.New(t, 1)
//	f := simtest.Around(identity.NewFactory(), m)   // its models run at the device
//	m.Compare(simtest.CopiesOf(metrics))            // after the last request
type Machine struct {
	// Driver is the checking driver; nil: the devices are simulated.
	Driver *cudatest.Driver

	tb      testing.TB
	devices []tensor.Accelerator
	pinned  func(host tensor.Allocator) tensor.Allocator
	traffic sim.Traffic
}

// New starts n devices. When the test ends, after everything that it registers later, no buffer may be held, no rule of order may
// have been violated, and nothing of a driver may be left.
func New(tb testing.TB, n int) *Machine {
	tb.Helper()
	if !cudatest.AtDevices() {
		return Simulated(tb, n)
	}
	m := &Machine{Driver: cudatest.New(tb, n), tb: tb}
	m.Driver.Set("late_us", 30)
	open, err := gpu.Open(gpu.Settings{Driver: m.Driver.Path(), PinnedSize: 1 << 20})
	if err != nil {
		tb.Fatal(err)
	}
	m.devices, m.pinned = open.Accelerators(), open.Pinned
	tb.Cleanup(func() {
		if err := open.Close(); err != nil {
			tb.Error(err)
		}
	})
	return m
}

// Simulated starts n simulated devices, whatever the environment says.
func Simulated(tb testing.TB, n int) *Machine {
	tb.Helper()
	machine, err := simdev.New(n, simdev.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := machine.Close(); err != nil {
			tb.Error(err)
		}
	})
	m := &Machine{tb: tb, pinned: func(tensor.Allocator) tensor.Allocator { return nil }}
	for _, d := range machine.Devices() {
		m.devices = append(m.devices, d)
	}
	return m
}

// Devices returns the devices in order.
func (m *Machine) Devices() []tensor.Accelerator { return m.devices }

// Pinned returns the pool of pinned memory over host, nil for none.
func (m *Machine) Pinned(host tensor.Allocator) tensor.Allocator { return m.pinned(host) }

// Traffic counts the copies of a driver that represent kernels of models.
func (m *Machine) Traffic() *sim.Traffic { return &m.traffic }

// Moved returns the number of copies to the devices, from them, and between them so far, without those that represent kernels.
func (m *Machine) Moved() (up, down, peer int64) {
	if m.Driver != nil {
		c := m.Driver.Count()
		return int64(c.Up) - m.traffic.Up.Load(), int64(c.Down) - m.traffic.Down.Load(), int64(c.Peer)
	}
	for _, d := range m.devices {
		s := d.(*simdev.Device).Stats() //nolint:errcheck,forcetypeassert // it made them
		up, down, peer = up+s.Up.Count, down+s.Down.Count, peer+s.Peer.Count
	}
	return up, down, peer
}

// Compare fails the test when a driver's copies, without those that represent kernels, are not those of the ledger.
func (m *Machine) Compare(ledger Copies) {
	m.tb.Helper()
	if m.Driver == nil {
		return
	}
	if got := Since(cudatest.Counters{}, m.Driver.Count(), &m.traffic); fmt.Sprint(got) != fmt.Sprint(ledger) {
		m.tb.Errorf("the ledger has\n%v, the driver without the models' kernels\n%v", ledger, got)
	}
}

// Within fails the test when the ledger has copies that a driver, without those that represent kernels, has not made.
func (m *Machine) Within(ledger Copies) {
	m.tb.Helper()
	if m.Driver == nil {
		return
	}
	got := Since(cudatest.Counters{}, m.Driver.Count(), &m.traffic)
	for name, n := range ledger {
		if n > got[name] {
			m.tb.Errorf("the ledger has %d %s, the driver without the models' kernels %d", n, name, got[name])
		}
	}
}

// Copies are numbers of copies and of bytes by direction. For example, "host_to_device copies" and "host_to_device bytes".
type Copies map[string]uint64

// Add adds copies of n bytes together.
func (c Copies) Add(direction string, copies, n uint64) {
	if copies > 0 && direction != "within_host" { // no driver sees those
		c[direction+" copies"] += copies
		c[direction+" bytes"] += n
	}
}

// AddLedger adds the copies of a model.
func (c Copies) AddLedger(l *telemetry.Ledger) {
	for _, v := range l.List() {
		c.Add(v.Direction(), v.Count, v.Bytes)
	}
}

// Since returns a driver's copies between two of its counts, without those that represent kernels.
func Since(before, after cudatest.Counters, kernels *sim.Traffic) Copies {
	c := Copies{}
	c.Add("host_to_device", after.Up-before.Up-uint64(kernels.Up.Load()), after.UpBytes-before.UpBytes-uint64(kernels.UpBytes.Load()))
	c.Add("device_to_host", after.Down-before.Down-uint64(kernels.Down.Load()), after.DownBytes-before.DownBytes-uint64(kernels.DownBytes.Load()))
	c.Add("within_device", after.Within-before.Within, after.WithinBytes-before.WithinBytes)
	c.Add("peer", after.Peer-before.Peer, after.PeerBytes-before.PeerBytes)
	return c
}

// copyLine is a sample of a ledger: total or bytes, direction, reason, and the value.
var copyLine = regexp.MustCompile(`^ensemble_(copies|copied_bytes)_total\{direction="([^"]*)",.*reason="([^"]*)",.*\} (\S+)$`)

// CopiesOf returns the copies in the metrics of a server, and the samples that are copies between steps, which are not needed where all
// steps are at one device.
func CopiesOf(metrics string) (c Copies, between []string) {
	c = Copies{}
	for line := range strings.SplitSeq(metrics, "\n") {
		s := copyLine.FindStringSubmatch(line)
		if s == nil {
			continue
		}
		v, err := strconv.ParseFloat(s[4], 64)
		if err != nil {
			panic(err) // the server wrote it
		}
		switch s[3] {
		case "device_step", "response", "capture", "rows", "state":
		default:
			between = append(between, line)
		}
		switch {
		case s[2] == "within_host":
		case s[1] == "copies":
			c[s[2]+" copies"] += uint64(v)
		default:
			c[s[2]+" bytes"] += uint64(v)
		}
	}
	return c, between
}
