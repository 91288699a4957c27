package nvml_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tutti-server/tutti/internal/runtimes/nvml"
	"github.com/tutti-server/tutti/internal/telemetry"
)

// library builds testdata/fake.c, which stands in for the driver's library.
func library(t *testing.T, flags ...string) string {
	t.Helper()
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("no gcc to build the stand-in with: apt-get install gcc")
	}
	path := filepath.Join(t.TempDir(), "libfake.so")
	args := append([]string{"-shared", "-fPIC", "-o", path, "testdata/fake.c"}, flags...)
	if out, err := exec.Command(gcc, args...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

func TestRead(t *testing.T) {
	t.Parallel()
	m, err := nvml.Open(library(t))
	if err != nil {
		t.Fatal(err)
	}
	want := []telemetry.GPU{
		{UUID: "GPU-a", Utilization: 0.37, MemoryTotal: 80 << 30, MemoryUsed: 3 << 30, PowerUsage: 251.5, PowerLimit: 700, Energy: 2.5},
		{UUID: "GPU-b", Utilization: -1, MemoryTotal: 80 << 30, MemoryUsed: 3 << 30, PowerUsage: -1, PowerLimit: 700, Energy: -1},
	}
	if diff := cmp.Diff(want, m.Read(), cmpopts.EquateApprox(0, 1e-9)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for range 2 {
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if got := m.Read(); len(got) != 0 {
		t.Errorf("%v after Close", got)
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, flag, want string }{
		{"no driver", "-DFAIL_INIT=9", "nvmlInit_v2"},
		{"a function missing", "-DNO_ENERGY", "nvmlDeviceGetTotalEnergyConsumption"},
		{"a wild count", "-DCOUNT=4000000000u", "4000000000 GPUs"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if m, err := nvml.Open(library(t, tt.flag)); m != nil || err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Open = %v, %v, want an error with %s", m, err, tt.want)
			}
		})
	}
	if m, err := nvml.Open(filepath.Join(t.TempDir(), nvml.Name)); m != nil || err == nil || !strings.Contains(err.Error(), nvml.Name) {
		t.Errorf("Open of no file = %v, %v", m, err)
	}
}

// TestReal reads the GPUs of the machine, where there are any.
func TestReal(t *testing.T) {
	t.Parallel()
	m, err := nvml.Open(nvml.Name)
	if err != nil {
		t.Skipf("no driver: %v", err)
	}
	defer func() { _ = m.Close() }()
	for _, g := range m.Read() {
		t.Logf("%+v", g)
		if g.UUID == "" || g.MemoryTotal <= 0 || g.MemoryUsed > g.MemoryTotal || g.Utilization > 1 {
			t.Errorf("unlikely: %+v", g)
		}
	}
}
