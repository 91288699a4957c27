package tutti

import (
	"context"
	"errors"
	"flag"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/logs"
	"github.com/tutti-server/tutti/internal/options"
	"github.com/tutti-server/tutti/internal/repository"
)

// serve runs the server until ctx is over or a socket fails.
func (p *program) serve(ctx context.Context, args []string) error {
	o, err := options.Parse(args, os.Environ())
	switch {
	case errors.Is(err, flag.ErrHelp):
		options.Help(p.stdout, p.name)
		return nil
	case err != nil:
		return &optionError{err}
	}
	collectLess()
	// A log whose reader is gone must not end the server, as it would by default.
	signal.Ignore(syscall.SIGPIPE)
	journal, err := logs.New(o.Log, p.stdout, p.stderr)
	if err != nil {
		return serverError(err)
	}
	return errors.Join(p.run(ctx, o, journal), journal.Close())
}

// run serves until ctx is over or a socket fails.
func (p *program) run(ctx context.Context, o *options.Options, journal *logs.Log) error {
	s, err := open(ctx, o, &p.components, journal)
	if err != nil {
		return serverError(err)
	}
	journal.Block(table(models(s.repo, widthOf(os.Stderr))))
	if o.ExitOnError && len(s.repo.Failures()) > 0 {
		return errors.Join(serverError(status.Errorf(status.Internal, "failed to load all models")), s.close(ctx))
	}
	if err := s.start(); err != nil {
		return errors.Join(serverError(err), s.close(ctx))
	}
	if err := forgetStart(); err != nil {
		s.log.DebugContext(ctx, "pages of the program stay mapped", slog.String("error", err.Error()))
	}
	select {
	case err = <-s.fault():
	case <-ctx.Done():
		s.log.InfoContext(ctx, "stopping", slog.Duration("timeout", o.ExitTimeout))
	}
	return errors.Join(err, s.close(ctx))
}

// How many characters of a model's status are on one line of the table: on a terminal, and elsewhere, where a log is searched
// for whole sentences.
const (
	terminalWidth = 100
	statusWidth   = 500
)

// widthOf returns the width of statuses for what is written to f.
func widthOf(f *os.File) int {
	if st, err := f.Stat(); err == nil && st.Mode()&os.ModeCharDevice != 0 {
		return terminalWidth
	}
	return statusWidth
}

// models returns the table of models and how they are, with its heading.
func models(r *repository.Repository, width int) [][]string {
	rows := [][]string{{"Model", "Version", "Status"}}
	reasons, ready := map[string]string{}, map[string][]string{}
	for _, e := range r.Index(true) {
		ready[e.Name] = append(ready[e.Name], e.Version)
	}
	for _, f := range r.Failures() {
		reasons[f.Model] = "UNAVAILABLE: " + f.Err.Error()
	}
	for _, name := range r.Models() {
		for _, v := range ready[name] {
			rows = append(rows, []string{name, v, "READY"})
		}
		if reason, ok := reasons[name]; ok {
			first := []string{name, "-"}
			for _, line := range wrap(reason, width) {
				rows, first = append(rows, append(first, line)), []string{"", ""}
			}
		}
	}
	return rows
}

// table draws rows with lines around them; the first one is the heading.
func table(rows [][]string) string {
	widths := columnWidths(rows)
	var b strings.Builder
	line := func() {
		for _, n := range widths {
			b.WriteString("+" + strings.Repeat("-", n+2))
		}
		b.WriteString("+\n")
	}
	line()
	for i, row := range rows {
		for c, cell := range row {
			b.WriteString("| " + pad(cell, widths[c]) + " ")
		}
		b.WriteString("|\n")
		if i == 0 {
			line()
		}
	}
	line()
	return strings.TrimSuffix(b.String(), "\n")
}

// heapGrowth is how much garbage may stand beside what is alive, in percent.
const heapGrowth = 400

// collectLess has the collector run less often, unless the user says how often:
// tensors are off the Go heap, which therefore is small, and marking it anew for
// every few thousand requests is a twentieth of what they cost.
func collectLess() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(heapGrowth)
	}
}
