package tutti

import (
	"context"
	"io"
	"log/slog"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/runtimes/nvml"
	"github.com/tutti-server/tutti/internal/telemetry"
)

// measureGPUs has the GPUs of the machine exported where it has any and the options
// say so; what it returns ends that.
func measureGPUs(ctx context.Context, on bool, metrics *telemetry.Metrics, logger *slog.Logger) io.Closer {
	if !on {
		return io.NopCloser(nil)
	}
	meter, err := nvml.Open(nvml.Name)
	if err != nil {
		logger.DebugContext(ctx, "no GPU is measured", slog.String("reason", err.Error()))
		return io.NopCloser(nil)
	}
	metrics.GPUs(meter.Read)
	return meter
}

// gpuViews shows what was measured of GPUs.
func gpuViews(list []telemetry.GPU) []infer.GPUView {
	views := make([]infer.GPUView, 0, len(list))
	for i := range list {
		g := &list[i]
		views = append(views, infer.GPUView{
			UUID: g.UUID, Utilization: told(g.Utilization), MemoryTotal: told(g.MemoryTotal), MemoryUsed: told(g.MemoryUsed), Power: told(g.PowerUsage),
		})
	}
	return views
}

// told is a measured value, nil for one that the GPU does not tell.
func told(v float64) *float64 {
	if v < 0 {
		return nil
	}
	return &v
}
