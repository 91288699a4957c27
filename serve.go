package tutti

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os/signal"
	"strings"
	"syscall"

	"tutti/core/status"
	"tutti/repository"
)

// serve runs the server until ctx is over or a socket fails.
func (p *program) serve(ctx context.Context, args []string) error {
	o, err := p.parseServe(args)
	if err != nil {
		return err
	}
	// A log whose reader is gone must not end the server, as it would by default.
	signal.Ignore(syscall.SIGPIPE)
	s, err := open(ctx, &o, &p.components, p.logger(logLevel(o.Verbose)))
	if err != nil {
		return serverError(err)
	}
	writeTable(p.stderr, models(s.repo))
	if o.ExitOnError && len(s.repo.Failures()) > 0 {
		return errors.Join(serverError(status.Errorf(status.Internal, "failed to load all models")), s.close(ctx))
	}
	if err := s.start(ctx); err != nil {
		return errors.Join(serverError(err), s.close(ctx))
	}
	select {
	case err = <-s.fault():
	case <-ctx.Done():
		s.log.InfoContext(ctx, "stopping", slog.Duration("timeout", o.ExitTimeout))
	}
	return errors.Join(err, s.close(ctx))
}

// logLevel is what a server logs at a --log-verbose.
func logLevel(verbose int) slog.Level {
	if verbose > 0 {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

// logger returns the log of a server, on standard error.
func (p *program) logger(level slog.Level) *slog.Logger {
	return slog.New(slog.NewTextHandler(p.stderr, &slog.HandlerOptions{Level: level}))
}

// models returns the table of models and how they are, with its heading.
func models(r *repository.Repository) [][]string {
	rows := [][]string{{"Model", "Version", "Status"}}
	reasons := map[string]string{}
	for _, f := range r.Failures() {
		reasons[f.Model] = "UNAVAILABLE: " + strings.ReplaceAll(f.Err.Error(), "\n", "; ")
	}
	for _, name := range r.Models() {
		if md, err := r.Metadata(name, 0); err == nil {
			for _, v := range md.Versions {
				rows = append(rows, []string{name, v, "READY"})
			}
		}
		if reason, ok := reasons[name]; ok {
			rows = append(rows, []string{name, "-", reason})
		}
	}
	return rows
}

// writeTable draws rows with lines around them; the first one is the heading.
func writeTable(w io.Writer, rows [][]string) {
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
	_, _ = io.WriteString(w, b.String())
}
