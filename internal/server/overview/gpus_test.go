package overview //nolint:testpackage // there may be no GPU whose view the API could return

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/internal/inspect"
	"github.com/tutti-server/tutti/internal/telemetry"
)

// TestGPUViews checks that a value a GPU does not report is nil.
func TestGPUViews(t *testing.T) {
	t.Parallel()
	m := telemetry.NewMetrics()
	if got := gpuViews(m.Measured()); got == nil || len(got) != 0 {
		t.Errorf("without GPUs: %v", got)
	}
	m.GPUs(func() []telemetry.GPU {
		return []telemetry.GPU{{UUID: "u", Utilization: 0.5, MemoryTotal: 80, MemoryUsed: 0, PowerUsage: -1, PowerLimit: -1, Energy: -1}}
	})
	half, total, used := 0.5, 80., 0.
	want := []inspect.GPUView{{UUID: "u", Utilization: &half, MemoryTotal: &total, MemoryUsed: &used}}
	if diff := cmp.Diff(want, gpuViews(m.Measured())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
