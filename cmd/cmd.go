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
	"github.com/tutti-server/tutti/internal/cli"
)

// Main runs the command of os.Args with c and returns the exit status: 0, or 1 after an error, which it has printed. The
// first interrupt or SIGTERM stops a server in order, a second one ends the process.
func Main(c tutti.Components) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	return cli.Main(ctx, os.Args, os.Stdout, os.Stderr, c)
}
