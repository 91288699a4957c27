package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/tutti-server/tutti"
)

// commit and date are those of the source, for a build that is not in a checkout. The linker sets them. For example:
//
//	go build -ldflags='-X github.com/tutti-server/tutti/internal/cli.commit=1a2b3c4' ./cmd/tutti
var commit, date string

// unknown is the commit and date of a program that was built neither in a checkout nor with them.
const unknown = "unknown"

// build describes a program.
type build struct {
	Version string `json:"version"` // for example "0.1.0"
	Commit  string `json:"commit"`
	// Changed is true if files of the checkout differed from the commit, and Date is the time of the commit in RFC 3339.
	Changed  bool   `json:"changed"`
	Date     string `json:"date"`
	Go       string `json:"go"`       // for example "go1.26.8"
	Platform string `json:"platform"` // for example "linux/arm64"
	Cgo      bool   `json:"cgo"`      // without cgo the backends of native libraries are left out
}

// buildOf returns the description of a program from what its build recorded, or nil. A commit and a date that the linker
// set replace those of the checkout.
func buildOf(info *debug.BuildInfo, commit, date string) build {
	settings := map[string]string{}
	if info != nil {
		for _, s := range info.Settings {
			settings[s.Key] = s.Value
		}
	}
	return build{
		Version: tutti.Version, Commit: cmp.Or(commit, settings["vcs.revision"], unknown), Date: cmp.Or(date, settings["vcs.time"], unknown),
		Changed: commit == "" && settings["vcs.modified"] == "true",
		Go:      runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, Cgo: settings["CGO_ENABLED"] != "0",
	}
}

// print writes the description as lines.
func (b *build) print(w io.Writer) error {
	change, note := "", ""
	if b.Changed {
		change = " with changes"
	}
	if !b.Cgo {
		note = "built without cgo: the backends onnxruntime, openvino, pytorch, tensorflow and tensorrt are not in it\n"
	}
	_, err := fmt.Fprintf(w, "tutti %s\ncommit    %s%s\ndate      %s\ngo        %s\nplatform  %s\n%s", b.Version, b.Commit, change, b.Date, b.Go, b.Platform, note)
	return err
}

func (p *program) version(_ context.Context, args []string) error {
	fs := p.flags("version")
	out := outputFlag(fs, formatText, formatJSON, formatYAML)
	if _, err := arguments(fs, args, 0, 0, "no arguments"); err != nil {
		return err
	}
	info, _ := debug.ReadBuildInfo()
	b := buildOf(info, commit, date)
	return out.print(p.stdout, b, func() error { return b.print(p.stdout) })
}
