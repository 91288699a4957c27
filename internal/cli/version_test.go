package cli

import (
	"bytes"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/tutti-server/tutti"
)

func TestVersion(t *testing.T) {
	t.Parallel()
	checkout := &debug.BuildInfo{Settings: []debug.BuildSetting{
		{Key: "CGO_ENABLED", Value: "1"}, {Key: "vcs.revision", Value: "1a2b"}, {Key: "vcs.time", Value: "2026-11-23T04:05:06Z"}, {Key: "vcs.modified", Value: "true"},
	}}
	machine := "go        " + runtime.Version() + "\nplatform  " + runtime.GOOS + "/" + runtime.GOARCH + "\n"
	for name, c := range map[string]struct {
		info         *debug.BuildInfo
		commit, date string
		want         string
	}{
		"in a checkout":   {checkout, "", "", "commit    1a2b with changes\ndate      2026-11-23T04:05:06Z\n" + machine},
		"from the linker": {checkout, "3c4d", "2026-11-24", "commit    3c4d\ndate      2026-11-24\n" + machine},
		"of an archive":   {&debug.BuildInfo{}, "", "", "commit    unknown\ndate      unknown\n" + machine},
		"not recorded":    {nil, "", "", "commit    unknown\ndate      unknown\n" + machine},
		"without cgo": {
			&debug.BuildInfo{Settings: []debug.BuildSetting{{Key: "CGO_ENABLED", Value: "0"}}}, "3c4d", "2026-11-24",
			"commit    3c4d\ndate      2026-11-24\n" + machine + "built without cgo: the backends onnxruntime, openvino, pytorch, tensorflow and tensorrt are not in it\n",
		},
	} {
		var out bytes.Buffer
		b := buildOf(c.info, c.commit, c.date)
		if err := b.print(&out); err != nil {
			t.Fatal(err)
		}
		if want := "tutti " + tutti.Version + "\n" + c.want; out.String() != want {
			t.Errorf("%s: printed\n%swant\n%s", name, &out, want)
		}
	}
}
