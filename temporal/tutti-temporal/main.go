// Program tutti-temporal is a Temporal server for one machine: all of Temporal's services in one process, with a SQLite
// file as the database. `tutti serve --jobs` starts it as a child when no address of another Temporal server is given.
// It listens on the loopback interface only, because it does not authenticate its clients.
//
// For example:
//
//	$ tutti-temporal --data-dir /var/lib/tutti
//	ready 127.0.0.1:33445
//
// Below the folder DATADIR/temporal are the database, the lock of the process that serves it, and the file "address"
// with the address and the process id.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "tutti-temporal:", err)
		os.Exit(1)
	}
}

// settings are the options of the program.
type settings struct {
	dir       string // of the option data-dir
	port      int    // 0 for a free one
	namespace string
	days      int // that ended workflows are kept
	child     bool
	version   bool
}

// parse reads the options. It prints the help to stderr.
func parse(args []string, stderr io.Writer) (s settings, err error) {
	f := flag.NewFlagSet("tutti-temporal", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&s.dir, "data-dir", "", "the `folder` of the database; it is created if it is missing")
	f.IntVar(&s.port, "port", 0, "the `port` on 127.0.0.1; 0 for that of the last time if it is free, and else any free one")
	f.StringVar(&s.namespace, "namespace", "default", "the `name` of the namespace that is registered at the start")
	f.IntVar(&s.days, "retention-days", 90, "how many `days` an ended workflow is kept; for a namespace that is new")
	f.BoolVar(&s.child, "child", false, "end when the standard input is closed, as it is when the parent ends")
	f.BoolVar(&s.version, "version", false, "print the versions of Temporal and of the database's schema")
	if err := f.Parse(args); err != nil {
		return s, err
	}
	switch {
	case s.version:
	case f.NArg() > 0:
		return s, fmt.Errorf("'%s' is not expected: there are only options, see --help", f.Arg(0))
	case s.dir == "":
		return s, errors.New("--data-dir is missing: name a folder for the database")
	case s.port < 0 || s.port > 65535:
		return s, fmt.Errorf("--port is %d, expected 0 to 65535", s.port)
	case s.days < 1:
		return s, fmt.Errorf("--retention-days is %d, expected 1 or more", s.days)
	}
	return s, nil
}

// run serves until ctx ends, or, as a child, until in is closed.
func run(ctx context.Context, args []string, in io.Reader, out, stderr io.Writer) error {
	s, err := parse(args, stderr)
	if err != nil {
		return err
	}
	if s.version {
		_, err = fmt.Fprintf(out, "temporal %s, schema %s\n", moduleVersion(), schemaVersion())
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if s.child {
		go func() {
			_, _ = io.Copy(io.Discard, in)
			cancel()
		}()
	}
	dir := filepath.Join(s.dir, "temporal")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("the folder of --data-dir cannot be made: %w", err)
	}
	lock, err := acquire(dir)
	if err != nil {
		return err
	}
	defer lock.Close() //nolint:errcheck // nothing was written through it
	debug.SetGCPercent(50)
	log := &logger{to: slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))}
	return serve(ctx, dir, s, log, out)
}

// serve opens the database and the server, reports the address, and stops both when ctx ends.
func serve(ctx context.Context, dir string, s settings, log *logger, out io.Writer) error {
	file := filepath.Join(dir, "temporal.db")
	if err := prepare(ctx, file); err != nil {
		return fmt.Errorf("database '%s': %w", file, err)
	}
	ports, err := choose(s.port, addressFile(dir))
	if err != nil {
		return err
	}
	server, err := open(file, s, ports, log)
	if err != nil {
		return err
	}
	if err := server.Start(); err != nil {
		return errors.Join(fmt.Errorf("Temporal does not start: %w", err), server.Stop())
	}
	address := fmt.Sprintf("%s:%d", loopback, ports.frontend)
	if err := await(ctx, address); err != nil {
		return errors.Join(err, server.Stop())
	}
	if err := announce(addressFile(dir), address); err != nil {
		return errors.Join(err, server.Stop())
	}
	if _, err := fmt.Fprintln(out, "ready", address); err != nil {
		return errors.Join(fmt.Errorf("the address cannot be printed: %w", err), server.Stop())
	}
	<-ctx.Done()
	log.quiet.Store(true)
	return server.Stop()
}
