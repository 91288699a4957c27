// Package cmd is the command line of tutti for programs with their own steps or backends. The whole main function of such
// a program:
//
//	func main() {
//		c := cmd.Builtin()
//		c.Steps = append(c.Steps, mystep.NewFactory())
//		os.Exit(cmd.Main(c))
//	}
package cmd

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/tutti-server/tutti"
	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/dali"
	"github.com/tutti-server/tutti/backends/fil"
	"github.com/tutti-server/tutti/backends/identity"
	"github.com/tutti-server/tutti/backends/isolate"
	"github.com/tutti-server/tutti/backends/native"
	"github.com/tutti-server/tutti/backends/python"
	"github.com/tutti-server/tutti/backends/query"
	"github.com/tutti-server/tutti/backends/remote"
	"github.com/tutti-server/tutti/backends/repeat"
	"github.com/tutti-server/tutti/backends/sequence"
	"github.com/tutti-server/tutti/backends/sim"
	"github.com/tutti-server/tutti/backends/square"
	"github.com/tutti-server/tutti/backends/wasm"
	"github.com/tutti-server/tutti/internal/cli"
	"github.com/tutti-server/tutti/steps"
	"github.com/tutti-server/tutti/steps/audio"
	"github.com/tutti-server/tutti/steps/audio/ctc"
	"github.com/tutti-server/tutti/steps/audio/speech"
	"github.com/tutti-server/tutti/steps/classify"
	"github.com/tutti-server/tutti/steps/detect"
	"github.com/tutti-server/tutti/steps/embed"
	"github.com/tutti-server/tutti/steps/encode"
	"github.com/tutti-server/tutti/steps/image"
	"github.com/tutti-server/tutti/steps/image/crop"
	"github.com/tutti-server/tutti/steps/image/draw"
	"github.com/tutti-server/tutti/steps/image/fit"
	"github.com/tutti-server/tutti/steps/jsonvalue"
	"github.com/tutti-server/tutti/steps/normalize"
	"github.com/tutti-server/tutti/steps/ocr"
	"github.com/tutti-server/tutti/steps/pool"
	"github.com/tutti-server/tutti/steps/spans"
	"github.com/tutti-server/tutti/steps/stringop"
	"github.com/tutti-server/tutti/steps/tensorop"
	"github.com/tutti-server/tutti/steps/tokenize"
)

// Main runs the command of os.Args with c and returns the exit status: 0, or 1 after an error, which it has printed. The
// first interrupt or SIGTERM stops a server in order, a second one ends the process.
func Main(c tutti.Components) int {
	if isolate.Hidden(os.Args) {
		return isolate.Serve(nativeBackends())
	}
	if status, started := host(os.Args); started {
		return status
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	return cli.Main(ctx, os.Args, os.Stdout, os.Stderr, c)
}

// Builtin returns the steps and backends of the command tutti. Each call returns new ones.
func Builtin() tutti.Components {
	return tutti.Components{Steps: builtinSteps(), Backends: builtinBackends}
}

func builtinSteps() []steps.Factory {
	return []steps.Factory{
		audio.NewDecodeFactory(),
		audio.NewFrameFactory(),
		audio.NewMelFactory(),
		audio.NewResampleFactory(),
		ctc.NewFactory(),
		speech.NewFactory(),
		classify.NewFactory(),
		classify.NewScoresFactory(),
		detect.NewFactory(),
		embed.NewFactory(),
		encode.NewFactory(),
		image.NewFactory(),
		image.NewResizeFactory(),
		image.NewCropFactory(),
		crop.NewFactory(),
		draw.NewFactory(),
		fit.NewFactory(),
		fit.NewRotateFactory(),
		jsonvalue.NewBuildFactory(),
		jsonvalue.NewExtractFactory(),
		normalize.NewFactory(),
		ocr.NewBoxesFactory(),
		ocr.NewCTCFactory(),
		ocr.NewLinesFactory(),
		pool.NewFactory(),
		spans.NewAnswerFactory(),
		spans.NewTokenFactory(),
		stringop.NewFactory(),
		tensorop.NewConstantFactory(),
		tensorop.NewFactory(),
		tokenize.NewFactory(),
		tokenize.NewDetokenizeFactory(),
	}
}

// builtinBackends returns the backends. Instances of native ones may be isolated, for which the program must use Main.
func builtinBackends(registry *steps.Registry) []backends.Factory {
	list := []backends.Factory{
		fil.NewFactory(),
		identity.NewFactory(),
		native.NewFactory(registry),
		python.NewFactory(),
		dali.NewFactory(python.NewFactory()),
		query.NewFactory(),
		remote.NewFactory(),
		repeat.NewFactory(),
		sequence.NewFactory(),
		square.NewFactory(),
		wasm.NewFactory(),
	}
	list = append(list, isolate.Around(nativeBackends()...)...)
	list = append(list, libraryBackend())
	return append(list, sim.NewFactory(list...))
}
