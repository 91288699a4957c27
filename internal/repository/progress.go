package repository

import (
	"errors"
	"log/slog"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// logEvery is the number of bytes between two log lines about a download.
const logEvery = 256 << 20

// progress counts the downloaded bytes of a model.
type progress struct {
	model         string
	total         int64
	done, fetched atomic.Int64
	report        func(model string, done, total int64)
	log           *slog.Logger
}

// wrote adds n bytes. fetched is false for bytes that an earlier attempt left.
func (p *progress) wrote(n int64, fetched bool) {
	done := p.done.Add(n)
	if fetched {
		p.fetched.Add(n)
	}
	switch {
	case p.report != nil:
		p.report(p.model, done, p.total)
	case done/logEvery != (done-n)/logEvery:
		p.log.Info("fetching model goes on", slog.String("model", p.model), slog.Int64("bytes", done), slog.Int64("of", p.total))
	}
}

// tryLock acquires a lock between processes. It returns nil if another process holds it.
func tryLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) //nolint:gosec // in the cache
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) //nolint:gosec // a descriptor is small
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		return nil, f.Close()
	case err != nil:
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
