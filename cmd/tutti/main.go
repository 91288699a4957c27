// Command tutti serves models and the ensembles made of them.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/tutti-server/tutti"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends at once
	os.Exit(tutti.Main(ctx, os.Args, os.Stdout, os.Stderr, components()))
}
