package cli

import (
	"context"
	"errors"
	"flag"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/tutti-server/tutti"
	"github.com/tutti-server/tutti/internal/options"
)

// serve runs a server until ctx is done or a service fails.
func (p *program) serve(ctx context.Context, args []string) error {
	reduceCollections()
	// The server must outlive the reader of its log: by default SIGPIPE would end it.
	signal.Ignore(syscall.SIGPIPE)
	s, err := tutti.Open(ctx, tutti.Settings{Args: args, Env: os.Environ(), Components: p.components, Stdout: p.stdout, Stderr: p.stderr})
	if errors.Is(err, flag.ErrHelp) {
		options.Help(p.stdout, p.name)
		return nil
	}
	if err != nil {
		return err
	}
	if err = s.Start(); err == nil {
		err = s.Wait(ctx)
	}
	return errors.Join(err, s.Close(ctx))
}

// heapGrowth is the value of GOGC for a server.
const heapGrowth = 400

// reduceCollections makes garbage collections rarer unless GOGC is set. Tensors are not on the Go heap, which therefore is
// small: with the default the collector takes a twentieth of the CPU time of small requests.
func reduceCollections() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(heapGrowth)
	}
}
