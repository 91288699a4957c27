package cli

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"

	"github.com/tutti-server/tutti"
)

func (p *program) version(_ context.Context, _ []string) error {
	note := ""
	if withoutCgo() {
		note = " (built without cgo: the backends onnxruntime, openvino, pytorch and tensorflow are not in it)"
	}
	_, err := fmt.Fprintf(p.stdout, "tutti %s%s\n", tutti.Version, note)
	return err
}

// withoutCgo reports whether this program was built with CGO_ENABLED=0.
func withoutCgo() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "CGO_ENABLED", Value: "0"})
}
