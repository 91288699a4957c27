package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/replay"
)

// writeGolden writes a request that was equal as a golden request of its model.
func (a *replayCall) writeGolden(c *replay.Capture, req *client.Request, outputs []client.Tensor) error {
	if reason := a.notGolden(req, outputs); reason != "" {
		a.left = append(a.left, fmt.Sprintf("'%s': %s", c.Path, reason))
		return nil
	}
	near := a.tolerances(tensor.FP32)
	g := golden{Tolerance: &near}
	for i := range req.Inputs {
		g.Inputs = append(g.Inputs, goldenOf(&req.Inputs[i]))
	}
	for i := range outputs {
		part := goldenOf(&outputs[i])
		if own := a.tolerances(outputs[i].DType); own != near {
			part.Tolerance = &own
		}
		g.Outputs = append(g.Outputs, part)
	}
	data, err := g.text()
	if err != nil {
		return err
	}
	name := strings.TrimSuffix(filepath.Base(c.Path), filepath.Ext(c.Path)) + ".json"
	to := filepath.Join(a.against, req.Model, "golden", name)
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil { //nolint:gosec // a repository is for everybody
		return err
	}
	if err := os.WriteFile(to, data, 0o644); err != nil { //nolint:gosec // a repository is for everybody
		return err
	}
	a.written = append(a.written, to)
	return nil
}

// notGolden returns the reason that a request cannot be a golden request, empty if it can.
func (a *replayCall) notGolden(req *client.Request, outputs []client.Tensor) string {
	size := 0
	for i := range req.Inputs {
		size += len(req.Inputs[i].Data)
	}
	for i := range outputs {
		size += len(outputs[i].Data)
	}
	switch s := req.Sequence; {
	case strings.Contains(a.against, "://"):
		return "the repository is no folder of this machine"
	case !filepath.IsLocal(req.Model) || filepath.Base(req.Model) != req.Model:
		return "its model's name is no folder"
	case s != nil && (!s.Start || !s.End):
		return "it is a part of a sequence, and a golden request is a whole one"
	case len(req.Parameters) > 0:
		return "it has parameters, which golden requests have not"
	case len(outputs) == 0:
		return "the capture has no contents of its outputs"
	case size > mostGolden:
		return fmt.Sprintf("its tensors have %d bytes, more than %d", size, mostGolden)
	}
	return ""
}

// tolerances returns the permitted difference of a type.
func (a *replayCall) tolerances(d tensor.DType) tolerances {
	near := a.settings.Tolerance(d)
	return tolerances{near.Absolute, near.Relative}
}
