package telemetry

import (
	"testing"
	"time"

	"github.com/prometheus/procfs"
)

// TestMain sets the process's start to a day ago, so that the monotonic and the wall clock differ clearly.
func TestMain(m *testing.M) {
	start = start.Add(-24 * time.Hour)
	m.Run()
}

// TestMachineMemory checks the memory of a machine whose kernel does not report what is available.
func TestMachineMemory(t *testing.T) {
	t.Parallel()
	total, available := uint64(1000), uint64(300)
	for _, tc := range []struct {
		info procfs.Meminfo
		want machine
	}{
		{procfs.Meminfo{MemTotalBytes: &total, MemAvailableBytes: &available}, machine{known: true, total: 1000, used: 700}},
		{procfs.Meminfo{MemTotalBytes: &total}, machine{known: true, total: 1000, used: 1000}},
		{procfs.Meminfo{}, machine{}},
	} {
		var m machine
		if m.memory(&tc.info); m != tc.want {
			t.Errorf("memory %+v, want %+v", m, tc.want)
		}
	}
}
