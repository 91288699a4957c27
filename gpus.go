package tutti

import (
	"context"
	"io"
	"log/slog"

	"github.com/tutti-server/tutti/internal/runtimes/nvml"
	"github.com/tutti-server/tutti/internal/telemetry"
)

// measureGPUs exports the metrics of the machine's GPUs, if it has any and on is true, until the returned closer is
// closed.
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
